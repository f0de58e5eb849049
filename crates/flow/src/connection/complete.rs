//! Whether a capture contains enough of a transfer to judge it.
//!
//! signal: bytes that were acknowledged but never captured, and the time in which they passed; bytes that were captured but
//! never acknowledged · model: an RTT is the time between a segment and its ACK, and a limit follows from the bytes in
//! flight, so both need most of the data and of the ACKs · action: without one of them the transfer has counts, but neither
//! RTT nor rates, limits, grade or findings
//!
//! - *Data is lacking* if more than half of the delivered bytes are not in the capture, and they passed in more than half of
//!   the time. Each moment belongs to one limit, and the main limit is the one of most moments: what is known of fewer than
//!   half of them decides nothing. A gap in a short part of the time leaves the rest as it is.
//! - *ACKs are lacking* if more is unacknowledged at the end than any sender may have in flight. Slow start is the fastest
//!   growth that RFC 5681 allows: the window is the initial one (ten segments, RFC 6928) and one byte more per
//!   acknowledged byte. Before a sender may send more, ACKs passed. In a connection without SYN the window was grown before
//!   the capture began, and the sender may have had all of it in flight. There, that the sender goes on with new data
//!   without an ACK for a retransmission timeout shows the same.
//! - *ACKs are lacking* as well if more than half of the data was sent beyond every window that the capture had shown by then.
//!   A sender keeps within the window (RFC 9293 section 3.8.6), and a window passes every capture point before the data that
//!   it permits. Files that a program wrote without a TCP look the same. Only with the window scale of the SYNs.
//!
//! A sender whose retransmission timer fired got no ACK either, and is judged. So is a transfer whose other direction is not
//! in the capture at all: its bytes count as delivered when they are seen, and no figure needs an ACK.

use units::Duration;

use crate::series::rows::{CaptureLacks, Flow, Limit, RttMethod};
use crate::tcp::retransmission::timeout;
use crate::tcp::state::Measured;
use crate::tcp::stream::Stream;

/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: i64 = 10;

/// What the capture lacks of this transfer, if that is too much to judge it.
pub(super) fn lacks(s: &Stream, m: &Measured, f: &Flow) -> Option<CaptureLacks> {
    let gaps = s.counts.gap_bytes;
    if gaps > s.counts.seen_bytes && m.missing.time.as_nanos() > f.active.as_nanos() / 2 {
        return Some(CaptureLacks::Data);
    }
    if !s.acks_seen {
        return None;
    }
    let acknowledged = s.una.max(0);
    let room = acknowledged + INITIAL_WINDOW * i64::from(s.mss());
    let unacknowledged = s.max - acknowledged - m.board.sacked_bytes() as i64;
    let waited = f.limit_time[Limit::Timeout as usize];
    if waited > Duration::ZERO {
        return None;
    }
    if s.counts.beyond_window > s.counts.seen_bytes / 2 {
        return Some(CaptureLacks::Acks);
    }
    if unacknowledged <= room {
        return None;
    }
    let silent = m.last_data.since(m.last_progress);
    let due = timeout(Duration(m.smoothed.srtt), Duration(m.smoothed.rttvar));
    (s.syn_seen || silent > due).then_some(CaptureLacks::Acks)
}

/// Removes what [`lacks`] does not permit: all but counts, and the goodput where only data is lacking, since ACKs show it.
pub(super) fn without_figures(f: &mut Flow, lacks: CaptureLacks) {
    f.capture_lacks = Some(lacks);
    if lacks == CaptureLacks::Acks {
        f.goodput = None;
    }
    (f.peak, f.unlimited_goodput) = (None, None);
    (f.bdp, f.in_flight_over_bdp, f.rtt_ceiling_ms) = (None, None, None);
    f.rtt_method = RttMethod::None;
    (f.rtt_ms, f.rtt_bound_ms, f.loaded_rtt_ms, f.queue_ms) = (None, None, None, None);
    (f.in_flight_bytes, f.in_flight_plain_max, f.window_utilisation) = (None, None, None);
    (f.window_full_count, f.window_full) = (0, Duration::ZERO);
    (f.window_full_first, f.window_full_rtt_ms) = (None, None);
    (f.ack_bursts, f.ack_silence_max) = (0, Duration::ZERO);
    f.limit_time = [Duration::ZERO; Limit::COUNT];
    (f.loss_rate, f.grade, f.congestion_control) = (None, None, None);
}
