//! The congestion control of a sender, from the packets of one direction.
//!
//! signal: bytes in flight in each round trip, losses and congestion marks, as the sender saw them (`rounds`)
//! model: what each congestion control does to the bytes in flight when it loses (`cuts`), and between two losses (`laws`)
//! action: a name with its evidence in figures, or nothing (`decide`; BBR by `probes`, delay-based by `delay`)
//! source: RFC 5681, RFC 9438, Linux `tcp_cubic.c`, `tcp_bbr.c`, draft-cardwell-iccrg-bbr-congestion-control-00
//!
//! A round trip in which the application or the receive window set the bytes in flight shows nothing and is left out.

mod cuts;
pub(crate) mod decide;
mod delay;
mod laws;
mod probes;
pub(crate) mod rounds;

use units::Duration;

/// What the packets show of a sender's congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionControl {
    /// BBR, any version: paced, probes for bandwidth.
    Bbr,
    /// CUBIC.
    Cubic,
    /// Reno and NewReno.
    Reno,
    /// Halves or more or less, by a law that is none of the above: which one is not known.
    LossBased,
    /// Sends less while there is a queue, before a loss: Vegas, CDG and the like.
    DelayBased,
}

impl CongestionControl {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            CongestionControl::Bbr => "bbr",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Reno => "reno",
            CongestionControl::LossBased => "loss-based",
            CongestionControl::DelayBased => "delay-based",
        }
    }
}

/// A decision and the figures it rests on.
#[derive(Clone, PartialEq, Debug)]
pub struct Recognised {
    /// What was recognised.
    pub control: CongestionControl,
    /// The evidence in figures, as one phrase.
    pub evidence: String,
}

/// Shortest round: on a path of less, round trips are put together, so that 2,048 rounds last 20 s and more.
const MIN_ROUND: Duration = Duration::from_millis(10);
