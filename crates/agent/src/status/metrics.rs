//! What the agent does, for those who draw curves of it: OpenMetrics 1.0 on a Unix socket or a loopback port.
//!
//! signal: the daemon's status, the same that `status` shows · model: a fixed list of families; sums and distributions over flows, so
//! that their number does not grow with that of the flows · action: one page of text, at `GET /metrics`.
//!
//! Units are the base ones (seconds, bytes), names end with theirs. A distribution is that of the flows of this moment: a gauge
//! histogram. A family that no running cure feeds has no samples and is left out.

use serde_json::Value;

mod exporter;
pub mod families;
pub mod request;

pub use exporter::{Exporter, Listen, Settings};

use families::{BUSY, DISTRIBUTIONS, From, Kind, NUMBERS};

/// As the answer's header has it (OpenMetrics 1.0, "Protocol Negotiation").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A flow that has decided nothing for so long is not under way: longer than a round trip through a phone's worst queue.
const UNDER_WAY_MS: f64 = 5_000.0;
/// The most flows that have samples of their own.
pub const MOST_FLOWS: usize = 50;
/// Cures by the names that they have everywhere.
const CURES: [&str; 5] = ["receive", "acks", "gate", "shaper", "congestion"];
/// What may hold the uplink.
const UPLINKS: [&str; 4] = ["gate", "acks", "shaper", "none"];
/// What a trial may be at.
const TRIALS: [&str; 3] = ["resting", "trying", "withdrawn"];

/// The page for a status, with samples of their own for so many of the busiest flows.
pub fn page(status: &Value, flows: usize) -> String {
    let mut page = Page::default();
    about(&mut page, status);
    for number in NUMBERS {
        let samples = number
            .from
            .iter()
            .filter_map(|from| Some((from.labels, at(status, from)? * number.scale)));
        let samples = samples.map(|(labels, value)| (pairs(labels), value)).collect();
        page.family(number.name, number.kind, number.unit, number.help, samples);
    }
    let under_way: Vec<&Value> =
        list(status, "flows").filter(|f| number(f, "age_ms") <= UNDER_WAY_MS).collect();
    sums(&mut page, &under_way);
    let cures = cures_of(&under_way);
    for distribution in DISTRIBUTIONS.iter().filter(|_| !cures.is_empty()) {
        page.begin(distribution.name, "gaugehistogram", distribution.unit, distribution.help);
        for cure in &cures {
            let of_cure = under_way.iter().filter(|flow| flow["cure"] == **cure);
            let values: Vec<f64> = of_cure.filter_map(|flow| (distribution.value)(flow)).collect();
            page.distribution(distribution.name, cure, distribution.edges, &values);
        }
    }
    busiest(&mut page, under_way, flows.min(MOST_FLOWS));
    page.text.push_str("# EOF\n");
    page.text
}

/// The agent itself: version, uptime, which cures, who holds the uplink, trials, problems.
fn about(page: &mut Page, status: &Value) {
    let version = status["version"].as_str().unwrap_or_default();
    page.family(
        "unbloat_agent",
        Kind::Info,
        "",
        "The agent that runs.",
        vec![(pairs(&[("version", version)]), 1.0)],
    );
    let up = number(status, "up_s");
    page.family(
        "unbloat_uptime_seconds",
        Kind::Gauge,
        "seconds",
        "Since the agent began.",
        vec![(vec![], up)],
    );
    let lifted = f64::from(u8::from(status["lifted"].as_bool().unwrap_or(false)));
    let help = "1 while all cures only watch, because somebody asked for it.";
    page.family("unbloat_lifted", Kind::Gauge, "", help, vec![(vec![], lifted)]);
    let there = |cure: &&str| status["cures"].get(*cure).is_some_and(|cure| !cure.is_null());
    let states =
        CURES.iter().map(|c| (pairs(&[("cure", c)]), f64::from(u8::from(there(c))))).collect();
    page.family("unbloat_cure_attached", Kind::Gauge, "", "1 for a cure that is attached.", states);
    let active = status["uplink"]["active"].as_str().unwrap_or("none");
    let states = UPLINKS
        .iter()
        .map(|u| (pairs(&[("unbloat_uplink", u)]), f64::from(u8::from(*u == active))));
    page.family(
        "unbloat_uplink",
        Kind::StateSet,
        "",
        "Which cure holds the uplink.",
        states.collect(),
    );
    let mut trials = Vec::new();
    for cure in CURES {
        for state in TRIALS {
            let same =
                |t: &&Value| t["cure"].as_str() == Some(cure) && t["state"].as_str() == Some(state);
            let count = list(status, "trials").filter(same).count();
            if list(status, "trials").any(|t| t["cure"].as_str() == Some(cure)) {
                trials.push((pairs(&[("cure", cure), ("state", state)]), count as f64));
            }
        }
    }
    page.family(
        "unbloat_trials",
        Kind::Gauge,
        "",
        "Trials whether a cure costs goodput, by what they are at.",
        trials,
    );
    let problems = list(status, "problems").count() as f64;
    let help = "Things that do not work as configured; status says which.";
    page.family("unbloat_problems", Kind::Gauge, "", help, vec![(vec![], problems)]);
}

/// Of each cure: its flows under way, and what they carry together.
fn sums(page: &mut Page, flows: &[&Value]) {
    let all = cures_of(flows);
    let each = |value: fn(&Value) -> f64| {
        let sum =
            |cure: &str| flows.iter().filter(|f| f["cure"] == *cure).map(|f| value(f)).sum::<f64>();
        all.iter().map(|cure| (pairs(&[("cure", cure)]), sum(cure))).collect::<Vec<_>>()
    };
    let (rate, count) = (each(|f| number(f, "rate_bps") / 8.0), each(|_| 1.0));
    let held = each(|f| f64::from(u8::from(f["limit"] == "agent")));
    page.family("unbloat_flows", Kind::Gauge, "", "Flows under way that a cure sees.", count);
    page.family(
        "unbloat_flows_held",
        Kind::Gauge,
        "",
        "… of them, those that the cure's window limits.",
        held,
    );
    let help = "Payload that the flows under way carry, as their laws average it.";
    page.family("unbloat_goodput_bytes_per_second", Kind::Gauge, "bytes_per_second", help, rate);
}

/// Samples of their own for the flows that carry most.
fn busiest(page: &mut Page, mut flows: Vec<&Value>, most: usize) {
    if most == 0 {
        return;
    }
    flows.sort_by(|a, b| number(b, "rate_bps").total_cmp(&number(a, "rate_bps")));
    flows.truncate(most);
    for (name, unit, help, value) in BUSY {
        let sample = |flow: &&Value| {
            let word = |key: &str| match &flow[key] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let keys = ["cure", "remote", "remote_port", "local_port"];
            let labels = keys.iter().map(|key| ((*key).to_owned(), word(key))).collect();
            (labels, value(flow))
        };
        // Two cures may see a flow with the same ends, but one cure sees it once.
        let mut samples: Vec<Sample> = flows.iter().map(sample).collect();
        samples.sort_by(|a, b| a.0.cmp(&b.0));
        samples.dedup_by(|a, b| a.0 == b.0);
        page.family(name, Kind::Gauge, unit, help, samples);
    }
}

/// The cures that have flows here, in their order.
fn cures_of(flows: &[&Value]) -> Vec<String> {
    let mut found: Vec<String> =
        flows.iter().filter_map(|f| f["cure"].as_str().map(str::to_owned)).collect();
    found.sort();
    found.dedup();
    // Whoever tells more kinds than there are is not believed: the number of samples has a bound.
    found.truncate(2 * CURES.len());
    found
}

fn list<'a>(status: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    status[key].as_array().into_iter().flatten()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(0.0)
}

/// The number that a sample is of; truth is one.
fn at(status: &Value, from: &From) -> Option<f64> {
    let cure = status["cures"].get(from.cure)?;
    let mut value = cure;
    for key in from.path.split('.') {
        value = value.get(key)?;
    }
    match (value, from.equals) {
        (Value::String(text), Some(wanted)) => Some(f64::from(u8::from(text == wanted))),
        (Value::Bool(truth), None) => Some(f64::from(u8::from(*truth))),
        (Value::Number(number), None) => number.as_f64(),
        _ => None,
    }
}

fn pairs(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

type Labels = Vec<(String, String)>;
type Sample = (Labels, f64);

/// The text, family by family.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// A family, if it has samples.
    fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str, samples: Vec<Sample>) {
        if samples.is_empty() {
            return;
        }
        let (word, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Info => ("info", "_info"),
            Kind::StateSet => ("stateset", ""),
        };
        self.begin(name, word, unit, help);
        for (labels, value) in samples {
            self.sample(&format!("{name}{suffix}"), &labels, value);
        }
    }

    fn begin(&mut self, name: &str, word: &str, unit: &str, help: &str) {
        self.text += &format!("# TYPE {name} {word}\n");
        if !unit.is_empty() {
            self.text += &format!("# UNIT {name} {unit}\n");
        }
        self.text += &format!("# HELP {name} {}\n", escaped(help));
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: f64) {
        self.text += name;
        if !labels.is_empty() {
            let each: Vec<String> =
                labels.iter().map(|(n, v)| format!("{n}=\"{}\"", escaped(v))).collect();
            self.text += &format!("{{{}}}", each.join(","));
        }
        let text = match value {
            v if v.is_nan() => "NaN".to_owned(),
            v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
            v => v.to_string(),
        };
        self.text += &format!(" {text}\n");
    }

    /// Buckets, count and sum of a distribution; `edges` rise.
    fn distribution(&mut self, name: &str, cure: &str, edges: &[f64], values: &[f64]) {
        let edged = edges.iter().map(|edge| (format!("{edge:?}"), *edge));
        for (text, edge) in edged.chain([("+Inf".to_owned(), f64::INFINITY)]) {
            let below = values.iter().filter(|value| **value <= edge).count();
            self.sample(
                &format!("{name}_bucket"),
                &pairs(&[("cure", cure), ("le", &text)]),
                below as f64,
            );
        }
        self.sample(&format!("{name}_gcount"), &pairs(&[("cure", cure)]), values.len() as f64);
        self.sample(&format!("{name}_gsum"), &pairs(&[("cure", cure)]), values.iter().sum());
    }
}

/// As a label's value and a help text want it (OpenMetrics 1.0, "escaped-string").
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
