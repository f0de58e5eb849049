//! A run again without a clock: the same arrivals must make the same decisions.
//!
//! A new [`LinkDirection`] gets the logged arrivals at their logged times. The result is how many
//! decisions agreed, or the first that differs.

use std::collections::VecDeque;

use algo::Packet;
use algo::port::{Outcome, QueueRow};
use scenario::Scenario;
use units::Instant;

use crate::link_direction::{LinkDirection, Sink};
use crate::log::{LogError, Reader, Record, record_of};

/// What a replay found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of packets that arrived.
    pub arrivals: u64,
    /// Number of decisions, all of them alike.
    pub decisions: u64,
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log names a link that the scenario does not have.
    #[error("the log is of link {0}, which the scenario does not have")]
    NoSuchLink(u16),
    /// A decision differs from the logged one.
    #[error("decision {count} differs: logged {logged}, replayed {replayed}")]
    Differs {
        /// Number of decisions before it.
        count: u64,
        /// The decision in the log.
        logged: String,
        /// The decision of the replay.
        replayed: String,
    },
}

type Decision = (Instant, Record);

#[derive(Default)]
struct Decisions {
    decisions: VecDeque<Decision>,
}

impl Sink for Decisions {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        if let Some(record) = record_of(outcome, u64::from) {
            self.decisions.push_back((now, record));
        }
    }
    fn bin(&mut self, _row: QueueRow) {}
}

/// Replays one log. Packets are identified by the low 32 bits of their number.
pub fn replay(scenario: &Scenario, log: &[u8]) -> Result<Replayed, ReplayError> {
    let mut reader = Reader::new(log)?;
    let link = usize::from(reader.link);
    if link >= scenario.links.len() {
        return Err(ReplayError::NoSuchLink(reader.link));
    }
    let mut direction = LinkDirection::new(scenario, link);
    let mut replayed = Decisions::default();
    let mut logged = VecDeque::new();
    let mut found = Replayed::default();
    while let Some((now, record)) = reader.next()? {
        match record {
            Record::Arrived(packet) => {
                direction.advance(now, &mut replayed);
                compare(&mut logged, &mut replayed.decisions, &mut found)?;
                let packet = Packet { handle: found.arrivals as u32, ..packet };
                found.arrivals += 1;
                direction.arrive(now, packet, &mut replayed);
            }
            Record::Probed(rtt) => {
                direction.advance(now, &mut replayed);
                compare(&mut logged, &mut replayed.decisions, &mut found)?;
                direction.probed(now, rtt, &mut replayed);
            }
            Record::Stopped => {
                direction.advance(now, &mut replayed);
                compare(&mut logged, &mut replayed.decisions, &mut found)?;
            }
            // A fact of the far kernel, not a decision.
            Record::Refused(..) => {}
            record => logged.push_back((now, low(record))),
        }
        // Packets that arrived do not concern the direction any more.
        while direction.depart(now).is_some() {}
    }
    // A truncated log has decisions after its last arrival; whether they are all cannot be known.
    for decision in logged {
        direction.advance(decision.0, &mut replayed);
        expect(Some(decision), replayed.decisions.pop_front(), found.decisions)?;
        found.decisions += 1;
    }
    Ok(found)
}

fn compare(
    logged: &mut VecDeque<Decision>,
    replayed: &mut VecDeque<Decision>,
    found: &mut Replayed,
) -> Result<(), ReplayError> {
    loop {
        let (a, b) = (logged.pop_front(), replayed.pop_front());
        if a.is_none() && b.is_none() {
            return Ok(());
        }
        expect(a, b, found.decisions)?;
        found.decisions += 1;
    }
}

fn expect(
    logged: Option<Decision>,
    replayed: Option<Decision>,
    count: u64,
) -> Result<(), ReplayError> {
    if logged == replayed {
        return Ok(());
    }
    let text = |d: Option<Decision>| {
        d.map_or("nothing".to_owned(), |(t, r)| format!("{r:?} at {} ns", t.0))
    };
    Err(ReplayError::Differs { count, logged: text(logged), replayed: text(replayed) })
}

/// Numbers as the replay has them.
fn low(record: Record) -> Record {
    let cut = |number: u64| u64::from(number as u32);
    match record {
        Record::Started { number, arrives, marked } => {
            Record::Started { number: cut(number), arrives, marked }
        }
        Record::Gone(number, loss) => Record::Gone(cut(number), loss),
        Record::Passed(number) => Record::Passed(cut(number)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Writer;
    use crate::testing::{ms, scenario};
    use algo::port::Loss;

    const LINK: &str = "rate = \"8 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", limit = \"1 packet\" }";

    fn arrived() -> Record {
        Record::Arrived(Packet { bytes: 1_000, ..Packet::default() })
    }

    fn started(number: u64, arrives: f64) -> Record {
        Record::Started { number, arrives: ms(arrives), marked: false }
    }

    fn log(link: u16, records: &[(f64, Record)]) -> Vec<u8> {
        let mut writer = Writer::new(link);
        for (at, record) in records {
            writer.put(ms(*at), record);
        }
        writer.swap(Vec::new())
    }

    /// Three packets of 1 ms each at once before a queue of one packet, by hand: the first starts,
    /// the third finds the queue full, the second follows the first.
    fn by_hand() -> Vec<(f64, Record)> {
        vec![
            (2.0, arrived()),
            (2.0, started(0, 13.0)),
            (2.0, arrived()),
            (2.0, arrived()),
            (2.0, Record::Gone(2, Loss::Overflow)),
            (3.0, started(1, 14.0)),
            (13.1, Record::Refused(0, 105)),
            (20.0, Record::Stopped),
        ]
    }

    #[test]
    fn a_log_by_hand_is_what_the_link_decides() {
        let replayed = replay(&scenario(LINK), &log(0, &by_hand())).expect("all alike");
        assert_eq!(replayed, Replayed { arrivals: 3, decisions: 3 });
    }

    #[test]
    fn a_decision_a_nanosecond_off_is_named_with_both_versions() {
        let mut records = by_hand();
        records[5].1 = started(1, 14.000_001);
        let error = replay(&scenario(LINK), &log(0, &records)).expect_err("it differs");
        let ReplayError::Differs { count: 2, logged, replayed } = error else { panic!("{error}") };
        assert!(
            logged.contains("14000001") && replayed.contains("14000000"),
            "{logged}, {replayed}"
        );
    }

    #[test]
    fn a_decision_that_is_missing_or_was_not_made_is_a_difference() {
        let mut fewer = by_hand();
        fewer.remove(4);
        let error = replay(&scenario(LINK), &log(0, &fewer)).expect_err("one is missing");
        assert!(matches!(error, ReplayError::Differs { count: 1, .. }), "{error}");
        let mut more = by_hand();
        more.insert(7, (15.0, started(1, 26.0)));
        let error = replay(&scenario(LINK), &log(0, &more)).expect_err("one too many");
        assert!(
            matches!(&error, ReplayError::Differs { count: 3, replayed, .. } if replayed == "nothing"),
            "{error}"
        );
    }

    #[test]
    fn a_log_without_its_end_is_compared_as_far_as_it_goes() {
        let replayed = replay(&scenario(LINK), &log(0, &by_hand()[..5])).expect("alike so far");
        assert_eq!(replayed, Replayed { arrivals: 3, decisions: 2 });
    }

    #[test]
    fn a_link_that_the_scenario_does_not_have_is_refused() {
        let error = replay(&scenario(LINK), &log(2, &by_hand())).expect_err("there are two");
        assert_eq!(error.to_string(), "the log is of link 2, which the scenario does not have");
        // Link 1 is another one: 100 Mbit/s, so that nothing agrees.
        let error = replay(&scenario(LINK), &log(1, &by_hand())).expect_err("another link");
        assert!(matches!(error, ReplayError::Differs { count: 0, .. }), "{error}");
    }
}
