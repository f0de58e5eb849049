//! Senders without requests: bulk, files, and data made at given rates.

use units::{Bytes, Duration, Instant, Rate};

use super::{Command, Commands, ms};

/// A sender that always has data.
#[derive(Default)]
pub struct Bulk {
    pub connection: Option<u32>,
}

/// A file, repeated where `every` is given; each on a connection of its own.
pub struct File {
    bytes: u64,
    every: Option<Duration>,
    connection: Option<u32>,
    started: Instant,
    client_bytes: u64,
    tag: u32,
    busy: bool,
}

impl File {
    pub fn new(bytes: Bytes, every: Option<Duration>) -> File {
        File {
            bytes: bytes.0,
            every,
            connection: None,
            started: Instant::ZERO,
            client_bytes: 0,
            tag: 0,
            busy: false,
        }
    }

    /// Opens the connection of the next file.
    pub fn on_start(&mut self, now: Instant, out: &mut Commands) {
        self.started = now;
        self.client_bytes = 0;
        self.busy = true;
        out.push(Command::Open { tag: self.tag });
        self.tag += 1;
    }

    pub fn on_opening(&mut self, connection: u32) {
        self.connection = Some(connection);
    }

    /// The file is written whole; the socket takes it bit by bit.
    pub fn on_opened(&mut self, connection: u32, out: &mut Commands) {
        out.push(Command::Write { connection, up: false, bytes: self.bytes });
        out.push(Command::Close { connection });
    }

    /// Counts the bytes that arrive; the last one ends the file.
    pub fn on_received(&mut self, now: Instant, up: bool, bytes: u64, out: &mut Commands) {
        if up || !self.busy {
            return;
        }
        self.client_bytes += bytes;
        if self.client_bytes >= self.bytes {
            self.busy = false;
            out.push(Command::Report { kind: "file_ms", value: ms(now.since(self.started)) });
            if let Some(every) = self.every {
                out.push(Command::Wake((self.started + every).max(now)));
            }
        }
    }

    /// Starts the next file, unless one is still under way.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.busy {
            self.on_start(now, out);
        }
    }
}

/// How often data that is made at a rate is written: often enough to look continuous beside a round
/// trip.
const WRITE_EVERY: Duration = Duration::from_millis(5);

/// Data made at given rates, one per slot, repeated.
pub struct Rates {
    rates: Vec<Rate>,
    slot: Duration,
    connection: Option<u32>,
    since: Option<Instant>,
    last: Instant,
    credit: u128,
}

impl Rates {
    pub fn new(rates: Vec<Rate>, slot: Duration) -> Rates {
        Rates { rates, slot, connection: None, since: None, last: Instant::ZERO, credit: 0 }
    }

    pub fn on_opening(&mut self, connection: u32) {
        self.connection = Some(connection);
    }

    /// The first slot begins.
    pub fn on_opened(&mut self, now: Instant, out: &mut Commands) {
        self.since = Some(now);
        self.last = now;
        out.push(Command::Wake(now + WRITE_EVERY));
    }

    /// Writes what was made since the last time.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        let (Some(since), Some(connection)) = (self.since, self.connection) else { return };
        let slots = self.rates.len().max(1) as u64;
        let index = (self.last.since(since).0 / self.slot.0.max(1)) % slots;
        let rate = self.rates.get(index as usize).map_or(0, |r| r.0);
        self.credit += u128::from(rate) * u128::from(now.since(self.last).0);
        self.last = now;
        let bytes = (self.credit / 8_000_000_000) as u64;
        self.credit %= 8_000_000_000;
        if bytes > 0 {
            out.push(Command::Write { connection, up: false, bytes });
        }
        out.push(Command::Wake(now + WRITE_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_file_is_followed_at_once_and_an_early_one_at_its_time() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        for (done, next) in [(40, 100), (250, 250)] {
            let mut app = File::new(Bytes(1_000), Some(Duration::from_millis(100)));
            let mut out = Commands::new();
            app.on_start(at(0), &mut out);
            app.on_received(at(done), false, 999, &mut out);
            assert!(matches!(out[..], [Command::Open { tag: 0 }]));
            app.on_received(at(done), false, 1, &mut out);
            let [_, Command::Report { kind: "file_ms", value }, Command::Wake(wake)] = out[..]
            else {
                panic!("{out:?}");
            };
            assert_eq!((value, wake), (done as f64, at(next)));
        }
    }

    #[test]
    fn data_made_at_a_rate_adds_up_to_it_over_every_slot() {
        // 8 Mbit/s and silence by turns of 10 ms: 10,000 bytes every 20 ms.
        let mut app = Rates::new(vec![Rate(8_000_000), Rate(0)], Duration::from_millis(10));
        let (mut out, mut written, mut now) = (Commands::new(), 0, Instant::ZERO);
        app.on_opening(1);
        app.on_opened(now, &mut out);
        while now < Instant(100_000_000) {
            let Some(Command::Wake(at)) = out.pop() else { panic!("it wakes itself") };
            now = at;
            app.on_timer(now, &mut out);
            if let Some(Command::Write { up: false, bytes, .. }) = out.first() {
                written += bytes;
            }
            out.drain(..out.len() - 1);
        }
        assert_eq!(written, 50_000);
    }
}
