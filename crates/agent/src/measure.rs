//! `run`: applies the cures of a configuration for a while, compares before and after, and leaves
//! nothing behind.
//!
//! signal: `status` twice a second, and pings if requested · model: goodput and the RTT of the
//! bytes (`measure/comparison.rs`), first with all cures lifted, then applied; data while the old
//! queue drains belongs to neither · action: one table and one sentence.

mod comparison;
mod probe;

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::{Value, json};

use crate::commands::{self, ANSWER_TIMEOUT, Failure, Output, Result, failed};
use crate::cures::flow::is_under_way;
use crate::daemon::Start;
use crate::daemon::control::ask;
use crate::daemon::paths::Paths;
use comparison::{FlowBytes, Phase};
use probe::Probe;

/// The time before anything is applied: a quarter of the run, at most this.
const BEFORE: Duration = Duration::from_secs(15);
/// Minimum time with all windows near their targets and an RTT that no longer falls, before the part
/// "after" begins. It is also at least one RTT: the last old window's queue has drained by then.
const MIN_SETTLED: Duration = Duration::from_secs(2);
/// Relative fall of the RTT between two samples which shows that a queue still drains.
const STILL_FALLS: f64 = 0.1;
/// Minimum length of a run: a shorter one has nothing to compare.
const MIN_DURATION: Duration = Duration::from_secs(4);
/// Interval between two status samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Length of the whole run.
    pub lasting: Duration,
    /// Print a line of JSON for every sample.
    pub stream: bool,
    /// Host to ping meanwhile.
    pub probe: Option<String>,
}

/// The parts of a run and the latest end of each: a quarter before, and at least as much after. The
/// rest is for the old windows to be used up (an advertised window is never retracted); what that
/// leaves belongs to the part after. Whole sample intervals, except for the last.
fn parts(lasting: Duration) -> [(&'static str, Duration); 3] {
    let looks =
        |span: Duration| SAMPLE_INTERVAL * (span.as_millis() / SAMPLE_INTERVAL.as_millis()) as u32;
    let before = looks((lasting / 4).min(BEFORE));
    [("before", before), ("settling", looks(lasting - before)), ("after", lasting)]
}

fn number(flow: &Value, key: &str) -> f64 {
    flow[key].as_f64().unwrap_or(0.0)
}

/// Whether a connection has had a decision of late.
fn is_active(flow: &&Value) -> bool {
    is_under_way(number(flow, "age_ms") as u64, (number(flow, "rtt_ms") * 1e3) as u64)
}

/// Whether no active connection has a window far above its target. Its next decision may be an old
/// RTT away, so it does not count whether one was applied already. The gate controls no window.
fn settled_windows(status: &Value) -> bool {
    let held = |flow: &&Value| match flow["cure"].as_str() {
        Some("receive" | "acks down") => true,
        Some("acks up") => status["uplink"]["active"] == "acks",
        _ => false,
    };
    let settled_windows =
        |flow: &Value| number(flow, "advertised_bytes") <= 1.25 * number(flow, "wanted_bytes");
    let flows = status["flows"].as_array().into_iter().flatten();
    flows.filter(held).filter(is_active).all(settled_windows)
}

/// How long the windows and the queue have been as the cure wants them.
#[derive(Debug, Default)]
struct Settling {
    lasting: Duration,
    rtt_ms: f64,
}

impl Settling {
    /// Takes a status sample; whether the old queue has drained.
    fn sample(&mut self, status: &Value) -> bool {
        let flows = status["flows"].as_array().into_iter().flatten().filter(is_active);
        let rtt_ms = flows.map(|flow| number(flow, "rtt_ms")).fold(0.0, f64::max);
        if settled_windows(status) && rtt_ms >= (1.0 - STILL_FALLS) * self.rtt_ms {
            self.lasting += SAMPLE_INTERVAL;
        } else {
            self.lasting = Duration::ZERO;
        }
        self.rtt_ms = rtt_ms;
        self.lasting >= MIN_SETTLED.max(Duration::from_secs_f64(rtt_ms / 1e3))
    }
}

/// Samples, applies the cures, samples again, undoes them.
pub fn run(mut start: Start, options: &RunOptions, output: &Output) -> Result<()> {
    commands::root()?;
    if options.lasting < MIN_DURATION {
        return Err(Failure::usage(format!(
            "--for: at least {} s, to see a difference",
            MIN_DURATION.as_secs()
        )));
    }
    if commands::asked(&start.paths)?.is_some() {
        return Err(failed("an agent runs already; unbloat-agent off ends it"));
    }
    (start.lifted, start.tied) = (true, true);
    // A trial lifts a cure for seconds, which would disturb the comparison.
    start.set.push(("trial.enabled".to_owned(), "false".to_owned()));
    start.config().map_err(Failure::unreadable)?;
    let interrupted = Interrupted::listen()?;
    let mut probe = options.probe.as_deref().map(Probe::start).transpose()?;
    // However this program ends, the agent notices it.
    let _tied = commands::begin(&start)?;
    let outcome = phases(&start.paths, options, probe.as_mut(), &interrupted);
    drop(probe);
    // Undo before any error is returned.
    let ended = commands::end(&start.paths);
    let (mut before, mut after, settled) = outcome?;
    ended?;
    comparison::cap_goodput(&mut before, &mut after);
    let verdict =
        if settled { comparison::verdict(&before, &after) } else { comparison::not_settled() };
    let answer = json!({
        "ok": true, "event": "done", "before": before.to_json(), "after": after.to_json(),
        "helped": verdict.helped, "verdict": verdict.text,
    });
    output.say(&answer, || format!("{}\n{}", comparison::table(&before, &after), verdict.text));
    Ok(())
}

/// Lifts all cures, or applies them again.
fn lift(paths: &Paths, lifted: bool) -> Result<()> {
    let question = json!({"ask": "lift", "lifted": lifted});
    match ask(&paths.socket(), &question, ANSWER_TIMEOUT).map_err(failed)? {
        Some(answer) => commands::check_ok(&answer),
        None => Err(gone()),
    }
}

/// Signals such as Ctrl-C: undo first, then end.
struct Interrupted(SignalFd);

impl Interrupted {
    fn listen() -> Result<Interrupted> {
        let mask = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        mask.thread_block().map_err(failed)?;
        SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).map(Interrupted).map_err(failed)
    }

    fn or_wait(&self, span: Duration) -> Result<()> {
        use std::os::fd::AsFd;
        let mut sources = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(span).unwrap_or(PollTimeout::MAX);
        match poll(&mut sources, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Ok(_) => Err(Failure::interrupted("interrupted; everything is as it was")),
            Err(e) => Err(failed(e)),
        }
    }
}

fn gone() -> Failure {
    failed("the agent has ended meanwhile; its log has the reason")
}

fn phases(
    paths: &Paths,
    options: &RunOptions,
    mut probe: Option<&mut Probe>,
    interrupted: &Interrupted,
) -> Result<(Phase, Phase, bool)> {
    let begun = Instant::now();
    let mut flow_bytes = FlowBytes::default();
    let (mut found, mut next) = (Vec::new(), Duration::ZERO);
    let (mut settling, mut settled) = (Settling::default(), false);
    for (part, end) in parts(options.lasting) {
        if part == "settling" {
            lift(paths, false)?;
        }
        let mut phase = Phase::default();
        while next < end && !(part == "settling" && settled) {
            // A late sample shortens the next wait, not the next part.
            next = (next + SAMPLE_INTERVAL).min(end);
            interrupted.or_wait(next.saturating_sub(begun.elapsed()))?;
            let mut answer = commands::asked(paths)?.ok_or_else(gone)?;
            let pings = probe.as_mut().map(|probe| probe.rtts()).unwrap_or_default();
            let step = flow_bytes.sample(&answer, begun.elapsed());
            let goodput = step.goodput();
            phase.add(step, &pings);
            if part == "settling" {
                settled = settling.sample(&answer);
            }
            if options.stream {
                let line = json!({
                    "event": "look", "t_s": begun.elapsed().as_secs_f64(), "of_s": options.lasting.as_secs_f64(),
                    "part": part, "goodput_bps": goodput, "probe_ms": pings, "status": answer.take(),
                });
                println(&line)?;
            }
        }
        found.push(phase);
    }
    match <[Phase; 3]>::try_from(found) {
        // An old queue counts on neither side.
        Ok([before, _, after]) => {
            Ok((before, if settled { after } else { Phase::default() }, settled))
        }
        Err(_) => Err(failed("a run has three parts")),
    }
}

/// Prints a line of the stream. Where its reader has ended, by whatever signal, so does the run.
fn println(value: &Value) -> Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{value}").map_err(|e| {
        Failure::interrupted(format!("no reader of the stream ({e}); everything is as it was"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_run_make_up_all_of_it() {
        for seconds in [4, 10, 60, 600] {
            let lasting = Duration::from_secs(seconds);
            let [(_, before), (_, settled), (_, end)] = parts(lasting);
            assert_eq!(end, lasting);
            assert!(
                before > Duration::ZERO && settled > before && end - settled >= before,
                "{seconds}"
            );
        }
        assert_eq!(
            parts(Duration::from_secs(60)).map(|(_, end)| end.as_millis()),
            [15_000, 45_000, 60_000]
        );
    }

    #[test]
    fn the_old_queue_has_drained_once_the_rtt_no_longer_falls_for_an_rtt() {
        let status = |rtt_ms: f64| {
            json!({"uplink": {"active": "acks"}, "flows": [{
                "cure": "acks up", "age_ms": 10, "rtt_ms": rtt_ms, "wanted_bytes": 24_000, "advertised_bytes": 24_000,
            }]})
        };
        let mut settling = Settling::default();
        // The windows are small already, but the queue of the old one still drains.
        let falling = [4_000.0, 4_000.0, 4_000.0, 4_000.0, 4_000.0, 3_000.0, 1_500.0, 400.0, 105.0];
        assert!(falling.iter().all(|rtt_ms| !settling.sample(&status(*rtt_ms))));
        assert!((0..3).all(|_| !settling.sample(&status(104.0))), "two seconds");
        assert!(settling.sample(&status(104.0)));
        let mut settling = Settling::default();
        assert!((0..7).all(|_| !settling.sample(&status(4_000.0))), "an RTT of four seconds");
        assert!(settling.sample(&status(4_000.0)), "it no longer falls: no old queue");
    }

    #[test]
    fn it_is_calm_once_the_old_windows_are_used_up() {
        let status = |cure: &str, uplink: &str, age_ms: u64, advertised: u64| {
            json!({"uplink": {"active": uplink}, "flows": [{
                "cure": cure, "age_ms": age_ms, "rtt_ms": 500.0, "wanted_bytes": 100_000, "advertised_bytes": advertised,
            }]})
        };
        assert!(
            !settled_windows(&status("receive", "none", 10, 4_000_000)),
            "the advertised window is still large"
        );
        assert!(settled_windows(&status("receive", "none", 10, 110_000)));
        assert!(
            settled_windows(&status("receive", "none", 5_000, 4_000_000)),
            "one that rests never uses its window up"
        );
        assert!(!settled_windows(&status("acks up", "acks", 10, 4_000_000)));
        assert!(
            settled_windows(&status("acks up", "gate", 10, 4_000_000)),
            "the gate controls no window"
        );
        assert!(settled_windows(&json!({"flows": []})) && settled_windows(&Value::Null));
    }
}
