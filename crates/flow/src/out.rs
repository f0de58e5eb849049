//! Where series go that somebody asked for: samples, events, segments of chosen connections.

use std::collections::{HashMap, HashSet};

use units::Instant;

use crate::record::{Event, EventKind, Sample, Segment, SegmentKind};
use crate::seq::Pos;

/// Which connections a series is wanted of.
#[derive(Clone, Debug, Default)]
pub enum Select {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Those with these ids.
    Connections(HashSet<u32>),
}

impl Select {
    /// Whether connection `id` is meant.
    pub fn wants(&self, id: u32) -> bool {
        match self {
            Select::None => false,
            Select::All => true,
            Select::Connections(ids) => ids.contains(&id),
        }
    }
}

/// Which series of one connection are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// [`Sample`]s.
    pub samples: bool,
    /// [`Event`]s.
    pub events: bool,
    /// [`Segment`]s.
    pub segments: bool,
}

/// The series.
#[derive(Debug, Default)]
pub struct Series {
    /// In the order in which bins closed.
    pub samples: Vec<Sample>,
    /// In order of time.
    pub events: Vec<Event>,
    logs: HashMap<u32, Log>,
    max_segments: usize,
}

/// One flow's segments; past the cap neighbours are joined, so that nothing disappears from a drawing.
#[derive(Debug, Default)]
struct Log {
    rows: Vec<Segment>,
    /// How many joined rows make one.
    stride: u32,
}

impl Series {
    /// At most `max_segments` rows per flow.
    pub fn new(max_segments: usize) -> Series {
        Series { max_segments: max_segments.max(1000), ..Series::default() }
    }

    /// A moment of `flow`.
    #[inline]
    pub fn event(&mut self, wanted: Wanted, flow: u32, time: Instant, kind: EventKind, value: f64, seq: Pos) {
        if wanted.events {
            self.events.push(Event { flow, time, kind, value, seq: seq.max(0) as u64 });
        }
    }

    /// A data segment, ACK or SACK block of `flow`.
    #[inline]
    pub fn segment(
        &mut self,
        wanted: Wanted,
        flow: u32,
        time: Instant,
        kind: SegmentKind,
        from: Pos,
        to: Pos,
    ) {
        if wanted.segments {
            self.push(Segment { flow, time, kind, from: from.max(0) as u64, to: to.max(0) as u64 });
        }
    }

    fn push(&mut self, row: Segment) {
        let cap = self.max_segments;
        let log = self.logs.entry(row.flow).or_insert_with(|| Log { rows: Vec::new(), stride: 1 });
        if log.stride > 1
            && let Some(last) = log.rows.last_mut()
            && join(last, &row, log.stride)
        {
            return;
        }
        log.rows.push(row);
        if log.rows.len() >= cap {
            log.stride = log.stride.saturating_mul(2);
            thin(log);
        }
    }

    /// All segments, flow by flow in order of time, and the flows whose rows were joined to stay under the cap.
    pub fn into_segments(self) -> (Vec<Sample>, Vec<Event>, Vec<Segment>, Vec<u32>) {
        let mut flows: Vec<(u32, Log)> = self.logs.into_iter().collect();
        flows.sort_by_key(|(flow, _)| *flow);
        let joined = flows.iter().filter(|(_, log)| log.stride > 1).map(|(flow, _)| *flow).collect();
        let segments = flows.into_iter().flat_map(|(_, log)| log.rows).collect();
        (self.samples, self.events, segments, joined)
    }
}

/// Takes `next` into `last` where both are new data in a row or ACKs, and no more than `stride` segments result.
fn join(last: &mut Segment, next: &Segment, stride: u32) -> bool {
    // The length that `stride` full segments have bounds a joined row, so that time stays truthful.
    let cap = u64::from(stride) * 1448;
    match (last.kind, next.kind) {
        (SegmentKind::Data, SegmentKind::Data) if last.to == next.from && next.to - last.from <= cap => {
            last.to = next.to;
            true
        }
        (SegmentKind::Ack, SegmentKind::Ack) if next.from.saturating_sub(last.from) <= cap => {
            // The staircase may be a step early, never late.
            last.from = next.from;
            last.to = next.to.max(last.to);
            true
        }
        _ => false,
    }
}

fn thin(log: &mut Log) {
    let mut kept: Vec<Segment> = Vec::with_capacity(log.rows.len());
    let mut last_of: [Option<usize>; 2] = [None, None];
    for row in log.rows.drain(..) {
        let slot = match row.kind {
            SegmentKind::Data => 0,
            SegmentKind::Ack => 1,
            _ => {
                kept.push(row);
                continue;
            }
        };
        if let Some(i) = last_of[slot]
            && join(&mut kept[i], &row, log.stride)
        {
            continue;
        }
        last_of[slot] = Some(kept.len());
        kept.push(row);
    }
    // Resent data and SACK blocks alone can exceed the cap on a very lossy flow: then every second one goes.
    if kept.len() * 4 > kept.capacity().max(1) * 3 {
        let mut odd = false;
        kept.retain(|r| {
            odd = !odd;
            odd || matches!(r.kind, SegmentKind::Again)
        });
    }
    log.rows = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_cap_neighbours_are_joined_and_resent_data_stays() {
        let mut s = Series::new(1000);
        let w = Wanted { segments: true, ..Wanted::default() };
        let mut at = 0;
        for i in 0..50_000u64 {
            let kind = if i % 1000 == 999 { SegmentKind::Again } else { SegmentKind::Data };
            let from = if kind == SegmentKind::Again { at - 1448 } else { at };
            s.segment(w, 3, Instant(i), kind, from, from + 1448);
            at = from + 1448;
        }
        let (_, _, rows, joined) = s.into_segments();
        assert_eq!(joined, vec![3]);
        assert!(rows.len() < 1000);
        assert_eq!(rows.iter().filter(|r| r.kind == SegmentKind::Again).count(), 50);
        let data: u64 = rows.iter().filter(|r| r.kind == SegmentKind::Data).map(|r| r.to - r.from).sum();
        assert_eq!(data, 49_950 * 1448, "joined, not dropped");
    }
}
