//! Makes the rows of a finished connection from its state.
//!
//! Derived figures:
//! - queueing delay = loaded RTT − minimum RTT of the path;
//! - BDP = p95 of the goodput of each second × minimum RTT;
//! - RTT ceiling = largest window / best second (TCP-tracing part 4: 3 MB at 500 Mbit/s limit the rate from 50 ms on);
//! - goodput with a window twice as large = twice the rate while the window was full, but at most the rate of the best
//!   bin. Behind a standing queue of 30 ms or more it is the goodput itself: a larger window would only add queue.
//!
//! A transfer that is too short to judge ([`too_short`]) has counts and RTTs, but no rate, limit or grade. One that the
//! capture lacks too much of (`complete.rs`) has counts.

use units::{Bytes, Duration, Instant, Rate};

use crate::connection::{Conn, complete};
use crate::diagnose::grade::grade;
use crate::series::directions::Directions;
use crate::series::evidence::{Burst, Silences, Wakeup};
use crate::series::output::Series;
use crate::series::profile::Profile;
use crate::series::rows::{Connection, EventKind, Flow, Limit, Protocol, RttMethod, Vantage};
use crate::tcp::state::{Context, Measured};
use crate::tcp::stream::Stream;

/// RTT samples under load that a grade needs.
const GRADE_SAMPLES: u64 = 10;
/// Segments from which a transfer is judged. Fewer are one initial window (RFC 6928), sent without knowing the path.
const MIN_SEGMENTS: u64 = 11;
/// Round trips from which it is judged: as many as show that slow start has ended (`series/limits.rs`).
const MIN_ROUND_TRIPS: f64 = 3.0;
/// Time from which it is judged, where the RTT is unknown or tiny: clocks and schedulers of hosts err by milliseconds.
const MIN_ACTIVE: Duration = Duration::from_millis(10);
/// Queue (ms) from which a larger window would only add queue: the threshold of the limit `bufferbloat`.
const STANDING_MS: f64 = 30.0;

/// What the rules need of a flow beside its row.
pub(crate) struct RuleInputs {
    pub profile: Profile,
    pub directions: Option<Directions>,
    pub wakeups: Vec<Wakeup>,
    pub bursts: Vec<Burst>,
    pub silences: Silences,
    pub refused: u64,
}

/// The row of a connection.
pub(crate) fn connection_row(c: &Conn) -> Connection {
    Connection {
        id: c.id,
        protocol: Protocol::Tcp,
        a_addr: c.addrs[0].0,
        a_port: c.addrs[0].1,
        b_addr: c.addrs[1].0,
        b_port: c.addrs[1].1,
        start: c.start,
        end: c.end,
        initial_rtt: c.initial_rtt,
        syn_seen: c.streams.iter().any(|s| s.syn_seen),
        end_kind: c.end_kind(),
        vantage: c.vantage,
        mptcp: c.mptcp,
        interface: c.interface,
        packets: c.packets,
        bytes: Bytes(c.bytes),
        duplicates: c.duplicates,
        capture_gaps: Bytes(c.streams.iter().map(|s| s.counts.gap_bytes).sum()),
    }
}

/// Ends the measurements of one stream and makes its row.
pub(crate) fn flow_row(
    s: &mut Stream,
    cx: &mut Context<'_>,
    initial: Option<Duration>,
    seen_until: Instant,
) -> (Flow, Option<RuleInputs>) {
    let mut f = Flow::blank(cx.flow);
    counters(s, &mut f);
    f.vantage = s.vantage;
    f.initial_rtt_ms = initial.map(Duration::as_millis_f64);
    f.window_scale = s.scale.known;
    f.window_scale_inferred = s.scale.known.is_none() && s.scale.inferred > 0;
    if s.rwnd.is_some() {
        f.rwnd_min = Some(Bytes(s.rwnd_min));
        f.rwnd_max = Some(Bytes(s.rwnd_max));
        f.rwnd_last = s.rwnd.map(Bytes);
    }
    let Some(mut m) = s.measured.take() else {
        return (f, None);
    };
    // With data unacknowledged the flow lasts to the last packet of the connection, else to the last ACK of data.
    let last =
        if m.idle_from.is_some() { m.last_acked_data } else { m.last_acked_data.max(cx.now) };
    let end = if s.acked_any { last } else { m.last_data };
    // Without an answer it lasts until its timer was to fire again, as far as the capture goes: then it was given up.
    let waits = m.silence.is_some() || m.waiting.is_some_and(|w| w.answered.is_none());
    let silent = seen_until.min(m.next_timeout).max(m.last_data);
    let silent_end = if waits { end.max(silent) } else { end };
    close(s, &mut m, cx, silent_end);
    m.end_silence(silent_end, false);
    f.congestion_control = crate::congestion_control::decide::recognise(&m.rounds, s.mss());
    f.active = end.since(m.first_data);
    // Gaps overlap where the clock of the capture went back.
    f.idle = f.idle.min(f.active);
    f.goodput = Bytes(f.bytes.get().saturating_sub(m.before.get())).over(f.active);
    f.peak = m.bins.best_second().map(|b| Rate(b * 8)).or(f.goodput);
    round_trips(s, &m, &mut f);
    windows(s, &m, &mut f);
    derived(s, &m, &mut f);
    f.limit_time = m.bins.limit_ns.map(Duration);
    if f.data_packets > 0 && too_short(s, &m, &f) {
        without_judgement(&mut f);
    }
    f.ack_bursts = m.bursts.count;
    f.ack_burst_bytes_max = Bytes(m.bursts.acked_max);
    f.data_burst_bytes_max = Bytes(m.bursts.released_max);
    f.ack_silence_max = Duration(m.bursts.silence_max);
    if !f.too_short
        && let Some(lacks) = complete::lacks(s, &m, &f)
    {
        complete::without_figures(&mut f, lacks);
    }
    let directions = directions(s, &m, &mut f, cx);
    m.wakeups.retain(|w| w.first_rtt > Duration::ZERO);
    let Measured { bins, wakeups, bursts, silences, .. } = *m;
    let (profile, bursts, refused) = (bins.profile, bursts.longest, s.counts.refused);
    (f, Some(RuleInputs { profile, directions, wakeups, bursts, silences, refused }))
}

fn counters(s: &Stream, f: &mut Flow) {
    let c = &s.counts;
    f.first_seq = s.syn_seen.then(|| s.isn.wrapping_add(1));
    f.packets = c.packets;
    f.data_packets = c.data_packets;
    f.wire_bytes = Bytes(c.wire_bytes);
    f.payload_bytes = Bytes(c.payload_bytes);
    f.bytes = if c.data_packets > 0 || s.acked_any { s.delivered_bytes() } else { Bytes::ZERO };
    f.mss = if c.data_packets > 0 || s.mss_agreed > 0 { s.mss() } else { 0 };
    f.window_full_count = c.window_full;
    f.zero_window_count = c.zero_windows;
    f.zero_window_probes = c.zero_window_probes;
    f.keep_alives = c.keep_alives;
    f.retransmissions = c.retransmissions;
    f.retransmitted_bytes = Bytes(c.retransmitted_bytes);
    f.retransmissions_fast = c.fast;
    f.retransmissions_timeout = c.timeout;
    f.retransmissions_tail_probe = c.tail_probe;
    f.retransmissions_spurious = c.spurious.min(c.retransmissions);
    f.timeouts = c.timeouts;
    f.out_of_order = c.out_of_order;
    f.reordering_ms_max = (c.out_of_order > 0).then(|| c.reordering_max.as_millis_f64());
    f.ambiguous = c.ambiguous;
    f.dup_acks = c.dup_acks;
    f.sack_blocks = c.sack_blocks;
    f.dsacks = c.dsacks;
    if c.data_packets > 0 {
        let lost = f.retransmissions - f.retransmissions_spurious;
        f.loss_rate = Some((lost as f64 / f.segments() as f64).min(1.0));
    }
    f.ecn_ce = c.ecn_ce;
    f.ecn_ece = c.ecn_ece;
    f.idle_count = c.idle_count;
    f.idle = c.idle;
}

/// Ends what is still open: window-full spans, bursts, the last bin.
fn close(s: &Stream, m: &mut Measured, cx: &mut Context<'_>, end: Instant) {
    let (selected, flow) = (cx.selected, cx.flow);
    for (since, kind) in
        [(m.full_since, EventKind::WindowFull), (m.zero_since, EventKind::ZeroWindow)]
    {
        if let Some(since) = since {
            cx.series.event(selected, flow, since, kind, end.since(since).as_secs_f64(), s.max);
        }
    }
    m.bursts.end(u64::from(s.mss()));
    let facts = s.facts(m, cx);
    let Series { samples, .. } = &mut *cx.series;
    m.bins.finish(end, &facts, if selected.samples { Some((flow, samples)) } else { None });
}

fn round_trips(s: &Stream, m: &Measured, f: &mut Flow) {
    const MS: f64 = 1e-6;
    f.rtt_ms = m.rtt.quantiles(MS);
    f.rtt_method = match (f.rtt_ms, s.vantage) {
        (None, _) => RttMethod::None,
        (_, Vantage::Receiver) => RttMethod::Timestamps,
        (_, Vantage::Middle) => RttMethod::Halves,
        _ => RttMethod::SeqAck,
    };
    if f.rtt_ms.is_none() && s.vantage == Vantage::Receiver && !s.timestamps {
        // Where a window shrinks or the sender's data was under way before, an estimate can be below the RTT. An upper
        // bound stays one if it is raised to an RTT that was measured: the handshake's.
        let handshake = f.initial_rtt_ms.unwrap_or(0.0);
        f.rtt_bound_ms = m.window_rtt.quantiles(MS).map(|q| q.map(|ms| ms.max(handshake)));
        if f.rtt_bound_ms.is_some() {
            f.rtt_method = RttMethod::Window;
        }
        return;
    }
    f.loaded_rtt_ms = m.loaded_rtt.quantiles(MS);
    let base = base_ms(s, m);
    if let (Some(loaded), Some(base)) = (f.loaded_rtt_ms, base) {
        let queue = loaded.map(|ms| (ms - base).max(0.0));
        f.queue_ms = Some(queue);
        if loaded.count >= GRADE_SAMPLES {
            f.grade = Some(grade(queue.p95));
        }
    }
}

/// What data and ACKs waited, each on its way. Between the hosts a capture shows neither way's end.
fn directions(s: &Stream, m: &Measured, f: &mut Flow, cx: &mut Context<'_>) -> Option<Directions> {
    let at_sender = match s.vantage {
        Vantage::Sender => true,
        Vantage::Receiver => false,
        Vantage::Middle | Vantage::Unknown => return None,
    };
    if f.capture_lacks.is_some() {
        return None;
    }
    // The handshake's packets are small: a full segment takes longer to pass the slowest link.
    let packet = f.goodput.filter(|rate| rate.0 > 0).map(|rate| Bytes(u64::from(s.mss())) / rate);
    let least = s.path_min.map(Duration).zip(packet).map(|(path, packet)| path + packet);
    let found = Directions::split(&m.stamps, &m.losses, at_sender, least)?;
    f.timestamp_tick_ms = Some(found.tick.as_millis_f64());
    f.data_queue_ms = found.data_ms();
    f.ack_queue_ms = found.acks_ms();
    if cx.selected.samples {
        cx.series.directions(cx.flow, &found);
    }
    Some(found)
}

fn base_ms(s: &Stream, m: &Measured) -> Option<f64> {
    let min = match (m.rtt.min(), s.path_min) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    Some(min as f64 / 1e6)
}

fn windows(s: &Stream, m: &Measured, f: &mut Flow) {
    f.in_flight_bytes = m.in_flight.quantiles(1.0);
    f.in_flight_plain_max = f.in_flight_bytes.map(|_| Bytes(m.in_flight_plain_max));
    f.window_utilisation =
        if s.scale.known.is_some() { m.bins.utilisation.quantiles(0.01) } else { None };
    f.window_full = Duration(m.bins.window_full_ns);
    f.window_full_first = m.full_first;
    f.window_full_rtt_ms = m.full_rtt_min.map(|ns| ns as f64 / 1e6);
    f.zero_window = Duration(m.bins.zero_window_ns);
    f.zero_window_first = m.zero_first;
}

/// Whether rates and limits of this transfer would say more about its size than about its path. Time without an answer or
/// behind a zero window is a limit however few segments there are; a late copy of a segment that had its answer is none.
/// Where no RTT is known, data of which none was sent after an ACK of the capture lasted less than one round trip.
fn too_short(s: &Stream, m: &Measured, f: &Flow) -> bool {
    let brief = f.active < MIN_ACTIVE
        || match base_ms(s, m).or(f.initial_rtt_ms) {
            Some(rtt_ms) => f.active.as_millis_f64() < MIN_ROUND_TRIPS * rtt_ms,
            None => m.echoes.unanswered(),
        };
    let waited = f.limit_time[Limit::Timeout as usize] + f.limit_time[Limit::ZeroWindow as usize];
    (brief || f.segments() < MIN_SEGMENTS) && waited == Duration::ZERO
}

/// Removes what [`too_short`] does not permit.
fn without_judgement(f: &mut Flow) {
    f.too_short = true;
    (f.goodput, f.peak, f.unlimited_goodput) = (None, None, None);
    (f.bdp, f.in_flight_over_bdp, f.rtt_ceiling_ms) = (None, None, None);
    f.limit_time = [Duration::ZERO; Limit::COUNT];
    f.grade = None;
}

fn derived(s: &Stream, m: &Measured, f: &mut Flow) {
    let base = base_ms(s, m);
    let rate = m.bins.rates.quantile(0.95).map(|b| b * 8).or(f.goodput.map(Rate::bps));
    if let (Some(rate), Some(base)) = (rate, base)
        && f.data_packets > 1
    {
        let bdp = Rate(rate) * Duration((base * 1e6) as u64);
        f.bdp = Some(bdp);
        if let (Some(in_flight), 1..) = (f.in_flight_bytes, bdp.get()) {
            f.in_flight_over_bdp = Some(in_flight.p95 / bdp.get() as f64);
        }
    }
    if let (Some(window), Some(peak), Some(_)) = (f.rwnd_max, f.peak, f.window_scale)
        && peak.bps() > 0
        && f.bytes.get() > 4 * u64::from(f.mss)
    {
        f.rtt_ceiling_ms = Some((window / peak).as_millis_f64());
    }
    let share = f.window_full.as_secs_f64() / f.active.as_secs_f64().max(1e-9);
    if share >= 0.01
        && let Some(goodput) = f.goodput
    {
        let standing =
            f.window_full_rtt_ms.zip(base).is_some_and(|(rtt, base)| rtt - base >= STANDING_MS);
        let doubled = goodput.bps() as f64 * (1.0 + share.min(1.0));
        let shown = (m.bins.best_bin_rate() * 8.0).max(goodput.bps() as f64);
        f.unlimited_goodput =
            Some(if standing { goodput } else { Rate(doubled.min(shown) as u64) });
    }
}
