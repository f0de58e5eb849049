//! The tables of a simulated run, with the columns that `docs/format.md` gives a captured one; what
//! only a simulator knows comes after them, and what only a capture shows is null.

use flow::diagnose::grade::grade;
use scenario::Scenario;
use sim::Results;
use sim::record::{FlowRow, Limit, SampleRow};
use units::{Bytes, Duration, Rate};

use crate::columns::Column;
use crate::tables::{Put, quantiles};

/// Fewer figures than this give no grade: the p95 of less is its maximum.
const GRADE_SAMPLES: u64 = 20;

fn ms(d: Duration) -> f64 {
    d.as_millis_f64()
}

/// Side of the connection that sends the data of its transfer.
fn data_side(scenario: &Scenario, transfer: usize) -> u32 {
    scenario.flows.get(transfer).map_or(0, |f| u32::from(!f.sender_opens))
}

/// Columns of table `connections`.
pub fn connections(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let r = || results.connections.iter();
    put(Column::u32("id", r().map(|c| c.id)));
    put(Column::str("proto", r().map(|_| "tcp")));
    put(Column::str("a_addr", r().map(|c| scenario::address(c.a).to_string())));
    put(Column::u16("a_port", r().map(|c| c.a_port)));
    put(Column::str("b_addr", r().map(|c| scenario::address(c.b).to_string())));
    put(Column::u16("b_port", r().map(|c| c.b_port)));
    put(Column::f64("start_s", r().map(|c| c.start.0 as f64 / 1e9)));
    put(Column::f64("duration_s", r().map(|c| c.end.since(c.start).as_secs_f64())));
    put(Column::maybe_f64("initial_rtt_ms", r().map(|c| c.initial_rtt.map(ms))));
    put(Column::bool("syn_seen", r().map(|_| true)));
    put(Column::str("end", r().map(|c| if c.closed { "fin" } else { "open" })));
    put(Column::str("vantage", r().map(|_| "unknown")));
    put(Column::bool("mptcp", r().map(|_| false)));
    put(Column::u32("interface", r().map(|_| 0)));
    put(Column::u64("packets", r().map(|c| c.packets)));
    put(Column::u64("bytes", r().map(|c| c.bytes)));
    put(Column::u64("duplicates", r().map(|_| 0)));
    put(Column::u64("capture_gap_bytes", r().map(|_| 0)));
    let name = |i: usize| scenario.flows.get(i).map_or("", |f| f.name.as_str());
    put(Column::str("transfer", r().map(|c| name(c.flow))));
}

/// What the path could hold: the rate that 5 % of the bins exceed, over the smallest round trip (as
/// `flow` has it).
fn path(flow: &FlowRow, samples: &[SampleRow], from: Duration) -> Option<Bytes> {
    let base = match (flow.rtt_ms.map(|q| q.min), flow.initial_rtt_ms) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    let rate = |s: &SampleRow| Bytes(s.delivered).over(s.span).map_or(0, Rate::bps);
    let mut rates: Vec<u64> =
        samples.iter().filter(|s| s.delivered > 0 && s.t.0 >= from.0).map(rate).collect();
    rates.sort_unstable();
    let place = (rates.len() * 95).div_ceil(100).saturating_sub(1);
    let rate = rates.get(place)?;
    (flow.data_packets > 1).then(|| Rate(*rate) * Duration((base * 1e6) as u64))
}

/// The samples of each flow, by its place in `flows`.
fn by_flow(results: &Results) -> Vec<Vec<SampleRow>> {
    let mut parts = vec![Vec::new(); results.flows.len()];
    for sample in &results.samples {
        let place = results.flows.binary_search_by_key(&sample.flow, |f| f.id);
        if let Some(part) = place.ok().and_then(|i| parts.get_mut(i)) {
            part.push(*sample);
        }
    }
    parts
}

/// A count that only a capture shows: null in every row.
fn unknown(rows: &[FlowRow], name: &str) -> Column {
    Column::maybe_u64(name, rows.iter().map(|_| None))
}

/// A figure that only a capture shows: null in every row.
fn unmeasured(rows: &[FlowRow], name: &str) -> Column {
    Column::maybe_f64(name, rows.iter().map(|_| None))
}

/// Columns of table `flows`, in the order of `docs/format.md`.
pub fn flows(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let rows = &results.flows;
    let r = || rows.iter();
    let parts = by_flow(results);
    let bdps: Vec<Option<Bytes>> =
        rows.iter().zip(&parts).map(|(f, part)| path(f, part, scenario.warmup)).collect();
    rates_and_delays(rows, put);
    windows(rows, &parts, put);
    retransmissions_and_losses(rows, put);
    limits(rows, &bdps, put);
    let transfers: Vec<Option<&str>> = r()
        .map(|f| {
            let connection = results.connections.get((f.id / 2) as usize)?;
            (data_side(scenario, connection.flow) == f.id % 2)
                .then(|| scenario.flows.get(connection.flow).map(|t| t.name.as_str()))?
        })
        .collect();
    put(Column::maybe_str("transfer", transfers.iter().copied()));
    put(Column::str("congestion", r().map(|f| f.congestion)));
    put(Column::str("window_law", r().map(|f| f.window_law)));
    put(Column::u64("lost_packets", r().map(|f| f.lost_packets)));
    put(Column::u64("recoveries", r().map(|f| f.recoveries)));
    put(Column::u64("undone", r().map(|f| f.undone)));
    put(Column::f64("window_idle_s", r().map(|f| f.window_idle.as_secs_f64())));
    let near = |place: usize| r().map(move |f| f.queue_ms_near_p95.map(|near| near[place]));
    put(Column::maybe_f64("queue_ms_p94_5", near(0)));
    put(Column::maybe_f64("queue_ms_p95_5", near(1)));
}

/// Columns from `id` to the bytes in flight.
fn rates_and_delays(rows: &[FlowRow], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("id", r().map(|f| f.id)));
    put(Column::u32("connection", r().map(|f| f.id / 2)));
    put(unknown(rows, "packets"));
    put(Column::u64("data_packets", r().map(|f| f.data_packets)));
    put(Column::u64("wire_bytes", r().map(|f| f.wire_bytes)));
    put(Column::u64("payload_bytes", r().map(|f| f.payload_bytes)));
    put(Column::u64("bytes", r().map(|f| f.bytes)));
    put(Column::f64("active_s", r().map(|f| f.active.as_secs_f64())));
    put(Column::maybe_u64("goodput_bps", r().map(|f| f.goodput.map(Rate::bps))));
    put(Column::maybe_u64("peak_bps", r().map(|f| f.peak.map(Rate::bps))));
    put(Column::u32("mss_bytes", r().map(|f| f.mss)));
    put(Column::str("vantage", r().map(|_| "unknown")));
    put(Column::str("rtt_method", r().map(|f| if f.rtt_ms.is_some() { "sender" } else { "none" })));
    quantiles(put, "rtt_ms", rows, |f| f.rtt_ms);
    quantiles(put, "rtt_bound_ms", rows, |_| None);
    quantiles(put, "answer_ms", rows, |_| None);
    put(Column::maybe_f64("initial_rtt_ms", r().map(|f| f.initial_rtt_ms)));
    quantiles(put, "loaded_rtt_ms", rows, |_| None);
    quantiles(put, "queue_ms", rows, |f| f.queue_ms);
    quantiles(put, "data_queue_ms", rows, |_| None);
    quantiles(put, "ack_queue_ms", rows, |_| None);
    put(Column::maybe_f64("timestamp_tick_ms", r().map(|_| None)));
    quantiles(put, "in_flight_bytes", rows, |f| f.in_flight_bytes);
    put(unknown(rows, "in_flight_plain_bytes_max"));
}

/// Columns of the receive window.
fn windows(rows: &[FlowRow], parts: &[Vec<SampleRow>], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::maybe_u64("rwnd_bytes_min", r().map(|f| f.rwnd_min)));
    put(Column::maybe_u64("rwnd_bytes_max", r().map(|f| f.rwnd_max)));
    put(Column::maybe_u64("rwnd_bytes_last", r().map(|f| f.rwnd_last)));
    put(Column::maybe_u8("window_scale", r().map(|_| None)));
    put(Column::bool("window_scale_inferred", r().map(|_| false)));
    quantiles(put, "window_utilisation_pct", rows, |_| None);
    put(unknown(rows, "window_full_count"));
    put(Column::f64("window_full_s", r().map(|f| f.window_full.as_secs_f64())));
    let share = |f: &FlowRow| {
        (f.active > Duration::ZERO && f.data_packets > 0)
            .then(|| (f.window_full.as_secs_f64() / f.active.as_secs_f64()).min(1.0))
    };
    put(Column::maybe_f64("window_full_share", r().map(share)));
    let first = |part: &Vec<SampleRow>| {
        part.iter().find(|s| s.window_full > Duration::ZERO).map(|s| s.t.0 as f64 / 1e9)
    };
    put(Column::maybe_f64("window_full_first_s", parts.iter().map(first)));
    put(unmeasured(rows, "window_full_rtt_ms"));
    put(Column::u64("zero_window_count", r().map(|f| f.zero_window_count)));
    put(Column::f64("zero_window_s", r().map(|f| f.zero_window.as_secs_f64())));
    put(unmeasured(rows, "zero_window_first_s"));
    put(Column::u64("zero_window_probes", r().map(|f| f.zero_window_probes)));
    put(unknown(rows, "keep_alives"));
}

/// Columns of retransmissions, losses, ECN and bursts.
fn retransmissions_and_losses(rows: &[FlowRow], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u64("retransmissions", r().map(|f| f.retransmissions)));
    put(Column::u64("retransmitted_bytes", r().map(|f| f.retransmitted_bytes)));
    put(Column::u64("retransmissions_fast", r().map(|f| f.retransmissions_fast)));
    put(Column::u64("retransmissions_timeout", r().map(|f| f.retransmissions_timeout)));
    put(Column::u64("retransmissions_tail_probe", r().map(|f| f.retransmissions_tail_probe)));
    put(Column::u64("retransmissions_spurious", r().map(|f| f.retransmissions_spurious)));
    put(Column::u64("timeouts", r().map(|f| f.timeouts)));
    put(unknown(rows, "out_of_order"));
    put(unmeasured(rows, "reordering_ms_max"));
    put(unknown(rows, "ambiguous"));
    put(unknown(rows, "dup_acks"));
    put(unknown(rows, "sack_blocks"));
    put(unknown(rows, "dsacks"));
    let lost = |f: &FlowRow| {
        (f.data_packets > 0).then(|| (f.lost_packets as f64 / f.data_packets as f64).min(1.0))
    };
    put(Column::maybe_f64("loss_rate", r().map(lost)));
    put(Column::u64("ecn_ce", r().map(|f| f.ecn_ce)));
    put(unknown(rows, "ecn_ece"));
    put(unknown(rows, "idle_count"));
    put(unmeasured(rows, "idle_s"));
    put(unknown(rows, "ack_bursts"));
    put(unknown(rows, "ack_burst_bytes_max"));
    put(unknown(rows, "data_burst_bytes_max"));
    put(unmeasured(rows, "ack_silence_max_ms"));
}

/// Columns of the bandwidth-delay product, the limits and the grade.
fn limits(rows: &[FlowRow], bdps: &[Option<Bytes>], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::maybe_u64("bdp_bytes", bdps.iter().map(|b| b.map(Bytes::get))));
    let over = |(f, bdp): (&FlowRow, &Option<Bytes>)| match (f.in_flight_bytes, bdp.map(Bytes::get))
    {
        (Some(q), Some(bdp)) if bdp > 0 => Some(q.p95 / bdp as f64),
        _ => None,
    };
    put(Column::maybe_f64("in_flight_over_bdp", r().zip(bdps).map(over)));
    let ceiling = |f: &FlowRow| match (f.rwnd_max, f.peak) {
        (Some(window), Some(peak)) if peak.bps() > 0 && f.bytes > 4 * u64::from(f.mss) => {
            Some(ms(Bytes(window) / peak))
        }
        _ => None,
    };
    put(Column::maybe_f64("rtt_ceiling_ms", r().map(ceiling)));
    put(unknown(rows, "unlimited_goodput_bps"));
    for (i, limit) in Limit::ALL.iter().enumerate() {
        let name = format!("share_{}", limit.name());
        put(Column::maybe_f64(name, r().map(move |f| f.shares.map(|s| s[i]))));
    }
    put(Column::maybe_str("limit", r().map(main_limit)));
    put(Column::bool("too_short", r().map(|_| false)));
    put(Column::maybe_str("capture_lacks", r().map(|_| None::<&str>)));
    let graded =
        |f: &FlowRow| f.queue_ms.filter(|q| q.count >= GRADE_SAMPLES).map(|q| grade(q.p95));
    put(Column::maybe_str("grade", r().map(graded)));
    // Which one it is stands in `congestion`: nothing has to be recognised.
    put(Column::maybe_str("congestion_control", r().map(|_| None::<&str>)));
    put(Column::maybe_str("congestion_control_evidence", r().map(|_| None::<&str>)));
}

/// The limit with the largest share, the earlier one where two are equal.
fn main_limit(flow: &FlowRow) -> Option<&'static str> {
    let shares = flow.shares?;
    let mut best = 0;
    for i in 1..shares.len() {
        if shares[i] > shares[best] {
            best = i;
        }
    }
    Some(Limit::ALL[best].name())
}

/// Columns of table `samples`.
pub fn samples(results: &Results, put: Put<'_>) {
    let r = || results.samples.iter();
    put(Column::u32("flow", r().map(|s| s.flow)));
    put(Column::f64("t_s", r().map(|s| s.t.0 as f64 / 1e9)));
    put(Column::f32("span_s", r().map(|s| s.span.as_secs_f64() as f32)));
    put(Column::u64("sent_bytes", r().map(|s| s.sent)));
    put(Column::u64("delivered_bytes", r().map(|s| s.delivered)));
    let goodput = |s: &SampleRow| s.delivered as f64 * 8.0 / s.span.as_secs_f64().max(1e-9);
    put(Column::f64("goodput_bps", r().map(goodput)));
    put(Column::maybe_f32("rtt_ms_min", r().map(|s| s.rtt.map(|t| ms(t.0) as f32))));
    put(Column::maybe_f32("rtt_ms", r().map(|s| s.rtt.map(|t| ms(t.1) as f32))));
    put(Column::maybe_f32("rtt_ms_max", r().map(|s| s.rtt.map(|t| ms(t.2) as f32))));
    put(Column::maybe_f32("data_queue_ms", r().map(|_| None)));
    put(Column::maybe_f32("ack_queue_ms", r().map(|_| None)));
    put(Column::maybe_f32("ack_delay_ms", r().map(|_| None)));
    put(Column::u64("in_flight_bytes", r().map(|s| s.in_flight)));
    put(Column::u64("rwnd_bytes", r().map(|s| s.rwnd)));
    put(Column::f32("window_full_s", r().map(|s| s.window_full.as_secs_f64() as f32)));
    put(Column::u32(
        "retransmissions",
        r().map(|s| u32::try_from(s.retransmissions).unwrap_or(u32::MAX)),
    ));
    put(Column::str("limit", r().map(|s| s.limit.name())));
    put(Column::u64("cwnd_bytes", r().map(|s| s.cwnd)));
    put(Column::maybe_u64("ssthresh_bytes", r().map(|s| s.ssthresh)));
    put(Column::maybe_u64("pacing_bps", r().map(|s| s.pacing.map(Rate::bps))));
    put(Column::maybe_f32("queue_ms", r().map(|s| s.queue.map(|d| ms(d) as f32))));
}

/// Columns of table `events`.
pub fn events(results: &Results, put: Put<'_>) {
    let r = || results.events.iter();
    put(Column::u32("flow", r().map(|e| e.flow)));
    put(Column::f64("t_s", r().map(|e| e.t.0 as f64 / 1e9)));
    put(Column::str("kind", r().map(|e| e.kind)));
    put(Column::f64("value", r().map(|e| e.value)));
    put(Column::u64("seq", r().map(|e| e.seq)));
}

fn link(scenario: &Scenario, index: usize) -> &str {
    scenario.links.get(index).map_or("", |l| l.name.as_str())
}

/// Columns of table `queues`.
pub fn queues(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let r = || results.queues.iter();
    put(Column::str("link", r().map(|q| link(scenario, q.link))));
    put(Column::str("stage", r().map(|q| q.stage)));
    put(Column::f64("t_s", r().map(|q| q.t.0 as f64 / 1e9)));
    put(Column::u64("packets", r().map(|q| q.packets)));
    put(Column::u64("bytes", r().map(|q| q.bytes)));
    put(Column::maybe_f64("delay_ms", r().map(|q| q.delay.map(ms))));
    put(Column::f64("delay_ms_max", r().map(|q| ms(q.delay_max))));
    put(Column::u64("drops", r().map(|q| q.drops)));
}

/// Columns of table `stages`.
pub fn stages(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let rows = &results.stages;
    let r = || rows.iter();
    let node = |i: usize| scenario.nodes.get(i).map_or("", |n| n.name.as_str());
    let ends = |i: usize| scenario.links.get(i).map_or(("", ""), |l| (node(l.from), node(l.to)));
    put(Column::str("link", r().map(|s| link(scenario, s.link))));
    put(Column::str("stage", r().map(|s| s.stage)));
    put(Column::str("from_node", r().map(|s| ends(s.link).0)));
    put(Column::str("to_node", r().map(|s| ends(s.link).1)));
    quantiles(put, "delay_ms", rows, |s| s.delay_ms);
    put(Column::maybe_f64("delay_ms_mean", r().map(|s| s.delay_ms_mean)));
    put(Column::u64("packets", r().map(|s| s.packets)));
    put(Column::u64("drops_overflow", r().map(|s| s.overflowed)));
    put(Column::u64("drops_aqm", r().map(|s| s.dropped_by_aqm)));
    put(Column::u64("lost_on_link", r().map(|s| s.lost_on_link)));
    put(Column::maybe_u64("throughput_bps", r().map(|s| s.throughput.map(Rate::bps))));
    put(Column::maybe_u64("rate_bps", r().map(|s| constant_rate(scenario, s.link))));
}

/// The rate of a link that has one and keeps it.
fn constant_rate(scenario: &Scenario, index: usize) -> Option<u64> {
    let changed = |c: &scenario::Changed| matches!(c, scenario::Changed::Link(i, _) if *i == index);
    if scenario.changes.iter().any(|c| c.what.iter().any(changed)) {
        return None;
    }
    let medium = &scenario.links.get(index)?.medium;
    let entry = algo::link::TABLE.get(medium.index).filter(|e| e.name == "fixed")?;
    let place = entry.params.iter().position(|p| p.name == "rate")?;
    match medium.settings.0.get(place) {
        Some(algo::Value::Rate(rate)) => Some(rate.bps()),
        _ => None,
    }
}

/// Columns of table `probes`.
pub fn probes(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let r = || results.probes.iter();
    let name = |i: usize| scenario.probes.get(i).map_or("", |p| p.name.as_str());
    put(Column::str("probe", r().map(|p| name(p.probe))));
    put(Column::f64("t_s", r().map(|p| p.t.0 as f64 / 1e9)));
    put(Column::maybe_f64("rtt_ms", r().map(|p| p.rtt.map(ms))));
    put(Column::maybe_f64("owd_ms", r().map(|p| p.owd.map(ms))));
    put(Column::bool("lost", r().map(|p| p.lost)));
}

/// Columns of table `apps`.
pub fn apps(scenario: &Scenario, results: &Results, put: Put<'_>) {
    let r = || results.apps.iter();
    let name = |i: usize| scenario.flows.get(i).map_or("", |f| f.name.as_str());
    put(Column::str("transfer", r().map(|a| name(a.flow))));
    put(Column::f64("t_s", r().map(|a| a.t.0 as f64 / 1e9)));
    put(Column::str("kind", r().map(|a| a.kind)));
    put(Column::f64("value", r().map(|a| a.value)));
}
