//! Congestion control: how much a sender may have in flight, and how fast it may send.
//!
//! signal: ACKs with the data they delivered, losses, timeouts, CE marks · model: one file per
//! algorithm · action: [`CongestionControl::window`] and [`CongestionControl::pacing_rate`].
//!
//! Loss *recovery* is not here. The sender detects losses (SACK, RACK, RTO) and calls
//! [`CongestionControl::on_loss`] once per recovery episode. During the episode the sender spreads
//! the decrease (PRR, RFC 6937), unless [`CongestionControl::rules_recovery`] is true. Windows are
//! bytes; algorithms defined in segments divide by [`Setup::mss`].

use units::{Bytes, Duration, Instant, Rate};

use crate::Rng;

pub mod bbr;
pub mod bbr3;
pub mod bic;
pub mod burst;
pub mod copa;
pub mod cubic;
mod filter;
pub mod highspeed;
pub mod htcp;
pub mod hystart;
pub mod ledbat;
pub mod lp;
pub mod newreno;
mod rounds;
#[cfg(test)]
mod testing;
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
        // Ethernet's 1,500 bytes minus 40 of headers and 12 of timestamps.
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

/// A segment that the sender transmits.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Payload bytes of the segment.
    pub bytes: Bytes,
    /// In flight before this segment. Zero: the connection begins, or continues after idle time.
    pub in_flight: Bytes,
    /// The sender ran out of data since the window limited it last.
    pub app_limited: bool,
}

/// State of the sender's loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// No loss is known.
    #[default]
    Open,
    /// After a congestion signal (RFC 5681 fast recovery), until the data in flight then is
    /// acknowledged.
    Recovering,
    /// After a retransmission timeout, with the same end.
    Lost,
}

/// The delivery rate at an ACK (draft-ietf-ccwg-bbr section 4.1.1, Linux `tcp_rate.c`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Bytes delivered since the newest segment that this ACK delivers was sent.
    pub delivered: Bytes,
    /// Time for them: the longer of the send and the ACK interval. Zero: no valid sample.
    pub interval: Duration,
    /// Total delivered when that segment was sent; [`Rounds`] counts with it.
    pub prior_delivered: Bytes,
    /// In flight when that segment was sent, including itself.
    pub in_flight_at_send: Bytes,
    /// Bytes marked lost since that segment was sent.
    pub lost: Bytes,
    /// The sender lacked data when that segment was sent: the rate may be too low.
    pub app_limited: bool,
}

impl RateSample {
    /// `delivered / interval`; `None` without a valid sample.
    #[inline]
    pub fn rate(&self) -> Option<Rate> {
        self.delivered.over(self.interval)
    }
}

/// An ACK that delivers data, marks losses or carries an RTT.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Bytes acknowledged or SACKed for the first time.
    pub acked: Bytes,
    /// Total delivered since the connection began, including this ACK.
    pub delivered: Bytes,
    /// New RTT sample, of the newest segment delivered: by Karn's rule or from timestamps.
    pub rtt: Option<Duration>,
    /// Smoothed RTT (RFC 6298), zero before the first sample.
    pub srtt: Duration,
    /// Smallest RTT of the connection; `Duration::MAX` before the first sample.
    pub min_rtt: Duration,
    /// One-way delay from sender to receiver by the two ends' timestamps, with an unknown but constant
    /// offset. `None` without timestamps, and for ACKs that waited for the receiver's timer.
    pub one_way: Option<Duration>,
    /// Bytes in flight before this ACK.
    pub prior_in_flight: Bytes,
    /// Bytes in flight after this ACK.
    pub in_flight: Bytes,
    /// Bytes that this ACK marks lost.
    pub lost: Bytes,
    /// The window, not the application, limited the sender: growth is allowed (RFC 7661, Linux's
    /// `tcp_is_cwnd_limited`).
    pub window_limited: bool,
    /// Bytes delivered with a CE mark (AccECN); with classic ECN, all of `acked` if ECE is set.
    pub marked: Bytes,
    /// State of loss recovery after this ACK.
    pub recovery: Recovery,
    /// The delivery rate at this ACK.
    pub rate: RateSample,
}

/// A congestion signal that begins a recovery episode.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Bytes marked lost so far.
    pub lost: Bytes,
    /// In flight before the losses were subtracted: RFC 5681's FlightSize.
    pub in_flight: Bytes,
}

/// An expiry of the retransmission timer.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// Bytes in flight before all of it was marked lost.
    pub in_flight: Bytes,
    /// Number of consecutive expiries, from 1.
    pub count: u32,
}

/// What charts and snapshots show of a congestion control.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// The congestion window, in bytes.
    pub window: Bytes,
    /// Slow-start threshold; `None` while it is infinite or the algorithm has none.
    pub threshold: Option<Bytes>,
    /// Pacing rate, if the algorithm paces.
    pub pacing_rate: Option<Rate>,
    /// The algorithm's name for its state: `slow_start`, `avoidance`, `probe_rtt` …
    pub phase: &'static str,
}

/// The contract of a congestion control. The sender calls all methods.
pub trait CongestionControl {
    /// The sender transmits a segment.
    fn on_sent(&mut self, _now: Instant, _sent: &Sent, _rng: &mut Rng) {}
    /// An ACK arrived. Called in every state of recovery; algorithms under PRR grow only if
    /// `ack.recovery` is `Open` (or `Lost`, where slow start begins again).
    fn on_ack(&mut self, now: Instant, ack: &Ack, rng: &mut Rng);
    /// Recovery begins: called once per episode. Sets the window for the time *after* it.
    fn on_loss(&mut self, now: Instant, loss: &Loss);
    /// The retransmission timer expired.
    fn on_timeout(&mut self, now: Instant, timeout: &Timeout);
    /// The receiver echoed a CE mark (called at most once per round trip). By default the same as a
    /// loss: RFC 3168 section 6.1.2.
    fn on_ecn(&mut self, now: Instant, loss: &Loss) {
        self.on_loss(now, loss);
    }
    /// All data in flight at the last `on_loss` or `on_timeout` has been acknowledged.
    fn on_recovered(&mut self, _now: Instant) {}
    /// The last `on_loss` or `on_timeout` was spurious (DSACK, Eifel, F-RTO): undo the decrease.
    fn on_spurious(&mut self, now: Instant);
    /// The congestion window: bytes that may be in flight.
    fn window(&self) -> Bytes;
    /// The pacing rate; `None`: as fast as the window opens.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// Whether the algorithm sets the window during recovery itself (BBR), instead of PRR.
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
        bbr3::Bbr3 [unjudged],
        newreno::NewReno,
        cubic::Cubic,
        bic::Bic,
        htcp::Htcp,
        highspeed::HighSpeed,
        westwood::Westwood,
        vegas::Vegas,
        copa::Copa,
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
