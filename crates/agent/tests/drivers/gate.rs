//! Test driver: the gate alone, without the daemon. It runs until its input ends.
//!
//! `gate DEVICE [socket=PATH | driver]… [target_ms=20] [slack_ms=150] [patience_ms=1000] [clsact]
//! [journal=PATH] [lease=no]`. It prints a line of JSON twice a second. `lease=no` never renews the
//! lease after the first one. `tests/agent` runs it on testbeds.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use agent::cures::gate::{From, Gate, Settings};
use agent::cures::{Cure, Site, now_ns};
use agent::undo::journal::Journal;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("a device is needed")?;
    let mut settings = Settings::new(device, Vec::new());
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
            ("journal", path) => journal = path.into(),
            ("lease", "no") => renewing = false,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let mut journal = Journal::open(&journal)?;
    let site = Site {
        pins: Path::new("/sys/fs/bpf/unbloat-gate-try"),
        lifted: false,
        until_ns: now_ns() + 2_000_000_000,
    };
    let mut gate = Gate::attach(&settings, &site, &mut journal)?;
    gate.renew(site.until_ns)?;
    let (ended, end) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(Duration::from_millis(500)) {
        if renewing {
            gate.renew(now_ns() + 2_000_000_000)?;
        }
        println!("{}", json!(gate.report()?.0));
    }
    println!("{}", json!(gate.report()?.0));
    gate.detach(&mut journal)?;
    Ok(())
}
