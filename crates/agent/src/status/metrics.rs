//! The metrics of an agent: OpenMetrics 1.0 on a Unix socket or a loopback port.
//!
//! One page of text, made from the status. Flows are summed and shown as distributions, so the
//! number of samples does not grow with that of the flows. Units are the base ones (seconds,
//! bytes), and names end with theirs. A distribution is that of the flows under way now: a gauge
//! histogram. A family without samples is left out.

use super::{Status, TrialStatus};
use crate::cures::figures::{Family, Kind, SHARED, Sample, gauge};
use crate::cures::flow::Limit;
use crate::cures::trial::Stage;
use crate::cures::{FlowStatus, TABLE};
use crate::status::idle::Work;
use crate::uplink::controller::ACTIVE;

mod exporter;
pub mod request;

pub use exporter::{Exporter, Listen, Settings};

/// Content type of the page (OpenMetrics 1.0, "Protocol Negotiation").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The page without any sample.
pub const EMPTY: &str = "# EOF\n";
/// Most flows that have samples of their own: enough to find the cause of a queue, and a bound for
/// the page.
pub const MAX_FLOWS: usize = 50;
/// States of a trial.
const TRIALS: [(Stage, &str); 3] =
    [(Stage::Resting, "resting"), (Stage::Trying, "trying"), (Stage::Withdrawn, "withdrawn")];

/// A distribution over the flows of a cure.
struct Distribution {
    family: Family,
    /// Upper edges of its buckets.
    edges: &'static [f64],
    /// The value of a flow; none if it is not known.
    value: fn(&FlowStatus) -> Option<f64>,
}

fn positive(value: f64) -> Option<f64> {
    Some(value).filter(|value| *value > 0.0)
}

/// The edges of times and sizes rise by about two; those of the ratio are where λ is chosen.
const DISTRIBUTIONS: [Distribution; 5] = [
    Distribution {
        family: gauge("unbloat_flow_rtt_seconds", "seconds", "RTT of the flows under way."),
        edges: &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        value: |flow| Some(positive(flow.rtt_ms())? * 1e-3),
    },
    Distribution {
        family: gauge(
            "unbloat_flow_rtt_min_seconds",
            "seconds",
            "Smallest RTT of the flows under way: the empty path.",
        ),
        edges: &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
        value: |flow| Some(positive(flow.rtt_min_ms())? * 1e-3),
    },
    Distribution {
        family: gauge(
            "unbloat_flow_rtt_ratio",
            "ratio",
            "RTT over smallest RTT of the flows under way: 1 without any queue, lambda when a window limits.",
        ),
        edges: &[1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 6.0, 10.0, 30.0],
        value: |flow| Some(positive(flow.rtt_ms())? / positive(flow.rtt_min_ms())?),
    },
    Distribution {
        family: gauge(
            "unbloat_flow_window_bytes",
            "bytes",
            "Target window of the flows under way.",
        ),
        edges: &[4e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6, 16e6],
        value: |flow| positive(flow.wanted as f64),
    },
    Distribution {
        family: gauge(
            "unbloat_flow_queue_bytes",
            "bytes",
            "Bytes of the flows under way that wait in queues: rate times the excess of the RTT over its minimum.",
        ),
        edges: &[1.5e3, 4e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6],
        value: |flow| Some(flow.queue() as f64),
    },
];

/// A value of a flow.
type OfFlow = fn(&FlowStatus) -> f64;

/// Samples of single flows.
const BUSY: [(Family, OfFlow); 5] = [
    (gauge("unbloat_busy_flow_rtt_seconds", "seconds", "RTT of a busy flow."), |f| {
        f.rtt_ms() * 1e-3
    }),
    (gauge("unbloat_busy_flow_rtt_min_seconds", "seconds", "Smallest RTT of a busy flow."), |f| {
        f.rtt_min_ms() * 1e-3
    }),
    (gauge("unbloat_busy_flow_window_bytes", "bytes", "Target window of a busy flow."), |f| {
        f.wanted as f64
    }),
    (gauge("unbloat_busy_flow_queue_bytes", "bytes", "Bytes of a busy flow in queues."), |f| {
        f.queue() as f64
    }),
    (
        gauge(
            "unbloat_busy_flow_goodput_bytes_per_second",
            "bytes_per_second",
            "Payload of a busy flow.",
        ),
        |f| f.rate as f64,
    ),
];

/// The page for a status, with samples of their own for so many of the busiest flows.
pub fn page(status: &Status, flows: usize) -> String {
    let mut page = Page::default();
    about(&mut page, status);
    figures(&mut page, status);
    let under_way: Vec<&FlowStatus> = status.flows.iter().filter(|flow| flow.under_way()).collect();
    let cures = cures_of(&under_way);
    sums(&mut page, &under_way, &cures);
    for Distribution { family, edges, value } in DISTRIBUTIONS.iter().filter(|_| !cures.is_empty())
    {
        page.begin(family.name, "gaugehistogram", family.unit, family.help);
        for cure in &cures {
            let of_cure = under_way.iter().filter(|flow| flow.cure == *cure);
            let values: Vec<f64> = of_cure.filter_map(|flow| value(flow)).collect();
            page.distribution(family.name, cure, edges, &values);
        }
    }
    busiest(&mut page, under_way, flows.min(MAX_FLOWS));
    page.text.push_str(EMPTY);
    page.text
}

/// The agent itself: version, uptime, cures, the uplink, trials, problems.
fn about(page: &mut Page, status: &Status) {
    let truth = |truth: bool| f64::from(u8::from(truth));
    let info =
        Family { name: "unbloat_agent", kind: Kind::Info, unit: "", help: "The agent that runs." };
    page.family(&info, vec![(pairs(&[("version", status.version)]), 1.0)]);
    let up = gauge("unbloat_uptime_seconds", "seconds", "Since the agent began.");
    page.family(&up, vec![(vec![], status.up_s)]);
    let help = "1 while all cures only watch, because that was requested.";
    let lifted = gauge("unbloat_lifted", "", help);
    page.family(&lifted, vec![(vec![], truth(status.lifted))]);
    let attached = gauge("unbloat_cure_attached", "", "1 for a cure that is attached.");
    let cures = status.cures.each().into_iter();
    let states = cures.map(|(cure, there)| (pairs(&[("cure", cure.name)]), truth(there.is_some())));
    page.family(&attached, states.collect());
    let uplink = Family {
        name: "unbloat_uplink",
        kind: Kind::StateSet,
        unit: "",
        help: "The cure that controls the uplink.",
    };
    let states = ACTIVE
        .map(|cure| (pairs(&[("unbloat_uplink", cure)]), truth(cure == status.uplink.active)));
    page.family(&uplink, states.to_vec());
    trials(page, &status.trials);
    let help = "1 for a cure that does nothing while data flows in its scope.";
    let idle = gauge("unbloat_cure_idle", "", help);
    let states = status.work.iter();
    let states = states.map(|(cure, work)| (pairs(&[("cure", cure)]), truth(*work == Work::Idle)));
    page.family(&idle, states.collect());
    let help = "Things that do not work as configured; status says which.";
    let problems = gauge("unbloat_problems", "", help);
    page.family(&problems, vec![(vec![], status.problems.len() as f64)]);
}

/// Trials by cure and state.
fn trials(page: &mut Page, trials: &[TrialStatus]) {
    let mut samples = Vec::new();
    for cure in TABLE {
        let of_cure = || trials.iter().filter(|trial| trial.cure == cure.name);
        for (stage, name) in TRIALS.iter().filter(|_| of_cure().next().is_some()) {
            let count = of_cure().filter(|trial| trial.state == *stage).count();
            samples.push((pairs(&[("cure", cure.name), ("state", name)]), count as f64));
        }
    }
    let help = "Trials whether a cure costs goodput, by their state.";
    page.family(&gauge("unbloat_trials", "", help), samples);
}

/// The samples of the cures, family by family: first those that several cures fill.
fn figures(page: &mut Page, status: &Status) {
    let attached = status.cures.each().into_iter().filter_map(|(_, figures)| figures);
    let samples: Vec<Sample> = attached.flat_map(|figures| figures.samples()).collect();
    let mut families = SHARED.to_vec();
    for sample in &samples {
        if families.iter().all(|family| family.name != sample.family.name) {
            families.push(sample.family);
        }
    }
    for family in &families {
        let own = samples.iter().filter(|sample| sample.family.name == family.name);
        page.family(family, own.map(|sample| (pairs(sample.labels), sample.value)).collect());
    }
}

/// Of each cure: its flows under way, and their goodput.
fn sums(page: &mut Page, flows: &[&FlowStatus], cures: &[&str]) {
    let each = |value: fn(&FlowStatus) -> f64| {
        let sum =
            |cure: &str| flows.iter().filter(|f| f.cure == cure).map(|f| value(f)).sum::<f64>();
        cures.iter().map(|cure| (pairs(&[("cure", cure)]), sum(cure))).collect::<Vec<_>>()
    };
    let help = "Flows under way that a cure sees.";
    page.family(&gauge("unbloat_flows", "", help), each(|_| 1.0));
    let help = "Of them, those that the cure's window limits.";
    let limited = each(|f| f64::from(u8::from(f.limit() == Limit::Agent)));
    page.family(&gauge("unbloat_flows_held", "", help), limited);
    let help = "Payload that the flows under way carry, as their laws average it.";
    let goodput = gauge("unbloat_goodput_bytes_per_second", "bytes_per_second", help);
    page.family(&goodput, each(|f| f.rate as f64));
}

/// Samples of their own for the flows that carry most.
fn busiest(page: &mut Page, mut flows: Vec<&FlowStatus>, max: usize) {
    if max == 0 {
        return;
    }
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.rate));
    flows.truncate(max);
    for (family, value) in &BUSY {
        let sample = |flow: &&FlowStatus| {
            let (remote, port) = flow.remote;
            let labels = [
                ("cure", flow.cure.to_owned()),
                ("remote", remote.to_string()),
                ("remote_port", port.to_string()),
                ("local_port", flow.local_port.to_string()),
            ];
            (labels.map(|(name, value)| (name.to_owned(), value)).to_vec(), value(flow))
        };
        // Two cures may see a flow with the same ends, but one cure sees it once.
        let mut samples: Vec<Labelled> = flows.iter().map(sample).collect();
        samples.sort_by(|a, b| a.0.cmp(&b.0));
        samples.dedup_by(|a, b| a.0 == b.0);
        page.family(family, samples);
    }
}

/// The cures that have flows here, in their order.
fn cures_of(flows: &[&FlowStatus]) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = flows.iter().map(|flow| flow.cure).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn pairs(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

type Labels = Vec<(String, String)>;
type Labelled = (Labels, f64);

/// The text, family by family.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// A family, if it has samples.
    fn family(&mut self, family: &Family, samples: Vec<Labelled>) {
        if samples.is_empty() {
            return;
        }
        let Family { name, unit, help, .. } = family;
        let (word, suffix) = match family.kind {
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
