//! The counters of a run as JSON: each second, and the summary at its end (`emu.json`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use scenario::Scenario;
use serde_json::{Value, json};
use units::{Histogram, Instant};

use super::devices::{Opened, Pair};
use crate::worker::{Finished, Live};

fn counters(live: &Live) -> [(&'static str, u64); 7] {
    let read = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
    [
        ("offered", read(&live.offered)),
        ("arrived", read(&live.arrived)),
        ("bytes", read(&live.bytes)),
        ("dropped", read(&live.dropped)),
        ("lost", read(&live.lost)),
        ("undeliverable", read(&live.refused)),
        ("waiting_bytes", read(&live.waiting)),
    ]
}

pub(super) fn link_object(scenario: &Scenario, link: usize, live: &Live) -> Value {
    let mut object = json!({"link": scenario.links[link].name});
    for (name, value) in counters(live) {
        object[name] = json!(value);
    }
    object
}

pub(super) fn summary(
    scenario: &Scenario,
    finished: &[(usize, Arc<Live>, Finished)],
    pairs: &[Pair],
    opened: &[Opened],
    ran: Instant,
    complete: bool,
) -> Value {
    let mut links = Vec::new();
    let mut all = Histogram::default();
    for (link, live, one) in finished {
        let mut object = link_object(scenario, *link, live);
        for (name, value) in [
            ("early", one.early),
            ("oversize", one.oversize),
            ("held", one.stored),
            ("memory_bytes", one.memory),
        ] {
            object[name] = json!(value);
        }
        object["lateness_us"] = quantiles(&one.lateness);
        all.merge(&one.lateness);
        links.push(object);
    }
    let mut devices = Vec::new();
    let mut lost = 0;
    for (pair, tuns) in pairs.iter().zip(opened) {
        for (side, tun) in tuns.iter().enumerate() {
            // A device that is gone has no counters.
            let counters = tun.counters().unwrap_or_default();
            lost += counters.dropped;
            devices.push(json!({
                "node": scenario.nodes[pair.sides[side].0].name,
                "name": tun.name,
                "dropped": counters.dropped,
                "refused": counters.refused,
                "offload": pair.offload,
            }));
        }
    }
    json!({
        "ran_s": ran.0 as f64 / 1e9,
        "links": links,
        "devices": devices,
        "kernel_drops": lost,
        "lateness_us": quantiles(&all),
        "log_complete": complete,
    })
}

fn quantiles(histogram: &Histogram) -> Value {
    let at = |q: f64| histogram.quantile(q).map(|ns| ns as f64 / 1e3);
    json!({"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": at(1.0)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    #[test]
    fn counters_and_quantiles_are_printed_under_their_names() {
        let live = Live::default();
        live.offered.store(5, Ordering::Relaxed);
        live.refused.store(2, Ordering::Relaxed);
        live.waiting.store(1_500, Ordering::Relaxed);
        assert_eq!(
            link_object(&scenario("rate = \"8 Mbit/s\"\ndelay = \"5 ms\""), 0, &live),
            json!({"link": "up", "offered": 5, "arrived": 0, "bytes": 0, "dropped": 0, "lost": 0,
                "undeliverable": 2, "waiting_bytes": 1_500})
        );
        assert_eq!(quantiles(&Histogram::default())["p50"], Value::Null);
        let mut late = Histogram::default();
        (1..=1_000).for_each(|us| late.record(us * 1_000));
        let found = quantiles(&late);
        for (name, us) in [("p50", 500.0), ("p95", 950.0), ("p99", 990.0), ("max", 1_000.0)] {
            let off = found[name].as_f64().expect("a number") / us - 1.0;
            assert!(off.abs() < 0.02, "{name}: {found}");
        }
    }
}
