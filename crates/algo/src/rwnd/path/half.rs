//! One half of a path: from a device to one end of a flow, and back.
//!
//! signal: values that leave and their echoes · model: [`super`] · action: round trip, minimum, and
//! the certain queueing of either direction.

use units::Instant;

use super::clock::FarClock;
use super::places::PlacePath;
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
    /// The clock of its far end.
    pub clock: FarClock,
}

impl Half {
    /// Takes a round trip. It ended with the packet whose timestamp the clock has just taken, if the
    /// flow is `stamped`. `known`: what other flows have measured of this path.
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
        let mut low = clock.delay - queue;
        // A new flow uses what other flows have measured: they have seen the path empty.
        if !clock.bounded
            && let Some(known) = known
        {
            let high = clock.delay - i64::from(known.towards_us.min(queue_us)) * 1_000;
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
        self.towards_us = micros_of(clock.delay - clock.high).min(queue_us);
        // A far end that was silent may have had nothing to send: that part of the round trip is
        // not certainly queueing.
        let silent = silent_us.min(MAX_RTT_US) as i64 * 1_000;
        self.away_us = micros_of(queue - (clock.delay - clock.low) - silent);
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
        let mut last_ns = 0;
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
            last_ns = last_ns.max(probe.sent_ns);
            probe.wait = None;
        }
        let us = now.0.wrapping_sub(last_ns) / 1_000;
        (last_ns != 0 && us < MAX_RTT_US).then_some(us.max(1) as u32)
    }

    /// Drops all measurements after a retransmission: which of both transmissions is answered is
    /// unknown (Karn's algorithm).
    pub fn forget(&mut self) {
        for probe in &mut self.probes {
            probe.wait = None;
        }
    }

    /// A SYN was sent again: measurements begin anew, with the next value.
    pub fn begin_again(&mut self) {
        self.forget();
        self.probed_ns = 0;
        self.last_probed = 0;
    }
}
