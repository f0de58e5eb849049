//! The control socket: JSON lines on a Unix socket that only root may open.
//!
//! signal: `{"ask": …}` of `on`, `off`, `status` · model: one line is one question · action: one line is the answer, with `"ok"`. A client
//! that is slow or silent delays nobody: sockets are never waited for.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use serde_json::{Value, json};

/// More are refused.
const MOST_CLIENTS: usize = 32;
/// A question is not longer.
const LONGEST: usize = 1 << 20;

/// A client, and what came from him so far.
struct Client {
    stream: UnixStream,
    text: Vec<u8>,
    answers: Vec<u8>,
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

    /// For poll: who might have something to say.
    pub fn sources(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        std::iter::once(self.listener.as_fd()).chain(self.clients.iter().map(|c| c.stream.as_fd())).collect()
    }

    /// The questions that have arrived whole.
    pub fn questions(&mut self) -> Vec<Question> {
        while let Ok((stream, _)) = self.listener.accept() {
            let root = getsockopt(&stream, sockopt::PeerCredentials).is_ok_and(|peer| peer.uid() == 0);
            if root && self.clients.len() < MOST_CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, text: Vec::new(), answers: Vec::new() });
            }
        }
        self.clients.retain_mut(Client::hears);
        let mut found = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            found.extend(lines(&mut client.text).into_iter().map(|value| Question { value, client: number }));
        }
        found
    }

    /// Answers a question of the last [`Control::questions`].
    pub fn answer(&mut self, question: &Question, answer: &Value) {
        if let Some(client) = self.clients.get_mut(question.client) {
            client.answers.extend_from_slice(format!("{answer}\n").as_bytes());
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
    /// Reads what there is; whether he is still there.
    fn hears(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(n) => self.text.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.text.len() > LONGEST {
                return false;
            }
        }
        self.tells()
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
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
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
