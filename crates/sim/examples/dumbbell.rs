//! How fast the simulator is: a dumbbell of 100 Mbit/s, 50 ms and one BDP of buffer behind access
//! links of 1 Gbit/s, printed as delivered data packets per second of wall time.
//!
//! Usage: `dumbbell [flows] [seconds] [congestion control] [bottleneck Mbit/s] [warm-up s]`.
//! Goodput and the mean time in the queue count from the end of the warm-up.
//! `bench/sim/dumbbell.cc` is the same network in ns-3.

#[path = "../tests/made/mod.rs"]
mod made;

use std::time::Instant as Clock;

use scenario::{Flow, Link, Node, Receiver, Scenario};
use units::Duration;

fn link(name: String, ends: (usize, usize), mbps: u64, delay_us: u64, packets: u64) -> Link {
    let delay = Duration::from_micros(delay_us);
    Link { name, ..made::link(ends.0, ends.1, mbps as f64, delay, packets) }
}

/// Nodes 0 and 1 are the routers, then a sender and a receiver for each flow.
fn scenario(flows: usize, seconds: u64, congestion: &str, mbps: u64, warmup: u64) -> Scenario {
    // One bandwidth-delay product: 50 ms, 1,500 bytes; 417 packets at 100 Mbit/s.
    let limit = (mbps * 6_250).div_ceil(1_500);
    let mut nodes = vec!["left".to_string(), "right".to_string()];
    let mut links = vec![
        link("bottleneck".into(), (0, 1), mbps, 24_000, limit),
        link("back".into(), (1, 0), mbps, 24_000, limit),
    ];
    let mut transfers = Vec::new();
    for i in 0..flows {
        let (s, r) = (nodes.len(), nodes.len() + 1);
        nodes.push(format!("sender{i}"));
        nodes.push(format!("receiver{i}"));
        for (name, ends) in [("a", (s, 0)), ("b", (0, s)), ("c", (1, r)), ("d", (r, 1))] {
            links.push(link(format!("{name}{i}"), ends, 1_000, 500, 10_000));
        }
        let plain = made::transfer(s, r, congestion);
        let window = made::algorithm!(algo::rwnd, "autotune");
        transfers.push(Flow {
            name: format!("flow{i}"),
            start: Duration::from_millis(i as u64),
            receiver: Receiver { window, ..plain.receiver },
            ..plain
        });
    }
    let node = |name| Node { name, device: None, window: None };
    Scenario {
        warmup: Duration::from_secs(warmup),
        nodes: nodes.into_iter().map(node).collect(),
        links,
        flows: transfers,
        ..made::path(1.0, Duration::ZERO, 1, seconds)
    }
}

#[allow(clippy::disallowed_methods)] // the one thing measured here is wall time
fn main() {
    let mut args = std::env::args().skip(1);
    let flows = args.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let seconds = args.next().and_then(|a| a.parse().ok()).unwrap_or(60);
    let congestion = args.next().unwrap_or_else(|| "cubic".into());
    let mbps = args.next().and_then(|a| a.parse().ok()).unwrap_or(100);
    let warmup = args.next().and_then(|a| a.parse().ok()).unwrap_or(0);
    let scenario = scenario(flows, seconds, &congestion, mbps, warmup);
    let began = Clock::now();
    let Ok(results) = sim::run(&scenario, sim::Options::default(), &mut |_| true) else { return };
    let wall = began.elapsed().as_secs_f64();
    let goodput = if warmup == 0 {
        results.flows.iter().map(|f| f.bytes as f64 * 8.0).sum::<f64>() / seconds as f64 / 1e6
    } else {
        results.flows.iter().filter_map(|f| f.goodput).map(|g| g.0 as f64).sum::<f64>() / 1e6
    };
    let queue = results.stages[0].delay_ms.map_or(0.0, |q| q.p50);
    println!(
        "{{\"flows\": {flows}, \"congestion\": \"{congestion}\", \"wall_s\": {wall:.4}, \"data_packets\": {}, \
         \"packets_per_s\": {:.0}, \"events_per_s\": {:.0}, \"goodput_mbps\": {goodput:.2}, \
         \"queue_ms_p50\": {queue:.2}, \"queue_ms_mean\": {:.3}, \"conserved\": {}}}",
        results.data_packets,
        results.data_packets as f64 / wall,
        results.engine_events as f64 / wall,
        results.stages[0].delay_ms_mean.unwrap_or(0.0),
        results.conservation.holds(),
    );
    if std::env::var_os("VERBOSE").is_some() {
        for f in results.flows.iter().filter(|f| f.bytes > 0) {
            println!("{f:?}");
        }
        for s in results.samples.iter().filter(|s| s.flow == 0).step_by(5) {
            println!(
                "{:.1} cwnd {} inflight {} rwnd {} rtt {:?} {} rex {}",
                s.t.0 as f64 / 1e9,
                s.cwnd / 1448,
                s.in_flight / 1448,
                s.rwnd / 1448,
                s.rtt.map(|r| r.1.0 / 1_000_000),
                s.limit.name(),
                s.retransmissions
            );
        }
    }
}
