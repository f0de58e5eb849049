//! Where series go that somebody asked for: samples, events, segments of chosen connections.

use std::collections::{HashMap, HashSet};

use units::Instant;

use crate::packet::sequence::Pos;
use crate::series::rows::{Event, EventKind, Sample, Segment, SegmentKind};

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
    /// Where the last row of new data and the last ACK stand.
    last_of: [Option<usize>; 2],
}

impl Series {
    /// At most `max_segments` rows per flow.
    pub fn new(max_segments: usize) -> Series {
        Series { max_segments: max_segments.max(1000), ..Series::default() }
    }

    /// A moment of `flow`.
    #[inline]
    pub fn event(
        &mut self,
        wanted: Wanted,
        flow: u32,
        time: Instant,
        kind: EventKind,
        value: f64,
        seq: Pos,
    ) {
        if wanted.events {
            self.note(Event { flow, time, kind, value, seq: seq.max(0) as u64 });
        }
    }

    // Out of the way: without series, the analysis of a packet shall stay small in the instruction cache.
    #[cold]
    #[inline(never)]
    fn note(&mut self, row: Event) {
        self.events.push(row);
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

    #[cold]
    #[inline(never)]
    fn push(&mut self, row: Segment) {
        let cap = self.max_segments;
        let log = self.logs.entry(row.flow).or_insert_with(|| Log { stride: 1, ..Log::default() });
        log.add(row);
        if log.rows.len() >= cap {
            log.stride = log.stride.saturating_mul(2);
            thin(log);
        }
    }

    /// All segments, flow by flow in order of time, and the flows whose rows were joined to stay under the cap.
    pub fn into_segments(self) -> (Vec<Sample>, Vec<Event>, Vec<Segment>, Vec<u32>) {
        let mut flows: Vec<(u32, Log)> = self.logs.into_iter().collect();
        flows.sort_by_key(|(flow, _)| *flow);
        let joined =
            flows.iter().filter(|(_, log)| log.stride > 1).map(|(flow, _)| *flow).collect();
        let segments = flows.into_iter().flat_map(|(_, log)| log.rows).collect();
        (self.samples, self.events, segments, joined)
    }
}

/// Whether `last` can stand for `next` as well: both in the same stretch of `stride` full segments of sequence space.
/// New data is drawn as one longer segment; of ACKs the first of a stretch stays, so that the staircase is late by
/// less than a stretch and never above the data.
fn join(last: &mut Segment, next: &Segment, stride: u32) -> bool {
    let stretch = u64::from(stride) * 1448;
    let together = last.kind == next.kind && last.from / stretch == next.from / stretch;
    match next.kind {
        SegmentKind::Data if together && last.to == next.from => {
            last.to = next.to;
            true
        }
        SegmentKind::Ack => together,
        _ => false,
    }
}

impl Log {
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

fn thin(log: &mut Log) {
    let rows = std::mem::take(&mut log.rows);
    let before = rows.len();
    log.last_of = [None; 2];
    for row in rows {
        log.add(row);
    }
    // SACK blocks alone can exceed the cap on a very lossy flow: then every second one of them goes.
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
        assert!(rows.len() > 400, "no thinner than the cap asks for: {}", rows.len());
        assert!(rows.len() < 1000);
        assert_eq!(rows.iter().filter(|r| r.kind == SegmentKind::Again).count(), 50);
        let data: u64 =
            rows.iter().filter(|r| r.kind == SegmentKind::Data).map(|r| r.to - r.from).sum();
        assert_eq!(data, 49_950 * 1448, "joined, not dropped");
    }
}
