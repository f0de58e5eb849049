//! Flows of one host share its link equally, whenever they begin and however far they go.

mod made;

use algo::Value;
use made::ms;
use scenario::{Algorithm, Node, Scenario};

/// Both links of the host.
const HOST_MBIT: f64 = 8.0;
/// The hub that the host's links lead to, and the first server behind it.
const HUB: usize = 1;
const SERVERS: usize = 2;

fn law(lambda: f64, fair: bool) -> Algorithm {
    made::algorithm!(
        algo::rwnd,
        "drwa",
        "form" = Value::Choice(2),
        "lambda" = Value::Number(lambda),
        "alpha" = Value::Count(8),
        "quick" = Value::Flag(true),
        "fair" = Value::Flag(fair),
    )
}

/// One flow to (or from) a server at each of these round trips, so many seconds apart.
fn scenario(rtts: &[u64], apart_s: u64, up: bool, law: &Algorithm) -> Scenario {
    let last = apart_s * (rtts.len() as u64 - 1);
    let mut s = made::path(HOST_MBIT, ms(10), 1_400, last + 20);
    let node = |name: String| Node { name, device: None, window: None };
    s.nodes = vec![node("client".into()), node("hub".into())];
    s.links = vec![
        made::link(0, HUB, HOST_MBIT, ms(5), 1_400),
        made::link(HUB, 0, HOST_MBIT, ms(5), 1_400),
    ];
    s.flows.clear();
    for (i, rtt) in rtts.iter().enumerate() {
        let server = SERVERS + i;
        s.nodes.push(node(format!("server{i}")));
        for (from, to) in [(server, HUB), (HUB, server)] {
            s.links.push(made::link(from, to, 1_000.0, ms(rtt / 2 - 5), 10_000));
        }
        let (from, to) = if up { (0, server) } else { (server, 0) };
        let mut flow = made::transfer(from, to, "cubic");
        flow.name = format!("flow{i}");
        flow.start = ms(1_000 * apart_s * i as u64);
        flow.receiver.window =
            if up { made::algorithm!(algo::rwnd, "autotune") } else { law.clone() };
        s.flows.push(flow);
    }
    if up {
        s.nodes[0].window = Some(law.clone());
    }
    s
}

/// Jain's index (Jain, Chiu, Hawe 1984) of the rates in the last five seconds, their sum in Mbit/s,
/// and the largest smoothed excess of a round trip over that of its empty path, ms.
fn shares(s: &Scenario, rtts: &[u64]) -> (f64, f64, f64) {
    let results = made::run(s);
    let from = s.duration.0 - 5_000_000_000;
    let mut rates = Vec::new();
    let mut queue = 0.0_f64;
    for row in results.flows.iter().filter(|row| row.bytes > 100_000) {
        let samples = results.samples.iter().filter(|one| one.flow == row.id && one.t.0 >= from);
        let samples: Vec<_> = samples.collect();
        rates.push(samples.iter().map(|one| one.delivered).sum::<u64>() as f64 * 8.0 / 5e6);
        let rtts_ms: Vec<_> = samples
            .iter()
            .filter_map(|one| one.rtt)
            .map(|(_, mean, _)| mean.0 as f64 / 1e6)
            .collect();
        let connection = results.connections.iter().find(|c| c.id == row.id / 2).unwrap();
        let mean = rtts_ms.iter().sum::<f64>() / rtts_ms.len() as f64;
        queue = queue.max(mean - rtts[connection.flow] as f64);
    }
    assert_eq!(rates.len(), rtts.len());
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (sum * sum / (rates.len() as f64 * squares), sum, queue)
}

const EQUAL: [u64; 8] = [60; 8];

#[test]
fn flows_of_one_host_have_equal_rates_within_twenty_seconds_and_no_more_delay_than_one() {
    for (up, lambda) in [(false, 3.0), (true, 1.75)] {
        for rtts in [&EQUAL[..2], &EQUAL[..4], &EQUAL, &[30, 120], &[120, 30], &[30, 60, 120, 240]]
        {
            for apart_s in [0, 10] {
                let case = format!("{rtts:?}, {apart_s} s apart, up: {up}");
                let (jain, sum, queue) =
                    shares(&scenario(rtts, apart_s, up, &law(lambda, true)), rtts);
                assert!(jain >= 0.9, "{case}: {jain}");
                assert!(sum >= 0.99 * 7.72, "{case}: {sum} Mbit/s");
                // λ · RTTmin of the nearest, and a tenth; the sender's own RTT counts the segment
                // and the delayed ACK, too.
                let nearest = *rtts.iter().min().unwrap() as f64;
                let allowed = nearest * (lambda * 1.1 - 1.0) + 5.0;
                assert!(queue <= allowed, "{case}: {queue} of {allowed} ms");
            }
        }
    }
}

#[test]
fn without_knowledge_of_each_other_they_stay_unequal() {
    for (up, lambda) in [(false, 3.0), (true, 1.75)] {
        for rtts in [&EQUAL[..2], &[30, 120]] {
            let (jain, _, _) = shares(&scenario(rtts, 10, up, &law(lambda, false)), rtts);
            assert!(jain < 0.75, "{rtts:?}, up: {up}: {jain}");
        }
    }
}

#[test]
fn a_flow_alone_is_the_same_with_and_without() {
    for (up, lambda) in [(false, 3.0), (true, 1.75)] {
        let of = |fair| shares(&scenario(&[60], 0, up, &law(lambda, fair)), &[60]);
        assert_eq!(of(true), of(false));
    }
}
