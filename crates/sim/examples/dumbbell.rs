//! How fast the simulator is: a dumbbell of 100 Mbit/s, 50 ms and one BDP of buffer behind access
//! links of 1 Gbit/s, printed as delivered data packets per second of wall time.
//!
//! Usage: `dumbbell [flows] [seconds] [congestion control] [bottleneck Mbit/s] [warm-up s]`.
//! Goodput and the mean time in the queue count from the end of the warm-up.
//! `bench/sim/dumbbell.cc` is the same network in ns-3.

use std::time::Instant as Clock;

use algo::{Capacity, Settings, Value, aqm, cc, link, rwnd};
use scenario::{
    Algorithm, App, Flow, Link, Node, QueuePer, Read, Receiver, Scenario, Sender, WindowUpdate,
};
use units::{Bytes, Duration, Rate};

/// An entry of a table by name, with some values set.
macro_rules! algorithm {
    ($family:path, $name:expr $(, $key:literal = $value:expr)*) => {{
        use $family as family;
        let index = family::TABLE.iter().position(|e| e.name == $name).expect("the table has it");
        let params = family::TABLE[index].params;
        #[allow(unused_mut)]
        let mut settings = Settings::defaults(params);
        $(assert!(settings.set(params, $key, $value), "{} is a parameter", $key);)*
        Algorithm { index, settings }
    }};
}

fn link(name: String, from: usize, to: usize, rate: u64, delay_us: u64, packets: u64) -> Link {
    Link {
        name,
        from,
        to,
        medium: algorithm!(link, "fixed", "rate" = Value::Rate(Rate(rate))),
        trace: None,
        delay: Duration::from_micros(delay_us),
        layers: Vec::new(),
        queue: algorithm!(aqm, "droptail", "limit" = Value::Capacity(Capacity::Packets(packets))),
        queue_per: QueuePer::Link,
    }
}

/// Nodes 0 and 1 are the routers, then a sender and a receiver for each flow.
fn scenario(flows: usize, seconds: u64, congestion: &str, mbps: u64, warmup: u64) -> Scenario {
    // One bandwidth-delay product: 50 ms, 1,500 bytes; 417 packets at 100 Mbit/s.
    let (rate, limit) = (mbps * 1_000_000, (mbps * 6_250).div_ceil(1_500));
    let mut nodes = vec!["left".to_string(), "right".to_string()];
    let mut links = vec![
        link("bottleneck".into(), 0, 1, rate, 24_000, limit),
        link("back".into(), 1, 0, rate, 24_000, limit),
    ];
    let mut transfers = Vec::new();
    for i in 0..flows {
        let (s, r) = (nodes.len(), nodes.len() + 1);
        nodes.push(format!("sender{i}"));
        nodes.push(format!("receiver{i}"));
        for (name, from, to) in [("a", s, 0), ("b", 0, s), ("c", 1, r), ("d", r, 1)] {
            links.push(link(format!("{name}{i}"), from, to, 1_000_000_000, 500, 10_000));
        }
        transfers.push(Flow {
            name: format!("flow{i}"),
            from: s,
            to: r,
            sender_opens: true,
            start: Duration::from_millis(i as u64),
            stop: None,
            sender: Sender {
                congestion: algorithm!(cc, congestion),
                initial_window: 10,
                mss: Bytes(1_448),
                buffer: Bytes(8 << 20),
                tsq: None,
                pacing: false,
                sack: true,
                timestamps: true,
                ecn: false,
                class: 1,
                slow_start_after_idle: true,
            },
            receiver: Receiver {
                window: algorithm!(rwnd, "autotune"),
                read: Read::AtOnce,
                window_update: WindowUpdate::Linux,
                ack_every: 2,
                ack_delay: Duration::from_millis(40),
                ack_class: 1,
            },
            app: App::Bulk,
        });
    }
    let node = |name| Node { name, device: None, window: None };
    Scenario {
        name: "dumbbell".into(),
        about: String::new(),
        duration: Duration::from_secs(seconds),
        warmup: Duration::from_secs(warmup),
        seed: 1,
        bin: Duration::from_millis(100),
        nodes: nodes.into_iter().map(node).collect(),
        links,
        flows: transfers,
        probes: Vec::new(),
        changes: Vec::new(),
        lab: scenario::Lab::default(),
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
