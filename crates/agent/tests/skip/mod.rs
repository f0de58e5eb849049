//! When a test of the kernel side may be skipped: where this process must not use BPF, or the
//! kernel is too old. A kernel that has every feature and still refuses a program is a failure.
//!
//! `UNBLOAT_REQUIRE=bpf,root` (or `all`) turns skipping into a failure, as in `tests/requirements.py`.

use agent::cures::{CureError, Result};
use aya::util::KernelVersion;

/// What was loaded; `None`, with the reason printed, where it is not available on this host.
pub fn or_skip<T>(loaded: Result<T>) -> Option<T> {
    let why = match loaded {
        Ok(loaded) => return Some(loaded),
        Err(why) => why,
    };
    let excused = match &why {
        CureError::Rights(_) | CureError::NoBtf(_) => true,
        CureError::Kernel { since, .. } => older(since),
        _ => false,
    };
    assert!(excused, "{why}");
    let name = if matches!(why, CureError::Rights(_)) { "root" } else { "bpf" };
    assert!(!required(name), "{name} is required (UNBLOAT_REQUIRE): {why}");
    eprintln!("left out: {name}: {why}");
    None
}

/// Whether UNBLOAT_REQUIRE names something; BPF needs root, so that `bpf` names both.
fn required(name: &str) -> bool {
    let names = std::env::var("UNBLOAT_REQUIRE").unwrap_or_default();
    names.split([',', ' ']).any(|one| one == name || one == "bpf" || one == "all")
}

fn older(since: &str) -> bool {
    let mut numbers = since.split('.').map_while(|word| word.parse().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    KernelVersion::current().is_ok_and(|here| here < KernelVersion::new(major, minor, 0))
}
