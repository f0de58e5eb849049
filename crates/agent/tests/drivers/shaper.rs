//! Test driver: the shaper alone, without the daemon. It runs until its input ends.
//!
//! `shaper DEVICE TELEMETRY JOURNAL`. It prints the rate that it sets, in bit/s, twice a second.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent::cures::shaper::Shaper;
use agent::telemetry::Source;
use agent::telemetry::socket::Socket;
use agent::undo::journal::Journal;
use algo::gate::qcut_d;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, telemetry, journal] = arguments.as_slice() else {
        return Err("shaper DEVICE TELEMETRY JOURNAL".into());
    };
    let mut journal = Journal::open(Path::new(journal))?;
    let mut shaper = Shaper::attach(device, &qcut_d::Config::default(), &mut journal)?;
    let mut source = Socket::new(telemetry);
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let mut printed = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        if let Ok(Some(report)) = source.next(Duration::from_millis(100)) {
            shaper.report(&report)?;
        }
        shaper.tick()?;
        if printed.elapsed() >= Duration::from_millis(500) {
            printed = Instant::now();
            println!("{}", shaper.rate().unwrap_or(0) * 8);
        }
    }
    shaper.detach(&mut journal)?;
    Ok(())
}
