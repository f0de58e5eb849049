//! What each slot of time shows of the rate.
//!
//! signal: the curve of arrivals, and the runs in which the link was busy (`flow::series::arrivals`) · model: the rate of
//! a slot is known where the link was busy for half of it at least; else it is at least what arrived · action: slots of
//! equal length from the first arrival to the last one

use flow::series::arrivals::{
    Curve, MIN_QUEUED_PACKETS, MIN_QUEUED_S, certain_wait, least_run, packet, runs,
};
use flow::series::directions::Directions;
use flow::series::rows::Flow;
use units::{Duration, Instant};

use crate::{MIN_WAIT, Refused};

/// Packets of a slot: one more or less at its ends is a tenth.
const MIN_PACKETS: f64 = 10.0;
/// Part of a slot in which the link must have been busy. A queue in half of it still has as many packets.
const MIN_BUSY: f64 = 0.5;

/// What a slot shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// The link was busy for so long, at this rate.
    Rate {
        /// Bit/s of IP packets.
        bps: f64,
        /// Of the slot.
        busy_s: f64,
    },
    /// So much arrived, and the link may be faster.
    AtLeast {
        /// Bit/s of IP packets.
        bps: f64,
    },
}

/// All slots, and what their errors depend on.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub from: Instant,
    pub width: Duration,
    pub seen: Vec<Seen>,
    /// What arrived, bit/s of IP packets.
    pub arrived: Vec<f64>,
    /// Of a full IP packet.
    pub packet_bits: f64,
    /// Resolution of the receiver's clock.
    pub tick_s: f64,
}

/// Slots from the first arrival to the last one. `beside`: other flows through the same queue.
pub(crate) fn slots(
    flow: &Flow,
    directions: &Directions,
    beside: &[&Directions],
    v6: bool,
) -> Result<Slots, Refused> {
    let (payload, packet) = packet(flow, v6);
    let bits = |bytes: f64| bytes * 8.0 * packet / payload;
    let curve = Curve::of(&directions.waits);
    let others: Vec<Curve> = beside.iter().map(|other| Curve::of(&other.waits)).collect();
    // Payload of the others between two moments. The link of all has the rate of all.
    let of_others = |from: Instant, to: Instant| -> f64 {
        others.iter().map(|other| other.within(to) - other.within(from)).sum()
    };
    let (from, to) = curve.ends().ok_or(Refused::Short)?;
    let (first, last) = (curve.at(from).unwrap_or(0.0), curve.at(to).unwrap_or(0.0));
    let (span_s, bytes) = (to.since(from).as_secs_f64(), last - first);
    let least_wait = certain_wait(flow, directions, MIN_WAIT).ok_or(Refused::Short)?;
    if bytes < payload || span_s <= 0.0 {
        return Err(Refused::Short);
    }
    let packets = Duration((MIN_PACKETS * payload * span_s / bytes * 1e9) as u64);
    let width = least_run(directions).max(directions.width * 2).max(packets);
    let count = (to.since(from).0 / width.0) as usize;
    let mut busy = vec![(0.0, 0.0); count];
    for step in runs(directions, least_wait).iter().flatten() {
        let bytes = step.bytes + of_others(step.from, step.to);
        // A step may lie in several slots: an outage with a queue is one.
        let (begin, end) = (step.from.since(from).0, step.to.since(from).0);
        for at in begin / width.0..=end / width.0 {
            let Some(slot) = busy.get_mut(at as usize) else { break };
            let inside = end.min((at + 1) * width.0).saturating_sub(begin.max(at * width.0));
            let share = inside as f64 / (end - begin).max(1) as f64;
            *slot = (slot.0 + share * bytes, slot.1 + inside as f64 / 1e9);
        }
    }
    let width_s = width.as_secs_f64();
    let at = |slot: usize| curve.at(from + width * slot as u64).unwrap_or(last);
    let edge = |slot: usize| from + width * slot as u64;
    let arrived: Vec<f64> = (0..count)
        .map(|slot| at(slot + 1) - at(slot) + of_others(edge(slot), edge(slot + 1)))
        .collect();
    let least = |slot: usize| least(&arrived, slot);
    let seen: Vec<Seen> = busy
        .iter()
        .enumerate()
        .map(|(at, (bytes, busy_s))| match *busy_s >= MIN_BUSY * width_s {
            true => Seen::Rate { bps: bits(*bytes) / busy_s, busy_s: *busy_s },
            false => Seen::AtLeast { bps: bits(least(at)) / width_s },
        })
        .collect();
    let queued_s: f64 = busy.iter().map(|slot| slot.1).sum();
    let queued_bytes: f64 = busy.iter().map(|slot| slot.0).sum();
    let known = seen.iter().any(|slot| matches!(slot, Seen::Rate { .. }));
    if !known || queued_s < MIN_QUEUED_S || queued_bytes < MIN_QUEUED_PACKETS * payload {
        let fastest = (0..count).map(least).fold(0.0, f64::max);
        return Err(Refused::NeverFull { queued_s, at_least_bps: bits(fastest) / width_s });
    }
    Ok(Slots {
        from,
        width,
        seen,
        arrived: arrived.iter().map(|bytes| bits(*bytes) / width_s).collect(),
        packet_bits: packet * 8.0,
        tick_s: directions.tick.as_secs_f64(),
    })
}

/// What arrived in a slot at the least, as bytes: a host that stood still hands over what came meanwhile at once, so that no
/// slot counts for more than together with the one before or behind it.
fn least(arrived: &[f64], slot: usize) -> f64 {
    let own = arrived[slot];
    let beside = [slot.checked_sub(1), Some(slot + 1)].into_iter().flatten();
    let both = beside.filter_map(|at| arrived.get(at)).map(|other| f64::midpoint(own, *other));
    both.fold(own, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_hands_over_at_once_is_no_rate_of_the_link() {
        let arrived = [4.0, 4.0, 0.0, 8.0, 4.0];
        let all: Vec<f64> = (0..5).map(|slot| least(&arrived, slot)).collect();
        assert_eq!(all, [4.0, 2.0, 0.0, 4.0, 4.0]);
        assert_eq!(least(&[3.0], 0), 3.0);
    }
}
