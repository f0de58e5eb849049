//! Requests one after another on one connection.

use units::{Bytes, Duration, Instant};

use super::{Command, Commands, ms};

/// See the module text.
pub struct Requests {
    request: u64,
    response: u64,
    think: Duration,
    connection: Option<u32>,
    asked: Instant,
    heard: u64,
    got: u64,
    waiting: bool,
}

impl Requests {
    /// Not begun.
    pub fn new(request: Bytes, response: Bytes, think: Duration) -> Requests {
        Requests {
            request: request.0.max(1),
            response: response.0.max(1),
            think,
            connection: None,
            asked: Instant::ZERO,
            heard: 0,
            got: 0,
            waiting: false,
        }
    }

    fn ask(&mut self, now: Instant, out: &mut Commands) {
        let Some(connection) = self.connection else { return };
        self.asked = now;
        self.got = 0;
        self.waiting = true;
        out.push(Command::Write { connection, up: true, bytes: self.request });
    }

    /// The first request.
    pub fn on_opened(&mut self, now: Instant, connection: u32, out: &mut Commands) {
        self.connection = Some(connection);
        self.ask(now, out);
    }

    /// A request reached the server, or an answer the client.
    pub fn on_received(
        &mut self,
        now: Instant,
        connection: u32,
        up: bool,
        bytes: u64,
        out: &mut Commands,
    ) {
        if up {
            self.heard += bytes;
            while self.heard >= self.request {
                self.heard -= self.request;
                out.push(Command::Write { connection, up: false, bytes: self.response });
            }
            return;
        }
        self.got += bytes;
        if self.waiting && self.got >= self.response {
            self.waiting = false;
            out.push(Command::Tell { kind: "response_ms", value: ms(now.since(self.asked)) });
            out.push(Command::Wake(now + self.think));
        }
    }

    /// Thought long enough.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.waiting {
            self.ask(now, out);
        }
    }
}
