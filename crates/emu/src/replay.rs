//! A run again without a clock: the same arrivals must make the same decisions.
//!
//! signal: a decision log and the scenario of its run · model: a fresh [`Lane`] is fed the logged
//! arrivals at their logged times · action: how many decisions agreed, or the first that differs.

use std::collections::VecDeque;

use algo::Packet;
use algo::port::{Outcome, QueueRow};
use scenario::Scenario;
use units::Instant;

use crate::lane::{Lane, Sink};
use crate::log::{LogError, Reader, Record, record_of};

/// What a replay found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Packets that arrived.
    pub arrivals: u64,
    /// Decisions, all of them alike.
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
    /// A decision differs.
    #[error("decision {count} differs: logged {logged}, replayed {replayed}")]
    Differs {
        /// Decisions before it.
        count: u64,
        /// As logged.
        logged: String,
        /// As replayed.
        replayed: String,
    },
}

type Decision = (Instant, Record);

#[derive(Default)]
struct Heard {
    decisions: VecDeque<Decision>,
}

impl Sink for Heard {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        if let Some(record) = record_of(outcome, u64::from) {
            self.decisions.push_back((now, record));
        }
    }
    fn bin(&mut self, _row: QueueRow) {}
}

/// Replays one log. Packets are told apart by the low 32 bits of their number.
pub fn replay(scenario: &Scenario, log: &[u8]) -> Result<Replayed, ReplayError> {
    let mut reader = Reader::new(log)?;
    let link = usize::from(reader.link);
    if link >= scenario.links.len() {
        return Err(ReplayError::NoSuchLink(reader.link));
    }
    let mut lane = Lane::new(scenario, link);
    let mut heard = Heard::default();
    let mut logged = VecDeque::new();
    let mut found = Replayed::default();
    while let Some((now, record)) = reader.next()? {
        match record {
            Record::Arrived(packet) => {
                lane.advance(now, &mut heard);
                compare(&mut logged, &mut heard.decisions, &mut found)?;
                let packet = Packet { handle: found.arrivals as u32, ..packet };
                found.arrivals += 1;
                lane.arrive(now, packet, &mut heard);
            }
            Record::Probed(rtt) => {
                lane.advance(now, &mut heard);
                compare(&mut logged, &mut heard.decisions, &mut found)?;
                lane.probed(now, rtt, &mut heard);
            }
            Record::Stopped => {
                lane.advance(now, &mut heard);
                compare(&mut logged, &mut heard.decisions, &mut found)?;
            }
            // A fact of the far kernel, not a decision.
            Record::Refused(..) => {}
            record => logged.push_back((now, low(record))),
        }
        // Packets that arrived do not concern the lane any more.
        while lane.depart(now).is_some() {}
    }
    // A log that was cut off has decisions after its last arrival, which nobody can tell to be all
    // there were.
    for decision in logged {
        lane.advance(decision.0, &mut heard);
        expect(Some(decision), heard.decisions.pop_front(), found.decisions)?;
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
