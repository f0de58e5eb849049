//! `run`: the cures of a configuration for a while, with a look at the host before and after, and nothing left behind.
//!
//! signal: `status` twice a second, pings where they are asked for · model: goodput and the RTT of the bytes (`run/sums.rs`), first with
//! all cures lifted, then applied; what comes while the old queue drains belongs to neither · action: one table, one sentence.

mod probe;
mod sums;

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::{Value, json};

use crate::commands::{self, Failure, Output, PATIENCE, Result, failed};
use crate::daemon::Start;
use crate::daemon::control::ask;
use crate::daemon::paths::Paths;
use probe::Probe;
use sums::{Half, Sums};

/// Of the time given, what looks before anything is applied: a quarter, at most this.
const BEFORE: Duration = Duration::from_secs(15);
/// Windows are as wanted for so many looks before what comes counts as after: the queue that the last old window made has drained by then.
const CALM: u32 = 4;
/// Shorter, and there is nothing to compare.
const SHORTEST: Duration = Duration::from_secs(4);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Exit code of a program that was stopped by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How long all of it takes.
    pub lasting: Duration,
    /// A line of JSON for every look.
    pub stream: bool,
    /// Whom to ping, meanwhile.
    pub probe: Option<String>,
}

/// The parts of a run, and when each ends at the latest: a quarter before, of the rest half for the old windows to be used up (a window
/// that was told is never taken back), the other half and what that left after. Whole looks, but for the last.
fn parts(lasting: Duration) -> [(&'static str, Duration); 3] {
    let looks = |span: Duration| LOOK_EVERY * (span.as_millis() / LOOK_EVERY.as_millis()) as u32;
    let before = looks((lasting / 4).min(BEFORE));
    [("before", before), ("settling", before + looks((lasting - before) / 2)), ("after", lasting)]
}

/// Whether no connection that moves has much more on offer than the cure wants. Its next decision may be an old RTT away, so whether
/// one was applied already does not count; and the gate holds no window.
fn calm(status: &Value) -> bool {
    let number = |flow: &Value, key: &str| flow[key].as_f64().unwrap_or(0.0);
    let held = |flow: &&Value| match flow["cure"].as_str() {
        Some("receive" | "acks down") => true,
        Some("acks up") => status["uplink"]["active"] == "acks",
        _ => false,
    };
    let moves = |flow: &&Value| number(flow, "age_ms") <= 2.0 * number(flow, "rtt_ms") + 1e3;
    let calm =
        |flow: &Value| number(flow, "advertised_bytes") <= 1.25 * number(flow, "wanted_bytes");
    status["flows"].as_array().into_iter().flatten().filter(held).filter(moves).all(calm)
}

/// Looks first, then applies, then undoes: before and after.
pub fn run(mut start: Start, wish: &Wish, output: &Output) -> Result<()> {
    commands::root()?;
    if wish.lasting < SHORTEST {
        return Err(Failure(
            2,
            format!("--for: at least {} s, to see a difference", SHORTEST.as_secs()),
        ));
    }
    if commands::asked(&start.paths)?.is_some() {
        return Err(failed("an agent runs already; unbloat-agent off ends it"));
    }
    (start.lifted, start.tied) = (true, true);
    // A trial lifts a cure for seconds; here it is tried whether it helps.
    start.set.push(("trial.enabled".to_owned(), "false".to_owned()));
    start.config().map_err(|e| Failure(3, e))?;
    let interrupted = Interrupted::listen()?;
    let mut probe = wish.probe.as_deref().map(Probe::start).transpose()?;
    // However this program ends, the agent hears of it.
    let _tied = commands::begin(&start)?;
    let outcome = halves(&start.paths, wish, probe.as_mut(), &interrupted);
    drop(probe);
    // Whatever happened, nothing stays.
    let ended = commands::end(&start.paths);
    let (before, after) = outcome?;
    ended?;
    let verdict = sums::verdict(&before, &after);
    let answer = json!({
        "ok": true, "event": "done", "before": before.to_json(), "after": after.to_json(),
        "helped": verdict.helped, "verdict": verdict.text,
    });
    output.say(&answer, || format!("{}\n{}", sums::table(&before, &after), verdict.text));
    Ok(())
}

/// Lifts all cures, or puts them back.
fn lift(paths: &Paths, lifted: bool) -> Result<()> {
    let question = json!({"ask": "lift", "lifted": lifted});
    match ask(&paths.socket(), &question, PATIENCE).map_err(failed)? {
        Some(answer) => commands::well(&answer),
        None => Err(gone()),
    }
}

/// Ctrl-C and its like: what was begun is undone before this program ends.
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
            Ok(_) => Err(Failure(INTERRUPTED, "interrupted; everything is as it was".to_owned())),
            Err(e) => Err(failed(e)),
        }
    }
}

fn gone() -> Failure {
    failed("the agent has ended meanwhile; its log tells why")
}

fn halves(
    paths: &Paths,
    wish: &Wish,
    mut probe: Option<&mut Probe>,
    interrupted: &Interrupted,
) -> Result<(Half, Half)> {
    let begun = Instant::now();
    let mut sums = Sums::default();
    let (mut found, mut next) = (Vec::new(), Duration::ZERO);
    for (part, end) in parts(wish.lasting) {
        if part == "settling" {
            lift(paths, false)?;
        }
        let (mut half, mut settled) = (Half::default(), 0);
        while next < end && settled < CALM {
            // One that is late shortens the next wait, not the next part.
            next = (next + LOOK_EVERY).min(end);
            interrupted.or_wait(next.saturating_sub(begun.elapsed()))?;
            let mut answer = commands::asked(paths)?.ok_or_else(gone)?;
            let pings = probe.as_mut().map(|probe| probe.heard()).unwrap_or_default();
            let step = sums.look(&answer, begun.elapsed());
            let goodput = step.goodput();
            half.add(step, &pings);
            settled = if part == "settling" && calm(&answer) { settled + 1 } else { 0 };
            if wish.stream {
                let line = json!({
                    "event": "look", "t_s": begun.elapsed().as_secs_f64(), "of_s": wish.lasting.as_secs_f64(),
                    "part": part, "goodput_bps": goodput, "probe_ms": pings, "status": answer.take(),
                });
                println(&line);
            }
        }
        found.push(half);
    }
    match <[Half; 3]>::try_from(found) {
        Ok([before, _, after]) => Ok((before, after)),
        Err(_) => Err(failed("a run has three parts")),
    }
}

/// A line for whoever listens; who closed the pipe does not want it.
fn println(value: &Value) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{value}");
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
            [15_000, 37_500, 60_000]
        );
    }

    #[test]
    fn it_is_calm_once_the_old_windows_are_used_up() {
        let status = |cure: &str, uplink: &str, age_ms: u64, advertised: u64| {
            json!({"uplink": {"active": uplink}, "flows": [{
                "cure": cure, "age_ms": age_ms, "rtt_ms": 500.0, "wanted_bytes": 100_000, "advertised_bytes": advertised,
            }]})
        };
        assert!(!calm(&status("receive", "none", 10, 4_000_000)), "there is still much on offer");
        assert!(calm(&status("receive", "none", 10, 110_000)));
        assert!(
            calm(&status("receive", "none", 5_000, 4_000_000)),
            "one that rests never uses its window up"
        );
        assert!(!calm(&status("acks up", "acks", 10, 4_000_000)));
        assert!(calm(&status("acks up", "gate", 10, 4_000_000)), "nobody holds it by its window");
        assert!(calm(&json!({"flows": []})) && calm(&Value::Null));
    }
}
