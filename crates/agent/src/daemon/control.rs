//! The control socket: JSON lines on a Unix socket that only root may open.
//!
//! One line is one request (`{"ask": …}`), one line its reply, with `"ok"`. A slow or silent client
//! delays no other: sockets do not block, the next request is read only after the previous reply
//! was consumed, and a new client replaces the oldest when there are too many.

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

use crate::undo::lease::lease;

/// Most clients at a time; a new one replaces the oldest. A few commands and watching screens run
/// at once, and 32 descriptors cost nothing.
const MAX_CLIENTS: usize = 32;
/// A client waits for so long after the time at which its request expires: the daemon has answered
/// every request by then that it has carried out, unless that itself takes longer.
const MARGIN: Duration = Duration::from_millis(500);
/// Longest request, bytes: far longer than all settings together.
const MAX_REQUEST: usize = 1 << 20;

/// A client of the socket.
struct Client {
    stream: UnixStream,
    /// Bytes received, not yet a whole line.
    text: Vec<u8>,
    requests: VecDeque<Value>,
    /// Bytes of replies that are not written yet.
    replies: Vec<u8>,
    /// It sends nothing more, but may wait for a reply.
    ended: bool,
}

/// The listening socket and its clients.
pub struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
}

/// A request that waits for its reply.
pub struct Question {
    /// The request, as the client sent it (JSON).
    pub value: Value,
    /// The client has closed its connection, or its sending side.
    pub gone: bool,
    client: usize,
}

impl Question {
    /// Whether the client no longer waits for an answer. `now_ns`: CLOCK_MONOTONIC, as in the
    /// request.
    pub fn late(&self, now_ns: u64) -> bool {
        self.value["until_ns"].as_u64().is_some_and(|until_ns| now_ns > until_ns)
    }
}

impl Control {
    /// Listens. A socket that a dead daemon left is replaced: the caller has the lock.
    pub fn listen(path: &Path) -> io::Result<Control> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The directory is root's alone, so no other user could connect before this.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener, clients: Vec::new() })
    }

    /// Descriptors and events for poll.
    pub fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let clients = self.clients.iter().map(|client| (client.stream.as_fd(), client.waits_for()));
        std::iter::once((self.listener.as_fd(), PollFlags::POLLIN)).chain(clients).collect()
    }

    /// Whether a request was received that [`Control::questions`] has not returned yet.
    pub fn waiting(&self) -> bool {
        self.clients.iter().any(|client| client.replies.is_empty() && !client.requests.is_empty())
    }

    /// The next request of each client that has read its last reply.
    pub fn questions(&mut self) -> Vec<Question> {
        // Of a flood of clients, no more at a time than are kept.
        for (stream, _) in std::iter::from_fn(|| self.listener.accept().ok()).take(MAX_CLIENTS) {
            let root =
                getsockopt(&stream, sockopt::PeerCredentials).is_ok_and(|peer| peer.uid() == 0);
            if root && stream.set_nonblocking(true).is_ok() {
                if self.clients.len() >= MAX_CLIENTS {
                    self.clients.remove(0);
                }
                let (text, requests, replies) = Default::default();
                self.clients.push(Client { stream, text, requests, replies, ended: false });
            }
        }
        self.clients.retain_mut(Client::keep);
        let each = self.clients.iter_mut().enumerate();
        each.filter_map(|(number, client)| {
            Some(Question { value: client.next_request()?, gone: client.ended, client: number })
        })
        .collect()
    }

    /// Replies to a request of the last [`Control::questions`].
    pub fn answer(&mut self, question: &Question, answer: &Value) {
        if let Some(client) = self.clients.get_mut(question.client) {
            client.replies.extend_from_slice(format!("{answer}\n").as_bytes());
            // A client that is gone is noticed when it is read next.
            client.flush();
        }
    }
}

/// Removes the complete lines; one that is not JSON is null.
pub fn lines(text: &mut Vec<u8>) -> Vec<Value> {
    // All at once: line by line, a megabyte of empty lines would be moved a million times.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let taken: Vec<u8> = text.drain(..whole).collect();
    let each = taken.split_inclusive(|byte| *byte == b'\n');
    each.map(|line| serde_json::from_slice(line).unwrap_or(Value::Null)).collect()
}

impl Client {
    fn waits_for(&self) -> PollFlags {
        match (self.replies.is_empty(), self.ended || !self.requests.is_empty()) {
            (false, _) => PollFlags::POLLOUT,
            (true, false) => PollFlags::POLLIN,
            // Only errors, which poll always reports.
            (true, true) => PollFlags::empty(),
        }
    }

    /// Writes and reads what it can; whether the client is kept.
    fn keep(&mut self) -> bool {
        if !self.flush() {
            return false;
        }
        // A client that does not read its replies is not read: its requests do not pile up here.
        if !self.replies.is_empty() || !self.requests.is_empty() {
            return true;
        }
        let ok = self.read();
        self.requests.extend(lines(&mut self.text));
        ok && !(self.ended && self.requests.is_empty())
    }

    /// The next request, once the last reply is written.
    fn next_request(&mut self) -> Option<Value> {
        if self.replies.is_empty() { self.requests.pop_front() } else { None }
    }

    /// Reads what has arrived; false on an error or a request that is too long.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        while !self.ended {
            match self.stream.read(&mut buffer) {
                // It may have closed its sending side only.
                Ok(0) => self.ended = true,
                Ok(n) => self.text.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.text.len() > MAX_REQUEST {
                return false;
            }
        }
        true
    }

    /// Writes what the socket takes; whether the client is still there.
    fn flush(&mut self) -> bool {
        while !self.replies.is_empty() {
            match self.stream.write(&self.replies) {
                Ok(n) => drop(self.replies.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// Sends a request to a daemon: its reply, or none if no daemon listens. The request expires after
/// `timeout`: a daemon that is busy for longer does not carry it out afterwards.
pub fn ask(path: &Path, question: &Value, timeout: Duration) -> io::Result<Option<Value>> {
    let mut stream = match UnixStream::connect(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        other => other?,
    };
    stream.set_read_timeout(Some(timeout + MARGIN))?;
    let mut question = question.clone();
    question["until_ns"] = json!(lease(timeout));
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the agent ended while it was asked"));
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::other)
}

/// The reply that something went wrong.
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
        let mut received = 0;
        for _ in 0..20 {
            for question in control.questions() {
                received += 1;
                control.answer(&question, answer);
            }
        }
        received
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_and_delays_no_other() {
        let path = place("slow");
        let mut control = Control::listen(&path).unwrap();
        let long = json!({"ok": true, "flows": "x".repeat(1 << 20)});
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all("{\"ask\": \"status\"}\n".repeat(1_000).as_bytes()).unwrap();
        assert_eq!(turn(&mut control, &long), 1, "one reply for a client that does not read it");
        assert!(
            control.sources()[1].1.contains(PollFlags::POLLOUT),
            "the rest is written as soon as it reads"
        );
        let mut quick = UnixStream::connect(&path).unwrap();
        quick.write_all(b"{}\n{}\n").unwrap();
        assert_eq!(turn(&mut control, &json!({"ok": true})), 2);
        let mut reader = BufReader::new(slow);
        let (mut line, mut replies) = (String::new(), 0);
        reader.get_mut().set_nonblocking(true).unwrap();
        while replies < 2 {
            turn(&mut control, &long);
            match reader.read_line(&mut line) {
                Ok(_) => replies += 1,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(line.len() > 2 << 20);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_client_that_closes_its_sending_side_gets_its_reply() {
        let path = place("half");
        let mut control = Control::listen(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"ask\": \"status\"}\n{\"ask\": \"of").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(turn(&mut control, &json!({"ok": true})), 1);
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "{\"ok\":true}\n");
        assert_eq!(control.sources().len(), 1, "no client is left");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_request_says_when_it_expires_and_whether_its_client_is_gone() {
        let path = place("late");
        let mut control = Control::listen(&path).unwrap();
        let asking = std::thread::spawn({
            let path = path.clone();
            move || ask(&path, &json!({"ask": "hand over"}), Duration::from_millis(200))
        });
        let mut question = None;
        while question.is_none() {
            question = control.questions().pop();
        }
        let question = question.unwrap();
        let until_ns = question.value["until_ns"].as_u64().unwrap();
        assert!(!question.gone && !question.late(until_ns) && question.late(until_ns + 1));
        assert!(until_ns <= lease(Duration::from_millis(200)));
        // In its last moment it is still carried out, and the client still waits for that.
        std::thread::sleep(Duration::from_millis(250));
        control.answer(&question, &json!({"ok": true}));
        assert_eq!(asking.join().unwrap().unwrap(), Some(json!({"ok": true})));
        let mut killed = UnixStream::connect(&path).unwrap();
        killed.write_all(b"{\"ask\": \"hand over\"}\n").unwrap();
        drop(killed);
        let question = control.questions().pop().unwrap();
        assert!(question.gone && !question.late(u64::MAX), "without a time it never expires");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn silent_clients_lock_no_other_out() {
        let path = place("full");
        let mut control = Control::listen(&path).unwrap();
        let silent: Vec<UnixStream> =
            (0..MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(turn(&mut control, &Value::Null), 0);
        let mut one = UnixStream::connect(&path).unwrap();
        one.write_all(b"{}\n").unwrap();
        assert_eq!(turn(&mut control, &Value::Null), 1);
        assert_eq!(control.sources().len(), 1 + MAX_CLIENTS);
        drop(silent);
        std::fs::remove_file(path).unwrap();
    }
}
