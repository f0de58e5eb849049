//! What all flows of a host have measured of the paths to an address, and of what they share.
//!
//! signal: round trips and certain queueing of each flow · model: flows to one address share its
//! path; flows to all addresses share the device · action: a latecomer's smallest RTT, and bounds of
//! the queues that it has not seen empty.

use alloc::collections::BTreeMap;

use units::Instant;

use super::super::fair::Shares;
use super::half::Half;
use super::place::PlacePath;
use super::{MAX_RTT_US, NS_PER_MS};

/// Within this time the tighter of two bounds is taken.
const MERGED_NS: u64 = 200 * NS_PER_MS;

/// All addresses of a device.
#[derive(Clone, Debug, Default)]
pub struct Places {
    by_address: BTreeMap<u64, PlacePath>,
    device: Option<PlacePath>,
    /// What the flows of either direction of data carry: downloads, uploads.
    pub(in crate::rwnd) shares: [Shares; 2],
    /// Smallest RTT to an address at the receivers of this host, µs.
    minima: BTreeMap<u64, u64>,
}

impl Places {
    /// The path state of an address, else of the whole device.
    pub fn of(&self, address: u64) -> Option<PlacePath> {
        self.by_address.get(&address).copied().filter(|place| place.at_ns != 0).or(self.device)
    }

    /// Whether a receiver of this host knows a smallest RTT to this address.
    pub fn has_minimum(&self, address: u64) -> bool {
        self.minima.contains_key(&address)
    }

    /// Whether a flow has measured the path to this address.
    pub fn is_known(&self, address: u64) -> bool {
        self.by_address.contains_key(&address)
    }

    /// The smallest RTT to an address that any connection of this host knows, and this one's own is
    /// `own`; `MAX_RTT_US` stands for none.
    pub fn minimum(&mut self, address: u64, own: u64) -> u64 {
        match self.minima.get(&address) {
            Some(shared) if *shared <= own => *shared,
            _ => {
                if own < MAX_RTT_US {
                    self.minima.insert(address, own);
                }
                own
            }
        }
    }

    /// Shares a round trip with other flows to the same address, and with flows to addresses that
    /// are still unknown. `clocked`: the queues are measured by a far clock.
    pub fn learn(&mut self, address: u64, half: &mut Half, now: Instant, clocked: bool) {
        let now = now.0;
        let new = PlacePath { rtt_us: half.rtt_min_us.into(), ..PlacePath::default() };
        match self.by_address.get_mut(&address) {
            Some(place) => {
                if place.rtt_us < half.rtt_min_us.into() {
                    half.rtt_min_us = place.rtt_us as u32;
                } else {
                    place.rtt_us = half.rtt_min_us.into();
                }
                // All estimates are lower bounds of the same queue: the largest counts.
                let old = now.wrapping_sub(place.at_ns) > MERGED_NS;
                let more = half.towards_us.wrapping_add(half.away_us)
                    >= place.towards_us.wrapping_add(place.away_us);
                if clocked && (old || more) {
                    place.towards_us = half.towards_us;
                    place.away_us = half.away_us;
                    place.at_ns = now;
                }
            }
            None => {
                self.by_address.insert(address, new);
            }
        }
        if !clocked {
            return;
        }
        let new =
            PlacePath { rtt_us: 0, at_ns: now, towards_us: half.towards_us, away_us: half.away_us };
        // Paths differ but all share the device: what they have in common, the smallest, counts.
        let stays = self.device.is_some_and(|device| {
            now.wrapping_sub(device.at_ns) <= MERGED_NS
                && (half.towards_us > device.towards_us || half.away_us > device.away_us)
        });
        if !stays {
            self.device = Some(new);
        }
    }
}
