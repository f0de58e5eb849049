//! Linux dynamic right-sizing (DRS), as kernel 6.18 does it: a window that only ever grows.
//!
//! signal: bytes that the application read within one RTT · model: that was the sender's congestion
//! window, and it may have doubled since · action: the buffer grows to twice that (more during slow
//! start), up to the third value of `tcp_rmem`. The window follows the buffer, by two segments per
//! segment received.
//!
//! Sources: Linux 6.18 `net/ipv4/tcp_input.c`: `tcp_init_buffer_space`, `tcp_grow_window`,
//! `tcp_rcv_rtt_update`, `tcp_rcv_space_adjust`, `tcp_rcvbuf_grow` (its form with two arguments);
//! Fisk and Feng, "Dynamic right-sizing in TCP", 2001. DRWA (section 5) replaces it.
//!
//! Deviations: memory pressure, `tcp_shrink_window` and `SO_RCVBUF` are left out (scenarios have
//! `fixed` for a locked buffer). The scaling ratio is a parameter; Linux measures it from the memory
//! of each segment. Time is in nanoseconds; Linux counts microseconds.

use units::{Bytes, Duration, Instant};

use super::{Cause, Sample, Setup, State, WindowControl, WindowRtt};

/// Name in the table.
pub const NAME: &str = "autotune";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "Linux dynamic right-sizing: the buffer follows twice what was read per RTT, and never shrinks";
/// Where it is specified.
pub const SOURCE: &str = "Linux 6.18 tcp_rcv_space_adjust, tcp_rcvbuf_grow";

config! {
    /// `tcp_rmem`, and the payload per byte of it.
    pub struct Config {
        /// Buffer of a new connection, second value of `tcp_rmem`: 131,072 bytes by Linux's default.
        initial: Bytes = Bytes(131_072), Bytes(4_096), Bytes(1 << 30);
        /// Largest buffer, third value of `tcp_rmem`: 32 MiB in Linux 6.18, 6 MiB in most before it.
        max: Bytes = Bytes(33_554_432), Bytes(4_096), Bytes(1 << 30);
        /// Payload per byte of buffer: `scaling_ratio` / 256. Linux starts with 128 of 256 (since 6.6); 160 was measured
        /// with full segments over a TUN device.
        ratio: f64 = 0.5, 0.05, 1.0;
    }
}

/// The largest window of a SYN's 16-bit field: the first window of every connection (RFC 9293 section
/// 3.1).
const FIRST_WINDOW: u64 = 65_535;
/// `TCP_INIT_CWND`: segments that a sender may send in its first round (RFC 6928). Right-sizing
/// starts from there.
const FIRST_ROUND_SEGMENTS: u64 = 10;
/// `tcp_event_data_recv`: smaller segments are no bulk data and do not open the window.
const SMALL_SEGMENT: u64 = 128;

/// Dynamic right-sizing for one connection; names are the kernel's.
#[derive(Clone, Debug)]
pub struct Autotune {
    mss: u64,
    /// The kernel's `scaling_ratio`, in 1/256.
    ratio: u64,
    max: u64,
    /// The kernel's `sk_rcvbuf`, bytes.
    rcvbuf: u64,
    /// `rcv_ssthresh`: the advertised window, if that much buffer is free.
    ssthresh: u64,
    /// `rcvq_space`: bytes read in the best RTT; and the time and total at which the current RTT began.
    space: u64,
    since: Option<(Instant, Bytes)>,
    /// `rcv_rtt_est`, eight times the estimate, in ns; zero before the first sample.
    rtt8: u64,
    window_rtt: Option<WindowRtt>,
    /// Highest byte that arrived, also beyond holes.
    arrived: u64,
    received: u64,
}

impl Autotune {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> Autotune {
        let ratio = ((config.ratio * 256.0) as u64).clamp(1, 256);
        let mss = setup.mss.0.max(1);
        let max = config.max.0.max(1);
        let rcvbuf = config.initial.0.clamp(1, max);
        let clamp = window_of(rcvbuf, ratio);
        let ssthresh = clamp.min(FIRST_WINDOW);
        Autotune {
            mss,
            ratio,
            max,
            rcvbuf,
            ssthresh,
            space: ssthresh.min(mss.saturating_mul(FIRST_ROUND_SEGMENTS)).max(1),
            since: None,
            rtt8: 0,
            window_rtt: (!setup.timestamps).then(WindowRtt::default),
            arrived: 0,
            received: 0,
        }
    }

    /// The kernel's `window_clamp`: the window that fits the buffer.
    fn clamp(&self) -> u64 {
        window_of(self.rcvbuf, self.ratio)
    }

    /// `tcp_grow_window`: two segments more per segment. The window doubles per RTT within the buffer.
    fn grow_window(&mut self, sample: &Sample, bytes: u64) {
        let buffered = (sample.received - sample.copied) + sample.out_of_order;
        let free = self.clamp().saturating_sub(buffered.0);
        let step = (2 * self.mss).max(bytes.saturating_mul(2));
        self.ssthresh += free.saturating_sub(self.ssthresh).min(step);
    }

    /// `tcp_rcv_rtt_update`: a smaller sample counts at once (since 6.16), a larger one by an eighth. A
    /// larger one does not count while data waits for the application: the sender may have waited for
    /// the window.
    fn on_rtt(&mut self, rtt: Duration, by_window: bool, queue_empty: bool) {
        let rtt8 = rtt.0.max(1).saturating_mul(8);
        if self.rtt8 == 0 || rtt8 < self.rtt8 {
            self.rtt8 = rtt8;
        } else if !by_window && queue_empty {
            self.rtt8 = (self.rtt8 - self.rtt8 / 8).saturating_add(rtt.0);
        }
    }

    /// `tcp_rcv_space_adjust`: once per RTT, compares the bytes read with the best RTT.
    fn on_read(&mut self, now: Instant, sample: &Sample) {
        let (since, from) = *self.since.get_or_insert((now, sample.copied));
        if self.rtt8 == 0 || now.since(since).0 < self.rtt8 / 8 {
            return;
        }
        // Unread data lowers the measured rate of the reader, as in the kernel.
        let unread = sample.received - sample.copied;
        let read = ((sample.copied - from) - unread).0;
        if read > self.space {
            self.grow_buffer(read, sample.out_of_order.0);
        }
        self.since = Some((now, sample.copied));
    }

    /// `tcp_rcvbuf_grow`: twice the bytes read, because the measurement is one RTT late; plus the
    /// growth itself, so that slow start can continue to double; plus the out-of-order data, which
    /// must not take space from the rest.
    fn grow_buffer(&mut self, read: u64, out_of_order: u64) {
        let before = self.space.max(1);
        self.space = read;
        let twice = u128::from(read) * 2;
        let grown = twice * 2 * u128::from(read.saturating_sub(before)) / u128::from(before);
        let window = twice + grown + u128::from(out_of_order);
        let buffer = window * 256 / u128::from(self.ratio);
        let buffer = u64::try_from(buffer).unwrap_or(u64::MAX).min(self.max);
        self.rcvbuf = self.rcvbuf.max(buffer);
    }
}

/// `tcp_win_from_space`: the payload that fits a buffer of `space` bytes.
fn window_of(space: u64, ratio: u64) -> u64 {
    (space.saturating_mul(ratio) >> 8).max(1)
}

impl WindowControl for Autotune {
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes> {
        let before = self.ssthresh;
        if sample.cause == Cause::Arrived {
            let arrived = (sample.received + sample.out_of_order).0;
            let bytes = arrived.saturating_sub(self.arrived);
            let in_order = sample.received.0.saturating_sub(self.received);
            let queue_empty = sample.copied.0 >= self.received;
            self.arrived = self.arrived.max(arrived);
            self.received = self.received.max(sample.received.0);
            let by_window = self
                .window_rtt
                .as_mut()
                .and_then(|w| w.on_data(now, sample.received, sample.right_edge));
            // `tcp_rcv_rtt_measure_ts`: an acknowledged small segment may have waited for a delayed ACK.
            let by_timestamp =
                sample.rtt.filter(|_| self.window_rtt.is_none() && in_order >= self.mss);
            if let Some(rtt) = by_window.or(by_timestamp) {
                self.on_rtt(rtt, by_window.is_some(), queue_empty);
            }
            if sample.out_of_order.0 > 0 {
                self.grow_buffer(self.space, sample.out_of_order.0);
            }
            if bytes >= SMALL_SEGMENT {
                self.grow_window(sample, bytes);
            }
        }
        if sample.cause == Cause::Copied || sample.copied >= sample.received {
            self.on_read(now, sample);
        }
        (self.ssthresh != before).then_some(Bytes(self.ssthresh))
    }
    fn window(&self) -> Bytes {
        Bytes(self.ssthresh)
    }
    fn buffer(&self) -> Bytes {
        Bytes(self.clamp())
    }
    fn state(&self) -> State {
        State {
            window: Bytes(self.ssthresh),
            cwnd_estimate: Some(Bytes(self.space)),
            rtt: (self.rtt8 > 0).then_some(Duration(self.rtt8 / 8)),
            rtt_min: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    /// Full segments, read at once, `per_rtt` of them in each of `rounds` round trips.
    fn download(law: &mut Autotune, rounds: u64, mut per_rtt: impl FnMut(u64, Bytes) -> u64) {
        let mut received = Bytes::ZERO;
        let mut now = Instant::ZERO;
        for round in 0..rounds {
            let n = per_rtt(round, law.window()).max(1);
            for _ in 0..n {
                now = now + RTT / n;
                let copied = received;
                received += Bytes(1448);
                let sample = Sample { received, copied, rtt: Some(RTT), ..Sample::default() };
                law.on_sample(now, &sample);
                law.on_sample(now, &Sample { cause: Cause::Copied, copied: received, ..sample });
            }
        }
    }

    #[test]
    fn a_connection_starts_with_65535_bytes_of_a_131072_byte_buffer() {
        let law = Autotune::new(Config::default(), &Setup::default());
        assert_eq!((law.window(), law.buffer()), (Bytes(65_535), Bytes(65_536)));
    }

    #[test]
    fn the_window_does_not_limit_a_sender_for_long_until_the_maximum_is_reached() {
        let mut law =
            Autotune::new(Config { max: Bytes(6_291_456), ..Config::default() }, &Setup::default());
        download(&mut law, 40, |_, window| window.0 / 1448);
        assert_eq!(law.buffer(), Bytes(6_291_456 / 2));
        // The segment that has just arrived takes its space from the growth (`tcp_space`).
        assert!(law.window() + Bytes(2 * 1448) >= law.buffer());
    }

    #[test]
    fn the_buffer_follows_twice_the_bytes_per_rtt_and_never_shrinks() {
        let mut law = Autotune::new(Config::default(), &Setup::default());
        download(&mut law, 60, |round, _| 200.min(10 << round.min(5)));
        let grown = law.buffer();
        // Twice 200 segments at least; while a sender doubles, 2 + 2 · 2 · 100 % of what it sends.
        assert!(grown >= Bytes(2 * 200 * 1448) && grown <= Bytes(6 * 200 * 1448), "{grown:?}");
        download(&mut law, 60, |_, _| 2);
        assert_eq!(law.buffer(), grown);
    }

    #[test]
    fn tcp_rcvbuf_grow_adds_the_growth_of_the_last_rtt_and_the_data_beyond_a_hole() {
        let mut law = Autotune::new(Config::default(), &Setup::default());
        law.space = 100_000;
        law.grow_buffer(150_000, 10_000);
        // 2 × 150,000 + 2 × 300,000 × 50,000 / 100,000 + 10,000, and twice that in buffer.
        assert_eq!(law.rcvbuf, 2 * (300_000 + 300_000 + 10_000));
        law.grow_buffer(150_000, 0);
        assert_eq!(law.rcvbuf, 1_220_000);
    }

    #[test]
    fn a_larger_rtt_counts_by_an_eighth_and_only_while_nothing_waits() {
        let mut law = Autotune::new(Config::default(), &Setup::default());
        let ms = Duration::from_millis;
        law.on_rtt(ms(80), false, true);
        law.on_rtt(ms(160), false, false);
        assert_eq!(law.state().rtt, Some(ms(80)));
        law.on_rtt(ms(160), false, true);
        assert_eq!(law.state().rtt, Some(ms(90)));
        law.on_rtt(ms(40), false, false);
        assert_eq!(law.state().rtt, Some(ms(40)));
    }

    #[test]
    fn without_timestamps_the_rtt_comes_from_the_window() {
        let setup = Setup { timestamps: false, ..Setup::default() };
        let mut law = Autotune::new(Config::default(), &setup);
        for (ms, received) in [(0, 0), (70, 60_000)] {
            let sample = Sample {
                received: Bytes(received),
                right_edge: Bytes(received + 60_000),
                rtt: Some(Duration::from_millis(1)),
                ..Sample::default()
            };
            law.on_sample(Instant(ms * 1_000_000), &sample);
        }
        assert_eq!(law.state().rtt, Some(Duration::from_millis(70)));
    }
}
