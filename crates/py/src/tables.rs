//! The tables of `docs/format.md`, column by column. One line here, one line there.

use flow::series::rows::{
    CaptureLacks, Connection, End, Event, Finding, Flow, Limit, Protocol, Quantiles, RttMethod,
    Sample, Segment, Value, Vantage,
};
use units::{Bytes, Duration, Instant, Rate};

use crate::columns::Column;

/// Takes each column as it is made, so that no table exists twice.
pub type Put<'a> = &'a mut dyn FnMut(Column);

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

/// Columns of table `connections`.
pub fn connections(rows: &[Connection], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("id", r().map(|c| c.id)));
    put(Column::str("proto", r().map(|c| protocol(c.protocol))));
    put(Column::str("a_addr", r().map(|c| c.a_addr.to_string())));
    put(Column::u16("a_port", r().map(|c| c.a_port)));
    put(Column::str("b_addr", r().map(|c| c.b_addr.to_string())));
    put(Column::u16("b_port", r().map(|c| c.b_port)));
    put(Column::f64("start_s", r().map(|c| c.start.seconds_from(origin))));
    put(Column::f64("duration_s", r().map(|c| c.end.since(c.start).as_secs_f64())));
    put(Column::maybe_f64("initial_rtt_ms", r().map(|c| c.initial_rtt.map(ms))));
    put(Column::bool("syn_seen", r().map(|c| c.syn_seen)));
    put(Column::str(
        "end",
        r().map(|c| match c.end_kind {
            End::Fin => "fin",
            End::Rst => "rst",
            End::Open => "open",
        }),
    ));
    put(Column::str(
        "vantage",
        r().map(|c| match c.vantage {
            Vantage::Sender => "a",
            Vantage::Receiver => "b",
            Vantage::Middle => "middle",
            Vantage::Unknown => "unknown",
        }),
    ));
    put(Column::bool("mptcp", r().map(|c| c.mptcp)));
    put(Column::u32("interface", r().map(|c| c.interface)));
    put(Column::u64("packets", r().map(|c| c.packets)));
    put(Column::u64("bytes", r().map(|c| c.bytes.get())));
    put(Column::u64("duplicates", r().map(|c| c.duplicates)));
    put(Column::u64("capture_gap_bytes", r().map(|c| c.capture_gaps.get())));
}

/// Columns of a statistic: count, minimum, quantiles, maximum.
pub fn quantiles<R>(put: Put<'_>, name: &str, rows: &[R], get: impl Fn(&R) -> Option<Quantiles>) {
    put(Column::maybe_u64(format!("{name}_count"), rows.iter().map(|f| get(f).map(|q| q.count))));
    type Part = (&'static str, fn(&Quantiles) -> f64);
    let parts: [Part; 5] = [
        ("min", |q| q.min),
        ("p50", |q| q.p50),
        ("p95", |q| q.p95),
        ("p99", |q| q.p99),
        ("max", |q| q.max),
    ];
    for (part, value) in parts {
        let column = rows.iter().map(|f| get(f).map(|q| value(&q)));
        put(Column::maybe_f64(format!("{name}_{part}"), column));
    }
}

/// Columns of table `flows`.
pub fn flows(rows: &[Flow], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    let bytes = |b: Option<Bytes>| b.map(Bytes::get);
    let rate = |b: Option<Rate>| b.map(Rate::bps);
    let since = |t: Option<Instant>| t.map(|t| t.seconds_from(origin));
    put(Column::u32("id", r().map(|f| f.id)));
    put(Column::u32("connection", r().map(|f| f.id / 2)));
    put(Column::u64("packets", r().map(|f| f.packets)));
    put(Column::u64("data_packets", r().map(|f| f.data_packets)));
    put(Column::u64("wire_bytes", r().map(|f| f.wire_bytes.get())));
    put(Column::u64("payload_bytes", r().map(|f| f.payload_bytes.get())));
    put(Column::u64("bytes", r().map(|f| f.bytes.get())));
    put(Column::f64("active_s", r().map(|f| f.active.as_secs_f64())));
    put(Column::maybe_u64("goodput_bps", r().map(|f| rate(f.goodput))));
    put(Column::maybe_u64("peak_bps", r().map(|f| rate(f.peak))));
    put(Column::u32("mss_bytes", r().map(|f| f.mss)));
    put(Column::str(
        "vantage",
        r().map(|f| match f.vantage {
            Vantage::Sender => "sender",
            Vantage::Receiver => "receiver",
            Vantage::Middle => "middle",
            Vantage::Unknown => "unknown",
        }),
    ));
    put(Column::str(
        "rtt_method",
        r().map(|f| match f.rtt_method {
            RttMethod::SeqAck => "seq_ack",
            RttMethod::Timestamps => "timestamps",
            RttMethod::Halves => "halves",
            RttMethod::Window => "window",
            RttMethod::Echo => "echo",
            RttMethod::Answer => "answer",
            RttMethod::None => "none",
        }),
    ));
    quantiles(put, "rtt_ms", rows, |f| f.rtt_ms);
    quantiles(put, "rtt_bound_ms", rows, |f| f.rtt_bound_ms);
    quantiles(put, "answer_ms", rows, |f| f.answer_ms);
    put(Column::maybe_f64("initial_rtt_ms", r().map(|f| f.initial_rtt_ms)));
    quantiles(put, "loaded_rtt_ms", rows, |f| f.loaded_rtt_ms);
    quantiles(put, "queue_ms", rows, |f| f.queue_ms);
    quantiles(put, "data_queue_ms", rows, |f| f.data_queue_ms);
    quantiles(put, "ack_queue_ms", rows, |f| f.ack_queue_ms);
    put(Column::maybe_f64("timestamp_tick_ms", r().map(|f| f.timestamp_tick_ms)));
    quantiles(put, "in_flight_bytes", rows, |f| f.in_flight_bytes);
    put(Column::maybe_u64("in_flight_plain_bytes_max", r().map(|f| bytes(f.in_flight_plain_max))));
    put(Column::maybe_u64("rwnd_bytes_min", r().map(|f| bytes(f.rwnd_min))));
    put(Column::maybe_u64("rwnd_bytes_max", r().map(|f| bytes(f.rwnd_max))));
    put(Column::maybe_u64("rwnd_bytes_last", r().map(|f| bytes(f.rwnd_last))));
    put(Column::maybe_u8("window_scale", r().map(|f| f.window_scale)));
    put(Column::bool("window_scale_inferred", r().map(|f| f.window_scale_inferred)));
    quantiles(put, "window_utilisation_pct", rows, |f| f.window_utilisation);
    let share = |d: Duration, f: &Flow| {
        (f.active > Duration::ZERO && f.data_packets > 0)
            .then(|| (d.as_secs_f64() / f.active.as_secs_f64()).min(1.0))
    };
    put(Column::u64("window_full_count", r().map(|f| f.window_full_count)));
    put(Column::f64("window_full_s", r().map(|f| f.window_full.as_secs_f64())));
    put(Column::maybe_f64("window_full_share", r().map(|f| share(f.window_full, f))));
    put(Column::maybe_f64("window_full_first_s", r().map(|f| since(f.window_full_first))));
    put(Column::maybe_f64("window_full_rtt_ms", r().map(|f| f.window_full_rtt_ms)));
    put(Column::u64("zero_window_count", r().map(|f| f.zero_window_count)));
    put(Column::f64("zero_window_s", r().map(|f| f.zero_window.as_secs_f64())));
    put(Column::maybe_f64("zero_window_first_s", r().map(|f| since(f.zero_window_first))));
    put(Column::u64("zero_window_probes", r().map(|f| f.zero_window_probes)));
    put(Column::u64("keep_alives", r().map(|f| f.keep_alives)));
    put(Column::u64("retransmissions", r().map(|f| f.retransmissions)));
    put(Column::u64("retransmitted_bytes", r().map(|f| f.retransmitted_bytes.get())));
    put(Column::u64("retransmissions_fast", r().map(|f| f.retransmissions_fast)));
    put(Column::u64("retransmissions_timeout", r().map(|f| f.retransmissions_timeout)));
    put(Column::u64("retransmissions_tail_probe", r().map(|f| f.retransmissions_tail_probe)));
    put(Column::u64("retransmissions_spurious", r().map(|f| f.retransmissions_spurious)));
    put(Column::u64("timeouts", r().map(|f| f.timeouts)));
    put(Column::u64("out_of_order", r().map(|f| f.out_of_order)));
    put(Column::maybe_f64("reordering_ms_max", r().map(|f| f.reordering_ms_max)));
    put(Column::u64("ambiguous", r().map(|f| f.ambiguous)));
    put(Column::u64("dup_acks", r().map(|f| f.dup_acks)));
    put(Column::u64("sack_blocks", r().map(|f| f.sack_blocks)));
    put(Column::u64("dsacks", r().map(|f| f.dsacks)));
    put(Column::maybe_f64("loss_rate", r().map(|f| f.loss_rate)));
    put(Column::u64("ecn_ce", r().map(|f| f.ecn_ce)));
    put(Column::u64("ecn_ece", r().map(|f| f.ecn_ece)));
    put(Column::u64("idle_count", r().map(|f| f.idle_count)));
    put(Column::f64("idle_s", r().map(|f| f.idle.as_secs_f64())));
    put(Column::u64("ack_bursts", r().map(|f| f.ack_bursts)));
    put(Column::u64("ack_burst_bytes_max", r().map(|f| f.ack_burst_bytes_max.get())));
    put(Column::u64("data_burst_bytes_max", r().map(|f| f.data_burst_bytes_max.get())));
    put(Column::f64("ack_silence_max_ms", r().map(|f| ms(f.ack_silence_max))));
    put(Column::maybe_u64("bdp_bytes", r().map(|f| bytes(f.bdp))));
    put(Column::maybe_f64("in_flight_over_bdp", r().map(|f| f.in_flight_over_bdp)));
    put(Column::maybe_f64("rtt_ceiling_ms", r().map(|f| f.rtt_ceiling_ms)));
    put(Column::maybe_u64("unlimited_goodput_bps", r().map(|f| rate(f.unlimited_goodput))));
    for limit in Limit::ALL {
        let name = format!("share_{}", limit.name());
        put(Column::maybe_f64(name, r().map(move |f| f.limit_share(limit))));
    }
    put(Column::maybe_str("limit", r().map(|f| f.main_limit().map(Limit::name))));
    put(Column::bool("too_short", r().map(|f| f.too_short)));
    put(Column::maybe_str("capture_lacks", r().map(|f| f.capture_lacks.map(CaptureLacks::name))));
    put(Column::maybe_str("grade", r().map(|f| f.grade)));
    let control = |f: &Flow| f.congestion_control.as_ref().map(|found| found.control.name());
    put(Column::maybe_str("congestion_control", r().map(control)));
    let evidence = r().map(|f| f.congestion_control.as_ref().map(|found| &found.evidence));
    put(Column::maybe_str("congestion_control_evidence", evidence));
}

/// Columns of table `findings`.
pub fn findings(rows: &[Finding], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    put(Column::str("rule", r().map(|f| f.rule)));
    put(Column::str("severity", r().map(|f| f.severity.name())));
    put(Column::maybe_u32("flow", r().map(|f| f.flow)));
    put(Column::f64("from_s", r().map(|f| f.from.seconds_from(origin))));
    put(Column::f64("to_s", r().map(|f| f.to.seconds_from(origin))));
    put(Column::str("values", r().map(|f| json(&f.values))));
    put(Column::str("text", r().map(|f| f.text.as_str())));
    put(Column::str("cure", r().map(|f| f.cure)));
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

/// Columns of table `samples`.
pub fn samples(rows: &[Sample], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("flow", r().map(|s| s.flow)));
    put(Column::f64("t_s", r().map(|s| s.time.seconds_from(origin))));
    put(Column::f32("span_s", r().map(|s| s.span.as_secs_f64() as f32)));
    put(Column::u64("sent_bytes", r().map(|s| s.sent.get())));
    put(Column::u64("delivered_bytes", r().map(|s| s.delivered.get())));
    put(Column::f64(
        "goodput_bps",
        r().map(|s| s.delivered.get() as f64 * 8.0 / s.span.as_secs_f64().max(1e-9)),
    ));
    put(Column::maybe_f32("rtt_ms_min", r().map(|s| s.rtt_ms_min)));
    put(Column::maybe_f32("rtt_ms", r().map(|s| s.rtt_ms)));
    put(Column::maybe_f32("rtt_ms_max", r().map(|s| s.rtt_ms_max)));
    put(Column::maybe_f32("data_queue_ms", r().map(|s| s.data_queue_ms)));
    put(Column::maybe_f32("ack_queue_ms", r().map(|s| s.ack_queue_ms)));
    put(Column::maybe_f32("ack_delay_ms", r().map(|s| s.ack_delay_ms)));
    put(Column::maybe_u64("in_flight_bytes", r().map(|s| s.in_flight.map(Bytes::get))));
    put(Column::maybe_u64("rwnd_bytes", r().map(|s| s.rwnd.map(Bytes::get))));
    put(Column::f32("window_full_s", r().map(|s| s.window_full.as_secs_f64() as f32)));
    put(Column::u32("retransmissions", r().map(|s| s.retransmissions)));
    put(Column::str("limit", r().map(|s| s.limit.name())));
}

/// Columns of table `events`.
pub fn events(rows: &[Event], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("flow", r().map(|e| e.flow)));
    put(Column::f64("t_s", r().map(|e| e.time.seconds_from(origin))));
    put(Column::str("kind", r().map(|e| e.kind.name())));
    put(Column::f64("value", r().map(|e| e.value)));
    put(Column::u64("seq", r().map(|e| e.seq)));
}

/// Columns of table `segments`.
pub fn segments(rows: &[Segment], origin: Instant, put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("flow", r().map(|s| s.flow)));
    put(Column::f64("t_s", r().map(|s| s.time.seconds_from(origin))));
    put(Column::u8("kind", r().map(|s| s.kind as u8)));
    put(Column::u64("from_seq", r().map(|s| s.from)));
    put(Column::u64("to_seq", r().map(|s| s.to)));
}
