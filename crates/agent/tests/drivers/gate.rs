//! Test driver: the gate alone, without the daemon. It runs until its input ends.
//!
//! `gate DEVICE [socket=PATH | driver]… [target_ms=20] [slack_ms=150] [patience_ms=1000] [clsact] [pace]
//! [journal=PATH] [lease=no]`. It prints a line of JSON twice a second. `lease=no` never renews the
//! lease after the first one. `tests/agent` runs it on testbeds.

mod alone;

use std::path::PathBuf;

use agent::cures::Cure;
use agent::cures::gate::{From, Gate, Settings};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("a device is needed")?;
    let mut settings = Settings::new(device, Vec::new());
    settings.law.pace = false;
    let (mut journal, mut renewing) = (PathBuf::from("/run/unbloat-gate-try.jsonl"), true);
    for argument in arguments {
        match argument.split_once('=').unwrap_or((&argument, "")) {
            ("socket", path) => settings.sources.push(From::Socket(path.into())),
            ("driver", _) => settings.sources.push(From::Driver),
            ("target_ms", ms) => settings.law.target = units::Duration::from_millis(ms.parse()?),
            ("slack_ms", ms) => settings.law.slack = units::Duration::from_millis(ms.parse()?),
            ("patience_ms", ms) => {
                settings.law.patience = units::Duration::from_millis(ms.parse()?)
            }
            ("clsact", _) => settings.clsact = true,
            ("pace", _) => settings.law.pace = true,
            ("journal", path) => journal = path.into(),
            ("lease", "no") => renewing = false,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    alone::run(&settings, (&journal, renewing), |gate: &mut Gate, _| {
        println!("{}", json!(gate.report()?.0));
        Ok(())
    })
}
