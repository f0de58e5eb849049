//! Packets that wait to be seen at the other points.
//!
//! signal: packets of all points, in the order of corrected time · model: a record per packet, in a table by flow and
//! first byte (data) or by content (everything else). A packet that comes by at another point takes the record that
//! covers its bytes; where it covers only a part, the record is split there, so that in the end there is one for
//! each segment as it was on the wire, whatever offload joined it at a point. Of several records that fit (resent
//! data is equal but for TSval and IP identification) the one whose delay is like that of the packet before is it.
//! action: a record that has been seen at all points, or has waited for [`HORIZON`], is handed over
//!
//! Memory is bounded by the packets that wait, and those by [`MOST_WAITING`].

use std::collections::BTreeSet;

use capture::TcpSegment;
use hashbrown::HashMap;

use super::packet::{Content, Packet, mix};
use super::path_order::Way;
use crate::packet::dedup::Recent;
use crate::packet::key::Hasher;
use crate::packet::sequence::{Pos, Sequence};

/// Longest way through all points that is believed, ns: the longest queues on record hold ten seconds (DRWA, figure 6).
const HORIZON: i64 = 30_000_000_000;
/// Records kept at most; beyond, the oldest is decided early.
const MOST_WAITING: usize = 1 << 20;
/// Records that are compared for one packet.
const MOST_COMPARED: usize = 64;
/// Delays that differ by less are alike, ns: of alike packets the older one comes first.
const ALIKE: i64 = 1_000_000;
const NONE: u32 = u32::MAX;

/// A packet at one point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    /// By the reference clock, ns.
    pub time: i64,
    pub window: u16,
    pub ecn: u8,
}

/// A packet, or the piece of one that was a packet on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub flow: u32,
    /// Bytes of the stream; both 0 without data.
    pub from: Pos,
    pub to: Pos,
    /// Bytes of headers of each packet.
    pub header: u32,
    /// Payload of what has none of the stream.
    pub payload: u32,
    /// Points (by position) that have seen it.
    pub mask: u16,
    tsval: Option<u32>,
    id: u16,
    /// Of what carries no data.
    key: u64,
    /// Neighbours of the same key, in order of creation.
    before: u32,
    behind: u32,
    /// Neighbours of all, in order of creation.
    older: u32,
    newer: u32,
    created: i64,
}

impl Record {
    /// Without bytes of a stream.
    fn of(p: &Passing<'_>) -> Record {
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
            created: p.sight.time,
        }
    }
}

/// Order of one flow's packets on a stretch: the latest at its upstream end that has arrived at the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub any: bool,
    pub time: i64,
    pub place: Pos,
}

/// What is known of a flow while its packets are matched.
#[derive(Default)]
struct State {
    sequence: Option<Sequence>,
    highest: Pos,
    waiting: BTreeSet<(Pos, u32)>,
    longest: Pos,
    recent: Vec<Option<Box<Recent>>>,
    /// Delay of the last match, by position.
    delay: Vec<Option<i64>>,
    /// By the position at which a stretch begins.
    passed: Vec<Passed>,
}

/// A late packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub flow: u32,
    /// Position before the stretch, the lower one.
    pub stretch: usize,
    /// How much later than the one that overtook it it had set out, ns.
    pub by: i64,
}

/// What comes out.
pub(crate) trait Sink {
    /// A record with its sights by position.
    fn done(&mut self, record: &Record, sights: &[Sight], passed: &[Passed]);
    /// A packet that was overtaken on a stretch.
    fn late(&mut self, late: Late);
    /// A packet that a capture holds twice.
    fn duplicate(&mut self, position: usize);
}

/// A packet that passes a point.
#[derive(Clone, Copy)]
pub(crate) struct Passing<'a> {
    pub position: usize,
    pub sight: Sight,
    pub flow: u32,
    pub of: Way,
    pub packet: &'a Packet,
    /// Where it is TCP.
    pub segment: Option<&'a TcpSegment>,
}

/// See the module text.
pub(crate) struct Matching {
    points: usize,
    records: Vec<Record>,
    sights: Vec<Sight>,
    free: Vec<u32>,
    waiting: usize,
    oldest: u32,
    newest: u32,
    /// Key → oldest and newest record.
    bare: HashMap<u64, (u32, u32), Hasher>,
    states: Vec<Option<Box<State>>>,
}

impl Matching {
    /// Of so many points and flows.
    pub fn new(points: usize, flows: usize) -> Matching {
        Matching {
            points,
            records: Vec::new(),
            sights: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            oldest: NONE,
            newest: NONE,
            bare: HashMap::default(),
            states: (0..flows).map(|_| None).collect(),
        }
    }

    /// A packet passes a point.
    pub fn observe(&mut self, p: &Passing<'_>, sink: &mut impl Sink) {
        self.expire(p.sight.time.saturating_sub(HORIZON), sink);
        let points = self.points;
        let Some(slot) = self.states.get_mut(p.flow as usize) else { return };
        let state = slot.get_or_insert_with(|| {
            Box::new(State {
                recent: (0..points).map(|_| None).collect(),
                delay: vec![None; points],
                passed: vec![Passed::default(); points],
                ..State::default()
            })
        });
        if let (Some(segment), Some(recent)) = (p.segment, state.recent.get_mut(p.position))
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
            Content::Bare { key } => self.without_data(p, mix(key, u64::from(p.flow)), sink),
        }
        while self.waiting > MOST_WAITING {
            self.decide(self.oldest, sink);
        }
    }

    /// Hands over all that still waits.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.expire(i64::MAX, sink);
    }

    fn expire(&mut self, before: i64, sink: &mut impl Sink) {
        while let Some(r) = self.records.get(self.oldest as usize)
            && r.created < before
        {
            self.decide(self.oldest, sink);
        }
    }

    fn state(&self, flow: u32) -> Option<&State> {
        self.states.get(flow as usize)?.as_deref()
    }

    /// How badly a record fits a packet; `None` when it cannot be it.
    fn misfit(&self, index: u32, p: &Passing<'_>) -> Option<(bool, i64)> {
        let r = self.records.get(index as usize)?;
        if r.mask >> p.position & 1 == 1 {
            return None;
        }
        if let (Content::Data { tsval: Some(a), .. }, Some(b)) = (p.packet.content, r.tsval)
            && a != b
        {
            return None;
        }
        let other_id = p.of.ids && p.packet.id != 0 && r.id != 0 && {
            // An offload counts identifications up from that of the joined segment: 64 KB are at most 120 of them.
            let span = if r.to - r.from == Pos::from(p.packet.payload) { 0 } else { 120 };
            p.packet.id.wrapping_sub(r.id) > span && r.id.wrapping_sub(p.packet.id) > span
        };
        let delay = self.delay_to(r, index, p.position, p.sight.time)?;
        let usual = self.state(p.flow).and_then(|s| s.delay.get(p.position).copied().flatten());
        let unusual = usual.map_or(0, |d| delay.saturating_sub(d).saturating_abs() / ALIKE);
        Some((other_id, unusual))
    }

    /// Delay from the nearest point that has seen it.
    fn delay_to(&self, r: &Record, index: u32, position: usize, time: i64) -> Option<i64> {
        let nearest = (0..self.points)
            .filter(|p| r.mask >> p & 1 == 1)
            .min_by_key(|p| p.abs_diff(position))?;
        Some(time.saturating_sub(self.sight(index, nearest).time))
    }

    fn sight(&self, index: u32, position: usize) -> Sight {
        self.sights.get(index as usize * self.points + position).copied().unwrap_or_default()
    }

    /// The record of the bytes from `at` on.
    fn covering(&self, at: Pos, p: &Passing<'_>) -> Option<u32> {
        let state = self.state(p.flow)?;
        let fit = |candidates: &mut dyn Iterator<Item = &(Pos, u32)>| {
            candidates
                .take(MOST_COMPARED)
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

    /// The first byte behind `at` for which there is a record.
    fn next_covered(&self, at: Pos, to: Pos, p: &Passing<'_>) -> Pos {
        let Some(state) = self.state(p.flow) else { return to };
        let mut later = state.waiting.range((at + 1, 0)..(to.max(at + 1), 0)).take(MOST_COMPARED);
        later.find(|(_, i)| self.misfit(*i, p).is_some()).map_or(to, |(from, _)| *from)
    }

    fn data(
        &mut self,
        p: &Passing<'_>,
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
            self.see(index, p, sink);
            at = end.max(at + 1);
        }
    }

    /// Parts a record at a byte inside it; the record that begins there.
    fn split(&mut self, index: u32, at: Pos) -> u32 {
        let Some(whole) = self.records.get(index as usize).copied() else { return index };
        if at <= whole.from || at >= whole.to {
            return index;
        }
        self.records[index as usize].to = at;
        let right = self.add(Record { from: at, ..whole }, index);
        for p in 0..self.points {
            self.sights[right as usize * self.points + p] = self.sight(index, p);
        }
        if let Some(Some(state)) = self.states.get_mut(whole.flow as usize) {
            state.waiting.insert((at, right));
        }
        right
    }

    fn without_data(&mut self, p: &Passing<'_>, key: u64, sink: &mut impl Sink) {
        let chain = self.bare.get(&key).copied().unwrap_or((NONE, NONE));
        let mut best = None;
        // Of many alike packets the oldest are those that were lost, or the newest those that others overtook: both ends.
        for (start, older) in [(chain.0, false), (chain.1, true)] {
            let mut next = start;
            for _ in 0..MOST_COMPARED / 2 {
                let Some(r) = self.records.get(next as usize) else { break };
                if r.flow == p.flow
                    && let Some(misfit) = self.misfit(next, p)
                    && best.is_none_or(|least| (misfit, r.created, next) < least)
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
                self.bare.insert(key, (if chain.0 == NONE { index } else { chain.0 }, index));
                index
            },
            |(_, _, index)| index,
        );
        self.see(index, p, sink);
    }

    /// Notes that a record was seen, and hands it over when that was the last point.
    fn see(&mut self, index: u32, p: &Passing<'_>, sink: &mut impl Sink) {
        let Some(r) = self.records.get(index as usize).copied() else { return };
        let delay = self.delay_to(&r, index, p.position, p.sight.time);
        let upstream = match p.of.forward {
            Some(true) => p.position.checked_sub(1),
            Some(false) => Some(p.position + 1).filter(|next| *next < self.points),
            None => None,
        };
        let before =
            upstream.filter(|u| r.mask >> u & 1 == 1).map(|u| (u, self.sight(index, u).time));
        if let Some(Some(state)) = self.states.get_mut(r.flow as usize) {
            if let (Some(slot), Some(delay)) = (state.delay.get_mut(p.position), delay) {
                *slot = Some(delay);
            }
            if let Some((u, time)) = before
                && let Some(passed) = state.passed.get_mut(u.min(p.position))
            {
                if passed.any && (time, r.from) < (passed.time, passed.place) {
                    let by = passed.time.saturating_sub(time);
                    sink.late(Late { flow: r.flow, stretch: u.min(p.position), by });
                } else {
                    *passed = Passed { any: true, time, place: r.from };
                }
            }
        }
        self.sights[index as usize * self.points + p.position] = p.sight;
        self.records[index as usize].mask |= 1 << p.position;
        if self.records[index as usize].mask == p.of.mask {
            self.decide(index, sink);
        }
    }

    fn add(&mut self, record: Record, before: u32) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.records.push(record);
            self.sights.resize(self.sights.len() + self.points, Sight::default());
            self.records.len() as u32 - 1
        });
        self.records[index as usize] = record;
        // The second half of a split stands beside the first one: it is as old.
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

    /// Takes a record out and hands it over.
    fn decide(&mut self, index: u32, sink: &mut impl Sink) {
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
            self.unchain(&r);
        }
        self.waiting -= 1;
        self.free.push(index);
        let begin = index as usize * self.points;
        let passed = self
            .states
            .get(r.flow as usize)
            .and_then(|s| s.as_deref())
            .map_or(&[][..], |s| &s.passed);
        sink.done(&r, &self.sights[begin..begin + self.points], passed);
    }

    fn unchain(&mut self, r: &Record) {
        match self.records.get_mut(r.before as usize) {
            Some(before) => before.behind = r.behind,
            None if r.behind == NONE => {
                self.bare.remove(&r.key);
                return;
            }
            None => {}
        }
        if let Some(behind) = self.records.get_mut(r.behind as usize) {
            behind.before = r.before;
        }
        if let Some(chain) = self.bare.get_mut(&r.key) {
            if r.before == NONE {
                chain.0 = r.behind;
            }
            if r.behind == NONE {
                chain.1 = r.before;
            }
        }
    }
}
