//! Selects the cure that controls uploads: the gate, or ACK-window rewriting.
//!
//! signal: whether a modem's reports come · model: their loss counts at once, their return only
//! after steady reports; that time doubles each time the return was wrong · action: one cure or the
//! other. While nothing is known yet, both are active: two cures on one queue do no harm, while
//! none would let it grow to seconds.

use std::time::{Duration, Instant};

/// Where reports come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportSource {
    /// A modem reports its buffer.
    Modem,
    /// The driver reports its ring; the buffer behind it is unknown.
    Driver,
    /// No source reports at present.
    None,
}

/// The cure that controls uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkControl {
    /// The gate above the modem.
    Gate,
    /// ACK-window rewriting at the uplink.
    Acks,
}

/// Reports must be steady for this time before the gate takes over: twice the default timeout.
const STEADY: Duration = Duration::from_secs(2);
/// Maximum of that time after it has doubled.
const MAX_STEADY: Duration = Duration::from_secs(60);
/// A gate that stayed active for this time was no mistake.
const NO_MISTAKE: Duration = Duration::from_secs(60);

/// The cure that controls uploads now, and how long reports have been steady.
#[derive(Clone, Debug)]
pub struct ControlSelection {
    control: UplinkControl,
    since: Instant,
    steady: Duration,
    steady_since: Option<Instant>,
}

impl ControlSelection {
    /// Begins with ACK-window rewriting, until a modem has reported for a while.
    pub fn new(now: Instant) -> ControlSelection {
        ControlSelection {
            control: UplinkControl::Acks,
            since: now,
            steady: STEADY,
            steady_since: None,
        }
    }

    /// The cure that controls uploads now.
    pub fn control(&self) -> UplinkControl {
        self.control
    }

    /// Takes the present source of reports; returns the cure that takes over, if it changes. Called
    /// a few times a second.
    pub fn update(&mut self, now: Instant, source: ReportSource) -> Option<UplinkControl> {
        let next = match (source, self.control) {
            (ReportSource::Modem, UplinkControl::Gate) => return None,
            (ReportSource::Modem, UplinkControl::Acks) => {
                let since = *self.steady_since.get_or_insert(now);
                if now.saturating_duration_since(since) < self.steady {
                    return None;
                }
                UplinkControl::Gate
            }
            (_, control) => {
                self.steady_since = None;
                if control == UplinkControl::Acks {
                    return None;
                }
                let active = now.saturating_duration_since(self.since);
                self.steady =
                    if active < NO_MISTAKE { (self.steady * 2).min(MAX_STEADY) } else { STEADY };
                UplinkControl::Acks
            }
        };
        (self.control, self.since) = (next, now);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls every quarter of a second for so long; returns the number of changes.
    fn run(
        selection: &mut ControlSelection,
        now: &mut Instant,
        seconds: u64,
        source: ReportSource,
    ) -> usize {
        (0..seconds * 4)
            .filter(|_| {
                *now += Duration::from_millis(250);
                selection.update(*now, source).is_some()
            })
            .count()
    }

    #[test]
    fn the_gate_takes_over_after_steady_reports_and_the_windows_at_once() {
        let mut now = Instant::now();
        let mut selection = ControlSelection::new(now);
        assert_eq!(run(&mut selection, &mut now, 1, ReportSource::Modem), 0);
        assert_eq!(run(&mut selection, &mut now, 5, ReportSource::Modem), 1);
        assert_eq!(selection.control(), UplinkControl::Gate);
        now += Duration::from_millis(1);
        assert_eq!(selection.update(now, ReportSource::None), Some(UplinkControl::Acks));
    }

    #[test]
    fn a_driver_alone_or_a_gap_in_the_reports_is_not_enough_for_the_gate() {
        let mut now = Instant::now();
        let mut selection = ControlSelection::new(now);
        assert_eq!(run(&mut selection, &mut now, 60, ReportSource::Driver), 0);
        for _ in 0..10 {
            assert_eq!(run(&mut selection, &mut now, 1, ReportSource::Modem), 0);
            assert_eq!(run(&mut selection, &mut now, 1, ReportSource::None), 0);
        }
        assert_eq!(selection.control(), UplinkControl::Acks);
    }

    #[test]
    fn reports_that_come_and_go_change_the_control_more_and_more_rarely() {
        let mut now = Instant::now();
        let mut selection = ControlSelection::new(now);
        let changes: usize = (0..60)
            .map(|_| {
                run(&mut selection, &mut now, 5, ReportSource::Modem)
                    + run(&mut selection, &mut now, 2, ReportSource::None)
            })
            .sum();
        // After two seconds, then after four; eight never pass.
        assert_eq!(changes, 4);
        assert_eq!(selection.control(), UplinkControl::Acks);
        // A gate that was active for a minute is trusted after two seconds again.
        assert_eq!(run(&mut selection, &mut now, 80, ReportSource::Modem), 1);
        assert_eq!(run(&mut selection, &mut now, 1, ReportSource::None), 1);
        assert_eq!(run(&mut selection, &mut now, 3, ReportSource::Modem), 1);
    }
}
