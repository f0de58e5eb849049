//! When something happened in the modem, by the clock of this host.
//!
//! signal: times in records, when the records arrived, numbers of TTIs in them · model: a record is closed after what it
//! contains and arrives after it was closed, now and then at once; so the least difference of the last minute is that
//! of the two clocks · action: times of CLOCK_MONOTONIC, or none while the difference is not known.
//!
//! A delay that no record escapes cannot be seen: all times are later by it.

use std::collections::VecDeque;

use crate::time::Tti;

/// Two clocks of 20 ppm each move apart by 2.4 ms in it.
const WINDOW_S: u64 = 60;
/// A larger difference from the least one is a step of a clock. Delays between modem and program are below 10 ms in 99
/// of 100 records (MobiCom 2021, 5G uplink measurements).
const STEP_NS: i64 = 100_000_000;
/// So many differences over so much time: records that waited together all arrive at once, each with a delay.
const MIN_SAMPLES: u32 = 5;
const MIN_SPAN_NS: u64 = 200_000_000;
/// Frame numbers begin again after so much time.
const CYCLE_NS: i64 = 10_240 * TTI_NS;
const TTI_NS: i64 = 1_000_000;
/// A transport block that is older than its record by more has another frame number than it should: the cell changed.
const MAX_AGE_NS: i64 = 1_000_000_000;

/// The least of the differences of the last minute.
#[derive(Clone, Debug, Default)]
struct Envelope {
    /// Second, least difference in it.
    seconds: VecDeque<(u64, i64)>,
    samples: u32,
    /// When the first and the last difference were seen.
    span_ns: (u64, u64),
}

impl Envelope {
    fn add(&mut self, now_ns: u64, difference_ns: i64) {
        let second = now_ns / 1_000_000_000;
        while self.seconds.front().is_some_and(|(old, _)| old.saturating_add(WINDOW_S) < second) {
            self.seconds.pop_front();
        }
        if self.seconds.is_empty() {
            (self.samples, self.span_ns.0) = (0, now_ns);
        }
        self.samples = self.samples.saturating_add(1);
        self.span_ns.1 = now_ns;
        match self.seconds.back_mut() {
            Some((of, least)) if *of >= second => *least = difference_ns.min(*least),
            _ => self.seconds.push_back((second, difference_ns)),
        }
    }

    /// The least so far.
    fn least(&self) -> Option<i64> {
        self.seconds.iter().map(|(_, least)| *least).min()
    }

    /// The least, where enough was seen to rely on it.
    fn known(&self) -> Option<i64> {
        let span_ns = self.span_ns.1.saturating_sub(self.span_ns.0);
        let is_known = self.samples >= MIN_SAMPLES && span_ns >= MIN_SPAN_NS;
        is_known.then(|| self.least()).flatten()
    }
}

/// Time of the modem → CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub struct Clock(Envelope);

impl Clock {
    /// A record arrived. Returns whether one of the clocks has stepped: then nothing is known any more.
    pub fn add(&mut self, arrived_ns: u64, modem_ns: u64) -> bool {
        let (Ok(arrived), Ok(modem)) = (i64::try_from(arrived_ns), i64::try_from(modem_ns)) else {
            return false;
        };
        let difference = arrived - modem;
        let stepped =
            self.0.least().is_some_and(|least| least.abs_diff(difference) > STEP_NS as u64);
        if stepped {
            self.0 = Envelope::default();
        }
        self.0.add(arrived_ns, difference);
        stepped
    }

    /// A time of the modem in ns of CLOCK_MONOTONIC, once the difference is known.
    pub fn monotonic_ns(&self, modem_ns: u64) -> Option<u64> {
        u64::try_from(i64::try_from(modem_ns).ok()?.checked_add(self.0.known()?)?).ok()
    }
}

/// Number of a TTI → time of the modem.
#[derive(Clone, Debug, Default)]
pub struct Frames(Envelope);

/// What a TTI says of the time beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The TTI was at that time.
    Now,
    /// It was at that time or before.
    Before,
}

impl Frames {
    /// A record has a TTI in it, with a time of the modem.
    pub fn add(&mut self, modem_ns: u64, tti: Tti, age: Age) {
        let Some(difference) = difference(modem_ns, tti) else { return };
        let least = self.0.least();
        let moved = least.map_or(0, |least| turned(difference - least));
        let most = match age {
            Age::Now => STEP_NS,
            Age::Before => MAX_AGE_NS,
        };
        if moved < -STEP_NS || moved > most {
            self.0 = Envelope::default();
            self.0.add(modem_ns, difference);
        } else {
            // Beyond the cycle where the frame numbers began again.
            self.0.add(modem_ns, least.map_or(difference, |least| least + moved));
        }
    }

    /// Whether TTIs have times by now.
    pub fn is_known(&self) -> bool {
        self.0.known().is_some()
    }

    /// When a TTI was, in time of the modem; it lies in a record that was closed at `closed_ns`.
    pub fn modem_ns(&self, closed_ns: u64, tti: Tti) -> Option<u64> {
        let age = turned(difference(closed_ns, tti)? - self.0.known()?);
        // Numbers and times differ by some ms: what seems to come after its own record is as old as that.
        (-STEP_NS..=MAX_AGE_NS)
            .contains(&age)
            .then(|| closed_ns.saturating_sub(age.max(0).unsigned_abs()))
    }
}

/// Time less that of the TTI in its cycle.
fn difference(modem_ns: u64, tti: Tti) -> Option<i64> {
    let of_tti = (i64::from(tti.sfn) * 10 + i64::from(tti.subframe)) * TTI_NS;
    Some((i64::try_from(modem_ns).ok()? - of_tti).rem_euclid(CYCLE_NS))
}

/// A difference of times that are known but for whole cycles, −half a cycle to half a cycle.
fn turned(ns: i64) -> i64 {
    (ns + CYCLE_NS / 2).rem_euclid(CYCLE_NS) - CYCLE_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The modem's clock began long before the host's.
    const MODEM: u64 = 1_400_000_000_000_000_000;

    /// A record each 40 ms from `begin` on, each so many ms late.
    fn run(clock: &mut Clock, begin_ms: u64, modem: u64, late_ms: impl Fn(u64) -> u64) -> bool {
        let mut stepped = false;
        for i in 0..25 {
            let at = (begin_ms + i * 40) * MS;
            stepped |= clock.add(at + late_ms(i) * MS, modem + at);
        }
        stepped
    }

    #[test]
    fn the_record_with_the_shortest_way_sets_the_clock() {
        let mut clock = Clock::default();
        assert!(!run(&mut clock, 5_000, MODEM, |i| if i == 7 { 1 } else { 30 + i }));
        assert_eq!(clock.monotonic_ns(MODEM + 6_000 * MS), Some(6_001 * MS));
        // A time before the host's clock began.
        assert_eq!(clock.monotonic_ns(MODEM - 6_000 * MS), None);
        assert_eq!(clock.monotonic_ns(u64::MAX), None);
    }

    #[test]
    fn nothing_is_known_before_enough_was_seen() {
        let mut clock = Clock::default();
        for i in 0..50 {
            // Records that waited together.
            assert!(!clock.add(9_000 * MS + i, MODEM + 9_000 * MS + i));
        }
        assert_eq!(clock.monotonic_ns(MODEM), None);
        let mut clock = Clock::default();
        for i in 0..4 {
            clock.add((9_000 + 100 * i) * MS, MODEM + (9_000 + 100 * i) * MS);
        }
        assert_eq!(clock.monotonic_ns(MODEM + MS), None);
        clock.add(9_400 * MS, MODEM + 9_400 * MS);
        assert_eq!(clock.monotonic_ns(MODEM + MS), Some(MS));
    }

    #[test]
    fn a_step_of_either_clock_forgets_what_was_known_until_it_is_known_again() {
        for (step_ms, expected) in [(-200_i64, 200_i64), (200, -200), (99, 0)] {
            let mut clock = Clock::default();
            run(&mut clock, 5_000, MODEM, |_| 0);
            let modem = MODEM.checked_add_signed(step_ms * MS as i64).unwrap();
            let stepped = clock.add(6_000 * MS, modem + 6_000 * MS);
            assert_eq!(stepped, step_ms.unsigned_abs() > 100, "{step_ms}");
            assert_eq!(clock.monotonic_ns(MODEM + 6_000 * MS).is_none(), stepped);
            assert!(!run(&mut clock, 6_040, modem, |_| 0));
            let at = clock.monotonic_ns(MODEM + 7_000 * MS).unwrap();
            let expected = if step_ms == 99 { -99 } else { expected };
            assert_eq!(at as i64 - 7_000 * MS as i64, expected * MS as i64, "{step_ms}");
        }
    }

    #[test]
    fn a_drift_is_followed_within_a_minute_and_memory_stays_bounded() {
        let mut clock = Clock::default();
        // The modem's clock is slow by 100 ppm: 12 ms in two minutes.
        for i in 0..120_000_u64 {
            assert!(!clock.add(i * MS, MODEM + i * MS - i * MS / 10_000));
        }
        assert!(clock.0.seconds.len() <= 62);
        let at = clock.monotonic_ns(MODEM + 120_000 * MS - 12 * MS).unwrap();
        let late = 120_000 * MS as i64 - at as i64;
        assert!((5_900_000..6_200_000).contains(&late), "a minute behind: {late} ns");
    }

    fn tti(ms: u64) -> Tti {
        let ms = ms % 10_240;
        Tti { sfn: (ms / 10) as u16, subframe: (ms % 10) as u8 }
    }

    #[test]
    fn blocks_have_times_by_their_frame_numbers_across_the_cycle() {
        let mut frames = Frames::default();
        // Closed 0 to 39 ms after its newest block; frame numbers begin again at 10,240.
        for i in 0..20_u64 {
            let newest = 10_000 + i * 40;
            frames.add(MODEM + (newest + 3 + i % 7) * MS, tti(newest), Age::Before);
        }
        assert!(frames.is_known());
        // 3 ms of the way are in every record.
        let closed = MODEM + 10_800 * MS;
        assert_eq!(frames.modem_ns(closed, tti(10_750)), Some(MODEM + 10_753 * MS));
        assert_eq!(frames.modem_ns(closed, tti(10_200)), Some(MODEM + 10_203 * MS));
        // One that says it comes after its record, and one of another cell.
        assert_eq!(frames.modem_ns(closed, tti(10_810)), Some(closed));
        assert_eq!(frames.modem_ns(closed, tti(14_000)), None);
    }

    #[test]
    fn exact_numbers_correct_those_of_blocks_and_another_cell_begins_again() {
        let mut frames = Frames::default();
        for i in 0..10_u64 {
            frames.add(MODEM + (1_000 + 40 * i) * MS, tti(900 + 40 * i), Age::Before);
        }
        frames.add(MODEM + 1_400 * MS, tti(1_398), Age::Now);
        let found = frames.modem_ns(MODEM + 1_440 * MS, tti(1_340));
        assert_eq!(found, Some(MODEM + 1_342 * MS));
        // The next cell's numbers are 5 s ahead.
        frames.add(MODEM + 1_480 * MS, tti(6_478), Age::Now);
        assert!(!frames.is_known());
        assert_eq!(frames.modem_ns(MODEM + 1_480 * MS, tti(6_400)), None);
        for i in 0..6_u64 {
            frames.add(MODEM + (1_500 + 40 * i) * MS, tti(6_500 + 40 * i), Age::Now);
        }
        let found = frames.modem_ns(MODEM + 1_740 * MS, tti(6_700));
        assert_eq!(found, Some(MODEM + 1_700 * MS));
    }
}
