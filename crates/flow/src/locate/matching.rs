//! Finds each packet at all points of the path.
//!
//! signal: packets of all points, in the order of corrected time · model: one record per packet, in a table by flow and
//! first byte (data) or by content (everything else). A packet at another point belongs to the record that covers its
//! bytes. Where it covers only a part, the record is split there. So in the end there is one record per segment as it
//! was on the wire, whatever GSO or GRO joined at a point. Several records may fit, since retransmissions differ only in
//! TSval and IP identification; then the one with a delay like that of the previous packet is chosen · action: a record
//! seen at all points, or older than [`MAX_TRANSIT_TIME`], is passed to the [`Sink`].
//!
//! Memory is bounded by the number of waiting records, at most [`MAX_WAITING`].

use std::collections::BTreeSet;

use capture::TcpSegment;
use hashbrown::HashMap;

use super::packet::{Content, Packet, mix};
use super::path_order::FlowFacts;
use crate::identity::dedup::Recent;
use crate::identity::key::Hasher;
use crate::identity::sequence::{Pos, Sequence};

/// Maximum time from the first point to the last, ns: the longest known queues take ten seconds (DRWA, figure 6).
const MAX_TRANSIT_TIME: i64 = 30_000_000_000;
/// Maximum number of waiting records; beyond, the oldest is passed on early.
const MAX_WAITING: usize = 1 << 20;
/// Maximum number of records compared with one packet.
const MAX_COMPARED: usize = 64;
/// Delays that differ by less count as equal, ns; then the older record is chosen.
const SAME_DELAY: i64 = 1_000_000;
const NONE: u32 = u32::MAX;

/// A packet as seen at one point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sighting {
    /// Time by the reference clock, ns.
    pub time: i64,
    pub window: u16,
    pub ecn: u8,
}

/// A packet on the wire. A captured packet may be several of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub flow: u32,
    /// First byte of its data in the stream; `from` and `to` are 0 without data.
    pub from: Pos,
    pub to: Pos,
    /// Length of the headers of each packet, bytes.
    pub header: u32,
    /// Payload of a packet without TCP data, bytes.
    pub payload: u32,
    /// Points at which it was seen: bit i stands for position i.
    pub mask: u16,
    tsval: Option<u32>,
    id: u16,
    /// Digest of a packet without TCP data.
    key: u64,
    /// Older and newer record with the same key.
    before: u32,
    behind: u32,
    /// Older and newer record of all.
    older: u32,
    newer: u32,
    created: i64,
}

impl Record {
    /// A record without data of a stream.
    fn of(p: &Observation<'_>) -> Record {
        Record {
            flow: p.flow,
            from: 0,
            to: 0,
            header: p.packet.header,
            payload: 0,
            mask: 0,
            tsval: None,
            id: p.packet.id,
            key: 0,
            before: NONE,
            behind: NONE,
            older: NONE,
            newer: NONE,
            created: p.sighting.time,
        }
    }
}

/// For the order of a flow's packets in a path segment: of those that arrived, the one that entered last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastArrival {
    pub any: bool,
    pub time: i64,
    pub place: Pos,
}

/// State of a flow while its packets are matched.
#[derive(Default)]
struct State {
    sequence: Option<Sequence>,
    highest: Pos,
    waiting: BTreeSet<(Pos, u32)>,
    longest: Pos,
    recent: Vec<Option<Box<Recent>>>,
    /// Delay of the last matched packet, by position, ns.
    delay: Vec<Option<i64>>,
    /// Last packet of each path segment.
    passed: Vec<LastArrival>,
}

/// A packet overtaken by a later one of its flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overtaken {
    pub flow: u32,
    /// The path segment, by the lower of its two positions.
    pub segment: usize,
    /// How much earlier than the one that overtook it it had entered, ns.
    pub by: i64,
}

/// Receives the results of matching.
pub(crate) trait Sink {
    /// A finished record with its sightings by position.
    fn done(&mut self, record: &Record, sightings: &[Sighting], passed: &[LastArrival]);
    /// A packet that was overtaken in a path segment.
    fn late(&mut self, late: Overtaken);
    /// A packet that a capture contains twice.
    fn duplicate(&mut self, position: usize);
}

/// A packet that was captured at a point.
#[derive(Clone, Copy)]
pub(crate) struct Observation<'a> {
    pub position: usize,
    pub sighting: Sighting,
    pub flow: u32,
    pub facts: FlowFacts,
    pub packet: &'a Packet,
    /// The TCP segment, if it is one.
    pub tcp: Option<&'a TcpSegment>,
}

/// Matches packets between points; see the top of this file.
pub(crate) struct Matching {
    points: usize,
    records: Vec<Record>,
    sightings: Vec<Sighting>,
    free: Vec<u32>,
    waiting: usize,
    oldest: u32,
    newest: u32,
    /// Key → oldest and newest record with it.
    by_key: HashMap<u64, (u32, u32), Hasher>,
    states: Vec<Option<Box<State>>>,
}

impl Matching {
    /// Matching for this number of points and flows.
    pub fn new(points: usize, flows: usize) -> Matching {
        Matching {
            points,
            records: Vec::new(),
            sightings: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            oldest: NONE,
            newest: NONE,
            by_key: HashMap::default(),
            states: (0..flows).map(|_| None).collect(),
        }
    }

    /// Processes a packet captured at a point.
    pub fn observe(&mut self, p: &Observation<'_>, sink: &mut impl Sink) {
        self.expire(p.sighting.time.saturating_sub(MAX_TRANSIT_TIME), sink);
        let points = self.points;
        let Some(slot) = self.states.get_mut(p.flow as usize) else { return };
        let state = slot.get_or_insert_with(|| {
            Box::new(State {
                recent: (0..points).map(|_| None).collect(),
                delay: vec![None; points],
                passed: vec![LastArrival::default(); points],
                ..State::default()
            })
        });
        if let (Some(segment), Some(recent)) = (p.tcp, state.recent.get_mut(p.position))
            && recent.get_or_insert_default().is_duplicate(segment)
        {
            sink.duplicate(p.position);
            return;
        }
        match p.packet.content {
            Content::Data { seq, tsval } => {
                let sequence = *state.sequence.get_or_insert(Sequence::new(seq));
                let from = sequence.position(seq, state.highest);
                let to = from + Pos::from(p.packet.payload);
                state.highest = state.highest.max(to);
                state.longest = state.longest.max(Pos::from(p.packet.payload));
                self.data(p, from, to, tsval, sink);
            }
            Content::Digest { key } => self.without_data(p, mix(key, u64::from(p.flow)), sink),
        }
        while self.waiting > MAX_WAITING {
            self.release(self.oldest, sink);
        }
    }

    /// Passes on all records that still wait.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.expire(i64::MAX, sink);
    }

    fn expire(&mut self, before: i64, sink: &mut impl Sink) {
        while let Some(r) = self.records.get(self.oldest as usize)
            && r.created < before
        {
            self.release(self.oldest, sink);
        }
    }

    fn state(&self, flow: u32) -> Option<&State> {
        self.states.get(flow as usize)?.as_deref()
    }

    /// How badly a record fits a packet, lower is better; `None` if it is another packet.
    fn misfit(&self, index: u32, p: &Observation<'_>) -> Option<(bool, i64)> {
        let r = self.records.get(index as usize)?;
        if r.mask >> p.position & 1 == 1 {
            return None;
        }
        if let (Content::Data { tsval: Some(a), .. }, Some(b)) = (p.packet.content, r.tsval)
            && a != b
        {
            return None;
        }
        let other_id = p.facts.ids && p.packet.id != 0 && r.id != 0 && {
            // Segments cut from a GSO segment have consecutive identifications, at most 120 of them for 64 KB.
            let span = if r.to - r.from == Pos::from(p.packet.payload) { 0 } else { 120 };
            p.packet.id.wrapping_sub(r.id) > span && r.id.wrapping_sub(p.packet.id) > span
        };
        let delay = self.delay_to(r, index, p.position, p.sighting.time)?;
        let usual = self.state(p.flow).and_then(|s| s.delay.get(p.position).copied().flatten());
        let unusual = usual.map_or(0, |d| delay.saturating_sub(d).saturating_abs() / SAME_DELAY);
        Some((other_id, unusual))
    }

    /// Delay since the nearest point at which it was seen, ns.
    fn delay_to(&self, r: &Record, index: u32, position: usize, time: i64) -> Option<i64> {
        let nearest = (0..self.points)
            .filter(|p| r.mask >> p & 1 == 1)
            .min_by_key(|p| p.abs_diff(position))?;
        Some(time.saturating_sub(self.sighting(index, nearest).time))
    }

    fn sighting(&self, index: u32, position: usize) -> Sighting {
        self.sightings.get(index as usize * self.points + position).copied().unwrap_or_default()
    }

    /// The best record that contains the byte `at`.
    fn covering(&self, at: Pos, p: &Observation<'_>) -> Option<u32> {
        let state = self.state(p.flow)?;
        let fit = |candidates: &mut dyn Iterator<Item = &(Pos, u32)>| {
            candidates
                .take(MAX_COMPARED)
                .filter_map(|(_, i)| {
                    Some((*i, self.records.get(*i as usize).filter(|r| r.to > at)?.created))
                })
                .filter_map(|(i, created)| Some((self.misfit(i, p)?, created, i)))
                .min()
                .map(|(_, _, i)| i)
        };
        fit(&mut state.waiting.range((at, 0)..=(at, NONE))).or_else(|| {
            fit(&mut state.waiting.range((at.saturating_sub(state.longest), 0)..(at, 0)).rev())
        })
    }

    /// The first byte behind `at` that a record contains.
    fn next_covered(&self, at: Pos, to: Pos, p: &Observation<'_>) -> Pos {
        let Some(state) = self.state(p.flow) else { return to };
        let mut later = state.waiting.range((at + 1, 0)..(to.max(at + 1), 0)).take(MAX_COMPARED);
        later.find(|(_, i)| self.misfit(*i, p).is_some()).map_or(to, |(from, _)| *from)
    }

    fn data(
        &mut self,
        p: &Observation<'_>,
        from: Pos,
        to: Pos,
        tsval: Option<u32>,
        sink: &mut impl Sink,
    ) {
        let mut at = from;
        while at < to {
            let index = match self.covering(at, p) {
                Some(index) => {
                    let index = self.split(index, at);
                    self.split(index, to);
                    index
                }
                None => {
                    let end = self.next_covered(at, to, p);
                    let index =
                        self.add(Record { from: at, to: end, tsval, ..Record::of(p) }, NONE);
                    if let Some(Some(state)) = self.states.get_mut(p.flow as usize) {
                        state.waiting.insert((at, index));
                    }
                    index
                }
            };
            let end = self.records.get(index as usize).map_or(to, |r| r.to);
            self.record_sighting(index, p, sink);
            at = end.max(at + 1);
        }
    }

    /// Splits a record at the byte `at`; returns the record that begins there.
    fn split(&mut self, index: u32, at: Pos) -> u32 {
        let Some(whole) = self.records.get(index as usize).copied() else { return index };
        if at <= whole.from || at >= whole.to {
            return index;
        }
        self.records[index as usize].to = at;
        let right = self.add(Record { from: at, ..whole }, index);
        for p in 0..self.points {
            self.sightings[right as usize * self.points + p] = self.sighting(index, p);
        }
        if let Some(Some(state)) = self.states.get_mut(whole.flow as usize) {
            state.waiting.insert((at, right));
        }
        right
    }

    fn without_data(&mut self, p: &Observation<'_>, key: u64, sink: &mut impl Sink) {
        let chain = self.by_key.get(&key).copied().unwrap_or((NONE, NONE));
        let mut best = None;
        // Among many equal packets, lost ones are the oldest records and overtaken ones the newest: search both ends.
        for (start, older) in [(chain.0, false), (chain.1, true)] {
            let mut next = start;
            for _ in 0..MAX_COMPARED / 2 {
                let Some(r) = self.records.get(next as usize) else { break };
                if r.flow == p.flow
                    && let Some(misfit) = self.misfit(next, p)
                    && best.is_none_or(|min| (misfit, r.created, next) < min)
                {
                    best = Some((misfit, r.created, next));
                }
                next = if older { r.before } else { r.behind };
            }
        }
        let index = best.map_or_else(
            || {
                let record =
                    Record { payload: p.packet.payload, key, before: chain.1, ..Record::of(p) };
                let index = self.add(record, NONE);
                if let Some(last) = self.records.get_mut(chain.1 as usize) {
                    last.behind = index;
                }
                self.by_key.insert(key, (if chain.0 == NONE { index } else { chain.0 }, index));
                index
            },
            |(_, _, index)| index,
        );
        self.record_sighting(index, p, sink);
    }

    /// Records a sighting, and passes the record on if it is complete.
    fn record_sighting(&mut self, index: u32, p: &Observation<'_>, sink: &mut impl Sink) {
        let Some(r) = self.records.get(index as usize).copied() else { return };
        let delay = self.delay_to(&r, index, p.position, p.sighting.time);
        let upstream = match p.facts.forward {
            Some(true) => p.position.checked_sub(1),
            Some(false) => Some(p.position + 1).filter(|next| *next < self.points),
            None => None,
        };
        let before =
            upstream.filter(|u| r.mask >> u & 1 == 1).map(|u| (u, self.sighting(index, u).time));
        if let Some(Some(state)) = self.states.get_mut(r.flow as usize) {
            if let (Some(slot), Some(delay)) = (state.delay.get_mut(p.position), delay) {
                *slot = Some(delay);
            }
            if let Some((u, time)) = before
                && let Some(passed) = state.passed.get_mut(u.min(p.position))
            {
                if passed.any && (time, r.from) < (passed.time, passed.place) {
                    let by = passed.time.saturating_sub(time);
                    sink.late(Overtaken { flow: r.flow, segment: u.min(p.position), by });
                } else {
                    *passed = LastArrival { any: true, time, place: r.from };
                }
            }
        }
        self.sightings[index as usize * self.points + p.position] = p.sighting;
        self.records[index as usize].mask |= 1 << p.position;
        if self.records[index as usize].mask == p.facts.mask {
            self.release(index, sink);
        }
    }

    fn add(&mut self, record: Record, before: u32) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.records.push(record);
            self.sightings.resize(self.sightings.len() + self.points, Sighting::default());
            self.records.len() as u32 - 1
        });
        self.records[index as usize] = record;
        // The second half of a split is as old as the first one, and stands beside it.
        let (older, newer) = match self.records.get(before as usize) {
            Some(left) => (before, left.newer),
            None => (self.newest, NONE),
        };
        self.link(index, older, newer);
        self.waiting += 1;
        index
    }

    fn link(&mut self, index: u32, older: u32, newer: u32) {
        self.records[index as usize].older = older;
        self.records[index as usize].newer = newer;
        match self.records.get_mut(older as usize) {
            Some(r) => r.newer = index,
            None => self.oldest = index,
        }
        match self.records.get_mut(newer as usize) {
            Some(r) => r.older = index,
            None => self.newest = index,
        }
    }

    /// Removes a record and passes it on.
    fn release(&mut self, index: u32, sink: &mut impl Sink) {
        let Some(r) = self.records.get(index as usize).copied() else { return };
        match self.records.get_mut(r.older as usize) {
            Some(older) => older.newer = r.newer,
            None => self.oldest = r.newer,
        }
        match self.records.get_mut(r.newer as usize) {
            Some(newer) => newer.older = r.older,
            None => self.newest = r.older,
        }
        if r.to > r.from {
            if let Some(Some(state)) = self.states.get_mut(r.flow as usize) {
                state.waiting.remove(&(r.from, index));
            }
        } else {
            self.remove_from_chain(&r);
        }
        self.waiting -= 1;
        self.free.push(index);
        let begin = index as usize * self.points;
        let passed = self
            .states
            .get(r.flow as usize)
            .and_then(|s| s.as_deref())
            .map_or(&[][..], |s| &s.passed);
        sink.done(&r, &self.sightings[begin..begin + self.points], passed);
    }

    fn remove_from_chain(&mut self, r: &Record) {
        match self.records.get_mut(r.before as usize) {
            Some(before) => before.behind = r.behind,
            None if r.behind == NONE => {
                self.by_key.remove(&r.key);
                return;
            }
            None => {}
        }
        if let Some(behind) = self.records.get_mut(r.behind as usize) {
            behind.before = r.before;
        }
        if let Some(chain) = self.by_key.get_mut(&r.key) {
            if r.before == NONE {
                chain.0 = r.behind;
            }
            if r.behind == NONE {
                chain.1 = r.before;
            }
        }
    }
}
