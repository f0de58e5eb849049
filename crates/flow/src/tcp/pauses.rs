//! What a pause of the sender was, in a capture away from it: a wait for a lost answer, or nothing to send.
//!
//! signal: no data for longer than a retransmission timeout and a round trip, and the segment that ends this; a
//! segment repeated by timer although the capture has its acknowledgement · model: IP identifications that count the
//! sender's packets one by one show how many of them were lost in between. If some were, and no data is missing before
//! the segment, the sender was repeating what it had sent: its timer had fired. If none was, it had nothing to send, as
//! far as its window was open. Without such identifications a pause behind a full window is unknown, because lost
//! repetitions and an application that stops look alike; any other pause is that of the application, as at the sender ·
//! action: the state of that time, for [`crate::series::limits`].
//!
//! The wait begins a timeout (RFC 6298) after the last segment that the sender may have sent. It ends one round trip
//! after the acknowledgement that the sender lacked, when data can first show it. Where the same acknowledgement is
//! repeated and does not arrive, the data that follows shows it.
//!
//! The window counts as open from one round trip after the acknowledgement that opened it, in shorter pauses as well.

use capture::TcpSegment;
use units::{Duration, Instant};

use crate::identity::sequence::Pos;
use crate::series::limits::State;
use crate::series::rows::Vantage;
use crate::tcp::retransmission::timeout;
use crate::tcp::state::{Context, Measured, Waiting};
use crate::tcp::stream::Stream;

/// Two segments that left so far apart seldom have the same timestamp: less than half of them do where it counts
/// milliseconds, as on most systems. The value is fitted: 0.5 ms failed one capture of `tests/truth` by 0.0002 of its
/// share, and 0.58 ms is the distance of the segments of a simulated path.
const SPREAD: Duration = Duration(550_000);

impl Stream {
    /// What the sender did shows by its data only, and later.
    #[inline]
    pub fn away(&self) -> bool {
        matches!(self.vantage, Vantage::Receiver | Vantage::Middle)
    }

    /// Away from the sender the identifications of all its packets show which of them are missing.
    #[inline]
    pub fn count_packet(&self, s: &TcpSegment, m: &mut Measured) {
        let one = s.payload <= self.mss();
        let segments = if one { 1 } else { self.segments_of(u64::from(s.payload)) };
        m.order.passed(s.ip.id.unwrap_or(0), segments as u16);
    }

    /// Segments of one timestamp left together, however far apart they arrive: what lies between their arrivals has the
    /// state before the first of them, and only the last one's state lasts.
    #[inline]
    pub(super) fn same_tick(&self, s: &TcpSegment, m: &mut Measured, now: Instant) {
        let tsval = s.options.timestamps.map(|t| t.0);
        let state = m.bins.state();
        if tsval.is_none() || tsval != m.tick.0 {
            m.tick = (tsval, state);
        } else if now.since(m.last_data) > SPREAD && !state.timeout && !state.zero_window {
            let State { window_full, app_limited, .. } = m.tick.1;
            m.bins.set(State { window_full, app_limited, ..state });
        }
    }

    /// Accounts the time before the data segment `s` if it was a pause.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_pause(&self, s: &TcpSegment, m: &mut Measured, cx: &mut Context<'_>) {
        let start = self.seq.position(s.seq, self.max);
        let srtt = Duration(m.smoothed.srtt);
        if let Some(waiting) = m.waiting {
            let passed = waiting.answered.unwrap_or(m.last_data) + srtt;
            if start >= self.max || waiting.answered.is_some() && passed < cx.now {
                self.end_waiting(passed, m, cx);
            }
            return;
        }
        let rto = timeout(srtt, Duration(m.smoothed.rttvar));
        if m.silence.is_some() || m.zero_since.is_some() {
            return;
        }
        if start < self.max && s.payload > 1 {
            self.wait_for_timer(start, rto, m, cx);
        }
        // Without samples the shortest round trip of the path is all that is known: less is no pause.
        let round = if srtt > Duration::ZERO { srtt } else { Duration(self.path_min.unwrap_or(0)) };
        let from = m.last_data.max(m.room_since) + round;
        if !self.away() {
            return;
        }
        if cx.now <= from + rto {
            self.end_full(start, m, cx);
            return;
        }
        let lost = m.order.lost_before(s.ip.id.unwrap_or(0));
        // What was lost may have filled the window again, if it was enough.
        let filled = i64::from(lost.unwrap_or(u16::MAX)) * i64::from(self.mss());
        if filled < self.right_edge - self.max {
            self.end_full(start, m, cx);
        }
        let state = m.bins.state();
        if lost.is_some_and(|n| n > 0) && start <= self.max {
            self.account(from + rto, m, cx);
            m.waiting = Some(Waiting { answered: None });
            m.bins.set(State { timeout: true, ..state });
            // What was lost leaves no hole, but ended slow start.
            m.bins.congestion(from + rto);
        } else if start >= self.max && self.has_room(self.right_edge) {
            self.account(from, m, cx);
            let unknown = lost.is_none() && state.window_full;
            m.bins.set(State {
                window_full: false,
                app_limited: !unknown,
                missing: unknown,
                ..state
            });
        }
    }

    /// In a pause shorter than that, too, a window is full only until the sender has learnt of its room: a round trip after
    /// that passed, as a rule. What limits from then on is another thing. Half as much again may be a queue.
    fn end_full(&self, start: Pos, m: &mut Measured, cx: &mut Context<'_>) {
        let state = m.bins.state();
        if !state.window_full || m.known.is_none() || m.smoothed.srtt == 0 {
            return;
        }
        let known = m.last_data.max(m.room_since) + Duration(m.smoothed.srtt);
        let late = Duration(m.smoothed.srtt / 2).max(Duration(m.smoothed.rttvar) * 4);
        if start >= self.max && cx.now > known + late && self.has_room(self.right_edge) {
            self.account(known, m, cx);
            m.bins.set(State { window_full: false, ..state });
        }
    }

    /// Accounts the wait for a timer that fires later than it is due, or that fired before unseen: nothing else lets a
    /// sender repeat its first unacknowledged segment after such a silence.
    fn wait_for_timer(&self, start: Pos, rto: Duration, m: &mut Measured, cx: &mut Context<'_>) {
        if m.silences.reset_by_receiver {
            return;
        }
        let due = m.last_progress.max(m.last_data) + rto;
        let state = m.bins.state();
        // At the sender a full window is known to limit until the timer fires; away from it that may have been before.
        let silent = self.away() && start <= self.una || start == self.una && !state.window_full;
        // A probe of the tail comes before.
        if silent && cx.now > due + rto / 2 {
            self.account(due, m, cx);
            m.bins.set(State { timeout: true, ..state });
        }
    }

    /// A segment of the receiver passes: ends a wait that its earlier answer has ended by now.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_waiting(&self, m: &mut Measured, cx: &mut Context<'_>) {
        if let Some(Waiting { answered: Some(at) }) = m.waiting
            && at + Duration(m.smoothed.srtt) < cx.now
        {
            self.end_waiting(at + Duration(m.smoothed.srtt), m, cx);
        }
    }

    /// Ends the wait at `at`. Nothing was sent since: with an open window there was nothing to send.
    fn end_waiting(&self, at: Instant, m: &mut Measured, cx: &mut Context<'_>) {
        self.account(at, m, cx);
        m.waiting = None;
        let idle = self.has_room(self.right_edge);
        let state = m.bins.state();
        m.bins.set(State {
            timeout: m.silence.is_some(),
            window_full: state.window_full && !idle,
            app_limited: idle,
            ..state
        });
    }

    /// Accounts the time up to `at`, or to now.
    fn account(&self, at: Instant, m: &mut Measured, cx: &mut Context<'_>) {
        let now = cx.now;
        cx.now = at.max(m.bins.accounted()).min(now);
        self.advance(m, cx);
        cx.now = now;
    }

    /// At least a segment may be sent up to `right_edge`.
    #[inline]
    pub(super) fn has_room(&self, right_edge: Pos) -> bool {
        self.acked_any && right_edge - self.max >= i64::from(self.mss())
    }
}
