//! Pauses before probes, by path: for radios that sleep.
//!
//! signal: pings and probes of `unbloat measure`, each with the time since the last packet of the asking host in the capture,
//! from or to anywhere · model: the radio of a host falls asleep after a pause, and the next packet waits until it is awake
//! · action: pause and RTT of up to [`MAX_SAMPLES`] exchanges of each pair of hosts, for the rule `radio-promotion`
//!
//! DNS and other requests are left out: what an application takes to answer can depend on the pause as well. Exchanges
//! under load are left out too, and those that began while another was under way: its packet may be waking the radio.

use capture::Addr;
use hashbrown::HashMap;
use units::Duration;

use crate::identity::key::Hasher;
use crate::series::evidence::{PausedProbe, ProbePauses};

/// Pairs of hosts that are kept: a host that pings more of them is scanning.
const MAX_PATHS: usize = 256;
/// Exchanges kept per pair, as many as the search for steps takes at once; beyond, every second one is dropped.
const MAX_SAMPLES: usize = 512;
/// With fewer exchanges a pair shows nothing, and makes room for others.
const FEW: usize = 6;
/// After less time than this no radio sleeps, and the path may still be busy with the packet before.
const MIN_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Path {
    flow: u32,
    samples: Vec<PausedProbe>,
    /// One exchange in so many is kept.
    every: u32,
    seen: u32,
}

/// Pauses before the probes of each pair of hosts.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    of: HashMap<(Addr, Addr), Path, Hasher>,
}

impl Paths {
    /// A probe from `asker` to `answerer` after a pause, and the flow that it belongs to.
    pub fn take(&mut self, asker: Addr, answerer: Addr, flow: u32, probe: PausedProbe) {
        if probe.pause < MIN_PAUSE {
            return;
        }
        if self.of.len() >= MAX_PATHS && !self.of.contains_key(&(asker, answerer)) {
            self.of.retain(|_, path| path.samples.len() >= FEW);
            if self.of.len() >= MAX_PATHS {
                return;
            }
        }
        let path = self.of.entry((asker, answerer)).or_default();
        path.flow = flow;
        path.every = path.every.max(1);
        path.seen += 1;
        if path.seen < path.every {
            return;
        }
        path.seen = 0;
        if path.samples.len() >= MAX_SAMPLES {
            let mut odd = false;
            path.samples.retain(|_| {
                odd = !odd;
                odd
            });
            path.every = path.every.saturating_mul(2);
        }
        path.samples.push(probe);
    }

    /// Those of each pair, in the order of their flows.
    pub fn sorted(&self) -> Vec<ProbePauses<'_>> {
        let mut all: Vec<ProbePauses<'_>> =
            self.of.values().map(|p| ProbePauses { flow: p.flow, probes: &p.samples }).collect();
        all.sort_by_key(|path| path.flow);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Instant;

    fn probe(i: u64) -> PausedProbe {
        let time = Instant(i * 1_000_000_000);
        PausedProbe { time, pause: Duration::from_secs(1), rtt: Duration::from_millis(40) }
    }

    #[test]
    fn memory_is_bounded_and_a_scan_does_not_displace_a_path() {
        let mut paths = Paths::default();
        for i in 0..10_000 {
            paths.take(Addr(1), Addr(2), 7, probe(i));
            paths.take(Addr(1), Addr(100 + u128::from(i)), 9, probe(i));
        }
        assert!(paths.of.len() <= MAX_PATHS);
        let all = paths.sorted();
        assert_eq!(all[0].flow, 7);
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&all[0].probes.len()));
        let last = all[0].probes.last().expect("samples").time;
        assert!(last > Instant(9_900_000_000_000), "the whole capture counts");
    }

    #[test]
    fn what_follows_at_once_is_no_pause() {
        let mut paths = Paths::default();
        let soon = PausedProbe { pause: Duration::from_millis(19), ..probe(1) };
        paths.take(Addr(1), Addr(2), 0, soon);
        assert!(paths.sorted().is_empty());
    }
}
