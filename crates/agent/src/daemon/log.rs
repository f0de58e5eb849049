//! Lines of the log: the time, and what happened.

use std::time::{SystemTime, UNIX_EPOCH};

/// Writes a line to standard error; without the time where journald adds it.
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
