//! The control connection of a test: it follows the server's states.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::message::{COOKIE, MAX_TEXT, Parameters, Results, State, cookie};
use crate::client::Failure;
use crate::load::LOOK;
use crate::wire::keys::random;

/// Until the server goes on. Longer than the queue of any link.
const WAIT: Duration = Duration::from_secs(10);

/// A test that the server takes.
pub struct Control {
    socket: TcpStream,
    /// Where it is.
    pub server: SocketAddr,
    cookie: [u8; COOKIE],
}

impl Control {
    /// Asks for a test, until the server waits for its streams.
    pub fn begin(socket: TcpStream, wanted: &Parameters<'_>) -> Result<Control, Failure> {
        let broken = |e: io::Error| Failure::NoServer(format!("it is no server of iperf3: {e}"));
        let server = socket.peer_addr().map_err(broken)?;
        let cookie = cookie(&random().map_err(broken)?);
        let mut control = Control { socket, server, cookie };
        control.socket.set_nodelay(true).map_err(broken)?;
        control.socket.set_read_timeout(Some(WAIT)).map_err(broken)?;
        control.socket.write_all(&cookie).map_err(broken)?;
        control.expect(State::Parameters)?;
        control.write_text(&wanted.text()).map_err(broken)?;
        control.expect(State::Streams)?;
        Ok(control)
    }

    /// One of the streams. They have to be opened one after the other, in the order of the directions.
    pub fn stream(&self) -> io::Result<TcpStream> {
        let mut socket = TcpStream::connect_timeout(&self.server, WAIT)?;
        socket.write_all(&self.cookie)?;
        Ok(socket)
    }

    /// Until data may flow.
    pub fn running(&mut self) -> Result<(), Failure> {
        self.expect(State::Start)?;
        self.expect(State::Running)
    }

    /// Whether the server has ended it meanwhile, and why.
    pub fn over(&mut self) -> Option<String> {
        let _ = self.socket.set_nonblocking(true);
        let mut byte = [0];
        let read = self.socket.read(&mut byte);
        let _ = self.socket.set_nonblocking(false);
        match read {
            Ok(0) => Some("the server closed the connection".to_owned()),
            Ok(_) => Some("the server ended the test".to_owned()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(e) => Some(format!("the server is gone ({})", e.kind())),
        }
    }

    /// Ends the test, in order: what the server saw.
    pub fn end(mut self, own: &Results) -> Option<Results> {
        self.say(State::End).ok()?;
        self.expect(State::Results).ok()?;
        self.write_text(&serde_json::to_value(own).ok()?).ok()?;
        let found = Results::read(&self.read_text().ok()?);
        self.expect(State::Display).ok()?;
        self.say(State::Done).ok()?;
        found
    }

    fn say(&mut self, state: State) -> io::Result<()> {
        self.socket.write_all(&[state.byte()])
    }

    fn expect(&mut self, wanted: State) -> Result<(), Failure> {
        let mut byte = [0];
        self.read(&mut byte).map_err(|e| {
            Failure::NoServer(format!(
                "{} is no server of iperf3, or is gone ({})",
                self.server,
                e.kind()
            ))
        })?;
        match State::of(byte[0]) {
            Some(state) if state == wanted => Ok(()),
            Some(State::Denied) => Err(Failure::Refused("another client measures".to_owned())),
            Some(State::Failed) => {
                // Two numbers: its own, and the system's.
                let mut numbers = [0; 8];
                let own = match self.read(&mut numbers) {
                    Ok(()) => u32::from_be_bytes([numbers[0], numbers[1], numbers[2], numbers[3]]),
                    Err(_) => 0,
                };
                Err(Failure::Refused(format!("error {own} of iperf3")))
            }
            _ => Err(Failure::NoServer(format!("{} is no server of iperf3", self.server))),
        }
    }

    fn write_text(&mut self, text: &Value) -> io::Result<()> {
        let text = text.to_string();
        let length = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
        self.socket.write_all(&[&length.to_be_bytes()[..], text.as_bytes()].concat())
    }

    fn read_text(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_TEXT {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; length];
        self.read(&mut text)?;
        Ok(text)
    }

    /// All of it, in `WAIT`.
    fn read(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        let until = Instant::now() + WAIT;
        while !into.is_empty() {
            let left = until.saturating_duration_since(Instant::now()).max(LOOK);
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(had) => into = &mut into[had..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if Instant::now() >= until && !into.is_empty() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}
