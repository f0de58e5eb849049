//! A model of the slowest link of a path, from what one flow met on it.
//!
//! signal: arrivals at the receiver, and what each segment waited (`flow::series::directions`) · model: while a queue
//! stands the link delivers its rate, else at least what arrives (`slots`), with what arrives of others that share the queue (`sharing`);
//! the rate stays, drifts or jumps from slot to slot (`chain`) · action: [`rate`] draws rates over time that all explain the capture
//!
//! No clock and no random source here: times are those of the capture, and random numbers come in as an argument.

mod chain;
mod ends;
mod holds;
mod losses;
mod sharing;
mod slots;

use algo::Rng;
use flow::series::directions::Directions;
use flow::series::rows::Flow;
use units::{Duration, Instant};

pub use crate::chain::Habit;
pub use crate::ends::{Ends, ends};
pub use crate::holds::Holds;
pub use crate::losses::Losses;
pub use crate::sharing::Sharing;
pub use crate::slots::Seen;

/// One round trip is needed per so long: between two of them the link was busy only if the later segment had reached the queue
/// before the earlier one left it, so that a queue which is shorter than their distance is not seen. A link of 10 Mbit/s
/// needs as long for two packets, which one ACK acknowledges.
pub const TRIPS_EVERY: Duration = Duration::from_millis(2);

/// Wait from which a queue certainly stood. Findings have 8 ms, for hosts that hold packets up. Here the next segment must wait for so long
/// beyond the time since the one before, which is as long where a host holds them up together.
pub(crate) const MIN_WAIT: Duration = Duration::from_millis(4);

/// Why no rate over time is known.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Fewer arrivals than a rate needs, or all at one moment.
    #[error("too little arrived")]
    Short,
    /// No queue stood for long enough: the link is at least as fast as the fastest slot.
    #[error(
        "a queue stood for {queued_s:.1} s, and 3 s are needed: the link has at least {at_least_bps:.0} bit/s"
    )]
    NeverFull {
        /// Time in which a queue stood.
        queued_s: f64,
        /// What arrived in the fastest slot.
        at_least_bps: f64,
    },
}

/// The rate of a link over time, in bit/s of IP packets.
#[derive(Clone, Debug)]
pub struct RateOverTime {
    /// Begin of the first slot, by the capture's clock.
    pub from: Instant,
    /// Length of each.
    pub width: Duration,
    /// What was seen in each slot.
    pub seen: Vec<Seen>,
    /// What arrived in each slot, whether that was the rate of the link or not.
    pub arrived: Vec<f64>,
    /// Rates, slot by slot, each of them as likely as the others.
    pub draws: Vec<Vec<f64>>,
    /// How the rate changes.
    pub habit: Habit,
    /// What the sender's pauses show of others in the queue.
    pub sharing: Sharing,
    /// Whether others share it.
    pub shared: bool,
    /// How ACKs are held, if they are.
    pub holds: Option<Holds>,
    /// By the queue in which they happened.
    pub losses: Losses,
}

/// Rates of the link in front of a flow, over time. `beside`: other flows that the capture has in the same direction; what
/// arrived of them counts where the flow's own pauses show that they share its queue.
///
/// # Errors
///
/// [`Refused`] where nothing is known of the link but a lower bound.
pub fn rate(
    flow: &Flow,
    directions: &Directions,
    beside: &[&Directions],
    v6: bool,
    draws: usize,
    random: &mut Rng,
) -> Result<RateOverTime, Refused> {
    let sharing = sharing::sharing(flow, directions, v6);
    let shared = sharing.found(!beside.is_empty());
    let beside = if shared { beside } else { &[] };
    let slots = slots::slots(flow, directions, beside, v6)?;
    let chain = chain::Chain::fitted(&slots);
    Ok(RateOverTime {
        from: slots.from,
        width: slots.width,
        draws: (0..draws).map(|_| chain.draw(random)).collect(),
        habit: chain.habit,
        sharing,
        shared,
        holds: holds::holds(directions),
        losses: losses::losses(flow, directions, beside, v6),
        seen: slots.seen,
        arrived: slots.arrived,
    })
}
