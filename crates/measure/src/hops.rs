//! Between which hops the queue stands.
//!
//! signal: probes that expire on the way, idle and loaded, with the router's answer to each; added delay of the probes that
//! reach the server · model: a router beyond the queue answers later by the queue, one before it does not. The queue is in
//! front of the first hop from which on every answer is later by at least half of what the server's are. The later hops
//! count since a router that is slow to answer is so alone · action: two neighbouring hops that answer, with the share of
//! bootstrap draws that say the same; a wider range where they differ, or where a hop between them is silent.
//!
//! In which direction the queue of this link stands follows from the load. Towards this host the sender is the farther
//! router, so "in front of" means the same link.
//!
//! Routers limit their answers: Linux sends six at once and then one a second to each host (`icmp_ratelimit`). So the rate
//! of these probes is low outside the time that is measured.

use std::collections::BTreeMap;
use std::net::IpAddr;

use algo::Rng;
use serde::Serialize;

/// Least added delay of the path for which a link is looked for, ms. Below it, routers' own delays of a few milliseconds
/// would be half of it.
pub const MIN_ADDED_MS: f64 = 10.0;
/// Share of the path's added delay that a hop beyond the queue shows at least. The queue swings between two answers.
const HALF: f64 = 0.5;
/// A hop with fewer answers under load is silent: the median of two is a mean.
const MIN_ANSWERS: usize = 3;
const DRAWS: usize = 200;
/// Share of the draws that the printed range covers.
const COVERED: f64 = 0.9;

/// A probe that expires at a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopProbe {
    /// Its hop limit; 1: the first router.
    pub hop: u8,
    /// When it was sent, client's clock, ns.
    pub t1: i64,
    /// When the answer came, and the router's address.
    pub answer: Option<(i64, IpAddr)>,
}

impl HopProbe {
    fn rtt_ms(&self) -> Option<f64> {
        self.answer.map(|(t4, _)| (t4 - self.t1) as f64 / 1e6)
    }
}

/// A router that answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hop {
    /// Its distance; 1: the first router.
    pub hop: u8,
    /// Where most of its answers came from.
    pub address: IpAddr,
    /// Its smallest round trip, ms.
    pub rtt_min_ms: f64,
}

/// Between which hops a queue stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The last hop before it; 0: this host.
    pub after: u8,
    /// The first hop behind it; `None`: the server, or a router that does not answer.
    pub before: Option<u8>,
    /// Share of the draws that lie in this range.
    pub share: f64,
    /// Which device that is, in words.
    pub device: &'static str,
}

/// Why the place of a queue is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The median of the added delay is infinite.
    #[error("more than half of the probes were lost")]
    Lost,
    /// Less than [`MIN_ADDED_MS`].
    #[error("the added delay is too short to be followed from hop to hop")]
    Short,
    /// Fewer than three answers of each.
    #[error("no router on the way answers while the path is loaded")]
    Silent,
}

/// The routers that answer, nearest first.
pub fn hops(probes: &[HopProbe]) -> Vec<Hop> {
    let mut found: BTreeMap<u8, (BTreeMap<IpAddr, usize>, f64)> = BTreeMap::new();
    for probe in probes {
        let (Some((_, address)), Some(rtt)) = (probe.answer, probe.rtt_ms()) else { continue };
        let (addresses, least) = found.entry(probe.hop).or_insert((BTreeMap::new(), rtt));
        *addresses.entry(address).or_default() += 1;
        *least = least.min(rtt);
    }
    found
        .into_iter()
        .filter_map(|(hop, (addresses, rtt_min_ms))| {
            let (address, _) = addresses.into_iter().max_by_key(|(_, count)| *count)?;
            Some(Hop { hop, address, rtt_min_ms })
        })
        .collect()
}

/// The place of the queue of a loaded phase, or why it is not known. `up`: the load goes to the server; `added_ms`: median
/// added delay of the path.
pub fn place(
    probes: &[HopProbe],
    hops: &[Hop],
    (from, until): (i64, i64),
    added_ms: f64,
    up: bool,
    rng: &mut Rng,
) -> Result<Place, Unknown> {
    if !added_ms.is_finite() {
        return Err(Unknown::Lost);
    }
    if added_ms < MIN_ADDED_MS {
        return Err(Unknown::Short);
    }
    let late: Vec<(u8, Vec<f64>)> = hops
        .iter()
        .map(|hop| {
            let loaded = probes.iter().filter(|p| p.hop == hop.hop && from <= p.t1 && p.t1 < until);
            (hop.hop, loaded.filter_map(|p| Some(p.rtt_ms()? - hop.rtt_min_ms)).collect())
        })
        .filter(|(_, late): &(u8, Vec<f64>)| late.len() >= MIN_ANSWERS)
        .collect();
    if late.is_empty() {
        return Err(Unknown::Silent);
    }
    let mut draws: BTreeMap<(u8, Option<u8>), usize> = BTreeMap::new();
    for _ in 0..DRAWS {
        let medians: Vec<(u8, f64)> = late
            .iter()
            .map(|(hop, late)| {
                let draw =
                    || late[((rng.uniform() * late.len() as f64) as usize).min(late.len() - 1)];
                let mut drawn: Vec<f64> = std::iter::repeat_with(draw).take(late.len()).collect();
                (*hop, median(&mut drawn))
            })
            .collect();
        *draws.entry(link(&medians, added_ms)).or_default() += 1;
    }
    let ((after, before), share) = covered(draws);
    let first = hops.first().filter(|hop| hop.hop == 1);
    let at_home = first.is_some_and(|hop| is_private(hop.address));
    Ok(Place { after, before, share, device: device(after, before, up, at_home) })
}

/// The hops around the queue, of one draw of medians.
fn link(medians: &[(u8, f64)], added_ms: f64) -> (u8, Option<u8>) {
    let beyond = medians.iter().rev().take_while(|(_, late)| *late >= HALF * added_ms).count();
    let first = medians.len() - beyond;
    let after = first.checked_sub(1).map_or(0, |before| medians[before].0);
    (after, medians.get(first).map(|(hop, _)| *hop))
}

/// The smallest range around the most frequent draws that covers enough of them.
fn covered(draws: BTreeMap<(u8, Option<u8>), usize>) -> ((u8, Option<u8>), f64) {
    let mut by_count: Vec<_> = draws.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (mut range, mut sum) = ((u8::MAX, Some(0)), 0);
    for ((after, before), count) in by_count {
        // The server is farther than every hop.
        let farther = match (range.1, before) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        range = (range.0.min(after), farther);
        sum += count;
        if sum as f64 >= COVERED * DRAWS as f64 {
            break;
        }
    }
    (range, sum as f64 / DRAWS as f64)
}

fn device(after: u8, before: Option<u8>, up: bool, at_home: bool) -> &'static str {
    match (after, before) {
        (0, Some(1)) if up => "this host, or its Wi-Fi or cable",
        (0, Some(1)) => "the router or access point in front of this host",
        (0, _) => "this host, the first router, or a hop behind it that does not answer",
        (1, Some(2)) if at_home && up => "the home router's uplink, or the modem",
        (1, Some(2)) if at_home => "the provider's end of the access line",
        (1, _) if at_home => "the access line, or a hop behind it that does not answer",
        _ => "the provider's network, or beyond",
    }
}

/// Whether an address is one of a home network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use algo::Rng;
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// Answers of five hops, 10 ms apart, idle for 3 s and then loaded for 6 s. The queue of 200 to 300 ms stands in front of
    /// hop `at`; `silent` hops never answer; hop `slow` takes up to 150 ms for every answer, queue or not.
    fn answers(seed: u64, at: u8, silent: &[u8], slow: Option<u8>) -> Vec<HopProbe> {
        let mut rng = Rng::new(seed, "hops");
        let mut probes = Vec::new();
        for n in 0..15_i64 {
            for hop in 1..=5_u8 {
                let t1 = if n < 3 { n * S } else { 3 * S + (n - 3) * S / 2 };
                let queue = if n >= 3 && hop >= at { 200.0 + 100.0 * rng.uniform() } else { 0.0 };
                let own =
                    if slow == Some(hop) && n >= 3 { 150.0 * rng.uniform() } else { rng.uniform() };
                let ms = 10.0 * f64::from(hop) + queue + own;
                let address = match hop {
                    1 => IpAddr::from([192, 168, 1, 1]),
                    _ => IpAddr::from([100, 64, 0, hop]),
                };
                let answer = (t1 + (ms * 1e6) as i64, address);
                let answer = (!silent.contains(&hop)).then_some(answer);
                probes.push(HopProbe { hop, t1, answer });
            }
        }
        probes
    }

    fn placed(probes: &[HopProbe], up: bool) -> Result<Place, Unknown> {
        let mut rng = Rng::new(3, "draws");
        place(probes, &hops(probes), (3 * S, 9 * S), 250.0, up, &mut rng)
    }

    #[test]
    fn the_link_of_the_queue_is_found_at_every_hop() {
        for at in 1..=5 {
            let found = placed(&answers(1, at, &[], None), true).unwrap();
            assert_eq!((found.after, found.before), (at - 1, Some(at)));
            assert!(found.share > 0.99);
        }
        let found = placed(&answers(1, 6, &[], None), true).unwrap();
        assert_eq!((found.after, found.before), (5, None), "behind the last router");
    }

    #[test]
    fn the_device_is_named_in_either_direction() {
        let device = |at, up| placed(&answers(2, at, &[], None), up).unwrap().device;
        assert_eq!(device(1, true), "this host, or its Wi-Fi or cable");
        assert_eq!(device(1, false), "the router or access point in front of this host");
        assert_eq!(device(2, true), "the home router's uplink, or the modem");
        assert_eq!(device(2, false), "the provider's end of the access line");
        assert_eq!(device(3, true), "the provider's network, or beyond");
    }

    #[test]
    fn a_silent_hop_widens_the_range() {
        let found = placed(&answers(1, 3, &[3], None), true).unwrap();
        assert_eq!((found.after, found.before), (2, Some(4)));
        let found = placed(&answers(1, 2, &[1], None), true).unwrap();
        assert_eq!((found.after, found.before), (0, Some(2)));
        assert!(found.device.contains("first router"));
    }

    #[test]
    fn a_router_that_is_slow_to_answer_is_no_queue() {
        let found = placed(&answers(1, 4, &[], Some(2)), true).unwrap();
        assert_eq!((found.after, found.before), (3, Some(4)));
    }

    #[test]
    fn without_answers_or_without_a_queue_the_reason_is_given() {
        let none = placed(&answers(1, 3, &[1, 2, 3, 4, 5], None), true);
        assert_eq!(none, Err(Unknown::Silent));
        let probes = answers(1, 6, &[], None);
        let mut rng = Rng::new(3, "draws");
        assert!(place(&probes, &hops(&probes), (3 * S, 9 * S), 9.0, true, &mut rng).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_silent_the_range_holds_the_queue(
            seed in 0_u64..100, at in 1_u8..=6, silent in prop::collection::vec(1_u8..=5, 0..4),
        ) {
            if let Ok(found) = placed(&answers(seed, at, &silent, None), true) {
                prop_assert!(found.after < at);
                prop_assert!(found.before.is_none_or(|before| before >= at));
            }
        }
    }
}
