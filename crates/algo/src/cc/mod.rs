//! Congestion control: how much a sender may have in flight, and how fast it may send.
//!
//! signal: ACKs with what they delivered, losses, timeouts, marks · model: one file per algorithm · action:
//! [`CongestionControl::window`] and [`CongestionControl::pacing_rate`].
//!
//! Loss *recovery* is not here. The sender finds losses (SACK, RACK, RTO), calls [`CongestionControl::on_loss`] once
//! per recovery episode, and while it lasts shares out the decrease itself (PRR, RFC 6937), unless the algorithm
//! [`CongestionControl::rules_recovery`]. Windows are bytes; algorithms that are defined in segments divide by
//! [`Setup::mss`].

use units::{Bytes, Duration, Instant, Rate};

use crate::Rng;

pub mod bbr;
pub mod bbr3;
pub mod bic;
pub mod cubic;
mod filter;
pub mod highspeed;
pub mod htcp;
pub mod hystart;
pub mod ledbat;
pub mod lp;
pub mod newreno;
mod rounds;
pub mod vegas;
pub mod westwood;
mod window;

pub use filter::Windowed;
pub use rounds::Rounds;

/// The circumstances of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Payload bytes of a full segment.
    pub mss: Bytes,
    /// Window before the first ACK, in segments: 10 by RFC 6928.
    pub initial_window: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        // Ethernet's 1,500 bytes less 40 of headers and 12 of timestamps.
        Setup { mss: Bytes(1448), initial_window: 10 }
    }
}

impl Setup {
    /// The initial window in bytes.
    #[inline]
    pub fn first_window(&self) -> Bytes {
        self.mss * self.initial_window
    }
}

/// Data was handed to the network.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Payload bytes.
    pub bytes: Bytes,
    /// In flight before this packet. Zero means that the sender starts, or starts again after idleness.
    pub in_flight: Bytes,
    /// Whether the sender ran out of data since the last time that it was limited by the window.
    pub app_limited: bool,
    /// The segment was sent before.
    pub again: bool,
}

/// Where the sender's loss recovery stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// Nothing is missing.
    #[default]
    Open,
    /// After a congestion signal (RFC 5681 fast recovery), until what was in flight then is acknowledged.
    Recovering,
    /// After a retransmission timeout, likewise.
    Lost,
}

/// The delivery rate that an ACK shows (draft-ietf-ccwg-bbr section 4.1.1, Linux `tcp_rate.c`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Delivered between the sending of the newest segment that this ACK delivers and now.
    pub delivered: Bytes,
    /// In which time: the longer of the send and the ACK interval. Zero: no valid sample.
    pub interval: Duration,
    /// Total delivered when that segment was sent: with it, rounds are counted.
    pub prior_delivered: Bytes,
    /// In flight when that segment was sent, itself included.
    pub in_flight_at_send: Bytes,
    /// Marked lost since that segment was sent.
    pub lost: Bytes,
    /// The sender lacked data when that segment was sent, so that the rate may be too low.
    pub app_limited: bool,
}

impl RateSample {
    /// `delivered / interval`; `None` without a valid sample.
    #[inline]
    pub fn rate(&self) -> Option<Rate> {
        self.delivered.over(self.interval)
    }
}

/// An ACK arrived that tells something new.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Newly delivered: acknowledged or SACKed for the first time.
    pub acked: Bytes,
    /// Total delivered since the connection began, this ACK included.
    pub delivered: Bytes,
    /// A new round-trip time, by Karn's rule or from timestamps: that of the newest segment delivered.
    pub rtt: Option<Duration>,
    /// Smoothed RTT (RFC 6298), zero before the first sample.
    pub srtt: Duration,
    /// Smallest RTT of the connection; `Duration::MAX` before the first sample.
    pub min_rtt: Duration,
    /// One-way delay from sender to receiver by the two ends' timestamps, with an unknown but constant offset. `None`
    /// without timestamps, and for ACKs that waited for the receiver's timer.
    pub one_way: Option<Duration>,
    /// In flight before this ACK.
    pub prior_in_flight: Bytes,
    /// In flight after it.
    pub in_flight: Bytes,
    /// Newly marked lost by this ACK.
    pub lost: Bytes,
    /// The window, not the application, limited the sender: growth is allowed (RFC 7661's idea; Linux
    /// `tcp_is_cwnd_limited`).
    pub window_limited: bool,
    /// Newly delivered with a CE mark (AccECN); with classic ECN the whole of `acked` when ECE is set.
    pub marked: Bytes,
    /// State of loss recovery after this ACK.
    pub recovery: Recovery,
    /// The delivery rate it shows.
    pub rate: RateSample,
}

/// A congestion signal that begins a recovery episode.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Marked lost so far.
    pub lost: Bytes,
    /// In flight before the losses were taken off: RFC 5681's FlightSize.
    pub in_flight: Bytes,
}

/// The retransmission timer expired.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// In flight before everything was marked lost.
    pub in_flight: Bytes,
    /// How often in a row, from 1.
    pub count: u32,
}

/// What charts and snapshots show of a congestion control.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Congestion window.
    pub window: Bytes,
    /// Slow-start threshold; `None` while it is infinite or the algorithm has none.
    pub threshold: Option<Bytes>,
    /// Pacing rate, where the algorithm paces.
    pub pacing_rate: Option<Rate>,
    /// The algorithm's own word for where it is: `slow_start`, `avoidance`, `probe_rtt` …
    pub phase: &'static str,
}

/// The contract of a congestion control; see the module text for who calls what.
pub trait CongestionControl {
    /// Data was sent.
    fn on_sent(&mut self, _now: Instant, _sent: &Sent, _rng: &mut Rng) {}
    /// An ACK delivered data or marked losses. Called in every state of recovery; algorithms under PRR do not grow
    /// unless `ack.recovery` is `Open` (or `Lost`, where slow start begins again).
    fn on_ack(&mut self, now: Instant, ack: &Ack, rng: &mut Rng);
    /// Recovery begins: called once per episode; the window that shall be left *after* it.
    fn on_loss(&mut self, now: Instant, loss: &Loss);
    /// The retransmission timer expired.
    fn on_timeout(&mut self, now: Instant, timeout: &Timeout);
    /// The receiver echoed a CE mark (at most once per round trip): by default as a loss, RFC 3168 section 6.1.2.
    fn on_ecn(&mut self, now: Instant, loss: &Loss) {
        self.on_loss(now, loss);
    }
    /// Everything that was in flight at the last `on_loss` or `on_timeout` has been acknowledged.
    fn on_recovered(&mut self, _now: Instant) {}
    /// The last `on_loss` or `on_timeout` was a mistake (DSACK, Eifel, F-RTO): take the decrease back.
    fn on_spurious(&mut self, now: Instant);
    /// How much may be in flight.
    fn window(&self) -> Bytes;
    /// How fast data may be sent; `None`: as fast as the window opens.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// Whether the algorithm itself sets the window during recovery (BBR), instead of PRR.
    fn rules_recovery(&self) -> bool {
        false
    }
    /// The state that charts and snapshots show.
    fn state(&self) -> State;
}

family! {
    /// Any congestion control of the table.
    pub enum Cc(Setup): CongestionControl {
        bbr::Bbr,
        bbr3::Bbr3,
        newreno::NewReno,
        cubic::Cubic,
        bic::Bic,
        htcp::Htcp,
        highspeed::HighSpeed,
        westwood::Westwood,
        vegas::Vegas,
        lp::Lp,
        ledbat::Ledbat,
    }
    changes {
        on_sent(now: Instant, sent: &Sent, rng: &mut Rng);
        on_ack(now: Instant, ack: &Ack, rng: &mut Rng);
        on_loss(now: Instant, loss: &Loss);
        on_timeout(now: Instant, timeout: &Timeout);
        on_ecn(now: Instant, loss: &Loss);
        on_recovered(now: Instant);
        on_spurious(now: Instant);
    }
    asks {
        window() -> Bytes;
        pacing_rate() -> Option<Rate>;
        rules_recovery() -> bool;
        state() -> State;
    }
}
