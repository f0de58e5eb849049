//! Probes to a server of irtt on the same host, while one of iperf3 makes the load.
//!
//! signal: answered probes, idle before and after the loads · model: as with probes of our own (`outcome`) · action: delay and
//! loss of each direction, and a grade of the loaded one, instead of what TCP handshakes say of the round trip.

use std::thread;
use std::time::Duration;

use algo::Rng;

use crate::client::{Failure, Options};
use crate::clock::Clock;
use crate::delay::When;
use crate::irtt::{Probes, Session};
use crate::outcome::Outcome;
use crate::seen::{Kind, Load, Seen, Step};
use crate::treatment::RoundTrip;

/// Before and after the loads, as with a server of our own.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(2);
/// For the last answers.
const LAST: Duration = Duration::from_secs(1);
/// For all else: connections, and a server that begins to listen again.
const SPARE: Duration = Duration::from_secs(10);

/// Probes, and the steps so far.
pub(super) struct Beside {
    probes: Probes,
    clock: Clock,
    steps: Vec<Step>,
}

impl Beside {
    /// Sends probes from now on, for a while without a load. `loaded`: how long the loads may take.
    pub fn begin(
        options: &Options,
        port: u16,
        loaded: Duration,
        clock: Clock,
        seed: u64,
    ) -> Result<Beside, Failure> {
        let needed = BEFORE + loaded + AFTER + LAST + SPARE;
        let session = Session::open(&options.host, Some(port), &options.token, needed)?;
        if !session.agreed.has_directions() {
            let why = "it says no times or no count of the probes, so no direction is known";
            return Err(Failure::Refused(format!("{why}: measure without --probe")));
        }
        let granted_s = session.agreed.duration.as_secs();
        if session.agreed.duration < needed {
            let needed_s = needed.as_secs();
            let why =
                format!("it answers probes for {granted_s} s, and all phases take {needed_s} s");
            return Err(Failure::Refused(format!("{why}: fewer --phases or --cc")));
        }
        let probes = Probes::begin(session, clock, Rng::new(seed, "probes"));
        let mut beside = Beside { probes, clock, steps: Vec::new() };
        beside.idle(When::Before, BEFORE);
        Ok(beside)
    }

    fn idle(&mut self, when: When, time: Duration) {
        let from = self.clock.now();
        thread::sleep(time);
        self.steps.push(Step { kind: Kind::Idle(when), from, until: self.clock.now() });
    }

    /// Why no more answers come.
    pub fn over(&self) -> Option<String> {
        self.probes.over()
    }

    /// Notes a load that was measured until a time.
    pub fn loaded(&mut self, load: Load, until: i64) {
        let from = load.measured.unwrap_or(until);
        self.steps.push(Step { kind: Kind::Load(load), from, until });
    }

    /// Ends, with what the probes say of the loads. `drained`: how long a queue may take to drain.
    pub fn end(
        mut self,
        drained: Duration,
        handshakes: Vec<RoundTrip>,
        unix: (i64, i64),
        ended: Option<String>,
        rng: &mut Rng,
    ) -> Outcome {
        if ended.is_none() {
            thread::sleep(drained);
            self.idle(When::After, AFTER);
        }
        self.probes.pause();
        if ended.is_none() {
            thread::sleep(LAST);
        }
        // It may have died in the last seconds of a load, whose losses would be none of the path.
        let ended = ended.or_else(|| self.probes.over());
        let per_s = self.probes.agreed().per_s();
        let records = self.probes.end();
        let steps = self.steps;
        Outcome::of(Seen { records, handshakes, steps, per_s, unix, ended, ..Seen::default() }, rng)
    }
}

/// What probes say, in the place of what handshakes say.
pub(super) fn merge(outcome: &mut Outcome, probed: Outcome) {
    outcome.rtt_min_ms = probed.rtt_min_ms.or(outcome.rtt_min_ms);
    outcome.clock_skew_ppm = probed.clock_skew_ppm;
    outcome.path_changed = probed.path_changed;
    (outcome.complete, outcome.ended) = (probed.complete, probed.ended);
    for mut found in probed.phases {
        // Both are of the same steps.
        let same = outcome.phases.iter_mut().find(|phase| phase.from_unix_s == found.from_unix_s);
        let Some(phase) = same else { continue };
        found.goodput_down_bps = phase.goodput_down_bps;
        found.goodput_up_bps = phase.goodput_up_bps;
        found.place_why.clone_from(&phase.place_why);
        found.streams = std::mem::take(&mut phase.streams);
        *phase = found;
    }
}
