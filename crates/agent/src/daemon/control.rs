//! The control socket: JSON lines on a Unix socket that only root may open.
//!
//! signal: `{"ask": …}` of `on`, `off`, `status` · model: one line is one question · action: one line is the answer, with `"ok"`. A client
//! that is slow or silent delays nobody: sockets are never waited for, nobody is heard before he has read what he was told, and a newer
//! client pushes the oldest out.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::socket::{getsockopt, sockopt};
use serde_json::{Value, json};

/// A newer one pushes the oldest out.
const MOST_CLIENTS: usize = 32;
/// A question is not longer.
const LONGEST: usize = 1 << 20;

/// A client, and what came from him so far.
struct Client {
    stream: UnixStream,
    text: Vec<u8>,
    questions: VecDeque<Value>,
    answers: Vec<u8>,
    /// He says nothing more, but may wait for an answer.
    ended: bool,
}

/// The daemon's side.
pub struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
}

/// A question that wants an answer.
pub struct Question {
    /// What is asked.
    pub value: Value,
    client: usize,
}

impl Control {
    /// Listens. A socket that a dead daemon left is replaced: who calls has the lock.
    pub fn listen(path: &Path) -> io::Result<Control> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The directory is root's alone, so nobody came in before this.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener, clients: Vec::new() })
    }

    /// For poll: who might have something to say, or to hear.
    pub fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let clients = self.clients.iter().map(|client| (client.stream.as_fd(), client.waits_for()));
        std::iter::once((self.listener.as_fd(), PollFlags::POLLIN)).chain(clients).collect()
    }

    /// Whether a question is here already that nobody has been asked yet.
    pub fn waiting(&self) -> bool {
        self.clients.iter().any(|client| client.answers.is_empty() && !client.questions.is_empty())
    }

    /// Of each client that has read his last answer, the next question.
    pub fn questions(&mut self) -> Vec<Question> {
        // Of a flood, no more at a time than there is room for.
        for (stream, _) in std::iter::from_fn(|| self.listener.accept().ok()).take(MOST_CLIENTS) {
            let root =
                getsockopt(&stream, sockopt::PeerCredentials).is_ok_and(|peer| peer.uid() == 0);
            if root && stream.set_nonblocking(true).is_ok() {
                if self.clients.len() >= MOST_CLIENTS {
                    self.clients.remove(0);
                }
                let (text, questions, answers) = Default::default();
                self.clients.push(Client { stream, text, questions, answers, ended: false });
            }
        }
        self.clients.retain_mut(Client::stays);
        let each = self.clients.iter_mut().enumerate();
        each.filter_map(|(number, client)| Some(Question { value: client.asks()?, client: number }))
            .collect()
    }

    /// Answers a question of the last [`Control::questions`].
    pub fn answer(&mut self, question: &Question, answer: &Value) {
        if let Some(client) = self.clients.get_mut(question.client) {
            client.answers.extend_from_slice(format!("{answer}\n").as_bytes());
            // Who has gone is found out when he is heard.
            client.tells();
        }
    }
}

/// Takes the lines that are whole; one that is no JSON is null.
pub fn lines(text: &mut Vec<u8>) -> Vec<Value> {
    // All at once: line by line, a megabyte of empty lines would be moved a million times.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let taken: Vec<u8> = text.drain(..whole).collect();
    let each = taken.split_inclusive(|byte| *byte == b'\n');
    each.map(|line| serde_json::from_slice(line).unwrap_or(Value::Null)).collect()
}

impl Client {
    fn waits_for(&self) -> PollFlags {
        match (self.answers.is_empty(), self.ended || !self.questions.is_empty()) {
            (false, _) => PollFlags::POLLOUT,
            (true, false) => PollFlags::POLLIN,
            // Only errors, which are always told.
            (true, true) => PollFlags::empty(),
        }
    }

    /// Whether there is something to say to him, or to hear.
    fn stays(&mut self) -> bool {
        if !self.tells() {
            return false;
        }
        // Who does not read is not heard: the questions of a slow client do not pile up here.
        if !self.answers.is_empty() || !self.questions.is_empty() {
            return true;
        }
        let well = self.hears();
        self.questions.extend(lines(&mut self.text));
        well && !(self.ended && self.questions.is_empty())
    }

    /// The next question, when the last one is answered.
    fn asks(&mut self) -> Option<Value> {
        if self.answers.is_empty() { self.questions.pop_front() } else { None }
    }

    /// Reads what there is; whether that was all right.
    fn hears(&mut self) -> bool {
        let mut buffer = [0; 4096];
        while !self.ended {
            match self.stream.read(&mut buffer) {
                // He may have closed his side only.
                Ok(0) => self.ended = true,
                Ok(n) => self.text.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.text.len() > LONGEST {
                return false;
            }
        }
        true
    }

    /// Writes what goes; whether he is still there.
    fn tells(&mut self) -> bool {
        while !self.answers.is_empty() {
            match self.stream.write(&self.answers) {
                Ok(n) => drop(self.answers.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// Asks a daemon, if there is one; none if nobody listens.
pub fn ask(path: &Path, question: &Value, patience: Duration) -> io::Result<Option<Value>> {
    let mut stream = match UnixStream::connect(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        other => other?,
    };
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the agent ended while it was asked"));
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::other)
}

/// An answer that something went wrong.
pub fn failure(why: impl std::fmt::Display) -> Value {
    json!({"ok": false, "error": why.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("ub-control-{}-{name}", std::process::id()))
    }

    /// What the daemon's loop does in a few turns.
    fn turn(control: &mut Control, answer: &Value) -> usize {
        let mut heard = 0;
        for _ in 0..20 {
            for question in control.questions() {
                heard += 1;
                control.answer(&question, answer);
            }
        }
        heard
    }

    #[test]
    fn who_does_not_read_is_not_heard_and_delays_nobody() {
        let path = place("slow");
        let mut control = Control::listen(&path).unwrap();
        let long = json!({"ok": true, "flows": "x".repeat(1 << 20)});
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all("{\"ask\": \"status\"}\n".repeat(1_000).as_bytes()).unwrap();
        assert_eq!(turn(&mut control, &long), 1, "one answer is enough for who does not read it");
        assert!(
            control.sources()[1].1.contains(PollFlags::POLLOUT),
            "the rest is told as soon as he reads"
        );
        let mut quick = UnixStream::connect(&path).unwrap();
        quick.write_all(b"{}\n{}\n").unwrap();
        assert_eq!(turn(&mut control, &json!({"ok": true})), 2);
        let mut reader = BufReader::new(slow);
        let (mut line, mut told) = (String::new(), 0);
        reader.get_mut().set_nonblocking(true).unwrap();
        while told < 2 {
            turn(&mut control, &long);
            match reader.read_line(&mut line) {
                Ok(_) => told += 1,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(line.len() > 2 << 20);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_closes_his_side_behind_a_question_is_answered() {
        let path = place("half");
        let mut control = Control::listen(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"ask\": \"status\"}\n{\"ask\": \"of").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(turn(&mut control, &json!({"ok": true})), 1);
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "{\"ok\":true}\n");
        assert_eq!(control.sources().len(), 1, "nobody is left");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn silent_clients_lock_nobody_out() {
        let path = place("full");
        let mut control = Control::listen(&path).unwrap();
        let silent: Vec<UnixStream> =
            (0..MOST_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(turn(&mut control, &Value::Null), 0);
        let mut one = UnixStream::connect(&path).unwrap();
        one.write_all(b"{}\n").unwrap();
        assert_eq!(turn(&mut control, &Value::Null), 1);
        assert_eq!(control.sources().len(), 1 + MOST_CLIENTS);
        drop(silent);
        std::fs::remove_file(path).unwrap();
    }
}
