//! What the ends of a connection did, whatever the link was: how much the sender sent before the first ACK, and when its application
//! had nothing to send.
//!
//! signal: segments, ACKs and idle times of one flow · model: before the first ACK of data a sender may send its initial window; a
//! sender that begins again after everything was acknowledged waited for its application · action: [`Ends`], for a replay
//!
//! Source: RFC 6928 (initial window). Weigle et al., "Tmix", ACM SIGCOMM CCR 36(3), 2006, whose a-b-t model has sizes of objects and think
//! times. Deviation: the other host's requests are part of the think time.

use flow::series::rows::{Event, EventKind, Flow, Segment, SegmentKind, Vantage};
use units::Duration;

/// What the ends did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ends {
    /// Bytes before the first ACK of data. Only a capture beside the sender from the first segment on shows them.
    pub first_flight: Option<u64>,
    /// Where the sender began again: bytes before, and how long it had nothing to send.
    pub pauses: Vec<(u64, Duration)>,
}

/// Of one flow, from the segments and events of the capture. `complete`: the capture has the begin of the connection.
pub fn ends(flow: &Flow, segments: &[Segment], events: &[Event], complete: bool) -> Ends {
    let own = || segments.iter().filter(|segment| segment.flow == flow.id);
    let first_ack =
        own().filter(|one| one.kind == SegmentKind::Ack && one.from > 0).map(|one| one.time).min();
    let sent = own().filter(|one| {
        one.kind == SegmentKind::Data && first_ack.is_some_and(|first| one.time < first)
    });
    let first_flight = sent.map(|one| one.to).max();
    let idle = events.iter().filter(|one| one.flow == flow.id && one.kind == EventKind::Idle);
    let data: Vec<&Segment> =
        own().filter(|one| matches!(one.kind, SegmentKind::Data | SegmentKind::Again)).collect();
    // Away from the sender: the last ACK and the next segment needed the smallest round trip together. The event has the usual
    // round trip in its place, in which the queue of the object before is.
    let away = |begin: &Event| -> Option<Duration> {
        let next = data.partition_point(|one| one.time < begin.time);
        let gap = data.get(next)?.time.since(data.get(next.checked_sub(1)?)?.time);
        let trip = Duration((flow.rtt_ms?.min * 1e6) as u64);
        (gap > trip).then(|| Duration(gap.0 - trip.0))
    };
    let length = |one: &Event| match flow.vantage {
        Vantage::Sender => None,
        _ => away(one),
    };
    Ends {
        first_flight: first_flight.filter(|_| complete && flow.vantage == Vantage::Sender),
        pauses: idle
            .map(|one| (one.seq, length(one).unwrap_or(Duration((one.value * 1e9) as u64))))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Instant, Quantiles};

    fn segment(ms: u64, kind: SegmentKind, from: u64, to: u64) -> Segment {
        Segment { flow: 2, time: Instant(ms * 1_000_000), kind, from, to }
    }

    #[test]
    fn the_first_flight_ends_with_the_first_ack_of_data() {
        let segments = [
            // The handshake's own ACK.
            segment(0, SegmentKind::Ack, 0, 65_535),
            segment(1, SegmentKind::Data, 0, 2_896),
            segment(2, SegmentKind::Data, 2_896, 14_480),
            Segment { flow: 3, ..segment(3, SegmentKind::Data, 0, 99_999) },
            segment(50, SegmentKind::Ack, 1_448, 65_535),
            segment(51, SegmentKind::Data, 14_480, 20_000),
        ];
        let flow = Flow { vantage: Vantage::Sender, ..Flow::blank(2) };
        assert_eq!(ends(&flow, &segments, &[], true).first_flight, Some(14_480));
        assert_eq!(ends(&flow, &segments, &[], false).first_flight, None, "it began before");
        let far = Flow { vantage: Vantage::Receiver, ..Flow::blank(2) };
        assert_eq!(ends(&far, &segments, &[], true).first_flight, None);
    }

    #[test]
    fn at_the_receiver_a_pause_is_the_gap_without_a_round_trip() {
        let rtt_ms = Quantiles { count: 9, min: 40.0, p50: 90.0, p95: 90.0, p99: 90.0, max: 90.0 };
        let flow = Flow { vantage: Vantage::Receiver, rtt_ms: Some(rtt_ms), ..Flow::blank(2) };
        let segments = [
            segment(1_000, SegmentKind::Data, 0, 1_448),
            segment(1_940, SegmentKind::Data, 1_448, 2_896),
        ];
        let idle = Event {
            flow: 2,
            time: Instant(1_940_000_000),
            kind: EventKind::Idle,
            value: 0.85,
            seq: 1_448,
        };
        let pauses = ends(&flow, &segments, &[idle], true).pauses;
        assert_eq!(pauses, [(1_448, Duration::from_millis(900))]);
    }

    #[test]
    fn pauses_are_those_of_the_flow() {
        let event =
            |flow, kind, seq| Event { flow, time: Instant(1_000_000_000), kind, value: 0.5, seq };
        let events = [
            event(2, EventKind::Idle, 40_000),
            event(2, EventKind::Fast, 50_000),
            event(3, EventKind::Idle, 60_000),
        ];
        let found = ends(&Flow::blank(2), &[], &events, true);
        assert_eq!(found.pauses, [(40_000, Duration::from_millis(500))]);
    }
}
