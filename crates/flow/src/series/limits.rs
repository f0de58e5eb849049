//! A flow's time in bins of equal length, each with one limit.
//!
//! signal: how long the window was full or zero and how long there was nothing to send; RTT samples, bytes and
//! losses · model: the limits of `docs/measures.md` ("Limits") in their order of precedence, after T-RAT (Zhang et
//! al., SIGCOMM 2002) and rate-limit analysis (Siekkinen et al., 2005) · action: one [`Limit`] per closed bin, shares
//! of time, a [`Sample`] if the connection is selected, and the bin added to the [`Profile`].
//!
//! Deviation: the queueing delay of a bin is relative to the minimum RTT known *by then*, because the limit is decided
//! while the capture is read. A flow that begins behind the queue of another flow gets its true minimum later.

use units::{Bytes, Duration, Instant};

use crate::series::growth::{AckClock, Round, SlowStart};
use crate::series::last_second::{LastSecond, Second};
use crate::series::profile::{Profile, ProfileBin};
use crate::series::rows::{Limit, Sample};
use units::Histogram;

/// A state decides the limit of a bin when it lasts at least 1 / this of it: half.
const MAJORITY: u64 = 2;
/// A rate from this share of the best second on counts as that of the bottleneck.
const NEAR_BEST: f64 = 0.85;

/// How long a loss matters after the last sign of it: a second, the initial retransmission timeout (RFC 6298), or four
/// RTTs, ns. A sender that waits for longer has repaired it, whether or not the capture shows the ACK.
pub fn recovery_memory(srtt: u64) -> u64 {
    1_000_000_000.max(4 * srtt)
}

/// The state of the stream between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// The retransmission timer fired, and nothing new has been acknowledged since. Then time does not count for a full
    /// window or an idle application, whatever their states: neither is known to limit the sender.
    pub timeout: bool,
    /// Less than one send unit of the window is left.
    pub window_full: bool,
    /// The advertised window is 0.
    pub zero_window: bool,
    /// The sender has nothing to send.
    pub app_limited: bool,
    /// Until then lost data waits for its repair. That time does not count for an idle application, though it has sent all:
    /// the repair is what the transfer waits for.
    pub recovering_until: Instant,
    /// From then on the sender waits for its timer, or for an answer to what it sent when the timer fired: the receiver
    /// reports a hole, and nothing has come for a retransmission timeout. `None`: no hole.
    pub overdue_from: Option<Instant>,
    /// No data is in the capture, but the ACK at its end acknowledged some that is missing: whether the sender had
    /// something to send is unknown.
    pub missing: bool,
}

/// Sums of the bin that is still open.
#[derive(Clone, Copy, Debug, Default)]
struct OpenBin {
    sent: u64,
    delivered: u64,
    rtt_min: u64,
    rtt_max: u64,
    rtt_sum: u64,
    rtt_count: u32,
    /// Smallest lower bound of the RTT, and number of them.
    rtt_bound: u64,
    rtt_bounds: u32,
    /// From data at the capture to its ACK there, ns in all, and number of them.
    ack_delay: u64,
    ack_delays: u32,
    in_flight_max: u64,
    /// Largest share of the window in flight, percent × 100.
    used_max: u64,
    retransmissions: u32,
    out_of_order: u32,
    window_full: u64,
    zero_window: u64,
    timeout: u64,
    app: u64,
    missing: u64,
    /// Acknowledgements of new data, how many of them new data followed, and after how long, ns in all.
    acks: u32,
    released: u32,
    lag: u64,
}

/// Bins of one flow. The fields that every segment needs stand first; their order is that in memory.
#[derive(Debug)]
#[repr(C)]
pub struct Bins {
    width: u64,
    start: Instant,
    mark: Instant,
    state: State,
    /// Time with the window full, ns.
    pub window_full_ns: u64,
    /// Time with a window of 0, ns.
    pub zero_window_ns: u64,
    open: OpenBin,
    slow_start: SlowStart,
    second: LastSecond,
    clock: AckClock,
    /// Time of the last loss or congestion mark.
    congestion: Option<Instant>,
    best_second: u64,
    best_bin: u64,
    per_ms: u64,
    last_limit: Limit,
    /// Time under each limit, ns, in the order of [`Limit::ALL`].
    pub limit_ns: [u64; Limit::COUNT],
    /// The whole flow in at most 512 bins.
    pub profile: Profile,
    /// Bytes of each full second (at every bin), for BDP and peak.
    pub rates: Histogram,
    /// In flight over window, percent × 100, at the peak of each bin.
    pub utilisation: Histogram,
    link_mark: u64,
    /// Number of bins closed so far.
    closed: u64,
    /// End of the warm-up, which shares and distributions leave out.
    counted_from: Instant,
}

/// Facts about the stream at the moment when a bin closes.
#[derive(Clone, Copy, Debug, Default)]
pub struct BinContext {
    /// Bytes in flight, if known at this vantage.
    pub in_flight: Option<u64>,
    /// Last advertised window in bytes, if any was seen.
    pub rwnd: Option<u64>,
    /// Minimum RTT of the path known so far, ns.
    pub base_rtt: Option<u64>,
    /// Smoothed RTT of the path, ns.
    pub srtt: u64,
    /// Bytes of all flows on the link in this direction so far.
    pub link_bytes: u64,
}

impl Bins {
    /// Bins of `width` from the first data on.
    pub fn new(start: Instant, width: Duration, link_bytes: u64) -> Bins {
        let width = width.as_nanos().max(1_000_000);
        let per_second = (1_000_000_000 / width).clamp(1, 1000) as usize;
        Bins {
            width,
            start,
            mark: start,
            state: State::default(),
            open: OpenBin::default(),
            second: LastSecond::of(per_second),
            clock: AckClock::default(),
            congestion: None,
            slow_start: SlowStart::begin(start),
            best_second: 0,
            best_bin: 0,
            per_ms: 0,
            last_limit: Limit::Unknown,
            limit_ns: [0; Limit::COUNT],
            window_full_ns: 0,
            zero_window_ns: 0,
            profile: Profile::new(start, Duration(width)),
            rates: Histogram::default(),
            utilisation: Histogram::default(),
            link_mark: link_bytes,
            closed: 0,
            counted_from: Instant::ZERO,
        }
    }

    /// Resets shares of time and distributions, which then begin at `from`, even within a bin.
    pub fn measure_from(&mut self, from: Instant) {
        self.counted_from = from;
        self.limit_ns = [0; Limit::COUNT];
        self.window_full_ns = 0;
        self.rates = Histogram::default();
        self.utilisation = Histogram::default();
    }

    /// The state since the last event.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Sets the state from the time last given to [`Bins::advance`] on.
    #[inline]
    pub fn set(&mut self, state: State) {
        self.state = state;
    }

    /// The time up to which the state is accounted. Where packets of a capture step back in time it
    /// stays, so that spans which begin and end at it have the same sum as the bins.
    #[inline]
    pub fn accounted(&self) -> Instant {
        self.mark
    }

    /// Whether the open bin does not end before `at`.
    #[inline]
    pub fn contains(&self, at: Instant) -> bool {
        at.since(self.start).as_nanos() < self.width
    }

    /// Accounts the time up to `at` if the open bin does not end before (the usual case); else false.
    #[inline]
    pub fn stays_open(&mut self, at: Instant) -> bool {
        let open = self.contains(at);
        if open {
            self.account(at);
        }
        open
    }

    /// Accounts the time up to `at` and closes every bin that ends before.
    pub fn advance(
        &mut self,
        at: Instant,
        now: &BinContext,
        samples: Option<(u32, &mut Vec<Sample>)>,
    ) {
        if !self.stays_open(at) {
            self.close_until(at, now, samples);
        }
    }

    #[inline]
    fn account(&mut self, at: Instant) {
        let spent = at.since(self.mark).as_nanos();
        if spent == 0 {
            return;
        }
        // What limits by its state, up to the time from which on the timer limits.
        let until = match self.state.overdue_from {
            _ if self.state.timeout => self.mark,
            Some(overdue) => overdue.clamp(self.mark, at),
            None => at,
        };
        self.open.timeout += at.since(until).as_nanos();
        if self.state.window_full {
            self.open.window_full += until.since(self.mark).as_nanos();
            self.window_full_ns += until.since(self.mark.max(self.counted_from)).as_nanos();
        }
        if self.state.zero_window {
            self.open.zero_window += spent;
            self.zero_window_ns += spent;
        }
        if self.state.app_limited {
            self.open.app += until.since(self.mark.max(self.state.recovering_until)).as_nanos();
        }
        if self.state.missing {
            self.open.missing += spent;
        }
        self.mark = at;
    }

    #[cold]
    fn close_until(
        &mut self,
        at: Instant,
        now: &BinContext,
        mut samples: Option<(u32, &mut Vec<Sample>)>,
    ) {
        while at.since(self.start).as_nanos() >= self.width {
            let end = Instant(self.start.as_nanos() + self.width);
            let busy = self.mark > self.start || self.open.sent + self.open.delivered > 0;
            let remaining = (at.as_nanos() - self.start.as_nanos()) / self.width;
            if !busy && remaining > self.second.bins.len() as u64 + 1 {
                // Nothing happened for longer than a second: one long bin, divided only for the profile.
                let span = remaining * self.width;
                self.account(Instant(self.start.as_nanos() + span));
                self.close(span, now, samples.as_mut().map(|(f, s)| (*f, &mut **s)));
            } else {
                self.account(end);
                self.close(self.width, now, samples.as_mut().map(|(f, s)| (*f, &mut **s)));
            }
        }
        self.account(at);
    }

    /// Closes the last bin at the end of the flow.
    pub fn finish(
        &mut self,
        at: Instant,
        now: &BinContext,
        mut samples: Option<(u32, &mut Vec<Sample>)>,
    ) {
        let at = at.max(self.mark);
        self.advance(at, now, samples.as_mut().map(|(f, s)| (*f, &mut **s)));
        let span = at.since(self.start).as_nanos();
        let busy = self.open.sent + self.open.delivered > 0 || self.open.rtt_count > 0;
        if span > 0 || busy {
            self.close(span.max(1), now, samples);
        }
    }

    fn close(&mut self, span: u64, now: &BinContext, samples: Option<(u32, &mut Vec<Sample>)>) {
        let open = self.open;
        let bins = (span / self.width).max(1);
        for _ in 0..bins.min(self.second.bins.len() as u64) {
            self.second.push(Second {
                rtt_min: if open.rtt_count > 0 { open.rtt_min } else { u64::MAX },
                bound: if open.rtt_bounds > 0 { open.rtt_bound } else { u64::MAX },
                bounds: open.rtt_bounds,
                delivered: open.delivered,
            });
        }
        let filled = self.second.filled as u64 * self.width;
        self.per_ms = self.second.sum.saturating_mul(1_000_000).checked_div(filled).unwrap_or(0);
        self.best_second = self.best_second.max(self.second.sum);
        self.best_bin = self.best_bin.max(open.delivered);
        let counted = span.min((self.start + Duration(span)).since(self.counted_from).as_nanos());
        if counted > 0 && self.second.full() && self.second.sum > 0 {
            self.rates.record(self.second.sum);
        }
        let limit = self.decide_limit(span, now);
        self.limit_ns[limit as usize] += counted;
        self.last_limit = limit;
        let in_flight = open.in_flight_max.max(now.in_flight.unwrap_or(0));
        if open.used_max > 0 && counted > 0 {
            self.utilisation.record(open.used_max);
        }
        let link = now.link_bytes.saturating_sub(self.link_mark);
        self.link_mark = now.link_bytes;
        let mut row = ProfileBin {
            delivered: Bytes(open.delivered),
            delivered_squared: (open.delivered as f64).powi(2),
            bins: u32::try_from(bins).unwrap_or(u32::MAX),
            rtt_ms_min: if open.rtt_count > 0 { open.rtt_min as f32 / 1e6 } else { f32::INFINITY },
            rtt_ms_max: open.rtt_max as f32 / 1e6,
            rtt_ms_sum: open.rtt_sum as f64 / 1e6,
            rtt_count: open.rtt_count,
            in_flight_max: Bytes(in_flight),
            rwnd_max: Bytes(now.rwnd.unwrap_or(0)),
            window_full: Duration(open.window_full),
            zero_window: Duration(open.zero_window),
            retransmissions: open.retransmissions,
            out_of_order: open.out_of_order,
            link_bytes: Bytes(link),
            limit_ns: [0; Limit::COUNT],
        };
        row.limit_ns[limit as usize] = span;
        if bins == 1 {
            self.profile.push(self.start, &row);
        } else {
            self.spread(row, bins);
        }
        if let Some((flow, rows)) = samples {
            let rtt = |ns: u64| (open.rtt_count > 0).then_some(ns as f32 / 1e6);
            rows.push(Sample {
                flow,
                time: self.start,
                span: Duration(span),
                sent: Bytes(open.sent),
                delivered: Bytes(open.delivered),
                rtt_ms_min: rtt(open.rtt_min),
                rtt_ms: rtt(open.rtt_sum / u64::from(open.rtt_count.max(1))),
                rtt_ms_max: rtt(open.rtt_max),
                // Known at the end of the flow alone: `Series::directions`.
                data_queue_ms: None,
                ack_queue_ms: None,
                ack_delay_ms: open
                    .ack_delay
                    .checked_div(u64::from(open.ack_delays))
                    .map(|ns| ns as f32 / 1e6),
                in_flight: now.in_flight.map(|_| Bytes(in_flight)),
                rwnd: now.rwnd.map(Bytes),
                window_full: Duration(open.window_full),
                retransmissions: open.retransmissions,
                limit,
            });
        }
        self.closed += bins;
        self.start = self.start + Duration(span);
        self.mark = self.mark.max(self.start);
        self.open = OpenBin { in_flight_max: now.in_flight.unwrap_or(0), ..OpenBin::default() };
    }

    /// Divides a long quiet bin among the bins of the profile, in at most 512 steps.
    fn spread(&mut self, row: ProfileBin, bins: u64) {
        let mut left = bins;
        let mut at = self.start;
        let share = |part: u64, whole: u64| {
            (u128::from(whole) * u128::from(part) / u128::from(bins)) as u64
        };
        let mut first = true;
        while left > 0 {
            let chunk = (self.profile.width().as_nanos() / self.width).clamp(1, left);
            let mut piece = row;
            piece.bins = u32::try_from(chunk).unwrap_or(u32::MAX);
            piece.window_full = Duration(share(chunk, row.window_full.as_nanos()));
            piece.zero_window = Duration(share(chunk, row.zero_window.as_nanos()));
            for (to, from) in piece.limit_ns.iter_mut().zip(row.limit_ns) {
                *to = share(chunk, from);
            }
            piece.link_bytes = Bytes(share(chunk, row.link_bytes.get()));
            if !first {
                piece.delivered = Bytes(0);
                piece.delivered_squared = 0.0;
                piece.retransmissions = 0;
                piece.out_of_order = 0;
            }
            first = false;
            self.profile.push(at, &piece);
            at = at + Duration(chunk * self.width);
            left -= chunk;
        }
    }

    /// The limit of the open bin: the first in the order of precedence whose condition is met.
    fn decide_limit(&mut self, span: u64, now: &BinContext) -> Limit {
        let open = &self.open;
        // Behind a queue, and where something else sets the time of the data, the clock begins again.
        let mut clock = std::mem::take(&mut self.clock);
        if open.zero_window >= span / MAJORITY && open.zero_window > 0 {
            return Limit::ZeroWindow;
        }
        if open.timeout >= span / MAJORITY && open.timeout > 0 {
            return Limit::Timeout;
        }
        if open.window_full >= span / MAJORITY && open.window_full > 0 {
            return Limit::ReceiveWindow;
        }
        if open.app >= span / MAJORITY && open.app > 0 {
            return Limit::Application;
        }
        if open.missing >= span / MAJORITY && open.missing > 0 {
            return Limit::Unknown;
        }
        let end = self.start + Duration(span);
        if self.slow_start.on {
            return Limit::SlowStart;
        }
        let congestion =
            self.congestion.is_some_and(|t| end.since(t).as_nanos() <= recovery_memory(now.srtt));
        let near_best = self.second.sum as f64 >= NEAR_BEST * self.best_second as f64;
        match (now.base_rtt, self.second.rtt_min()) {
            (Some(base), Some(lowest)) => {
                let queue = lowest.saturating_sub(base);
                if queue >= Limit::BLOAT.0 {
                    return Limit::Bufferbloat;
                }
                let mean = open.rtt_sum.checked_div(u64::from(open.rtt_count)).unwrap_or(lowest);
                // Below a twentieth of the base RTT, or a millisecond, it is jitter and not a queue.
                let some_queue = mean.saturating_sub(base) >= (base / 20).max(1_000_000);
                if !some_queue {
                    clock.add(open.acks, open.released, open.lag, span);
                    self.clock = clock;
                }
                if near_best && (some_queue || !congestion) {
                    Limit::Bottleneck
                } else if congestion {
                    Limit::CongestionWindow
                } else if some_queue {
                    Limit::Bottleneck
                } else if self.congestion.is_some() || self.clock.shown() {
                    // Growing back after an earlier loss, or held back without one: the ACKs release the data.
                    Limit::CongestionWindow
                } else {
                    Limit::Unknown
                }
            }
            // Without a sample, what was sent again shows a queue that stands: no copy came back in the time of the path.
            (Some(base), None)
                if self.second.rtt_bound().is_some_and(|ns| ns >= base + Limit::BLOAT.0) =>
            {
                Limit::Bufferbloat
            }
            _ if congestion => Limit::CongestionWindow,
            // Data in flight but no ACK: the delay will show when one arrives. Until then the last limit stays.
            _ if open.delivered == 0 && now.in_flight.unwrap_or(0) > 0 => self.last_limit,
            _ => Limit::Unknown,
        }
    }

    /// The receiver acknowledged new data.
    #[inline]
    pub fn acked(&mut self) {
        self.open.acks += 1;
    }

    /// New data followed an acknowledgement after `lag`, the first one after it.
    #[inline]
    pub fn released(&mut self, lag: u64) {
        self.open.released += 1;
        self.open.lag += lag;
    }

    /// Adds `bytes` of payload sent.
    #[inline]
    pub fn sent(&mut self, bytes: u64) {
        self.open.sent += bytes;
    }

    /// Bytes in flight at this moment.
    #[inline]
    pub fn in_flight(&mut self, bytes: u64) {
        self.open.in_flight_max = self.open.in_flight_max.max(bytes);
    }

    /// The sender has used `used` bytes of its `window`.
    #[inline]
    pub fn window_used(&mut self, used: u64, window: u64) {
        // A new peak is rare: comparing products avoids the division.
        let known =
            (self.open.used_max + 1).checked_mul(window).is_some_and(|next| used * 10_000 < next);
        if !known && let Some(share) = (used * 10_000).checked_div(window) {
            self.open.used_max = self.open.used_max.max(share);
        }
    }

    /// Adds `bytes` acknowledged, or seen where the capture has no ACKs.
    #[inline]
    pub fn delivered(&mut self, bytes: u64, at: Instant, round: Round) {
        self.open.delivered += bytes;
        if self.slow_start.on {
            self.slow_start.delivered(bytes, at, round);
        }
    }

    /// Adds a sample of the path RTT, ns.
    #[inline]
    pub fn rtt(&mut self, ns: u64) {
        let o = &mut self.open;
        o.rtt_min = if o.rtt_count == 0 { ns } else { o.rtt_min.min(ns) };
        o.rtt_max = o.rtt_max.max(ns);
        o.rtt_sum += ns;
        o.rtt_count += 1;
    }

    /// Adds a time from data at the capture to its ACK there, ns.
    #[inline]
    pub fn ack_delay(&mut self, ns: u64) {
        self.open.ack_delay += ns;
        self.open.ack_delays += 1;
    }

    /// The RTT was `ns` or longer: of data that was sent again, where no sample can be taken.
    #[cold]
    pub fn rtt_at_least(&mut self, ns: u64) {
        let o = &mut self.open;
        o.rtt_bound = if o.rtt_bounds == 0 { ns } else { o.rtt_bound.min(ns) };
        o.rtt_bounds += 1;
    }

    /// Records loss or a congestion mark at `at`, which ends slow start.
    pub fn congestion(&mut self, at: Instant) {
        self.congestion = Some(at);
        self.slow_start.on = false;
    }

    /// Adds retransmitted segments.
    pub fn retransmitted(&mut self, segments: u32) {
        self.open.retransmissions += segments;
    }

    /// Adds segments that arrived late without being retransmitted.
    pub fn reordered(&mut self, segments: u32) {
        self.open.out_of_order += segments;
    }

    /// The sender returns to slow start after an idle time (RFC 5681 section 4.1, RFC 2861).
    pub fn restart(&mut self, at: Instant) {
        self.slow_start = SlowStart::begin(at);
    }

    /// Whether the rate still grows by a quarter and more in three rounds.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.slow_start.on
    }

    /// Bytes per millisecond at the rate of the last second.
    #[inline]
    pub fn bytes_per_ms(&self) -> u64 {
        self.per_ms
    }

    /// Highest rate of one bin, bytes per second.
    pub fn best_bin_rate(&self) -> f64 {
        self.best_bin as f64 * 1e9 / self.width as f64
    }

    /// Maximum bytes delivered in any full second; `None` for a shorter flow.
    pub fn best_second(&self) -> Option<u64> {
        (self.closed >= self.second.bins.len() as u64).then_some(self.best_second)
    }
}
