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
