//! Series of selected connections: samples, events and segments.

use std::collections::{HashMap, HashSet};

use units::Instant;

use crate::identity::sequence::Pos;
use crate::series::directions::{Directions, Waits};
use crate::series::rows::{Event, EventKind, Sample, Segment, SegmentKind};

/// Which connections a series covers.
#[derive(Clone, Debug, Default)]
pub enum Select {
    /// Series of no connection.
    #[default]
    None,
    /// Series of every connection.
    All,
    /// The connections with these ids.
    Connections(HashSet<u32>),
}

impl Select {
    /// Whether the series covers connection `id`.
    pub fn includes(&self, id: u32) -> bool {
        match self {
            Select::None => false,
            Select::All => true,
            Select::Connections(ids) => ids.contains(&id),
        }
    }
}

/// Which series are stored for one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeriesSelection {
    /// Store its [`Sample`]s.
    pub samples: bool,
    /// Store its [`Event`]s.
    pub events: bool,
    /// Store its [`Segment`]s.
    pub segments: bool,
}

/// The series of all connections.
#[derive(Debug, Default)]
pub struct Series {
    /// In the order in which bins closed.
    pub samples: Vec<Sample>,
    /// In order of time.
    pub events: Vec<Event>,
    logs: HashMap<u32, SegmentLog>,
    directions: HashMap<u32, [Waited; 2]>,
    max_segments: usize,
}

/// When packets of one direction left, and what each waited, ms, in the order of time.
type Waited = Vec<(Instant, f32)>;

/// Segments of one flow. Beyond the maximum neighbours are joined, so that charts keep their outline.
#[derive(Debug, Default)]
struct SegmentLog {
    rows: Vec<Segment>,
    /// Number of full segments that one row may stand for.
    stride: u32,
    /// Index of the last row of new data and of the last ACK.
    last_of: [Option<usize>; 2],
}

impl Series {
    /// No series yet; at most `max_segments` rows per flow.
    pub fn new(max_segments: usize) -> Series {
        Series { max_segments: max_segments.max(1000), ..Series::default() }
    }

    /// Adds an event of `flow`, if it is selected.
    #[inline]
    pub fn event(
        &mut self,
        selected: SeriesSelection,
        flow: u32,
        time: Instant,
        kind: EventKind,
        value: f64,
        seq: Pos,
    ) {
        if selected.events {
            self.push_event(Event { flow, time, kind, value, seq: seq.max(0) as u64 });
        }
    }

    // Not inlined: without series the code per packet stays small in the instruction cache.
    #[cold]
    #[inline(never)]
    fn push_event(&mut self, row: Event) {
        self.events.push(row);
    }

    /// Adds a data segment, ACK or SACK block of `flow`, if it is selected.
    #[inline]
    pub fn segment(
        &mut self,
        selected: SeriesSelection,
        flow: u32,
        time: Instant,
        kind: SegmentKind,
        from: Pos,
        to: Pos,
    ) {
        if selected.segments {
            self.push_segment(Segment {
                flow,
                time,
                kind,
                from: from.max(0) as u64,
                to: to.max(0) as u64,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn push_segment(&mut self, row: Segment) {
        let cap = self.max_segments;
        let log = self
            .logs
            .entry(row.flow)
            .or_insert_with(|| SegmentLog { stride: 1, ..SegmentLog::default() });
        log.add(row);
        if log.rows.len() >= cap {
            log.stride = log.stride.saturating_mul(2);
            join_rows(log);
        }
    }

    /// Adds what data and ACKs of `flow` waited, known at its end.
    #[cold]
    pub fn directions(&mut self, flow: u32, directions: &Directions) {
        let waits = || directions.waits.iter();
        let mut data: Waited = waits().map(|w| (w.sent, w.data.as_millis_f64() as f32)).collect();
        let acks = |w: &Waits| (w.answered, w.acks.as_millis_f64() as f32);
        let mut acks: Waited = waits().map(acks).collect();
        data.sort_by_key(|(left, _)| *left);
        acks.sort_by_key(|(left, _)| *left);
        self.directions.insert(flow, [data, acks]);
    }

    /// Samples, events, segments (flow by flow in order of time), and the flows whose segments were joined.
    pub fn into_segments(mut self) -> (Vec<Sample>, Vec<Event>, Vec<Segment>, Vec<u32>) {
        for sample in &mut self.samples {
            if let Some([data, acks]) = self.directions.get(&sample.flow) {
                let (from, to) = (sample.time, sample.time + sample.span);
                sample.data_queue_ms = mean(data, from, to);
                sample.ack_queue_ms = mean(acks, from, to);
            }
        }
        let mut flows: Vec<(u32, SegmentLog)> = self.logs.into_iter().collect();
        flows.sort_by_key(|(flow, _)| *flow);
        let joined =
            flows.iter().filter(|(_, log)| log.stride > 1).map(|(flow, _)| *flow).collect();
        let segments = flows.into_iter().flat_map(|(_, log)| log.rows).collect();
        (self.samples, self.events, segments, joined)
    }
}

/// Mean of what the packets that left from `from` to `to` waited.
fn mean(waited: &[(Instant, f32)], from: Instant, to: Instant) -> Option<f32> {
    let at = |time: Instant| waited.partition_point(|(left, _)| *left < time);
    let inside = waited.get(at(from)..at(to)).filter(|inside| !inside.is_empty())?;
    Some(inside.iter().map(|(_, ms)| ms).sum::<f32>() / inside.len() as f32)
}

/// Whether `last` can stand for `next` as well: both lie in the same span of `stride` full segments of sequence space.
/// New data becomes one longer segment. Of ACKs the first one of a span stays, so that the staircase in a chart is late
/// by less than a span and never above the data.
fn join(last: &mut Segment, next: &Segment, stride: u32) -> bool {
    let span = u64::from(stride) * 1448;
    let together = last.kind == next.kind && last.from / span == next.from / span;
    match next.kind {
        SegmentKind::Data if together && last.to == next.from => {
            last.to = next.to;
            true
        }
        SegmentKind::Ack => together,
        _ => false,
    }
}

impl SegmentLog {
    /// Adds a row, or joins it to the last one of its kind.
    fn add(&mut self, row: Segment) {
        let slot = match row.kind {
            SegmentKind::Data => 0,
            SegmentKind::Ack => 1,
            SegmentKind::Again | SegmentKind::Sack => {
                self.rows.push(row);
                return;
            }
        };
        if self.stride > 1
            && let Some(i) = self.last_of[slot]
            && join(&mut self.rows[i], &row, self.stride)
        {
            return;
        }
        self.last_of[slot] = Some(self.rows.len());
        self.rows.push(row);
    }
}

fn join_rows(log: &mut SegmentLog) {
    let rows = std::mem::take(&mut log.rows);
    let before = rows.len();
    log.last_of = [None; 2];
    for row in rows {
        log.add(row);
    }
    // SACK blocks alone can exceed the maximum on a very lossy flow: then every second one is dropped.
    if log.rows.len() * 4 > before * 3 {
        let mut odd = false;
        log.rows.retain(|r| {
            odd = !odd;
            odd || r.kind != SegmentKind::Sack
        });
        log.last_of = [None; 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_cap_neighbours_are_joined_and_retransmitted_data_stays() {
        let mut s = Series::new(1000);
        let w = SeriesSelection { segments: true, ..SeriesSelection::default() };
        let mut at = 0;
        for i in 0..50_000u64 {
            let kind = if i % 1000 == 999 { SegmentKind::Again } else { SegmentKind::Data };
            let from = if kind == SegmentKind::Again { at - 1448 } else { at };
            s.segment(w, 3, Instant(i), kind, from, from + 1448);
            at = from + 1448;
        }
        let (_, _, rows, joined) = s.into_segments();
        assert_eq!(joined, vec![3]);
        assert!(rows.len() > 400, "no thinner than the cap asks for: {}", rows.len());
        assert!(rows.len() < 1000);
        assert_eq!(rows.iter().filter(|r| r.kind == SegmentKind::Again).count(), 50);
        let data: u64 =
            rows.iter().filter(|r| r.kind == SegmentKind::Data).map(|r| r.to - r.from).sum();
        assert_eq!(data, 49_950 * 1448, "joined, not dropped");
    }
}
