//! The sender's half of AFC: a wrapper round any congestion control.
//!
//! signal: window field and rate option of each ACK, the smoothed RTT · model: while data is under way,
//! the application reads and frees as much buffer · action: a larger flow window, losses that are no
//! congestion signal, paced bursts.
//!
//! How the sender uses it. On *every* ACK (also pure window updates), after updating `snd_una`, it calls
//! [`Sender::on_ack`]. Then:
//! - It may send up to `snd_una + min(Sender::window(), congestion window)`, instead of `snd_una +
//!   window field`. The right edge of the ACK is no bound. A window of zero does not start the persist
//!   timer while `Sender::window()` is a segment or more: new data probes the window. The segment at
//!   `snd_una` may always be retransmitted; otherwise a buffer full of data beyond a hole would never
//!   drain.
//! - While [`Sender::hides_loss`] is true, lost segments are retransmitted as usual, but the congestion
//!   control does not learn of them: `on_loss`, `on_timeout`, `on_ecn` are not called, and PRR does not
//!   reduce.
//! - It paces with the smaller of [`Sender::pacing_rate`] and the congestion control's own rate, if any;
//!   [`Sender::next_send`] is the same as a point in time.
//!
//! Source: see [`super`]. Choices of this project, because the slides only name the components: a window
//! smaller than a segment counts as zero, since Linux's receivers keep such a rest open; *fresh*
//! data is data first sent after the last zero window. Until fresh data is acknowledged, a missing
//! segment may have met the full buffer. Bursts are paced at flow window / RTT = advertised / RTT +
//! AR, the `αW + AR` of the slides' fluid model, for one RTT after the right edge jumped by more than
//! four segments with one ACK. A reported rate of zero counts after one RTT: the sender cannot react to a
//! shorter pause in time. From then on a closed window stops it ([`Sender::stopped`]): it sends only
//! probes for the window.
//!
//! The even pace (`steer`) is this project's own, against unnecessary retransmissions: always pace at
//! `AR + steer · (advertised − buffer / 2) / RTT`, at least AR / 2. Pulses of the reader then come back as
//! pulses of the buffer, not of the arrivals. The buffer is the largest window seen.

use units::{Bytes, Duration, Instant, Rate};

use super::option;

/// The active components, for ablation studies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SenderConfig {
    /// Component 1: add AR · RTT.
    pub rate_term: bool,
    /// Component 2: hide overflow losses.
    pub hide_losses: bool,
    /// Component 4: pace the burst of a reopened window.
    pub pace: bool,
    /// Gain of the even pace; 0: off.
    pub steer: f64,
    /// Payload bytes of a full segment.
    pub mss: Bytes,
}

impl Default for SenderConfig {
    fn default() -> SenderConfig {
        SenderConfig {
            rate_term: true,
            hide_losses: true,
            pace: true,
            steer: 0.0,
            mss: Bytes(1448),
        }
    }
}

/// The fields of an ACK that the sender's half needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderAck {
    /// Total acknowledged after this ACK, from the first payload byte: `snd_una`.
    pub acknowledged: Bytes,
    /// Total sent without retransmissions: `snd_max`.
    pub sent: Bytes,
    /// The window field, scaled.
    pub window: Bytes,
    /// The value byte of the rate option; without one the last value stays.
    pub rate_option: Option<u8>,
    /// Smoothed RTT; zero before the first sample.
    pub rtt: Duration,
}

/// The sender's half of AFC for one connection.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    advertised: Bytes,
    /// The largest window so far: the buffer, as far as it is known.
    buffer: Bytes,
    /// The last rate that was not zero.
    rate: Rate,
    /// Since when the reader is reported to stand still.
    standing: Option<Instant>,
    /// … for one RTT.
    stopped: bool,
    rtt: Duration,
    acknowledged: Bytes,
    /// `acknowledged + window()` after the last ACK.
    edge: Option<Bytes>,
    /// Hiding ends when more than this is acknowledged.
    hidden_up_to: Option<Bytes>,
    paced_until: Option<Instant>,
}

impl Sender {
    /// The state of a new connection.
    pub fn new(config: SenderConfig) -> Sender {
        Sender {
            config,
            advertised: Bytes::ZERO,
            buffer: Bytes::ZERO,
            rate: Rate(0),
            standing: None,
            stopped: false,
            rtt: Duration::ZERO,
            acknowledged: Bytes::ZERO,
            edge: None,
            hidden_up_to: None,
            paced_until: None,
        }
    }

    /// The connection is open: the window of the SYN-ACK. That window is unscaled (RFC 7323 section 2.2), so the larger
    /// one of the next ACK is not a reopened window, and is not paced.
    pub fn open(&mut self, window: Bytes, rtt: Duration) {
        self.advertised = window;
        self.rtt = rtt;
    }

    /// Takes an ACK into account, in order of arrival.
    pub fn on_ack(&mut self, now: Instant, ack: &SenderAck) {
        if ack.acknowledged < self.acknowledged {
            return; // overtaken by a newer one
        }
        self.acknowledged = ack.acknowledged;
        self.advertised = ack.window;
        self.buffer = self.buffer.max(ack.window);
        self.rtt = ack.rtt;
        if let Some(value) = ack.rate_option {
            self.take_rate(now, option::decode(value));
        }
        if ack.window < self.config.mss {
            self.hidden_up_to = Some(ack.sent);
        } else if self.hidden_up_to.is_some_and(|sent| ack.acknowledged > sent) {
            self.hidden_up_to = None;
        }
        self.watch_edge(now);
    }

    /// A pause shorter than one RTT is over when the sender could react to it, so the last rate holds for
    /// so long.
    fn take_rate(&mut self, now: Instant, rate: Rate) {
        if rate.0 > 0 {
            (self.rate, self.standing, self.stopped) = (rate, None, false);
            return;
        }
        let since = *self.standing.get_or_insert(now);
        self.stopped = now.since(since) >= self.rtt;
    }

    /// The buffer has no room for a segment and its reader stands still: only probes may be sent.
    pub fn stopped(&self) -> bool {
        self.stopped && self.advertised < self.config.mss
    }

    /// Component 4: a jump of the right edge would cause a burst. More than four segments count as a
    /// jump: a delayed ACK for two segments, and two more that the reader freed meanwhile, make four.
    fn watch_edge(&mut self, now: Instant) {
        let edge = self.acknowledged + self.window();
        let jumped = self.edge.is_some_and(|before| edge > before + self.config.mss * 4);
        self.edge = Some(edge);
        if jumped {
            self.paced_until = Some(now + self.rtt);
        } else if self.paced_until.is_some_and(|until| now >= until) {
            self.paced_until = None;
        }
    }

    /// Component 1: the total that may be outstanding beyond `snd_una`.
    pub fn window(&self) -> Bytes {
        let adds = self.config.rate_term && !self.stopped;
        if adds { self.advertised + self.rate * self.rtt } else { self.advertised }
    }

    /// Component 2: whether to ignore a congestion signal that arrives now.
    pub fn hides_loss(&self) -> bool {
        self.config.hide_losses && self.hidden_up_to.is_some()
    }

    /// The even pace; `None` where it is off or no reading rate is known.
    fn even_rate(&self) -> Option<Rate> {
        if self.config.steer == 0.0 || self.rate.0 == 0 || self.stopped {
            return None;
        }
        let missing = self.advertised.0 as f64 - self.buffer.0 as f64 / 2.0;
        let seconds = self.rtt.0.max(1) as f64 / 1e9;
        let reading = self.rate.0 as f64;
        let rate = reading + self.config.steer * missing * 8.0 / seconds;
        Some(Rate(rate.max(reading / 2.0) as u64))
    }

    /// Component 4: the sending rate while a reopened window is being filled, or the even pace; `None`:
    /// ACK clocking.
    pub fn pacing_rate(&self) -> Option<Rate> {
        if let Some(rate) = self.even_rate() {
            return Some(rate);
        }
        if !self.config.pace || self.paced_until.is_none() {
            return None;
        }
        // At least a segment per RTT, so that a closed window cannot stop retransmissions.
        self.window().max(self.config.mss).over(self.rtt)
    }

    /// Component 4 as a time: when the next segment may leave after one of `bytes` left at `last`.
    pub fn next_send(&self, last: Instant, bytes: Bytes) -> Instant {
        match self.pacing_rate() {
            Some(rate) if rate.0 > 0 => last + bytes / rate,
            _ => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(500);

    fn ack(acknowledged: u64, sent: u64, window: u64, rate: u64) -> SenderAck {
        SenderAck {
            acknowledged: Bytes(acknowledged),
            sent: Bytes(sent),
            window: Bytes(window),
            rate_option: Some(option::encode(Rate(rate))),
            rtt: RTT,
        }
    }

    #[test]
    fn the_flow_window_is_the_advertised_one_plus_the_bytes_read_in_one_rtt() {
        let mut sender = Sender::new(SenderConfig::default());
        sender.on_ack(Instant(1), &ack(0, 0, 100_000, 4_096_000));
        // 4.096 Mbit/s is a value of the code: (16 + 0) << 7, 2 kbit/s each.
        assert_eq!(sender.window(), Bytes(100_000 + 256_000));
        sender.on_ack(Instant(2), &SenderAck { rate_option: None, ..ack(0, 0, 0, 0) });
        assert_eq!(sender.window(), Bytes(256_000));
        let classic = SenderConfig { rate_term: false, ..SenderConfig::default() };
        let mut sender = Sender::new(classic);
        sender.on_ack(Instant(1), &ack(0, 0, 100_000, 4_096_000));
        assert_eq!(sender.window(), Bytes(100_000));
    }

    #[test]
    fn losses_are_hidden_from_the_zero_window_until_data_sent_after_it_is_acknowledged() {
        let mut sender = Sender::new(SenderConfig::default());
        sender.on_ack(Instant(1), &ack(10_000, 90_000, 5_000, 0));
        assert!(!sender.hides_loss());
        sender.on_ack(Instant(2), &ack(15_000, 100_000, 0, 0));
        assert!(sender.hides_loss());
        sender.on_ack(Instant(3), &ack(15_000, 110_000, 50_000, 0));
        sender.on_ack(Instant(4), &ack(100_000, 150_000, 50_000, 0));
        assert!(sender.hides_loss(), "all of it was sent before the zero window was seen");
        sender.on_ack(Instant(5), &ack(101_448, 150_000, 50_000, 0));
        assert!(!sender.hides_loss());
    }

    #[test]
    fn the_burst_of_a_reopened_window_is_spread_over_one_rtt() {
        let mut sender = Sender::new(SenderConfig::default());
        let at = |ms: u64| Instant(ms * 1_000_000);
        sender.on_ack(at(0), &ack(50_000, 100_000, 0, 0));
        assert_eq!(sender.pacing_rate(), None);
        sender.on_ack(at(10), &ack(50_000, 100_000, 200_000, 0));
        // 200,000 bytes in 500 ms.
        assert_eq!(sender.pacing_rate(), Some(Rate(3_200_000)));
        assert_eq!(sender.next_send(at(10), Bytes(200_000)), at(510));
        sender.on_ack(at(400), &ack(51_448, 101_448, 200_000, 0));
        assert!(sender.pacing_rate().is_some());
        sender.on_ack(at(520), &ack(52_896, 102_896, 200_000, 0));
        assert_eq!((sender.pacing_rate(), sender.next_send(at(520), Bytes(1448))), (None, at(520)));
    }

    #[test]
    fn the_window_of_the_syn_ack_counts_and_the_scaled_one_after_it_is_not_a_burst() {
        let mut sender = Sender::new(SenderConfig::default());
        sender.open(Bytes(65_535), RTT);
        assert_eq!(sender.window(), Bytes(65_535));
        sender.on_ack(Instant(1), &ack(1_448, 14_480, 262_144, 0));
        assert_eq!((sender.window(), sender.pacing_rate()), (Bytes(262_144), None));
    }

    #[test]
    fn a_reader_that_stands_for_an_rtt_takes_its_rate_away_and_a_closed_window_stops_the_sender() {
        let mut sender = Sender::new(SenderConfig::default());
        let at = |ms: u64| Instant(ms * 1_000_000);
        sender.on_ack(at(0), &ack(50_000, 300_000, 10_000, 4_096_000));
        sender.on_ack(at(100), &ack(60_000, 300_000, 0, 0));
        assert_eq!((sender.window(), sender.stopped()), (Bytes(256_000), false), "a short pause");
        sender.on_ack(at(599), &ack(60_000, 300_000, 0, 0));
        assert!(!sender.stopped());
        sender.on_ack(at(600), &ack(60_000, 300_000, 0, 0));
        assert_eq!((sender.window(), sender.stopped()), (Bytes::ZERO, true));
        sender.on_ack(at(700), &ack(60_000, 300_000, 1_448, 0));
        assert_eq!(
            (sender.window(), sender.stopped()),
            (Bytes(1_448), false),
            "what is free is used"
        );
        sender.on_ack(at(800), &ack(60_000, 300_000, 0, 4_096_000));
        assert_eq!((sender.window(), sender.stopped()), (Bytes(256_000), false), "it reads again");
    }

    #[test]
    fn the_even_pace_is_the_reading_rate_where_the_buffer_is_half_full() {
        let even = SenderConfig { steer: 0.25, ..SenderConfig::default() };
        let mut sender = Sender::new(even);
        sender.on_ack(Instant(1), &ack(0, 0, 200_000, 0));
        assert_eq!(sender.pacing_rate(), None, "no rate is known");
        sender.on_ack(Instant(2), &ack(1_448, 100_000, 100_000, 4_096_000));
        assert_eq!(sender.pacing_rate(), Some(Rate(4_096_000)));
        // 100,000 bytes more are free than the half: a quarter of them in 500 ms.
        sender.on_ack(Instant(3), &ack(2_896, 100_000, 200_000, 4_096_000));
        assert_eq!(sender.pacing_rate(), Some(Rate(4_496_000)));
        sender.on_ack(Instant(4), &ack(2_896, 100_000, 0, 256_000));
        assert_eq!(sender.pacing_rate(), Some(Rate(128_000)), "never below half the reading rate");
    }

    #[test]
    fn an_old_ack_changes_nothing() {
        let mut sender = Sender::new(SenderConfig::default());
        sender.on_ack(Instant(1), &ack(50_000, 100_000, 40_000, 0));
        sender.on_ack(Instant(2), &ack(40_000, 100_000, 0, 0));
        assert_eq!((sender.window(), sender.hides_loss()), (Bytes(40_000), false));
    }
}
