//! Compares two phases of a run: what they carried, and whether the second was better. No I/O.
//!
//! signal: the flows of two status samples · model: bytes between the samples; a flow's RTT is
//! weighted by its bytes, so that an idle connection counts nothing and a transfer much · action:
//! quantiles, goodput, one sentence.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

/// Minimum bytes of a phase; with fewer there was no transfer to compare.
const MIN_BYTES: f64 = 65_536.0;
/// Relative loss of goodput that counts: more than two runs over one link differ.
const LOSS: f64 = 0.05;
/// Minimum interval for a rate, s: a sample right after a late one has none.
const MIN_INTERVAL_S: f64 = 0.1;
/// Relative change of the RTT that counts.
const GAIN: f64 = 0.1;
/// Multiple of the path's own RTT below which there was no queue.
const NO_QUEUE: f64 = 1.3;

/// Names of the directions, in the order of every array here.
const DIRECTIONS: [&str; 2] = ["downloads", "uploads"];

/// The direction that a cure reports. `receive` takes precedence over ACK-window rewriting, which
/// sees the same download.
fn way(cure: &str) -> Option<usize> {
    match cure {
        "receive" | "acks down" => Some(0),
        "acks up" => Some(1),
        _ => None,
    }
}

/// A flow's key: direction, remote address, remote port, local port.
type Name = (usize, String, u64, u64);

/// Traffic between two samples.
#[derive(Debug, Default)]
pub struct Interval {
    span_s: f64,
    /// Direction, bytes, RTT, minimum RTT.
    flows: Vec<(usize, f64, f64, f64)>,
}

impl Interval {
    /// Goodput of each direction, bit/s.
    pub fn goodput(&self) -> Value {
        let carried =
            |way| self.flows.iter().filter(|one| one.0 == way).map(|one| one.1).sum::<f64>();
        let rate = |way| {
            if self.span_s > MIN_INTERVAL_S {
                json!(carried(way) * 8.0 / self.span_s)
            } else {
                Value::Null
            }
        };
        json!({DIRECTIONS[0]: rate(0), DIRECTIONS[1]: rate(1)})
    }
}

/// Bytes that a flow has carried by now. Its figures are those of its last decision, up to an RTT
/// ago, which is long with a queue.
fn carried(flow: &Value) -> f64 {
    let number = |key: &str| flow[key].as_f64().unwrap_or(0.0).max(0.0);
    let (age, rtt) = (number("age_ms"), number("rtt_ms"));
    // A flow that was silent for longer carries nothing.
    let since = if age <= 2.0 * rtt { number("rate_bps") / 8.0 * age / 1e3 } else { 0.0 };
    number("bytes") + since
}

/// Bytes of each flow so far.
#[derive(Debug, Default)]
pub struct FlowBytes {
    seen: HashMap<Name, f64>,
    last: Option<Duration>,
}

impl FlowBytes {
    /// Takes a status sample.
    pub fn sample(&mut self, status: &Value, at: Duration) -> Interval {
        let mut flows: HashMap<Name, (&str, &Value)> = HashMap::new();
        for flow in status["flows"].as_array().into_iter().flatten() {
            let cure = flow["cure"].as_str().unwrap_or_default();
            let Some(way) = way(cure) else { continue };
            let port = |key: &str| flow[key].as_u64().unwrap_or(0);
            let remote = flow["remote"].as_str().unwrap_or_default().to_owned();
            let name = (way, remote, port("remote_port"), port("local_port"));
            let held = flows.entry(name).or_insert((cure, flow));
            if cure == "receive" {
                *held = (cure, flow);
            }
        }
        let span_s = self.last.map_or(0.0, |last| at.saturating_sub(last).as_secs_f64());
        self.last = Some(at);
        let mut step = Interval { span_s, flows: Vec::new() };
        for (name, (_, flow)) in flows {
            let number = |key: &str| flow[key].as_f64().unwrap_or(0.0).max(0.0);
            let bytes = carried(flow).max(self.seen.get(&name).copied().unwrap_or(0.0));
            let more = match self.seen.get(&name) {
                Some(before) => bytes - before,
                // A new flow may have carried data before the first sample: count no more than its
                // rate allows.
                None => bytes.min(number("rate_bps") / 8.0 * span_s),
            };
            step.flows.push((name.0, more, number("rtt_ms"), number("rtt_min_ms")));
            self.seen.insert(name, bytes);
        }
        step
    }
}

/// One phase of a run: before or after.
#[derive(Debug, Default)]
pub struct Phase {
    seconds: f64,
    ways: [DirectionStats; 2],
    pings: Vec<f64>,
}

/// One direction of a phase.
#[derive(Debug, Default)]
struct DirectionStats {
    bytes: f64,
    /// Rate between two samples, bit/s, and its weight, bytes.
    rates: Vec<(f64, f64)>,
    /// The rate that the link showed, bit/s, where it is known (see [`cap_goodput`]).
    link_bps: Option<f64>,
    /// RTT and its weight, bytes.
    rtts: Vec<(f64, f64)>,
    /// Minimum RTT and its weight, bytes.
    min_rtts: Vec<(f64, f64)>,
}

impl Phase {
    /// Adds the traffic between two samples.
    pub fn add(&mut self, step: Interval, pings: &[f64]) {
        self.seconds += step.span_s;
        if step.span_s > MIN_INTERVAL_S {
            for (number, way) in self.ways.iter_mut().enumerate() {
                let bytes: f64 =
                    step.flows.iter().filter(|one| one.0 == number).map(|one| one.1).sum();
                way.rates.push((bytes * 8.0 / step.span_s, bytes));
            }
        }
        for (way, bytes, rtt, min_rtts) in step.flows {
            let Some(way) = self.ways.get_mut(way).filter(|_| bytes > 0.0) else { continue };
            way.bytes += bytes;
            if rtt > 0.0 {
                way.rtts.push((rtt, bytes));
                way.min_rtts.push((min_rtts, bytes));
            }
        }
        self.pings.extend(pings);
    }

    fn goodput_bps(&self, way: usize) -> f64 {
        let rate = if self.seconds > 0.0 { self.ways[way].bytes * 8.0 / self.seconds } else { 0.0 };
        self.ways[way].link_bps.map_or(rate, |link| rate.min(link))
    }

    /// As in `run --json`.
    pub fn to_json(&self) -> Value {
        let mut all = serde_json::Map::new();
        all.insert("seconds".to_owned(), json!(self.seconds));
        for (number, name) in DIRECTIONS.iter().enumerate() {
            let way = &self.ways[number];
            all.insert(
                (*name).to_owned(),
                json!({
                    "bytes": way.bytes, "goodput_bps": self.goodput_bps(number), "rtt_ms_min": quantile(&way.min_rtts, 0.5),
                    "rtt_ms_p50": quantile(&way.rtts, 0.5), "rtt_ms_p95": quantile(&way.rtts, 0.95),
                }),
            );
        }
        let pings: Vec<(f64, f64)> = self.pings.iter().map(|ms| (*ms, 1.0)).collect();
        all.insert(
            "probe".to_owned(),
            json!({"count": pings.len(), "rtt_ms_p50": quantile(&pings, 0.5), "rtt_ms_p95": quantile(&pings, 0.95)}),
        );
        Value::Object(all)
    }
}

/// Limits the goodput of both phases to the rate that the link showed.
///
/// A connection counts bytes in order. Where a loss is repaired, all that waited behind it counts at
/// once: bytes that came before the phase, at a rate that no link had. So a phase's mean may exceed
/// the link's rate. The link's rate is the median of the rates between two samples of both phases,
/// weighted by bytes. Such jumps carry less than half of the bytes.
pub fn cap_goodput(before: &mut Phase, after: &mut Phase) {
    for way in 0..DIRECTIONS.len() {
        let rates = [&before.ways[way].rates[..], &after.ways[way].rates[..]].concat();
        let link = quantile(&rates, 0.5).filter(|rate| *rate > 0.0);
        before.ways[way].link_bps = link;
        after.ways[way].link_bps = link;
    }
}

/// The value below which a share of the weight is.
fn quantile(values: &[(f64, f64)], share: f64) -> Option<f64> {
    let mut sorted: Vec<(f64, f64)> = values.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let whole: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for (value, weight) in &sorted {
        below += weight;
        if below >= share * whole {
            return Some(*value);
        }
    }
    sorted.last().map(|(value, _)| *value)
}

/// Result of a run.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the cure helped; `None` where that is unknown.
    pub helped: Option<bool>,
    /// The result in a sentence.
    pub text: String,
}

/// Where the old windows were never used up: no phase "after" exists.
pub fn not_settled() -> Verdict {
    let text = "The queue from before the cure had not drained when the time was over, so there is nothing to compare; a longer run may show it.";
    Verdict { helped: None, text: text.to_owned() }
}

/// Whether the second phase is better.
pub fn verdict(before: &Phase, after: &Phase) -> Verdict {
    let verdicts: Vec<Verdict> =
        (0..DIRECTIONS.len()).filter_map(|way| one_direction(before, after, way)).collect();
    if verdicts.is_empty() {
        let text = "Nothing flowed before and after that could be compared: run it during a download or an upload.";
        return Verdict { helped: None, text: text.to_owned() };
    }
    let known: Vec<bool> = verdicts.iter().filter_map(|one| one.helped).collect();
    let helped = if known.is_empty() { None } else { Some(known.iter().all(|helped| *helped)) };
    let text = verdicts.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join("; ");
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    Verdict { helped, text: format!("{first}{}.", letters.as_str()) }
}

fn one_direction(before: &Phase, after: &Phase, way: usize) -> Option<Verdict> {
    let name = DIRECTIONS[way];
    let say = |helped, text: String| Some(Verdict { helped, text: format!("{name}: {text}") });
    let (b, a) = (&before.ways[way], &after.ways[way]);
    match (b.bytes >= MIN_BYTES, a.bytes >= MIN_BYTES) {
        (false, false) => return None,
        (false, true) => {
            return say(
                None,
                "hardly anything came through before the cure was applied, so there is nothing to compare; a longer run may show it".to_owned(),
            );
        }
        (true, false) => {
            return say(
                None,
                "hardly anything came through after the cure was applied, so there is nothing to compare; a longer run may show it".to_owned(),
            );
        }
        (true, true) => {}
    }
    let share = after.goodput_bps(way) / before.goodput_bps(way);
    let (Some(old), Some(new)) = (quantile(&b.rtts, 0.5), quantile(&a.rtts, 0.5)) else {
        return say(None, "no RTT could be measured".to_owned());
    };
    let (lost, fell, rose) =
        (share < 1.0 - LOSS, new < old * (1.0 - GAIN), new > old * (1.0 + GAIN));
    let base = quantile(&b.min_rtts, 0.5).unwrap_or(0.0);
    let goodput = format!("{:.0} % of the goodput", share * 100.0);
    let rtts = format!("from {old:.0} to {new:.0} ms");
    match (fell, lost) {
        (true, false) => say(Some(true), format!("it helped, RTT fell {rtts} at {goodput}")),
        (true, true) => say(
            Some(false),
            format!(
                "RTT fell {rtts}, but at {goodput}: a cost, unless the link itself became slower meanwhile"
            ),
        ),
        (false, true) => say(Some(false), format!("it did not help, RTT went {rtts} at {goodput}")),
        (false, false) if rose => say(Some(false), format!("it did not help, RTT rose {rtts}")),
        (false, false) if base > 0.0 && old <= base * NO_QUEUE => say(
            None,
            format!("there was no queue to cure, RTT was {old:.0} ms on a path of {base:.0} ms"),
        ),
        (false, false) => say(Some(false), format!("it did not help, RTT stayed at {new:.0} ms")),
    }
}

/// Before and after as text.
pub fn table(before: &Phase, after: &Phase) -> String {
    let (before, after) = (before.to_json(), after.to_json());
    let mut text = format!("{:<24} {:>10} {:>10}", "", "before", "after");
    let mut line = |name: String, of: &[&str], scale: f64, places: usize| {
        let number = |phase: &Value| match of.iter().fold(phase, |value, key| &value[key]).as_f64()
        {
            Some(value) => format!("{:.places$}", value / scale),
            None => "-".to_owned(),
        };
        text += &format!("\n{name:<24} {:>10} {:>10}", number(&before), number(&after));
    };
    for way in DIRECTIONS {
        line(format!("{way}, Mbit/s"), &[way, "goodput_bps"], 1e6, 2);
        line(format!("{way}, RTT p50, ms"), &[way, "rtt_ms_p50"], 1.0, 0);
        line(format!("{way}, RTT p95, ms"), &[way, "rtt_ms_p95"], 1.0, 0);
    }
    if before["probe"]["count"].as_u64().unwrap_or(0) > 0 {
        line("ping p50, ms".to_owned(), &["probe", "rtt_ms_p50"], 1.0, 0);
        line("ping p95, ms".to_owned(), &["probe", "rtt_ms_p95"], 1.0, 0);
    }
    text
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
