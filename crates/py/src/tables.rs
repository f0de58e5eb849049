//! The tables of `docs/format.md`, column by column. One line here, one line there.

use flow::record::{
    Connection, End, Event, Finding, Flow, Limit, Protocol, Quantiles, RttMethod, Sample, Segment, Value,
    Vantage,
};
use units::{Bytes, Duration, Instant, Rate};

use crate::columns::Column;

fn ms(d: Duration) -> f64 {
    d.as_millis_f64()
}

fn protocol(p: Protocol) -> String {
    match p {
        Protocol::Tcp => "tcp".into(),
        Protocol::Udp => "udp".into(),
        Protocol::Icmp => "icmp".into(),
        Protocol::Other(n) => n.to_string(),
    }
}

/// `connections`.
pub fn connections(rows: &[Connection], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    vec![
        Column::u32("id", r().map(|c| c.id)),
        Column::str("proto", r().map(|c| protocol(c.protocol))),
        Column::str("a_addr", r().map(|c| c.a_addr.to_string())),
        Column::u16("a_port", r().map(|c| c.a_port)),
        Column::str("b_addr", r().map(|c| c.b_addr.to_string())),
        Column::u16("b_port", r().map(|c| c.b_port)),
        Column::f64("start_s", r().map(|c| c.start.seconds_from(origin))),
        Column::f64("duration_s", r().map(|c| c.end.since(c.start).as_secs_f64())),
        Column::maybe_f64("initial_rtt_ms", r().map(|c| c.initial_rtt.map(ms))),
        Column::bool("syn_seen", r().map(|c| c.syn_seen)),
        Column::str(
            "end",
            r().map(|c| match c.end_kind {
                End::Fin => "fin",
                End::Rst => "rst",
                End::Open => "open",
            }),
        ),
        Column::str(
            "vantage",
            r().map(|c| match c.vantage {
                Vantage::Sender => "a",
                Vantage::Receiver => "b",
                Vantage::Middle => "middle",
                Vantage::Unknown => "unknown",
            }),
        ),
        Column::bool("mptcp", r().map(|c| c.mptcp)),
        Column::u32("interface", r().map(|c| c.interface)),
        Column::u64("packets", r().map(|c| c.packets)),
        Column::u64("bytes", r().map(|c| c.bytes.get())),
        Column::u64("duplicates", r().map(|c| c.duplicates)),
        Column::u64("capture_gap_bytes", r().map(|c| c.capture_gaps.get())),
    ]
}

fn quantiles(into: &mut Vec<Column>, name: &str, rows: &[Flow], get: impl Fn(&Flow) -> Option<Quantiles>) {
    into.push(Column::maybe_u64(format!("{name}_count"), rows.iter().map(|f| get(f).map(|q| q.count))));
    type Part = (&'static str, fn(&Quantiles) -> f64);
    let parts: [Part; 5] =
        [("min", |q| q.min), ("p50", |q| q.p50), ("p95", |q| q.p95), ("p99", |q| q.p99), ("max", |q| q.max)];
    for (part, value) in parts {
        let column = rows.iter().map(|f| get(f).map(|q| value(&q)));
        into.push(Column::maybe_f64(format!("{name}_{part}"), column));
    }
}

/// `flows`.
pub fn flows(rows: &[Flow], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    let bytes = |b: Option<Bytes>| b.map(Bytes::get);
    let rate = |b: Option<Rate>| b.map(Rate::bps);
    let since = |t: Option<Instant>| t.map(|t| t.seconds_from(origin));
    let mut out = vec![
        Column::u32("id", r().map(|f| f.id)),
        Column::u32("connection", r().map(|f| f.id / 2)),
        Column::u64("packets", r().map(|f| f.packets)),
        Column::u64("data_packets", r().map(|f| f.data_packets)),
        Column::u64("wire_bytes", r().map(|f| f.wire_bytes.get())),
        Column::u64("payload_bytes", r().map(|f| f.payload_bytes.get())),
        Column::u64("bytes", r().map(|f| f.bytes.get())),
        Column::f64("active_s", r().map(|f| f.active.as_secs_f64())),
        Column::maybe_u64("goodput_bps", r().map(|f| rate(f.goodput))),
        Column::maybe_u64("peak_bps", r().map(|f| rate(f.peak))),
        Column::u32("mss_bytes", r().map(|f| f.mss)),
        Column::str(
            "vantage",
            r().map(|f| match f.vantage {
                Vantage::Sender => "sender",
                Vantage::Receiver => "receiver",
                Vantage::Middle => "middle",
                Vantage::Unknown => "unknown",
            }),
        ),
        Column::str(
            "rtt_method",
            r().map(|f| match f.rtt_method {
                RttMethod::SeqAck => "seq_ack",
                RttMethod::Timestamps => "timestamps",
                RttMethod::Halves => "halves",
                RttMethod::Window => "window",
                RttMethod::None => "none",
            }),
        ),
    ];
    quantiles(&mut out, "rtt_ms", rows, |f| f.rtt_ms);
    out.push(Column::maybe_f64("initial_rtt_ms", r().map(|f| f.initial_rtt_ms)));
    quantiles(&mut out, "loaded_rtt_ms", rows, |f| f.loaded_rtt_ms);
    quantiles(&mut out, "queue_ms", rows, |f| f.queue_ms);
    quantiles(&mut out, "in_flight_bytes", rows, |f| f.in_flight_bytes);
    out.extend([
        Column::maybe_u64("in_flight_plain_bytes_max", r().map(|f| bytes(f.in_flight_plain_max))),
        Column::maybe_u64("rwnd_bytes_min", r().map(|f| bytes(f.rwnd_min))),
        Column::maybe_u64("rwnd_bytes_max", r().map(|f| bytes(f.rwnd_max))),
        Column::maybe_u64("rwnd_bytes_last", r().map(|f| bytes(f.rwnd_last))),
        Column::maybe_u8("window_scale", r().map(|f| f.window_scale)),
        Column::bool("window_scale_inferred", r().map(|f| f.window_scale_inferred)),
    ]);
    quantiles(&mut out, "window_utilisation_pct", rows, |f| f.window_utilisation);
    let share = |d: Duration, f: &Flow| {
        (f.active > Duration::ZERO && f.data_packets > 0)
            .then(|| (d.as_secs_f64() / f.active.as_secs_f64()).min(1.0))
    };
    out.extend([
        Column::u64("window_full_count", r().map(|f| f.window_full_count)),
        Column::f64("window_full_s", r().map(|f| f.window_full.as_secs_f64())),
        Column::maybe_f64("window_full_share", r().map(|f| share(f.window_full, f))),
        Column::maybe_f64("window_full_first_s", r().map(|f| since(f.window_full_first))),
        Column::maybe_f64("window_full_rtt_ms", r().map(|f| f.window_full_rtt_ms)),
        Column::u64("zero_window_count", r().map(|f| f.zero_window_count)),
        Column::f64("zero_window_s", r().map(|f| f.zero_window.as_secs_f64())),
        Column::maybe_f64("zero_window_first_s", r().map(|f| since(f.zero_window_first))),
        Column::u64("zero_window_probes", r().map(|f| f.zero_window_probes)),
        Column::u64("keep_alives", r().map(|f| f.keep_alives)),
        Column::u64("retransmissions", r().map(|f| f.retransmissions)),
        Column::u64("retransmitted_bytes", r().map(|f| f.retransmitted_bytes.get())),
        Column::u64("retransmissions_fast", r().map(|f| f.retransmissions_fast)),
        Column::u64("retransmissions_timeout", r().map(|f| f.retransmissions_timeout)),
        Column::u64("retransmissions_tail_probe", r().map(|f| f.retransmissions_tail_probe)),
        Column::u64("retransmissions_spurious", r().map(|f| f.retransmissions_spurious)),
        Column::u64("timeouts", r().map(|f| f.timeouts)),
        Column::u64("out_of_order", r().map(|f| f.out_of_order)),
        Column::maybe_f64("reordering_ms_max", r().map(|f| f.reordering_ms_max)),
        Column::u64("ambiguous", r().map(|f| f.ambiguous)),
        Column::u64("dup_acks", r().map(|f| f.dup_acks)),
        Column::u64("sack_blocks", r().map(|f| f.sack_blocks)),
        Column::u64("dsacks", r().map(|f| f.dsacks)),
        Column::maybe_f64("loss_rate", r().map(|f| f.loss_rate)),
        Column::u64("ecn_ce", r().map(|f| f.ecn_ce)),
        Column::u64("ecn_ece", r().map(|f| f.ecn_ece)),
        Column::u64("idle_count", r().map(|f| f.idle_count)),
        Column::f64("idle_s", r().map(|f| f.idle.as_secs_f64())),
        Column::u64("ack_bursts", r().map(|f| f.ack_bursts)),
        Column::u64("ack_burst_bytes_max", r().map(|f| f.ack_burst_bytes_max.get())),
        Column::u64("data_burst_bytes_max", r().map(|f| f.data_burst_bytes_max.get())),
        Column::f64("ack_silence_max_ms", r().map(|f| ms(f.ack_silence_max))),
        Column::maybe_u64("bdp_bytes", r().map(|f| bytes(f.bdp))),
        Column::maybe_f64("in_flight_over_bdp", r().map(|f| f.in_flight_over_bdp)),
        Column::maybe_f64("rtt_ceiling_ms", r().map(|f| f.rtt_ceiling_ms)),
        Column::maybe_u64("unlimited_goodput_bps", r().map(|f| rate(f.unlimited_goodput))),
    ]);
    for limit in Limit::ALL {
        let name = format!("share_{}", limit.name());
        out.push(Column::maybe_f64(name, r().map(move |f| f.limit_share(limit))));
    }
    out.push(Column::maybe_str("limit", r().map(|f| f.main_limit().map(Limit::name))));
    out.push(Column::maybe_str("grade", r().map(|f| f.grade)));
    out
}

/// `findings`.
pub fn findings(rows: &[Finding], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    vec![
        Column::str("rule", r().map(|f| f.rule)),
        Column::str("severity", r().map(|f| f.severity.name())),
        Column::maybe_u32("flow", r().map(|f| f.flow)),
        Column::f64("from_s", r().map(|f| f.from.seconds_from(origin))),
        Column::f64("to_s", r().map(|f| f.to.seconds_from(origin))),
        Column::str("values", r().map(|f| json(&f.values))),
        Column::str("text", r().map(|f| f.text.as_str())),
        Column::str("cure", r().map(|f| f.cure)),
    ]
}

/// A flat JSON object; keys are Rust identifiers, so only texts need escaping.
fn json(values: &[(&'static str, Value)]) -> String {
    let mut out = String::from("{");
    for (i, (key, value)) in values.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&format!("\"{key}\": "));
        match value {
            Value::Number(n) if n.is_finite() => out.push_str(&format!("{n}")),
            Value::Number(_) => out.push_str("null"),
            Value::Text(text) => {
                out.push('"');
                for c in text.chars() {
                    match c {
                        '"' => out.push_str("\\\""),
                        '\\' => out.push_str("\\\\"),
                        c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
                        c => out.push(c),
                    }
                }
                out.push('"');
            }
        }
    }
    out.push('}');
    out
}

/// `samples`.
pub fn samples(rows: &[Sample], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    vec![
        Column::u32("flow", r().map(|s| s.flow)),
        Column::f64("t_s", r().map(|s| s.time.seconds_from(origin))),
        Column::f32("span_s", r().map(|s| s.span.as_secs_f64() as f32)),
        Column::u64("sent_bytes", r().map(|s| s.sent.get())),
        Column::u64("delivered_bytes", r().map(|s| s.delivered.get())),
        Column::f64(
            "goodput_bps",
            r().map(|s| s.delivered.get() as f64 * 8.0 / s.span.as_secs_f64().max(1e-9)),
        ),
        Column::maybe_f32("rtt_ms_min", r().map(|s| s.rtt_ms_min)),
        Column::maybe_f32("rtt_ms", r().map(|s| s.rtt_ms)),
        Column::maybe_f32("rtt_ms_max", r().map(|s| s.rtt_ms_max)),
        Column::maybe_u64("in_flight_bytes", r().map(|s| s.in_flight.map(Bytes::get))),
        Column::maybe_u64("rwnd_bytes", r().map(|s| s.rwnd.map(Bytes::get))),
        Column::f32("window_full_s", r().map(|s| s.window_full.as_secs_f64() as f32)),
        Column::u32("retransmissions", r().map(|s| s.retransmissions)),
        Column::str("limit", r().map(|s| s.limit.name())),
    ]
}

/// `events`.
pub fn events(rows: &[Event], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    vec![
        Column::u32("flow", r().map(|e| e.flow)),
        Column::f64("t_s", r().map(|e| e.time.seconds_from(origin))),
        Column::str("kind", r().map(|e| e.kind.name())),
        Column::f64("value", r().map(|e| e.value)),
        Column::u64("seq", r().map(|e| e.seq)),
    ]
}

/// `segments`.
pub fn segments(rows: &[Segment], origin: Instant) -> Vec<Column> {
    let r = || rows.iter();
    vec![
        Column::u32("flow", r().map(|s| s.flow)),
        Column::f64("t_s", r().map(|s| s.time.seconds_from(origin))),
        Column::u8("kind", r().map(|s| s.kind as u8)),
        Column::u64("from_seq", r().map(|s| s.from)),
        Column::u64("to_seq", r().map(|s| s.to)),
    ]
}
