//! Test driver: ACK-window rewriting alone, without the daemon. It runs until its input ends.
//!
//! `acks DEVICE [down=LAMBDA16|no] [up=LAMBDA16|no] [paper] [clsact] [forwarded] [start=BYTES]
//! [trial=SECONDS] [journal=PATH] [lease=no]`. It prints a line of JSON twice a second. `lease=no`
//! never renews the lease after the first one. `tests/agent` and `bench/agent` run it on testbeds.

mod alone;

use std::path::PathBuf;

use agent::cures::acks::{Acks, Settings};
use agent::cures::trial::{Action, Config, Trial};
use agent::cures::{Cure, Lifted, now_ns};
use serde_json::json;
use units::{Bytes, Instant};

fn print_status(acks: &mut Acks) -> Result<(), Box<dyn std::error::Error>> {
    let count = acks.counters()?;
    let (_, flows) = acks.report()?;
    let paths: Vec<_> = acks
        .flows()
        .iter()
        .map(|(_, f)| {
            json!([
                f.outer.rtt_min_us,
                f.outer.towards_us,
                f.outer.away_us,
                f.inner.rtt_min_us,
                f.inner.towards_us,
                f.inner.away_us,
                f.down.opposite.added_us,
                f.up.opposite.added_us
            ])
        })
        .collect();
    println!(
        "{}",
        json!({"flows": flows, "known": paths, "segments": count.segments, "taken": count.flows, "unknown": count.unknown,
            "barred": count.excluded, "samples": count.samples, "decisions": count.decisions, "rewritten": count.rewritten,
            "superpackets": count.gso_packets, "held": count.edge_limited, "strange": count.out_of_window, "down_bytes": count.down_bytes, "up_bytes": count.up_bytes})
    );
    Ok(())
}

/// λ without adaptation.
fn constant(
    law: &mut algo::rwnd::drwa::Config,
    lambda: &str,
) -> Result<(), std::num::ParseFloatError> {
    law.lambda = lambda.parse()?;
    law.lambda_min = Some(law.lambda);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings::new(arguments.next().ok_or("a device is needed")?);
    let (mut journal, mut renewing, mut trial) =
        (PathBuf::from("/run/unbloat-acks-try.jsonl"), true, None);
    for argument in arguments {
        match argument.split_once('=').unwrap_or((&argument, "")) {
            ("down", "no") => settings.down = None,
            ("up", "no") => settings.up = None,
            ("down", lambda) => constant(settings.down.as_mut().ok_or("down=no")?, lambda)?,
            ("up", lambda) => constant(settings.up.as_mut().ok_or("up=no")?, lambda)?,
            ("paper", _) => {
                for law in [&mut settings.down, &mut settings.up].into_iter().flatten() {
                    (law.form, law.alpha, law.quick) = (algo::rwnd::drwa::Form::Paper, 14, false);
                }
            }
            ("clsact", _) => settings.clsact = true,
            ("forwarded", _) => settings.forwarded_only = true,
            ("start", bytes) => {
                (settings.start, settings.up_start) = (Bytes(bytes.parse()?), Bytes(bytes.parse()?))
            }
            ("trial", seconds) => trial = Some(units::Duration::from_secs(seconds.parse()?)),
            ("journal", path) => journal = path.into(),
            ("lease", "no") => renewing = false,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let mut trial =
        trial.map(|every| Trial::new(Config { every, ..Config::default() }, Instant(now_ns())));
    alone::run(&settings, (&journal, renewing), |acks: &mut Acks, ended| {
        if let Some(trial) = trial.as_mut().filter(|_| !ended) {
            let count = acks.counters()?;
            let action = trial.on_progress(Instant(now_ns()), count.down_bytes + count.up_bytes);
            match action {
                Action::Keep => {}
                Action::Lift | Action::Withdraw(_) => acks.lift(Lifted::both(true))?,
                Action::Restore => acks.lift(Lifted::both(false))?,
                Action::Retry => {
                    acks.forget()?;
                    acks.lift(Lifted::both(false))?;
                }
            }
            if action != Action::Keep {
                println!("{}", json!({"trial": format!("{action:?}")}));
            }
        }
        print_status(acks)
    })
}
