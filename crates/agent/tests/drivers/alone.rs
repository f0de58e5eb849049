//! A cure alone, without the daemon, until the input ends: what test drivers share.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use agent::cures::{Cure, Site, now_ns};
use agent::undo::journal::Journal;

/// Attaches the cure, calls `step` twice a second and, with `true`, at the end; detaches it.
pub fn run<C: Cure>(
    settings: &C::Settings,
    (journal, renewing): (&Path, bool),
    mut step: impl FnMut(&mut C, bool) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut journal = Journal::open(journal)?;
    // Several may run at once.
    let pins = format!("/sys/fs/bpf/unbloat-{}-try-{}", C::ABOUT.name, std::process::id());
    let site = Site { pins: pins.as_ref(), lifted: false, until_ns: now_ns() + 2_000_000_000 };
    let mut cure = C::attach(settings, &site, &mut journal)?;
    cure.renew(site.until_ns)?;
    let (ended, end) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(Duration::from_millis(500)) {
        if renewing {
            cure.renew(now_ns() + 2_000_000_000)?;
        }
        step(&mut cure, false)?;
    }
    step(&mut cure, true)?;
    Ok(cure.detach(&mut journal)?)
}
