//! When a test of the kernel's side may be left out: where this process may not use BPF, or the kernel is older than it has to be. A
//! kernel that has everything and takes a program all the same not is a fault of the program.

use agent::cures::{CureError, Result};
use aya::util::KernelVersion;

/// What was loaded; none, with the reason, where it cannot be had here.
pub fn or_left_out<T>(loaded: Result<T>) -> Option<T> {
    let why = match loaded {
        Ok(loaded) => return Some(loaded),
        Err(why) => why,
    };
    let excused = match &why {
        CureError::Rights(_) | CureError::NoBtf => true,
        CureError::Kernel { since, .. } => older(since),
        _ => false,
    };
    assert!(excused, "{why}");
    eprintln!("left out: {why}");
    None
}

fn older(since: &str) -> bool {
    let mut numbers = since.split('.').map_while(|word| word.parse().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    KernelVersion::current().is_ok_and(|here| here < KernelVersion::new(major, minor, 0))
}
