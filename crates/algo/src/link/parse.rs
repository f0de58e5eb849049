//! Parses trace files for [`super::Setup`].
//!
//! One function per kind of file; the first line shows the format. Errors name the line, and what it
//! needed and had.
//!
//! | format | example line | from |
//! |---|---|---|
//! | mahimahi | `17` (milliseconds) | mm-link's README |
//! | time and rate | `time_s,rate_bps` as header or none, then `0.5,12000000` | this project |
//! | seconds and Mbit/s | `0.474  3.1687` | the Oboe and Norway 3G sets in the form common in video research |
//! | rate with unit | `0.57,Mbits/sec`, one line a second | NYU-METS |
//! | drive test | header with `Timestamp` and `DL_bitrate` (kbit/s) | UCC's 5G set (Raca et al., MMSys 2020) |
//!
//! A rate is valid from its line's time until the next one's. Deviation: in the tools of the Oboe and
//! Norway sets it is valid up to its line's time, which shifts the series by one line.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use units::{Instant, Rate};

/// An error in a trace file, with its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// Line, counted from 1.
    pub line: usize,
    /// The expected content of the line.
    pub needed: &'static str,
    /// The actual content, shortened.
    pub got: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: needed {}, got {:?}", self.line, self.needed, self.got)
    }
}

impl core::error::Error for TraceError {}

fn refuse<T>(line: usize, needed: &'static str, got: &str) -> Result<T, TraceError> {
    // 40 characters fit into an error message of one line.
    Err(TraceError { line: line + 1, needed, got: got.trim().chars().take(40).collect() })
}

/// Upper bound of a time, a hundred years: its nanoseconds fit 64 bits, also after many laps.
const MAX_MS: u64 = 3_155_760_000_000;
/// Upper bound of the rates of media: 1 Tbit/s.
const MAX_BPS: f64 = 1e12;

/// The opportunities of a mahimahi trace: one whole number of milliseconds per line, never falling, the
/// last above zero.
pub fn opportunities_from_text(text: &str) -> Result<Vec<u64>, TraceError> {
    let mut times: Vec<u64> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let last = times.last().copied().unwrap_or(0);
        match content.trim().parse::<u64>() {
            Ok(ms) if ms > MAX_MS => {
                return refuse(line, "milliseconds within a hundred years", content);
            }
            Ok(ms) if ms < last => {
                return refuse(line, "a time not before the previous line's", content);
            }
            Ok(ms) => times.push(ms),
            Err(_) => return refuse(line, "a whole number of milliseconds", content),
        }
    }
    match times.last() {
        None => refuse(0, "at least one delivery opportunity", text),
        Some(0) => refuse(times.len() - 1, "a last time above 0: it is the period", "0"),
        Some(_) => Ok(times),
    }
}

/// Rates over time, in any of the formats above except mahimahi's.
pub fn rates_from_text(text: &str) -> Result<Vec<(Instant, Rate)>, TraceError> {
    let first = text.lines().next().unwrap_or("").trim();
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    let steps = if columns.first() == Some(&"Timestamp") {
        drive_test(text, &columns)
    } else if first.contains("bits/sec") {
        rates_with_unit(text)
    } else if first.contains(',') {
        let header = columns.first().is_some_and(|name| name.parse::<f64>().is_err());
        if header && !matches!(columns.as_slice(), ["time_s" | "t_s", "rate_bps", ..]) {
            return refuse(0, "the header time_s,rate_bps, or numbers", first);
        }
        two_columns(text, usize::from(header), ',', 1.0)
    } else {
        two_columns(text, 0, ' ', 1e6)
    }?;
    if steps.is_empty() {
        return refuse(0, "at least one time and rate", text);
    }
    Ok(steps)
}

fn number(line: usize, field: Option<&str>, needed: &'static str) -> Result<f64, TraceError> {
    let field = field.unwrap_or("").trim();
    match field.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => refuse(line, needed, field),
    }
}

fn rate(line: usize, bps: f64, content: &str) -> Result<Rate, TraceError> {
    if bps > MAX_BPS {
        return refuse(line, "a rate of at most 1 Tbit/s", content);
    }
    Ok(Rate((bps + 0.5) as u64))
}

fn two_columns(
    text: &str,
    skip: usize,
    separator: char,
    unit: f64,
) -> Result<Vec<(Instant, Rate)>, TraceError> {
    let mut steps: Vec<(Instant, Rate)> = Vec::new();
    for (line, content) in text.lines().enumerate().skip(skip) {
        let is_end = |c: char| c == separator || (separator == ' ' && c.is_whitespace());
        let mut fields =
            content.trim().split(is_end).filter(|field| separator != ' ' || !field.is_empty());
        let seconds = number(line, fields.next(), "a time in seconds, not negative")?;
        let value = number(line, fields.next(), "a rate after the time, not negative")?;
        if seconds > MAX_MS as f64 / 1e3 {
            return refuse(line, "a time within a hundred years", content);
        }
        let at = Instant((seconds * 1e9 + 0.5) as u64);
        if steps.last().is_some_and(|(last, _)| at < *last) {
            return refuse(line, "a time not before the previous line's", content);
        }
        steps.push((at, rate(line, value * unit, content)?));
    }
    Ok(steps)
}

fn rates_with_unit(text: &str) -> Result<Vec<(Instant, Rate)>, TraceError> {
    let mut steps = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let (value, unit) = content.split_once(',').unwrap_or((content, ""));
        let factor = match unit.trim() {
            "bits/sec" => 1.0,
            "Kbits/sec" => 1e3,
            "Mbits/sec" => 1e6,
            "Gbits/sec" => 1e9,
            _ => return refuse(line, "a rate with its unit, such as 0.57,Mbits/sec", content),
        };
        let value = number(line, Some(value), "a rate, not negative")?;
        steps.push((Instant(line as u64 * 1_000_000_000), rate(line, value * factor, content)?));
    }
    Ok(steps)
}

fn drive_test(text: &str, columns: &[&str]) -> Result<Vec<(Instant, Rate)>, TraceError> {
    const DAY: u64 = 86_400;
    let Some(column) = columns.iter().position(|name| *name == "DL_bitrate") else {
        return refuse(0, "a column DL_bitrate", text.lines().next().unwrap_or(""));
    };
    let mut steps: Vec<(Instant, Rate)> = Vec::new();
    let (mut origin, mut last, mut midnights) = (None, 0, 0);
    for (line, content) in text.lines().enumerate().skip(1) {
        let mut fields = content.split(',');
        let Some(of_day) = fields.next().and_then(seconds_of_day) else {
            return refuse(line, "a time such as 2019.12.16_13.40.04", content);
        };
        let kbps = number(line, fields.nth(column - 1), "DL_bitrate in kbit/s, not negative")?;
        // a clock that goes back has passed midnight: a drive lasts hours
        if of_day + midnights * DAY < last {
            midnights += 1;
        }
        last = of_day + midnights * DAY;
        let at = Instant((last - *origin.get_or_insert(last)) * 1_000_000_000);
        let step = (at, rate(line, kbps * 1e3, content)?);
        // the set repeats rows within a second; the later one counts
        match steps.last_mut() {
            Some(before) if before.0 == at => *before = step,
            _ => steps.push(step),
        }
    }
    Ok(steps)
}

/// Seconds of the day: `2019.12.16_13.40.04` → 49,204.
fn seconds_of_day(stamp: &str) -> Option<u64> {
    let mut parts =
        stamp.trim().split_once('_')?.1.splitn(3, '.').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second < 61).then_some(hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::{format, vec};

    fn s(seconds: f64, bps: u64) -> (Instant, Rate) {
        (Instant((seconds * 1e9) as u64), Rate(bps))
    }

    #[test]
    fn a_mahimahi_trace_is_one_whole_millisecond_a_line() {
        assert_eq!(opportunities_from_text("0\n3\r\n3\n10\n"), Ok(vec![0, 3, 3, 10]));
    }

    #[test]
    fn a_mahimahi_trace_at_fault_names_the_line_what_it_needed_and_what_it_had() {
        for (text, line, needed, got) in [
            ("", 1, "at least one delivery opportunity", ""),
            ("1\n\n2\n", 2, "a whole number of milliseconds", ""),
            ("1\n2.5\n", 2, "a whole number of milliseconds", "2.5"),
            ("1\n-2\n", 2, "a whole number of milliseconds", "-2"),
            ("5\n7\n6\n", 3, "a time not before the previous line's", "6"),
            ("0\n0\n", 2, "a last time above 0: it is the period", "0"),
            ("99999999999999999\n", 1, "milliseconds within a hundred years", "99999999999999999"),
        ] {
            let error = opportunities_from_text(text).unwrap_err();
            assert_eq!((error.line, error.needed, error.got.as_str()), (line, needed, got));
            assert_eq!(error.to_string(), format!("line {line}: needed {needed}, got {got:?}"));
        }
    }

    #[test]
    fn rates_are_read_in_each_of_their_shapes() {
        let steps = vec![s(0.0, 12_000_000), s(1.5, 500_000)];
        for text in [
            "time_s,rate_bps\n0,12000000\n1.5,500000\n",
            "t_s,rate_bps\n0,12000000\n1.5,500000\n",
            "0,12000000\n1.5, 5e5\n",
            "0.0\t12\n1.5\t0.5\n",
            "0.0 12\n1.5   0.5\n",
        ] {
            assert_eq!(rates_from_text(text).as_ref(), Ok(&steps), "{text}");
        }
        let units = "0.57,Mbits/sec\n791,Kbits/sec\n";
        assert_eq!(rates_from_text(units), Ok(vec![s(0.0, 570_000), s(1.0, 791_000)]));
        let drive = "Timestamp,Operatorname,DL_bitrate,UL_bitrate\n2019.12.16_23.59.59,B,72,20\n\
                     2019.12.16_23.59.59,B,73,20\n2019.12.17_00.00.01,B,0,20\n";
        assert_eq!(rates_from_text(drive), Ok(vec![s(0.0, 73_000), s(2.0, 0)]));
    }

    #[test]
    fn a_rate_file_at_fault_names_the_line_what_it_needed_and_what_it_had() {
        for (text, line, got) in [
            ("", 1, ""),
            ("time_s,rate_bps\n", 1, "time_s,rate_bps"),
            ("seconds,rate\n0,1\n", 1, "seconds,rate"),
            ("0,1\n1\n", 2, ""),
            ("0,1\n1,fast\n", 2, "fast"),
            ("0,1\n1,-5\n", 2, "-5"),
            ("0,1\n1,NaN\n", 2, "NaN"),
            ("3,1\n1,5\n", 2, "1,5"),
            ("0,1\n1,1e13\n", 2, "1,1e13"),
            ("1e300,1\n", 1, "1e300,1"),
            ("1,Mbits/sec\n2,MB\n", 2, "2,MB"),
            ("Timestamp,UL\n", 1, "Timestamp,UL"),
            ("Timestamp,DL_bitrate\nyesterday,5\n", 2, "yesterday,5"),
            ("Timestamp,DL_bitrate\n2019.12.16_13.40.04,-\n", 2, "-"),
        ] {
            let error = rates_from_text(text).unwrap_err();
            assert_eq!((error.line, error.got.as_str()), (line, got), "{text}: {error}");
        }
    }
}
