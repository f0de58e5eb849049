//! One half of a path: from a device to one end of a flow, and back.
//!
//! signal: values that leave and their echoes · model: [`super`] · action: round trip, minimum, and
//! the certain queueing of either direction.

use units::Instant;

use super::clock::FarClock;
use super::place::PlacePath;
use super::{MAX_RTT_US, NS_PER_S, micros_of};

/// Round-trip measurements in flight at the same time, a quarter of a round trip apart. A single one
/// would leave with the packet that follows the echo of the one before. So it would always ride at
/// the head of the same burst, where the burst's own queue is not seen. Two flows that fill both
/// directions are bursts that pass each other (ACK compression; Zhang, Shenker and Clark, SIGCOMM
/// 1991), and each would take all queueing for the other's.
const PROBES: usize = 4;
/// An unanswered measurement gives its place away after this time.
const UNANSWERED_NS: u64 = 30 * NS_PER_S;
/// Maximum age of queue estimates of other flows: queues change within less.
const FRESH_NS: u64 = NS_PER_S;

/// What a round-trip measurement waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// A timestamp's echo.
    Stamp,
    /// A sequence number's acknowledgment.
    Sequence,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Probe {
    sent_ns: u64,
    value: u32,
    /// `None`: the slot is free.
    wait: Option<Wait>,
}

/// State of one half.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Half {
    /// When the last segment from its far end came, ns.
    pub received_ns: u64,
    probes: [Probe; PROBES],
    probed_ns: u64,
    last_probed: u32,
    /// Last round trip, µs.
    pub rtt_us: u32,
    /// Smallest round trip, µs; 0: none yet.
    pub rtt_min_us: u32,
    /// Certain queueing towards the device, µs.
    pub towards_us: u32,
    /// Certain queueing away from the device, µs.
    pub away_us: u32,
    /// The minimum round trip that the clock's lower bound was found with, µs.
    low_min_us: u32,
    /// The clock of its far end.
    pub clock: FarClock,
}

impl Half {
    /// Takes a round trip. It ended with the packet whose timestamp the clock has just taken, or with
    /// a later one of the same tick, if the flow is `stamped`. `known`: what other flows have measured of this path.
    pub fn sample(&mut self, now: Instant, rtt_us: u32, stamped: bool, known: Option<&PlacePath>) {
        let now = now.0;
        let silent_us = now.wrapping_sub(self.received_ns) / 1_000;
        self.rtt_us = rtt_us;
        if self.rtt_min_us == 0 || rtt_us < self.rtt_min_us {
            self.rtt_min_us = rtt_us;
        }
        let queue = i64::from(rtt_us - self.rtt_min_us) * 1_000;
        let queue_us = micros_of(queue);
        let known = known.filter(|known| now.wrapping_sub(known.at_ns) < FRESH_NS);
        if !stamped || self.clock.tick_ns == 0 {
            self.towards_us = known.map_or(0, |known| known.towards_us.min(queue_us));
            self.away_us = known.map_or(0, |known| known.away_us.min(queue_us - self.towards_us));
            return;
        }
        let clock = &mut self.clock;
        // With a smaller minimum every queue so far was larger, so the lower bound is less. Else a
        // latecomer, which learns the minimum from others, takes the queue that it met for the
        // opposite direction's.
        clock.low -= i64::from(self.low_min_us.saturating_sub(self.rtt_min_us)) * 1_000;
        self.low_min_us = self.rtt_min_us;
        // A later packet of the same tick: a burst may have queued up since its first one.
        let delay = clock.delay + now.wrapping_sub(clock.last_ns) as i64;
        let mut low = delay - queue;
        // A new flow uses what other flows have measured: they have seen the path empty.
        if !clock.bounded
            && let Some(known) = known
        {
            let high = delay - i64::from(known.towards_us.min(queue_us)) * 1_000;
            clock.high = clock.high.min(high);
            low += i64::from(known.away_us.min(queue_us)) * 1_000;
        }
        // A clock of milliseconds may be read up to one tick late.
        low -= i64::from(clock.tick_ns);
        if !clock.bounded || low > clock.low {
            clock.low = low;
            clock.bounded = true;
        }
        clock.high = clock.high.max(clock.low);
        self.towards_us = micros_of(delay - clock.high).min(queue_us);
        // A far end that was silent may have had nothing to send: that part of the round trip is
        // not certainly queueing.
        let silent = silent_us.min(MAX_RTT_US) as i64 * 1_000;
        self.away_us = micros_of(queue - (delay - clock.low) - silent);
    }

    /// Begins a measurement in a free slot, at most four per round trip.
    pub fn send(&mut self, now: Instant, value: u32, wait: Wait) {
        let now = now.0;
        let gap = u64::from(self.rtt_us) * (1_000 / PROBES as u64);
        let again = wait == Wait::Stamp && value == self.last_probed;
        if now.wrapping_sub(self.probed_ns) < gap || again {
            return;
        }
        let free = |probe: &&mut Probe| {
            probe.wait.is_none() || now.wrapping_sub(probe.sent_ns) >= UNANSWERED_NS
        };
        if let Some(probe) = self.probes.iter_mut().find(free) {
            self.last_probed = value;
            self.probed_ns = now;
            *probe = Probe { sent_ns: now, value, wait: Some(wait) };
        }
    }

    /// The RTT in µs if an echo of a measurement came back. If one echo answers several, the last
    /// one counts: the earlier ones waited only because nothing was echoed in between.
    pub fn returned(&mut self, now: Instant, echo: Option<u32>, ack: u32) -> Option<u32> {
        let mut last_ns = None;
        for probe in &mut self.probes {
            let back = match probe.wait {
                None => continue,
                Some(Wait::Stamp) => match echo {
                    Some(echo) => echo,
                    None => continue,
                },
                Some(Wait::Sequence) => ack,
            };
            if (back.wrapping_sub(probe.value) as i32) < 0 {
                continue;
            }
            last_ns = last_ns.max(Some(probe.sent_ns));
            probe.wait = None;
        }
        let us = now.0.wrapping_sub(last_ns?) / 1_000;
        (us < MAX_RTT_US).then_some(us.max(1) as u32)
    }

    /// Drops all measurements after a retransmission: which of both transmissions is answered is
    /// unknown (Karn's algorithm).
    pub fn forget(&mut self) {
        for probe in &mut self.probes {
            probe.wait = None;
        }
    }

    /// A SYN was sent again: measurements begin again, with the next value.
    pub fn begin_again(&mut self) {
        self.forget();
        self.probed_ns = 0;
        self.last_probed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// One-way delays of the empty path, and the far clock's start: any values will do.
    const TOWARDS_NS: u64 = 20_000_000;
    const AWAY_NS: u64 = 15_000_000;
    const FAR_ZERO_NS: u64 = 77_123_456_789;

    /// Sends a value and has it echoed at once by a far end whose clock counts milliseconds and runs
    /// `drift_ppm` fast. The certain queueing towards the device and away from it, and the truth, µs;
    /// `None` where the value was not measured, because it follows the one before too soon.
    fn round_trip(
        half: &mut Half,
        number: u32,
        at: u64,
        (towards, away): (u64, u64),
        drift_ppm: u64,
    ) -> Option<((u32, u32), (u64, u64))> {
        half.send(Instant(at), number, Wait::Stamp);
        let turned = at + AWAY_NS + away;
        let far_ns = FAR_ZERO_NS + turned + turned * drift_ppm / 1_000_000;
        let back = Instant(turned + TOWARDS_NS + towards);
        half.clock.tick(back, (far_ns / 1_000_000) as u32);
        let rtt_us = half.returned(back, Some(number), 0);
        if let Some(rtt_us) = rtt_us {
            half.sample(back, rtt_us, true, None);
        }
        half.received_ns = back.0;
        rtt_us.map(|_| ((half.towards_us, half.away_us), (towards / 1_000, away / 1_000)))
    }

    #[test]
    fn a_queue_is_found_in_its_direction_once_the_path_was_empty() {
        for queued in [(80_000_000, 0), (0, 80_000_000), (50_000_000, 60_000_000)] {
            let mut half = Half::default();
            for number in 1..20 {
                round_trip(&mut half, number, u64::from(number) * 200_000_000, (0, 0), 0);
            }
            let mut found = ((0, 0), (0, 0));
            // Grows within the first of these; far ends that were silent say nothing certain, so
            // they come at short distances.
            for number in 20..400 {
                let at = 4_000_000_000 + u64::from(number - 20) * 3_000_000;
                found = round_trip(&mut half, number, at, queued, 0).unwrap_or(found);
            }
            let ((towards, away), (true_towards, true_away)) = found;
            // A tick of the clock at either bound, and what its drift may be.
            let near = |found: u32, truth: u64| {
                u64::from(found) <= truth && u64::from(found) + 5_000 >= truth
            };
            assert!(near(towards, true_towards), "{towards} of {true_towards}");
            assert!(near(away, true_away), "{away} of {true_away}");
        }
    }

    #[test]
    fn what_is_certain_is_never_more_than_the_truth() {
        let mut rng = Rng::new(1, "certain");
        for _ in 0..200 {
            let mut half = Half::default();
            // A crystal may be 100 ppm wrong.
            let drift = rng.below(90);
            let (mut towards, mut away) = (rng.below(100_000_000), rng.below(100_000_000));
            let mut at = 1_000_000_000 + rng.below(1 << 40);
            for number in 1..300 {
                let gap = rng.below(40_000_000);
                at += gap;
                // Queues keep the order: they empty by a second in a second at most.
                let less = |rng: &mut Rng| rng.below(9_000_000).min(gap / 2);
                towards = (towards + rng.below(9_000_000)).saturating_sub(less(&mut rng));
                away = (away + rng.below(9_000_000)).saturating_sub(less(&mut rng));
                let Some((found, truth)) =
                    round_trip(&mut half, number, at, (towards, away), drift)
                else {
                    continue;
                };
                // One tick: the far clock shows whole milliseconds.
                assert!(u64::from(found.0) <= truth.0 + 1_000, "towards: {found:?} of {truth:?}");
                assert!(u64::from(found.1) <= truth.1 + 1_000, "away: {found:?} of {truth:?}");
            }
        }
    }

    #[test]
    fn an_echo_late_in_a_burst_of_one_tick_is_delayed_towards_the_device() {
        let mut half = Half::default();
        for number in 1..20 {
            round_trip(&mut half, number, u64::from(number) * 200_000_000, (0, 0), 0);
        }
        // The far end sends a burst within one millisecond. It queues up towards the device, and the
        // last segment is the one that echoes.
        let at = 5_000_000_000;
        half.send(Instant(at), 20, Wait::Stamp);
        let turned = at + AWAY_NS;
        let stamp = ((FAR_ZERO_NS + turned) / 1_000_000) as u32;
        for queue_ms in [0, 10, 20, 30] {
            let back = Instant(turned + TOWARDS_NS + queue_ms * 1_000_000);
            half.clock.tick(back, stamp);
            if queue_ms == 30 {
                let rtt_us = half.returned(back, Some(20), 0).unwrap();
                half.sample(back, rtt_us, true, None);
            }
            half.received_ns = back.0;
        }
        assert!(half.away_us <= 1_000, "{} of 0 away", half.away_us);
        assert!((28_000..=31_000).contains(&half.towards_us), "{} of 30 ms", half.towards_us);
    }

    #[test]
    fn a_smaller_round_trip_that_is_learnt_later_takes_back_what_seemed_certain() {
        let mut half = Half::default();
        // A latecomer: 100 ms stand towards the device.
        for number in 1..9 {
            let at = u64::from(number) * 200_000_000;
            round_trip(&mut half, number, at, (100_000_000, 0), 0);
        }
        half.rtt_min_us = 35_000;
        for number in 9..99 {
            let at = 2_000_000_000 + u64::from(number) * 3_000_000;
            round_trip(&mut half, number, at, (100_000_000, 0), 0);
        }
        assert!(half.away_us <= 1_000, "{} of 0 away", half.away_us);
    }

    #[test]
    fn without_timestamps_a_latecomer_takes_what_others_know_and_only_while_it_is_fresh() {
        let known =
            PlacePath { at_ns: 5_000_000_000, towards_us: 30_000, away_us: 90_000, rtt_us: 0 };
        let sampled = |at_ms: u64| {
            let mut half = Half { rtt_min_us: 50_000, ..Half::default() };
            half.sample(Instant(at_ms * 1_000_000), 150_000, false, Some(&known));
            (half.towards_us, half.away_us)
        };
        // Never more than the whole queue of this round trip.
        assert_eq!(sampled(5_400), (30_000, 70_000));
        assert_eq!(sampled(6_100), (0, 0));
    }

    #[test]
    fn one_echo_answers_all_that_was_sent_before_it_by_the_last_of_them() {
        let mut half = Half { rtt_us: 40_000, ..Half::default() };
        for (value, ms) in [(7, 1_000), (8, 1_010), (9, 1_020)] {
            half.send(Instant(ms * 1_000_000), value, Wait::Stamp);
        }
        // Less than a quarter of a round trip after the last.
        half.send(Instant(1_025_000_000), 10, Wait::Stamp);
        assert_eq!(half.returned(Instant(1_060_000_000), Some(6), 0), None);
        assert_eq!(half.returned(Instant(1_060_000_000), None, 99), None, "waits for a stamp");
        assert_eq!(half.returned(Instant(1_060_000_000), Some(8), 0), Some(50_000));
        assert_eq!(half.returned(Instant(1_070_000_000), Some(10), 0), Some(50_000));
        half.send(Instant(1_080_000_000), 11, Wait::Stamp);
        half.forget();
        assert_eq!(half.returned(Instant(1_100_000_000), Some(11), 0), None);
    }
}
