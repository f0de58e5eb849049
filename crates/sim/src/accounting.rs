//! Bins and final figures of a run.
//!
//! What limited a sender is known exactly ([`SendLimit`]). Whether its data stood in a queue is
//! known from the time that each frame spent waiting.

use algo::cc::{self, CongestionControl};
use algo::rwnd;
use units::{Bytes, Delays, Duration, Instant};

use crate::record::{ConnectionRow, FlowRow, Limit, NEAR_P95, SampleRow};
use crate::simulation::{Connection, Direction, Simulation, Tap};
use crate::tcp::{Phase, SendLimit};

/// A queue that did not drain for so long is a standing queue.
const STANDING: Duration = Duration::from_secs(1);
/// A queue of less than this is a packet or two in service, not a queue.
const QUEUE_NS: u64 = 1_000_000;
/// Length of a second, in ns: the peak is taken over full seconds.
const SECOND: u64 = 1_000_000_000;

impl<T: Tap> Simulation<'_, T> {
    pub(crate) fn write_bin(&mut self, from: Instant, to: Instant) {
        let span = to.since(from);
        let measured = to > self.measured_from;
        let keep = (STANDING.0.div_ceil(span.0.max(1))).clamp(1, 10_000) as usize;
        for (i, c) in self.connections.iter_mut().enumerate() {
            if c.closed && c.last < from {
                continue;
            }
            // A late duplicate of the last FIN is answered after the end. Its row spans the bins that were left out.
            let from = c.written.replace(to).unwrap_or(from);
            let bin = (from, to, to.since(from));
            for side in 0..2 {
                sample(&mut self.results.samples, i, c, side, bin, measured, keep);
            }
        }
        for (link, port) in self.ports.iter_mut().enumerate() {
            port.take_bin(link, from, |row| self.results.queues.push(row));
        }
    }

    pub(crate) fn write_totals(&mut self) {
        let (end, measured_from) = (self.results_end(), self.measured_from);
        for (i, c) in self.connections.iter_mut().enumerate() {
            let flow = &self.scenario.flows[c.flow];
            self.results.connections.push(ConnectionRow {
                id: i as u32,
                flow: c.flow,
                a: c.nodes[0],
                b: c.nodes[1],
                a_port: c.wire.ports[0],
                b_port: c.wire.ports[1],
                start: c.start,
                end: c.last,
                initial_rtt: c.initial_rtt,
                closed: c.closed,
                packets: c.packets,
                bytes: c.bytes,
            });
            for side in 0..2 {
                let congestion = cc::TABLE[flow.sender.congestion.index].name;
                let law = if side == usize::from(c.data_side) {
                    rwnd::TABLE[flow.receiver.window.index].name
                } else {
                    rwnd::TABLE[0].name
                };
                let row = flow_row(i, c, side, (congestion, law), measured_from, end);
                self.results.delivered += Bytes(row.bytes);
                self.results.flows.push(row);
            }
        }
        for (link, port) in self.ports.iter().enumerate() {
            self.results.stages.extend(port.stages(link, end.since(measured_from)));
        }
    }

    fn results_end(&self) -> Instant {
        Instant(self.scenario.duration.0)
    }
}

fn sample(
    rows: &mut Vec<SampleRow>,
    index: usize,
    c: &mut Connection,
    side: usize,
    (from, to, span): (Instant, Instant, Duration),
    measured: bool,
    keep: usize,
) {
    let (arrived, queued) = {
        let peer = &mut c.ends[1 - side];
        (
            std::mem::take(&mut peer.delivered_bin),
            std::mem::replace(&mut peer.queued_bin, (u64::MAX, 0, 0)),
        )
    };
    let end = &mut c.ends[side];
    if end.phase == Phase::Idle {
        return;
    }
    let sender = &mut end.sender;
    sender.account_limit(to);
    let limited_time = std::mem::take(&mut sender.limited_time);
    let rtt = std::mem::replace(&mut sender.rtt_bin, (0, 0, u64::MAX, 0));
    let left = sender.in_flight();
    let in_flight = std::mem::replace(&mut sender.in_flight_max, left).max(left);
    let direction = &mut c.directions[side];
    let counters = sender.counters;
    if counters.segments == 0 {
        return;
    }
    direction.recent.push(if queued.2 > 0 { queued.0 } else { u64::MAX });
    if direction.recent.len() > keep {
        direction.recent.remove(0);
    }
    let times = limit_times(&limited_time, direction, queued);
    let limit = Limit::ALL
        .into_iter()
        .max_by_key(|&limit| (times[limit as usize], Limit::COUNT - limit as usize))
        .unwrap_or(Limit::Unknown);
    let limit = if times.iter().sum::<u64>() == 0 { Limit::Unknown } else { limit };
    let full = |h: SendLimit| limited_time[0][h as usize] + limited_time[1][h as usize];
    let window_full = full(SendLimit::ZeroWindow) + full(SendLimit::ReceiveWindow);
    if !measured {
        // Round trips of the warm-up are no part of the statistics.
        sender.rtts = Delays::default();
    }
    if measured {
        for (sum, time) in direction.limits.iter_mut().zip(times) {
            *sum += time;
        }
        direction.window_full += window_full;
        direction.in_flight.record(in_flight);
    }
    peak(direction, from, arrived, span);
    let state = sender.cc.state();
    rows.push(SampleRow {
        flow: (index * 2 + side) as u32,
        t: from,
        span,
        sent: counters.payload - direction.last.payload,
        delivered: arrived,
        rtt: (rtt.1 > 0).then(|| (Duration(rtt.2), Duration(rtt.0 / rtt.1), Duration(rtt.3))),
        in_flight,
        rwnd: sender.peer_window(),
        cwnd: state.window.0,
        ssthresh: state.threshold.map(|b| b.0),
        pacing: state.pacing_rate,
        queue: (queued.2 > 0).then(|| Duration(queued.1 / queued.2)),
        window_full: Duration(window_full),
        retransmissions: counters.retransmitted - direction.last.retransmitted,
        limit,
    });
    direction.last = counters;
}

/// Time by limit, in the order of [`Limit::ALL`].
fn limit_times(
    limited_time: &[[u64; crate::tcp::SEND_LIMITS]; 2],
    direction: &Direction,
    queued: (u64, u64, u64),
) -> [u64; Limit::COUNT] {
    let both = |h: SendLimit| limited_time[0][h as usize] + limited_time[1][h as usize];
    let network = |part: usize| {
        let h = &limited_time[part];
        h[SendLimit::Congestion as usize]
            + h[SendLimit::Pacing as usize]
            + h[SendLimit::Local as usize]
    };
    let mut times = [0; Limit::COUNT];
    times[Limit::ZeroWindow as usize] = both(SendLimit::ZeroWindow);
    times[Limit::Timeout as usize] = both(SendLimit::Timeout);
    times[Limit::ReceiveWindow as usize] = both(SendLimit::ReceiveWindow);
    times[Limit::Application as usize] = both(SendLimit::Application);
    times[Limit::SlowStart as usize] = network(0);
    // The smallest queueing delay of the last second: a queue that never drained in that time is a
    // standing one.
    let standing = direction.recent.iter().copied().filter(|q| *q != u64::MAX).min().unwrap_or(0);
    let mean = queued.1.checked_div(queued.2).unwrap_or(standing);
    let kind = if standing >= Limit::BLOAT.0 {
        Limit::Bufferbloat
    } else if mean >= QUEUE_NS {
        Limit::Bottleneck
    } else {
        Limit::CongestionWindow
    };
    times[kind as usize] = network(1);
    times
}

/// Counts a bin's bytes for the best second. A second is over with the bin that reaches its end;
/// the bytes of a bin across that end belong to both seconds, by time.
fn peak(direction: &mut Direction, from: Instant, arrived: u64, span: Duration) {
    let part = |ns: u64| (u128::from(arrived) * u128::from(ns) / u128::from(span.0.max(1))) as u64;
    // A bin longer than a second is its own peak.
    if span.0 > SECOND {
        direction.peak = direction.peak.max(part(SECOND));
        return;
    }
    let left = SECOND - from.0 % SECOND;
    let before = if span.0 > left { part(left) } else { arrived };
    direction.second_bytes += before;
    if span.0 >= left {
        direction.peak = direction.peak.max(direction.second_bytes);
        direction.second_bytes = arrived - before;
    }
}

/// The quantiles beside p95, ms.
fn near_p95(delays: &Delays) -> Option<[f64; 2]> {
    let [low, high] = NEAR_P95.map(|part| delays.quantile(part));
    Some([low? as f64 * 1e-6, high? as f64 * 1e-6])
}

fn flow_row(
    index: usize,
    c: &mut Connection,
    side: usize,
    (congestion, window_law): (&'static str, &'static str),
    measured_from: Instant,
    end: Instant,
) -> FlowRow {
    let (ours, theirs) = {
        let [a, b] = &mut c.ends;
        if side == 0 { (a, b) } else { (b, a) }
    };
    theirs.receiver.finish(end);
    ours.sender.account_window_idle(end);
    let direction = &c.directions[side];
    let counters = ours.sender.counters;
    let first = direction.first_data.unwrap_or(end).max(measured_from);
    let active = direction.last_delivery.since(first);
    let peak = direction.peak.max(if direction.peak == 0 { direction.second_bytes } else { 0 });
    let total: u64 = direction.limits.iter().sum();
    let range = theirs.receiver.window_range;
    FlowRow {
        id: (index * 2 + side) as u32,
        congestion,
        window_law,
        data_packets: counters.segments,
        wire_bytes: direction.wire_bytes,
        payload_bytes: counters.payload,
        bytes: direction.delivered,
        active,
        goodput: Bytes(direction.measured).over(active).filter(|_| direction.measured > 0),
        peak: (peak > 0).then(|| units::Rate(peak * 8)),
        mss: u32::from(c.wire.mss[side]).saturating_sub(12),
        rtt_ms: ours.sender.rtts.quantiles(1e-6),
        initial_rtt_ms: c.initial_rtt.map(Duration::as_millis_f64),
        queue_ms: direction.queued.quantiles(1e-6),
        queue_ms_near_p95: near_p95(&direction.queued),
        in_flight_bytes: direction.in_flight.quantiles(1.0),
        rwnd_min: (range.1 > 0).then_some(range.0),
        rwnd_max: (range.1 > 0).then_some(range.1),
        rwnd_last: (range.1 > 0).then(|| ours.sender.peer_window()),
        window_full: Duration(direction.window_full),
        zero_window_count: theirs.receiver.counters.zero_windows,
        zero_window: Duration(theirs.receiver.counters.zero_ns),
        window_idle: Duration(counters.window_idle_ns),
        zero_window_probes: counters.window_probes,
        retransmissions: counters.retransmitted,
        retransmitted_bytes: counters.retransmitted_bytes,
        retransmissions_fast: counters.retransmitted_fast,
        retransmissions_timeout: counters.retransmitted_timeout,
        retransmissions_tail_probe: counters.retransmitted_probe,
        retransmissions_spurious: counters.retransmitted_spurious,
        timeouts: counters.timeouts,
        recoveries: counters.recoveries,
        undone: counters.undone,
        lost_packets: direction.lost,
        ecn_ce: theirs.receiver.counters.marked,
        shares: (total > 0).then(|| direction.limits.map(|t| t as f64 / total as f64)),
    }
}
