//! The families of the page: what each is called, and which number of the status it is.

use serde_json::Value;

/// Kinds of families (OpenMetrics 1.0, "Metric Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// A value of now.
    Gauge,
    /// Words.
    Info,
    /// One of several is true.
    StateSet,
}

/// One number of a cure's status, and the labels of its sample.
#[derive(Clone, Copy, Debug)]
pub struct From {
    /// Which cure.
    pub cure: &'static str,
    /// Where in its object.
    pub path: &'static str,
    /// Of a word: the sample is 1 if it is this one.
    pub equals: Option<&'static str>,
    /// Labels.
    pub labels: &'static [(&'static str, &'static str)],
}

/// A family of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Its name, without what its kind appends.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Unit, the end of the name; empty: it counts.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// From the status' unit to this one.
    pub scale: f64,
    /// Its samples.
    pub from: &'static [From],
}

const fn of(
    cure: &'static str,
    path: &'static str,
    labels: &'static [(&'static str, &'static str)],
) -> From {
    From { cure, path, equals: None, labels }
}

const fn counter(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    from: &'static [From],
) -> Number {
    Number { name, kind: Kind::Counter, unit, help, scale: 1.0, from }
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    scale: f64,
    from: &'static [From],
) -> Number {
    Number { name, kind: Kind::Gauge, unit, help, scale, from }
}

const RECEIVE: &[(&str, &str)] = &[("cure", "receive")];
const ACKS: &[(&str, &str)] = &[("cure", "acks")];
const MS: f64 = 1e-3;
const BITS: f64 = 0.125;

/// Counters and gauges of the cures.
pub const NUMBERS: &[Number] = &[
    counter(
        "unbloat_connections",
        "",
        "Connections that a cure took up.",
        &[of("receive", "connections", RECEIVE), of("acks", "flows", ACKS)],
    ),
    counter(
        "unbloat_acks",
        "",
        "ACKs and other segments that a cure looked at.",
        &[of("receive", "acks", RECEIVE), of("acks", "segments", ACKS)],
    ),
    counter(
        "unbloat_samples",
        "",
        "Samples of RTT and rate that laws took.",
        &[of("acks", "samples", ACKS)],
    ),
    counter(
        "unbloat_decisions",
        "",
        "Windows that laws decided.",
        &[of("receive", "decisions", RECEIVE), of("acks", "decisions", ACKS)],
    ),
    counter(
        "unbloat_windows",
        "",
        "Windows by what was done: applied; reapplied, because autotuning had moved the clamp; lifted after the lease; refused by the \
         kernel; rewritten in an ACK; held above what is wanted, because a right edge never moves back.",
        &[
            of("receive", "applied", &[("cure", "receive"), ("done", "applied")]),
            of("receive", "reapplied", &[("cure", "receive"), ("done", "reapplied")]),
            of("receive", "lifted", &[("cure", "receive"), ("done", "lifted")]),
            of("receive", "refused", &[("cure", "receive"), ("done", "refused")]),
            of("acks", "rewritten", &[("cure", "acks"), ("done", "rewritten")]),
            of("acks", "held", &[("cure", "acks"), ("done", "held")]),
        ],
    ),
    counter(
        "unbloat_buffers",
        "",
        "Buffers that the rate term made larger, or did not, for want of memory.",
        &[
            of("receive", "raised", &[("done", "raised")]),
            of("receive", "withheld", &[("done", "withheld")]),
        ],
    ),
    counter(
        "unbloat_segments_skipped",
        "",
        "Segments left alone: of flows whose scale is unknown, signed or of MPTCP, or such that no end would take.",
        &[
            of("acks", "unknown", &[("cure", "acks"), ("why", "scale")]),
            of("acks", "barred", &[("cure", "acks"), ("why", "signed")]),
            of("acks", "strange", &[("cure", "acks"), ("why", "strange")]),
        ],
    ),
    counter(
        "unbloat_superpackets",
        "",
        "Segments that stand for several, as offloads make them.",
        &[of("acks", "superpackets", ACKS)],
    ),
    counter(
        "unbloat_payload_bytes",
        "bytes",
        "Payload that passed the device under the cure of passing ACKs.",
        &[
            of("acks", "down_bytes", &[("cure", "acks"), ("direction", "down")]),
            of("acks", "up_bytes", &[("cure", "acks"), ("direction", "up")]),
        ],
    ),
    gauge(
        "unbloat_walk_seconds",
        "seconds",
        "How long the last walk over existing connections took.",
        MS,
        &[of("receive", "walk_ms", &[])],
    ),
    counter(
        "unbloat_gate_passed_packets",
        "packets",
        "Packets that passed the gate.",
        &[of("gate", "passed", &[])],
    ),
    counter(
        "unbloat_gate_passed_bytes",
        "bytes",
        "Bytes that passed the gate.",
        &[of("gate", "passed_bytes", &[])],
    ),
    counter(
        "unbloat_gate_privileged_packets",
        "packets",
        "Packets that passed above the limit, for being thin, sparse or bare.",
        &[of("gate", "privileged", &[])],
    ),
    counter(
        "unbloat_gate_unguarded_packets",
        "packets",
        "Packets that passed an open gate: no reports, or no lease.",
        &[of("gate", "unguarded", &[])],
    ),
    counter(
        "unbloat_gate_refused_packets",
        "packets",
        "Packets refused: to sockets of this host, which wait and send again, or to others, who lose them.",
        &[
            of("gate", "refused_own", &[("whose", "own")]),
            of("gate", "refused_forwarded", &[("whose", "forwarded")]),
        ],
    ),
    counter(
        "unbloat_gate_reports",
        "",
        "Reports of the modem or driver.",
        &[of("gate", "reports", &[])],
    ),
    gauge(
        "unbloat_gate_reports_fresh",
        "",
        "1 while reports come.",
        1.0,
        &[From { cure: "gate", path: "telemetry.state", equals: Some("fresh"), labels: &[] }],
    ),
    gauge(
        "unbloat_gate_report_age_seconds",
        "seconds",
        "Age of the last report when it arrived.",
        MS,
        &[of("gate", "report_age_ms", &[])],
    ),
    gauge(
        "unbloat_gate_reported_bytes",
        "bytes",
        "Bytes below the operating system, as last reported.",
        1.0,
        &[of("gate", "reported_bytes", &[])],
    ),
    gauge(
        "unbloat_gate_occupancy_bytes",
        "bytes",
        "Bytes below the operating system, as the gate reckons since.",
        1.0,
        &[of("gate", "occupancy_bytes", &[])],
    ),
    gauge(
        "unbloat_gate_limit_bytes",
        "bytes",
        "Bytes that may lie there.",
        1.0,
        &[of("gate", "limit_bytes", &[])],
    ),
    gauge(
        "unbloat_gate_fair_bytes",
        "bytes",
        "One flow's fair part of them.",
        1.0,
        &[of("gate", "fair_bytes", &[])],
    ),
    gauge(
        "unbloat_gate_delay_seconds",
        "seconds",
        "How long what lies there takes to drain.",
        MS,
        &[of("gate", "delay_ms", &[])],
    ),
    gauge(
        "unbloat_gate_rate_bytes_per_second",
        "bytes_per_second",
        "The uplink's rate, as the gate reckons.",
        BITS,
        &[of("gate", "rate_bps", &[])],
    ),
    gauge(
        "unbloat_shaper_rate_bytes_per_second",
        "bytes_per_second",
        "The rate that the shaper is set to.",
        BITS,
        &[of("shaper", "rate_bps", &[])],
    ),
    counter(
        "unbloat_congestion_switched",
        "",
        "Connections whose congestion control was changed.",
        &[of("congestion", "switched", &[])],
    ),
    counter(
        "unbloat_congestion_refused",
        "",
        "Connections whose congestion control the kernel did not let change.",
        &[of("congestion", "refused", &[])],
    ),
];

/// A distribution over the flows of a cure.
pub struct Distribution {
    /// Its name.
    pub name: &'static str,
    /// Unit, the end of the name.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Upper edges of its buckets.
    pub edges: &'static [f64],
    /// A flow's value; none, if it is not known.
    pub value: fn(&Value) -> Option<f64>,
}

fn known(flow: &Value, key: &str) -> Option<f64> {
    flow[key].as_f64().filter(|value| *value > 0.0)
}

/// Distributions; the edges of times and sizes go up by about two, those of the ratio lie where λ is chosen.
pub const DISTRIBUTIONS: &[Distribution] = &[
    Distribution {
        name: "unbloat_flow_rtt_seconds",
        unit: "seconds",
        help: "RTT of the flows under way.",
        edges: &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        value: |flow| Some(known(flow, "rtt_ms")? * MS),
    },
    Distribution {
        name: "unbloat_flow_rtt_min_seconds",
        unit: "seconds",
        help: "Smallest RTT of the flows under way: the empty path.",
        edges: &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        value: |flow| Some(known(flow, "rtt_min_ms")? * MS),
    },
    Distribution {
        name: "unbloat_flow_rtt_ratio",
        unit: "ratio",
        help: "RTT over smallest RTT of the flows under way: 1 without any queue, lambda when a window holds.",
        edges: &[1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 6.0, 10.0, 30.0],
        value: |flow| Some(known(flow, "rtt_ms")? / known(flow, "rtt_min_ms")?),
    },
    Distribution {
        name: "unbloat_flow_window_bytes",
        unit: "bytes",
        help: "Window that the law wants for the flows under way.",
        edges: &[4e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6, 16e6],
        value: |flow| known(flow, "wanted_bytes"),
    },
    Distribution {
        name: "unbloat_flow_queue_bytes",
        unit: "bytes",
        help: "What stands in queues of the flows under way: rate times what the RTT is above its minimum.",
        edges: &[1.5e3, 4e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6],
        value: |flow| flow["queue_bytes"].as_f64(),
    },
];

/// Name, unit, help, and a flow's value.
type OfFlow = (&'static str, &'static str, &'static str, fn(&Value) -> f64);

/// Samples of single flows.
pub const BUSY: &[OfFlow] = &[
    ("unbloat_busy_flow_rtt_seconds", "seconds", "RTT of a busy flow.", |f| {
        value(f, "rtt_ms") * MS
    }),
    ("unbloat_busy_flow_rtt_min_seconds", "seconds", "Smallest RTT of a busy flow.", |f| {
        value(f, "rtt_min_ms") * MS
    }),
    ("unbloat_busy_flow_window_bytes", "bytes", "Window that the law wants.", |f| {
        value(f, "wanted_bytes")
    }),
    ("unbloat_busy_flow_queue_bytes", "bytes", "What of it stands in queues.", |f| {
        value(f, "queue_bytes")
    }),
    (
        "unbloat_busy_flow_goodput_bytes_per_second",
        "bytes_per_second",
        "Payload of a busy flow.",
        |f| value(f, "rate_bps") * BITS,
    ),
];

fn value(flow: &Value, key: &str) -> f64 {
    flow[key].as_f64().unwrap_or(0.0)
}
