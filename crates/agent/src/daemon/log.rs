//! Lines for a person who reads the log: when, and what happened or is to be done.

use std::time::{SystemTime, UNIX_EPOCH};

/// A line on standard error. Journald knows the time by itself.
pub fn say(text: &str) {
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        eprintln!("{text}");
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let day = now.as_secs() % 86_400;
    let (hours, minutes, seconds) = (day / 3_600, day / 60 % 60, day % 60);
    eprintln!("{hours:02}:{minutes:02}:{seconds:02}.{:03} UTC {text}", now.subsec_millis());
}
