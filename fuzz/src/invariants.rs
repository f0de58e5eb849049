//! Invariants of every analysis, whatever the packets were.

use std::collections::HashMap;

use flow::Analysis;
use flow::series::rows::{Connection, Finding, Flow, Limit, Protocol, Quantiles, Value};
use units::{Bytes, Duration, Instant};

/// Panics where an analysis with bins of this width breaks an invariant.
pub fn hold(a: &Analysis, bin: Duration) {
    rows(a);
    for flow in &a.flows {
        let c = &a.connections[flow.id as usize / 2];
        one(flow, c, a.facts.end);
    }
    series(a, bin);
    for finding in &a.findings {
        assert!(finding.from <= finding.to, "{finding:?}");
        assert!(
            !finding.text.is_empty()
                && !finding.text.contains("NaN")
                && !finding.text.contains("inf ")
        );
        for (key, value) in &finding.values {
            if let Value::Number(n) = value {
                assert!(n.is_finite(), "{}: {key} is {n}", finding.rule);
            }
        }
        match finding.rule {
            "bottleneck-rate" => interval(finding),
            "buffer-size" => size(finding),
            _ => {}
        }
    }
}

/// A figure of a finding, if it has it.
fn number(finding: &Finding, name: &str) -> Option<f64> {
    finding.values.iter().find_map(|(key, value)| match value {
        Value::Number(n) if *key == name => Some(*n),
        _ => None,
    })
}

/// A buffer has a size within its interval, or a lower bound alone.
fn size(finding: &Finding) {
    for unit in ["bytes", "ms"] {
        let of = |end: &str| number(finding, &format!("buffer_{unit}{end}"));
        let low = of("_low").expect("a lower bound");
        match (of(""), of("_high")) {
            (Some(size), Some(high)) => assert!(0.0 <= low && low <= size && size <= high),
            (None, None) => assert!(low >= 0.0),
            _ => panic!("{finding:?}"),
        }
    }
}

/// The rate of a link lies in its interval, and between the smallest and the largest one.
fn interval(finding: &Finding) {
    let number = |name| number(finding, name).unwrap_or_else(|| panic!("no {name}: {finding:?}"));
    let rate = number("bottleneck_bps");
    for (least, most) in [
        ("bottleneck_bps_low", "bottleneck_bps_high"),
        ("bottleneck_bps_min", "bottleneck_bps_max"),
    ] {
        let (least, most) = (number(least), number(most));
        assert!(0.0 <= least && least <= rate && rate <= most, "{finding:?}");
    }
}

/// Every packet is in exactly one connection, or a duplicate.
fn rows(a: &Analysis) {
    for (i, c) in a.connections.iter().enumerate() {
        assert_eq!(c.id as usize, i);
        assert!(c.start <= c.end);
    }
    assert_eq!(a.flows.len(), a.connections.len() * 2);
    for (i, pair) in a.flows.chunks_exact(2).enumerate() {
        let c = &a.connections[i];
        assert_eq!((pair[0].id as usize, pair[1].id as usize), (2 * i, 2 * i + 1));
        assert_eq!(pair[0].packets + pair[1].packets, c.packets);
        assert_eq!(pair[0].wire_bytes + pair[1].wire_bytes, c.bytes);
    }
    let of = |tcp: bool| a.connections.iter().filter(move |c| (c.protocol == Protocol::Tcp) == tcp);
    let tcp: u64 = of(true).map(|c| c.packets + c.duplicates).sum();
    assert_eq!(tcp, a.packets.tcp, "TCP packets of all connections, with duplicates");
    assert_eq!(of(true).map(|c| c.duplicates).sum::<u64>(), a.facts.duplicates);
    let others: u64 = of(false).map(|c| c.packets).sum();
    assert_eq!(others, a.packets.udp + a.packets.icmp + a.packets.other);
    let p = &a.packets;
    assert_eq!(p.all, p.tcp + p.udp + p.icmp + p.other + p.not_ip + p.broken + p.fragments);
}

fn one(f: &Flow, c: &Connection, capture_end: Instant) {
    let span = c.end.since(c.start);
    let limits: Duration = f.limit_time.iter().fold(Duration::ZERO, |sum, d| sum + *d);
    // A flow of one instant is given one nanosecond, so that it has a limit at all. One whose data was given up lasts until
    // its timer was to fire again, as far as the capture goes: beyond the last packet of its connection.
    let longest = capture_end.max(c.end).since(c.start);
    assert!(
        limits <= longest + Duration(1),
        "{} ns of {} ns: {f:?}",
        limits.as_nanos(),
        longest.as_nanos()
    );
    let shares: Vec<Option<f64>> = Limit::ALL.iter().map(|l| f.limit_share(*l)).collect();
    if shares.iter().any(Option::is_some) {
        let sum: f64 = shares.iter().flatten().sum();
        assert!((sum - 1.0).abs() < 1e-9, "shares sum to {sum}");
    }
    for (d, most) in
        [(f.active, span), (f.idle, span), (f.window_full, longest), (f.zero_window, longest)]
    {
        assert!(d <= most + Duration(1), "{d} of {most}: {f:?}");
    }
    assert!(f.payload_bytes <= f.wire_bytes && f.data_packets <= f.packets, "{f:?}");
    assert!(f.window_full_count <= f.data_packets, "{f:?}");
    let causes = f.retransmissions_fast + f.retransmissions_timeout + f.retransmissions_tail_probe;
    assert_eq!(f.retransmissions, causes);
    assert!(f.retransmissions_spurious <= f.retransmissions);
    assert!(f.retransmitted_bytes <= f.payload_bytes, "{f:?}");
    assert!(f.loss_rate.is_none_or(|r| (0.0..=1.0).contains(&r)), "{f:?}");
    for (name, q) in [
        ("rtt", f.rtt_ms),
        ("rtt bound", f.rtt_bound_ms),
        ("answer", f.answer_ms),
        ("loaded", f.loaded_rtt_ms),
        ("queue", f.queue_ms),
        ("in flight", f.in_flight_bytes),
        ("utilisation", f.window_utilisation),
    ] {
        if let Some(q) = q {
            ordered(name, &q);
        }
    }
    for v in [
        f.initial_rtt_ms,
        f.window_full_rtt_ms,
        f.reordering_ms_max,
        f.loss_rate,
        f.in_flight_over_bdp,
        f.rtt_ceiling_ms,
    ] {
        assert!(v.is_none_or(|v| v.is_finite() && v >= 0.0), "{f:?}");
    }
    assert!(f.answer_ms.is_none() || f.rtt_ms.is_none(), "{f:?}");
    assert!(f.rwnd_min <= f.rwnd_max && f.rwnd_last <= f.rwnd_max, "{f:?}");
    if let (Some(plain), Some(q)) = (f.in_flight_plain_max, f.in_flight_bytes) {
        assert!(plain.get() as f64 >= q.max, "{f:?}");
    }
}

fn ordered(name: &str, q: &Quantiles) {
    assert!(q.count > 0, "{name}: {q:?}");
    let steps = [0.0, q.min, q.p50, q.p95, q.p99, q.max];
    assert!(steps.iter().all(|v| v.is_finite()) && steps.is_sorted(), "{name}: {q:?}");
}

/// Samples follow each other and add up to their flow's row; nothing grows beyond what the packets
/// justify.
fn series(a: &Analysis, bin: Duration) {
    let mut of: HashMap<u32, (u64, u64, Duration)> = HashMap::new();
    for s in &a.samples {
        let (sent, retransmissions, time) = of.entry(s.flow).or_default();
        *sent += s.sent.get();
        *retransmissions += u64::from(s.retransmissions);
        *time += s.span;
        assert!(s.window_full <= s.span, "{s:?}");
        if let (Some(min), Some(mean), Some(max)) = (s.rtt_ms_min, s.rtt_ms, s.rtt_ms_max) {
            // f32 of the same nanoseconds: the mean may be rounded, by less than a part in a
            // million.
            assert!(min <= mean * 1.000_001 && mean <= max * 1.000_001 && max.is_finite(), "{s:?}");
        }
    }
    for w in a.samples.windows(2).filter(|w| w[0].flow == w[1].flow) {
        assert!(w[0].time + w[0].span <= w[1].time, "{w:?}");
    }
    for (id, (sent, retransmissions, time)) in of {
        let f = &a.flows[id as usize];
        assert_eq!(Bytes(sent), f.payload_bytes, "bytes of the samples of flow {id}");
        assert_eq!(
            retransmissions, f.retransmissions,
            "retransmissions of the samples of flow {id}"
        );
        let limits = f.limit_time.iter().fold(Duration::ZERO, |x, y| x + *y);
        let judged = !f.too_short && f.capture_lacks.is_none();
        assert_eq!(limits, if judged { time } else { Duration::ZERO });
    }
    // After a gap the bins of one second are there, then one long one; each packet touches two
    // flows.
    let most = 2 * (1_000_000_000 / bin.as_nanos() + 3) * (a.packets.tcp + 1);
    assert!(a.samples.len() as u64 <= most, "{} samples", a.samples.len());
    assert!(a.events.len() as u64 <= 16 * a.packets.all + 64, "{} events", a.events.len());
    if let Some(s) = a.segments.iter().find(|s| s.from > s.to) {
        panic!("{s:?} of {:?}", a.flows[s.flow as usize]);
    }
    assert!(a.events.iter().all(|e| e.value.is_finite()));
}
