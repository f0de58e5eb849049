//! The devices of a run: which links share a pair of them, their names, and the namespaces that they are made in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use scenario::{Offload, Scenario};
use serde_json::{Value, json};

use super::{Options, RunError};
use crate::tun::{Tun, TunOptions};

/// From this rate on a link's devices take large segments, if the scenario leaves it open: below it
/// a packet lasts longer than 60 µs, and system calls cost nothing beside it.
const OFFLOAD_BPS: u64 = 200_000_000;

/// Two devices that face each other, and the links between them.
pub(super) struct Pair {
    /// By side: node, index of the link that leaves it here.
    pub(super) sides: [(usize, Option<usize>); 2],
    pub(super) offload: bool,
}

/// Which links go back to back over one pair of devices: the k-th from A to B with the k-th from B
/// to A.
pub(super) fn pairs(scenario: &Scenario, offload: Option<Offload>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (index, link) in scenario.links.iter().enumerate() {
        let partner =
            pairs.iter_mut().find(|p| p.sides[0].0 == link.to && p.sides[1] == (link.from, None));
        let fast = match offload.unwrap_or(scenario.lab.offload) {
            Offload::On => true,
            Offload::Off => false,
            Offload::Auto => max_rate(scenario, index) >= OFFLOAD_BPS,
        };
        match partner {
            Some(pair) => {
                pair.sides[1].1 = Some(index);
                pair.offload |= fast;
            }
            None => {
                let sides = [(link.from, Some(index)), (link.to, None)];
                pairs.push(Pair { sides, offload: fast });
            }
        }
    }
    pairs
}

/// The largest rate of a link, as far as the scenario gives it.
fn max_rate(scenario: &Scenario, index: usize) -> u64 {
    let link = &scenario.links[index];
    let entry = &algo::link::TABLE[link.medium.index];
    match (&link.trace, entry.name) {
        (Some(scenario::Trace::Rates(steps)), _) => {
            steps.iter().map(|(_, rate)| rate.bps()).max().unwrap_or(0)
        }
        (Some(scenario::Trace::Opportunities(ms)), _) => {
            // Opportunities of 1,504 bytes, on average over the trace.
            let last = ms.last().copied().unwrap_or(1).max(1);
            ms.len() as u64 * 1_504 * 8 * 1_000 / last
        }
        (None, "fixed") => {
            let place = entry.params.iter().position(|p| p.name == "rate");
            match place.and_then(|place| link.medium.settings.0.get(place)) {
                Some(algo::Value::Rate(rate)) => rate.bps(),
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// A device name that the kernel takes: at most 15 bytes, none of them a slash, a blank or a colon.
fn device_name(scenario: &Scenario, side: (usize, Option<usize>), peer: usize) -> String {
    let name = match side.1 {
        Some(link) => scenario.links[link].name.clone(),
        None => format!("from-{}", scenario.nodes[peer].name),
    };
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    match clean.len() {
        1..=15 if clean != "lo" && clean != "." && clean != ".." => clean,
        _ => side.1.map_or_else(|| format!("in{peer}"), |link| format!("link{link}")),
    }
}

/// Both devices of a pair, opened.
pub(super) type Opened = [Arc<Tun>; 2];

pub(super) fn open(
    scenario: &Scenario,
    options: &Options,
    pair: &Pair,
) -> Result<Opened, RunError> {
    let one = |side: usize| {
        let (node, _) = pair.sides[side];
        let peer = pair.sides[1 - side].0;
        let namespace = &options.namespaces[&scenario.nodes[node].name];
        let name = device_name(scenario, pair.sides[side], peer);
        let path = namespace_path(namespace);
        let device = TunOptions {
            namespace: &path,
            name: &name,
            queues: options.queues,
            offload: pair.offload,
        };
        let error =
            |source| RunError::Device { name: name.clone(), namespace: namespace.clone(), source };
        Tun::open(&device).map(Arc::new).map_err(error)
    };
    Ok([one(0)?, one(1)?])
}

pub(super) fn devices_message(
    scenario: &Scenario,
    options: &Options,
    pairs: &[Pair],
    opened: &[Opened],
) -> Value {
    let mut devices = Vec::new();
    for (pair, tuns) in pairs.iter().zip(opened) {
        for (side, tun) in tuns.iter().enumerate() {
            let (node, out) = pair.sides[side];
            let (peer, back) = pair.sides[1 - side];
            devices.push(json!({
                "node": node,
                "peer": peer,
                "namespace": options.namespaces[&scenario.nodes[node].name],
                "name": tun.name,
                "links": [out, back],
                "offload": pair.offload,
            }));
        }
    }
    json!({"event": "devices", "devices": devices})
}

/// Named namespaces are files there (ip-netns(8)); a path is taken as it is.
fn namespace_path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) }
}

/// A device keeps its namespace alive, so that only the name shows that it was removed.
pub(super) fn namespaces_are_there(scenario: &Scenario, options: &Options) -> Result<(), RunError> {
    for node in &scenario.nodes {
        let name = &options.namespaces[&node.name];
        if !namespace_path(name).exists() {
            return Err(RunError::NamespaceGone(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    const UP: &str = "rate = \"8 Mbit/s\"\ndelay = \"5 ms\"";

    fn sides(pairs: &[Pair]) -> Vec<[(usize, Option<usize>); 2]> {
        pairs.iter().map(|pair| pair.sides).collect()
    }

    #[test]
    fn a_link_and_the_one_back_share_a_pair_of_devices() {
        let mut two = scenario(UP);
        assert_eq!(sides(&pairs(&two, None)), [[(0, Some(0)), (1, Some(1))]]);
        // A second link each way, and one that nothing comes back over.
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            two.links.push(scenario::Link { from, to, ..two.links[0].clone() });
        }
        assert_eq!(
            sides(&pairs(&two, None)),
            [[(0, Some(0)), (1, Some(1))], [(0, Some(2)), (1, Some(3))], [(0, Some(4)), (1, None)]]
        );
    }

    #[test]
    fn devices_take_large_segments_from_200_mbit_s_on_or_as_they_are_set() {
        let offload = |up: &str, forced| pairs(&scenario(up), forced)[0].offload;
        for (rate, auto) in [("199 Mbit/s", false), ("200 Mbit/s", true), ("1 Gbit/s", true)] {
            let up = format!("rate = \"{rate}\"\ndelay = \"5 ms\"");
            assert_eq!(offload(&up, None), auto, "{rate}");
            assert!(offload(&up, Some(Offload::On)) && !offload(&up, Some(Offload::Off)));
        }
        // Four opportunities of 1,504 bytes in 10 ms are 4.8128 Mbit/s.
        assert_eq!(max_rate(&scenario("trace = \"made.up\"\ndelay = \"5 ms\""), 0), 4_812_800);
        let profile =
            "rate = { profile = [2, 300], unit = \"Mbit/s\", slot = \"10 ms\" }\ndelay = \"5 ms\"";
        assert_eq!(max_rate(&scenario(profile), 0), 300_000_000);
        assert!(offload(profile, None));
    }

    #[test]
    fn names_of_devices_are_such_that_the_kernel_takes_them() {
        let mut one = scenario(UP);
        let name_of = |scenario: &Scenario| device_name(scenario, (0, Some(0)), 1);
        assert_eq!(name_of(&one), "up");
        for (link, device) in [
            ("air/up 1:2", "air-up-1-2"),
            ("fifteen-letters", "fifteen-letters"),
            ("sixteen-letters.", "link0"),
            ("lo", "link0"),
            ("..", "link0"),
            ("", "link0"),
            ("über", "-ber"),
        ] {
            one.links[0].name = link.to_owned();
            assert_eq!(name_of(&one), device, "{link}");
        }
        assert_eq!(device_name(&one, (1, None), 0), "from-client");
        one.nodes[0].name = "a-long-name-of-a-node".to_owned();
        assert_eq!(device_name(&one, (1, None), 0), "in0");
    }

    #[test]
    fn a_namespace_is_a_name_or_a_path() {
        assert_eq!(namespace_path("blue"), Path::new("/run/netns/blue"));
        assert_eq!(namespace_path("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }
}
