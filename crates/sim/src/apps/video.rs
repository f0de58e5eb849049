//! Adaptive video over HTTP: segments of fixed play time, at the best rate that the measured
//! throughput carries.
//!
//! signal: arrival times of segments · model: a rate-based player as ExoPlayer's default is one:
//! throughput from a segment's first bytes to its last, smoothed over segments, a share of it used,
//! the buffer filled up to a limit; playing stops when it runs dry and goes on when the start
//! buffer is there again · action: start-up delay, stalls, bit rate.

use units::{Duration, Instant, Rate};

use super::{Command, Commands, ms};

/// Weight of the newest segment in the throughput estimate; of the size that players use for
/// segments of seconds.
const NEWEST: f64 = 0.3;
/// Bytes of a request with its headers.
const REQUEST: u64 = 400;

/// A player and its server.
pub struct Video {
    ladder: Vec<Rate>,
    segment: Duration,
    start_buffer: Duration,
    max_buffer: Duration,
    safety: f64,
    connection: Option<u32>,
    started: Instant,
    /// When the segment's first bytes came.
    first: Option<Instant>,
    size: u64,
    client_bytes: u64,
    server_bytes: u64,
    awaiting: bool,
    estimate: Option<f64>,
    rate: Rate,
    /// Play time buffered at `at`.
    buffered: Duration,
    at: Instant,
    playing: bool,
    stalled_since: Option<Instant>,
    begun: bool,
}

impl Video {
    pub fn new(
        ladder: Vec<Rate>,
        segment: Duration,
        start_buffer: Duration,
        max_buffer: Duration,
        safety: f64,
    ) -> Video {
        let rate = ladder.first().copied().unwrap_or(Rate(1));
        Video {
            ladder,
            segment,
            start_buffer,
            max_buffer,
            safety,
            connection: None,
            started: Instant::ZERO,
            first: None,
            size: 0,
            client_bytes: 0,
            server_bytes: 0,
            awaiting: false,
            estimate: None,
            rate,
            buffered: Duration::ZERO,
            at: Instant::ZERO,
            playing: false,
            stalled_since: None,
            begun: false,
        }
    }

    /// The viewer presses play.
    pub fn on_start(&mut self, now: Instant, out: &mut Commands) {
        self.started = now;
        self.at = now;
        out.push(Command::Open { tag: 0 });
    }

    /// The first segment is request_sent_at for.
    pub fn on_opened(&mut self, now: Instant, connection: u32, out: &mut Commands) {
        self.connection = Some(connection);
        self.ask(now, out);
    }

    /// Moves the play head to now.
    fn play(&mut self, now: Instant) {
        let passed = now.since(self.at);
        self.at = now;
        if !self.playing {
            return;
        }
        if passed >= self.buffered {
            let over = passed.saturating_sub(self.buffered);
            self.stalled_since = Some(now - over);
            self.playing = false;
            self.buffered = Duration::ZERO;
        } else {
            self.buffered = self.buffered.saturating_sub(passed);
        }
    }

    fn ask(&mut self, now: Instant, out: &mut Commands) {
        let Some(connection) = self.connection else { return };
        self.play(now);
        if self.buffered + self.segment > self.max_buffer && self.playing {
            let over = (self.buffered + self.segment).saturating_sub(self.max_buffer);
            out.push(Command::Wake(now + over.max(Duration::from_millis(1))));
            return;
        }
        if let Some(estimate) = self.estimate {
            let budget = estimate * self.safety;
            let fits = self.ladder.iter().rev().find(|r| r.0 as f64 <= budget);
            self.rate = fits.or(self.ladder.first()).copied().unwrap_or(self.rate);
        }
        self.size = (self.rate * self.segment).0.max(1);
        self.client_bytes = 0;
        self.first = None;
        self.awaiting = true;
        out.push(Command::Report { kind: "bitrate_bps", value: self.rate.0 as f64 });
        out.push(Command::Write { connection, up: true, bytes: REQUEST });
    }

    /// A request reached the server, or part of a segment the player.
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
            if self.server_bytes >= REQUEST {
                self.server_bytes -= REQUEST;
                out.push(Command::Write { connection, up: false, bytes: self.size });
            }
            return;
        }
        let first = *self.first.get_or_insert(now);
        self.client_bytes += bytes;
        if !self.awaiting || self.client_bytes < self.size {
            return;
        }
        self.awaiting = false;
        // ExoPlayer's meter runs from the answer's beginning, not from the request: a long round
        // trip before it does not count. A segment that takes less than the clock's millisecond
        // gives no rate.
        let span = now.since(first);
        if span >= Duration::from_millis(1) {
            let seen = self.size as f64 * 8.0 / span.as_secs_f64();
            self.estimate = Some(self.estimate.map_or(seen, |e| e + NEWEST * (seen - e)));
        }
        self.play(now);
        self.buffered += self.segment;
        if !self.playing && self.buffered >= self.start_buffer {
            self.playing = true;
            if let Some(since) = self.stalled_since.take() {
                out.push(Command::Report { kind: "stall_ms", value: ms(now.since(since)) });
            } else if !self.begun {
                self.begun = true;
                out.push(Command::Report {
                    kind: "startup_ms",
                    value: ms(now.since(self.started)),
                });
            }
        }
        self.ask(now, out);
    }

    /// The buffer has headroom for a segment again.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.awaiting {
            self.ask(now, out);
        }
    }

    /// Reports an unfinished stall, or an unfinished start-up, with its length so far.
    pub fn on_end(&mut self, now: Instant, out: &mut Commands) {
        self.play(now);
        if let Some(since) = self.stalled_since.take() {
            out.push(Command::Report { kind: "stall_ms", value: ms(now.since(since)) });
        } else if !self.begun {
            out.push(Command::Report {
                kind: "startup_unfinished_ms",
                value: ms(now.since(self.started)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_round_trip_before_the_answer_does_not_lower_the_estimate() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let second = Duration::from_secs(1);
        let rates = vec![Rate(100_000), Rate(400_000), Rate(900_000)];
        let mut video = Video::new(rates, second, second, Duration::from_secs(30), 0.8);
        let mut out = Commands::new();
        video.on_start(at(0), &mut out);
        video.on_opened(at(0), 1, &mut out);
        // 12,500 bytes, request_sent_at for at 0, from 900 to 1,000 ms: 1 Mbit/s, of which 0.8 are
        // used.
        video.on_received(at(900), 1, false, 500, &mut out);
        video.on_received(at(1_000), 1, false, 12_000, &mut out);
        assert_eq!(video.rate, Rate(400_000));
    }

    #[test]
    fn a_stall_lasts_from_the_empty_buffer_to_the_next_segment() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let second = Duration::from_secs(1);
        let mut video = Video::new(vec![Rate(8_000)], second, second, second * 30, 0.8);
        let mut out = Commands::new();
        video.on_start(at(0), &mut out);
        video.on_opened(at(100), 1, &mut out);
        // A segment of 1,000 bytes is a second of play time: it plays from 300 to 1,300 ms.
        for when in [300, 2_000] {
            video.on_received(at(when), 1, false, 1_000, &mut out);
        }
        let reports: Vec<(&str, f64)> = out
            .iter()
            .filter_map(|c| match c {
                Command::Report { kind, value } if *kind != "bitrate_bps" => Some((*kind, *value)),
                _ => None,
            })
            .collect();
        assert_eq!(reports, [("startup_ms", 300.0), ("stall_ms", 700.0)]);
        // Play time ends at 3,000 ms; the run ends within the next stall.
        out.clear();
        video.on_end(at(3_400), &mut out);
        assert!(matches!(out[..], [Command::Report { kind: "stall_ms", value: 400.0 }]), "{out:?}");
    }
}
