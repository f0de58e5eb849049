//! Requests one after another on one connection: the client waits for the whole response, pauses,
//! and sends the next request. Sizes of responses and pauses may differ by turns.

use units::{Bytes, Duration, Instant};

use super::{Command, Commands, ms};

/// A client that sends one request at a time, and the server that answers.
pub struct Requests {
    request: u64,
    /// Neither list is empty.
    responses: Vec<u64>,
    thinks: Vec<Duration>,
    answered: usize,
    received: usize,
    connection: Option<u32>,
    request_sent_at: Instant,
    server_bytes: u64,
    client_bytes: u64,
    awaiting: bool,
}

impl Requests {
    pub fn new(request: Bytes, responses: &[Bytes], thinks: &[Duration]) -> Requests {
        Requests {
            request: request.0.max(1),
            responses: responses.iter().map(|bytes| bytes.0.max(1)).collect(),
            thinks: thinks.to_vec(),
            answered: 0,
            received: 0,
            connection: None,
            request_sent_at: Instant::ZERO,
            server_bytes: 0,
            client_bytes: 0,
            awaiting: false,
        }
    }

    fn ask(&mut self, now: Instant, out: &mut Commands) {
        let Some(connection) = self.connection else { return };
        self.request_sent_at = now;
        self.client_bytes = 0;
        self.awaiting = true;
        out.push(Command::Write { connection, up: true, bytes: self.request });
    }

    /// Sends the first request.
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
            self.server_bytes += bytes;
            while self.server_bytes >= self.request {
                self.server_bytes -= self.request;
                let bytes = self.responses[self.answered % self.responses.len()];
                self.answered += 1;
                out.push(Command::Write { connection, up: false, bytes });
            }
            return;
        }
        self.client_bytes += bytes;
        if self.awaiting
            && self.client_bytes >= self.responses[self.received % self.responses.len()]
        {
            let think = self.thinks[self.received % self.thinks.len()];
            self.received += 1;
            self.awaiting = false;
            out.push(Command::Report {
                kind: "response_ms",
                value: ms(now.since(self.request_sent_at)),
            });
            out.push(Command::Wake(now + think));
        }
    }

    /// The pause is over: sends the next request.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.awaiting {
            self.ask(now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_timed_from_its_request_and_the_next_one_waits_for_the_pause() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut app = Requests::new(Bytes(100), &[Bytes(3_000)], &[Duration::from_millis(50)]);
        let mut out = Commands::new();
        app.on_opened(at(10), 7, &mut out);
        app.on_received(at(20), 7, true, 60, &mut out);
        assert!(matches!(out[..], [Command::Write { connection: 7, up: true, bytes: 100 }]));
        out.clear();
        // The server answers once the whole request has arrived.
        app.on_received(at(30), 7, true, 40, &mut out);
        assert!(matches!(out[..], [Command::Write { connection: 7, up: false, bytes: 3_000 }]));
        out.clear();
        app.on_received(at(40), 7, false, 2_999, &mut out);
        app.on_timer(at(45), &mut out);
        assert!(out.is_empty(), "neither a response nor a second request");
        app.on_received(at(50), 7, false, 1, &mut out);
        let [Command::Report { kind: "response_ms", value }, Command::Wake(wake)] = out[..] else {
            panic!("{out:?}");
        };
        assert_eq!((value, wake), (40.0, at(100)));
        out.clear();
        app.on_timer(wake, &mut out);
        assert!(matches!(out[..], [Command::Write { up: true, bytes: 100, .. }]));
    }
}
