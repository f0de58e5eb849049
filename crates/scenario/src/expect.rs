//! Expectations of a run: metrics with bounds, as data. Another program compares them with the
//! figures.

use algo::Unit;
use settings::{
    Item, Place, Problem, Result, Section, Tree, flatten, quantity, unknown_key, unknown_name,
    wrong,
};

use crate::keys;
use crate::resolve::expectations;
use crate::sweep::Sweep;

/// What a metric is measured on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Measured on each flow.
    Flow,
    /// Measured on each probe.
    Probe,
    /// Each link, with the queue in front of it.
    Link,
    /// The run as a whole.
    Run,
}

/// A figure that can be expected.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, the unit included.
    pub name: &'static str,
    /// What it is measured on.
    pub on: On,
    /// Whether it is a distribution, so that a bound names a statistic.
    pub distribution: bool,
    /// The meaning, for the documentation.
    pub about: &'static str,
}

/// A figure of a distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statistic {
    /// The smallest value.
    Min,
    /// The arithmetic mean.
    Mean,
    /// The 50th percentile: the median.
    P50,
    /// The 95th percentile of the values.
    P95,
    /// The 99th percentile of the values.
    P99,
    /// The largest value.
    Max,
}

/// Their names, in that order.
pub const STATISTICS: &[(&str, Statistic)] = &[
    ("min", Statistic::Min),
    ("mean", Statistic::Mean),
    ("p50", Statistic::P50),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("max", Statistic::Max),
];

const fn figure(name: &'static str, on: On, about: &'static str) -> Metric {
    Metric { name, on, distribution: false, about }
}
const fn distribution(name: &'static str, on: On, about: &'static str) -> Metric {
    Metric { name, on, distribution: true, about }
}

/// All metrics, in the order of the documentation.
pub const METRICS: &[Metric] = &[
    figure("flow_goodput_bps", On::Flow, "payload delivered in order per time, from start to stop"),
    distribution("flow_rtt_ms", On::Flow, "round trip times that the sender measured"),
    distribution("flow_queue_ms", On::Flow, "time that its packets stood in queues"),
    distribution("flow_in_flight_bytes", On::Flow, "sent and not acknowledged"),
    distribution("flow_rwnd_bytes", On::Flow, "receive window as the sender saw it"),
    figure("flow_retransmissions", On::Flow, "segments retransmitted"),
    figure(
        "flow_retransmitted_share",
        On::Flow,
        "share of the data segments sent that were retransmissions",
    ),
    figure("flow_timeouts", On::Flow, "retransmission timeouts"),
    figure("flow_loss_rate", On::Flow, "share of the data packets that did not arrive"),
    figure("flow_zero_window_count", On::Flow, "times at which the window went to zero"),
    figure("flow_zero_window_s", On::Flow, "time without window"),
    figure(
        "flow_window_idle_s",
        On::Flow,
        "time that the receive window left the sender with at most one segment in flight; the simulator only",
    ),
    figure("flow_window_full_s", On::Flow, "time with a full window"),
    figure("flow_share_zero_window", On::Flow, "share of the time limited by a window of zero"),
    figure("flow_share_timeout", On::Flow, "… by a peer or path that did not answer"),
    figure("flow_share_receive_window", On::Flow, "… by the receive window"),
    figure("flow_share_application", On::Flow, "… by an application that had nothing to send"),
    figure("flow_share_slow_start", On::Flow, "… by slow start"),
    figure("flow_share_bufferbloat", On::Flow, "… behind a standing queue"),
    figure("flow_share_bottleneck", On::Flow, "… by the rate of the path, the queue being short"),
    figure("flow_share_congestion_window", On::Flow, "… by the congestion window"),
    figure("flow_share_unknown", On::Flow, "… by none of these"),
    distribution("probe_rtt_ms", On::Probe, "round trip times of a ping"),
    distribution("probe_owd_ms", On::Probe, "one-way delays of an isochronous probe"),
    figure("probe_loss_rate", On::Probe, "share of the packets without answer"),
    distribution("queue_ms", On::Link, "time in the queue in front of the link"),
    distribution("qdisc_ms", On::Link, "time above the gate of the device that feeds the link"),
    distribution("firmware_ms", On::Link, "time in the firmware buffer of that device"),
    distribution("queue_bytes", On::Link, "bytes in front of the link, all stages"),
    figure("queue_drops", On::Link, "packets dropped in front of the link"),
    figure("link_throughput_bps", On::Link, "what arrived, on the IP layer"),
    distribution("file_ms", On::Flow, "file: start to last byte"),
    distribution("response_ms", On::Flow, "requests: from the request to the whole response"),
    distribution("page_load_ms", On::Flow, "web: start to last object"),
    distribution("object_ms", On::Flow, "web: from the request to the last byte, each object"),
    distribution("first_byte_ms", On::Flow, "web: from the request to the first byte"),
    distribution("connect_ms", On::Flow, "web: time to connect"),
    distribution("bitrate_bps", On::Flow, "video: rates of the segments"),
    distribution("startup_ms", On::Flow, "video: start to first picture"),
    distribution("stall_ms", On::Flow, "video: lengths of the stalls"),
    figure("stall_s", On::Flow, "video: time without picture after the start, all stalls"),
    figure("mos", On::Flow, "voice: mean opinion score by the E-model, 1 to 4.5"),
    figure("fairness", On::Run, "Jain's index of the flows' goodputs"),
    figure("total_goodput_bps", On::Run, "goodputs of all flows together"),
];

/// A bound on one figure.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The metric that is bounded.
    pub metric: &'static Metric,
    /// Which figure of a distribution.
    pub statistic: Option<Statistic>,
    /// Not less than this, in the unit of the metric's name.
    pub min: Option<f64>,
    /// Not more than this.
    pub max: Option<f64>,
}

/// One `[[expect]]` entry of a file.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Its line in the file.
    pub place: Place,
    /// Labels of the runs that it speaks of; every run where empty.
    pub run: Vec<(String, String)>,
    /// The flow; every flow where `None`.
    pub flow: Option<String>,
    /// Name of the probe, where one is given.
    pub probe: Option<String>,
    /// Name of the link, where one is given.
    pub link: Option<String>,
    /// The bounds; all of them have to be met.
    pub bounds: Vec<Bound>,
}

impl Expectation {
    /// Whether it speaks of a run with these labels.
    pub fn speaks_of(&self, labels: &[(String, String)]) -> bool {
        self.run.iter().all(|wanted| labels.contains(wanted))
    }
}

/// All expectations of a file. `names` are the flows, probes and links that there are; unless
/// `strict`, those of runs that there are not are left out.
pub(crate) fn read(
    tree: &Tree,
    sweep: &Sweep,
    names: &Names,
    strict: bool,
) -> Result<Vec<Expectation>> {
    let one = |(tree, path)| one(tree, path, sweep, names, strict).transpose();
    expectations(tree)?.into_iter().filter_map(one).collect()
}

/// What an expectation can speak of.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) flows: Vec<String>,
    pub(crate) probes: Vec<String>,
    pub(crate) links: Vec<String>,
}

fn one(
    tree: &Tree,
    path: String,
    sweep: &Sweep,
    names: &Names,
    strict: bool,
) -> Result<Option<Expectation>> {
    let metrics: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
    let section = Section::open(tree, path, &[keys::EXPECT], &metrics)?;
    let named = |key: &'static str, known: &[String]| match section.text(key)? {
        Some(name) if !known.iter().any(|k| k == name) => {
            section.wrong(key, unknown_name(key, name, known.iter().map(String::as_str)))
        }
        other => Ok(other.map(str::to_owned)),
    };
    let (flow, probe) = (named("flow", &names.flows)?, named("probe", &names.probes)?);
    let link = named("link", &names.links)?;
    let mut bounds = Vec::new();
    for metric in METRICS {
        let Some(given) = section.get(metric.name) else { continue };
        let path = section.full(metric.name);
        if !metric.distribution {
            bounds.push(bound(metric, None, given, &path)?);
            continue;
        }
        let Some(table) = given.table() else {
            let expected = "a statistic, such as { p95 = { max = 200 } }".to_owned();
            return wrong(given.place, path, Problem::WrongKind { expected, found: given.shown() });
        };
        for (key, inner) in &table.entries {
            let full = format!("{path}.{key}");
            match STATISTICS.iter().find(|(name, _)| name == key) {
                Some((_, statistic)) => bounds.push(bound(metric, Some(*statistic), inner, &full)?),
                None => {
                    return wrong(
                        inner.place,
                        full,
                        unknown_key(key, STATISTICS.iter().map(|s| s.0)),
                    );
                }
            }
        }
    }
    if bounds.is_empty() {
        let what = "what is expected, such as flow_goodput_bps = { min = \"1 Mbit/s\" }";
        return wrong(section.place, section.path.clone(), Problem::Missing(what));
    }
    let Some(run) = run(&section, sweep, strict)? else { return Ok(None) };
    Ok(Some(Expectation { place: section.place, run, flow, probe, link, bounds }))
}

/// `{ min = …, max = … }`.
fn bound(
    metric: &'static Metric,
    statistic: Option<Statistic>,
    tree: &Tree,
    path: &str,
) -> Result<Bound> {
    let Some(table) = tree.table() else {
        let expected = "bounds, such as { min = 1, max = 2 }".to_owned();
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    let (mut min, mut max) = (None, None);
    for (key, value) in &table.entries {
        let full = format!("{path}.{key}");
        let end = match key.as_str() {
            "min" => &mut min,
            "max" => &mut max,
            _ => return wrong(value.place, full, unknown_key(key, ["min", "max"])),
        };
        *end = Some(number(metric, value, &full)?);
    }
    match (min, max) {
        (None, None) => wrong(tree.place, path, Problem::Missing("min, max or both")),
        (Some(low), Some(high)) if low > high => wrong(
            tree.place,
            path,
            Problem::Contradiction(format!("min {low} is more than max {high}")),
        ),
        _ => Ok(Bound { metric, statistic, min, max }),
    }
}

/// A plain number in the metric's unit, or a quantity with its own.
fn number(metric: &Metric, tree: &Tree, path: &str) -> Result<f64> {
    let (unit, scale) = match metric.name.rsplit('_').next() {
        Some("bps") => (Unit::Rate, 1.0),
        Some("ms") => (Unit::Duration, 1e-6),
        Some("s") => (Unit::Duration, 1e-9),
        Some("bytes") => (Unit::Bytes, 1.0),
        _ => (Unit::Number, 1.0),
    };
    let plain = quantity::read(Unit::Number, tree).and_then(|v| v.magnitude());
    let own = || quantity::read(unit, tree).and_then(|v| v.magnitude()).map(|x| x * scale);
    match plain.or_else(own) {
        Some(x) => Ok(x),
        None => {
            let expected = match unit {
                Unit::Number => "a number".to_owned(),
                _ => format!("a number in the metric's unit, or {}", quantity::expected(unit)),
            };
            wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() })
        }
    }
}

/// The labels in `run`, each one that the sweep gives.
fn run(
    section: &Section<'_>,
    sweep: &Sweep,
    strict: bool,
) -> Result<Option<Vec<(String, String)>>> {
    let Some(tree) = section.get("run") else { return Ok(Some(Vec::new())) };
    let path = section.full("run");
    let Item::Table(table) = &tree.item else {
        let expected = "a table of labels".to_owned();
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    let mut given = Vec::new();
    flatten(table, "", &mut given);
    let mut labels = Vec::new();
    for (key, value) in given {
        let full = format!("{path}.{key}");
        let Some(axis) = sweep.axes.iter().find(|a| a.label == key || a.key == key) else {
            let known = sweep.axes.iter().map(|a| a.label.as_str());
            return wrong(value.place, full, unknown_name("label of this sweep", &key, known));
        };
        let wanted = value.label();
        let same = |c: &&crate::sweep::Choice| {
            c.label == wanted || matches!(c.set.as_slice(), [(_, t)] if t.label() == wanted)
        };
        let Some(choice) = axis.choices.iter().find(same) else {
            if !strict {
                return Ok(None);
            }
            let known = axis.choices.iter().map(|c| c.label.as_str());
            return wrong(value.place, full, unknown_name("value of this sweep", &wanted, known));
        };
        labels.push((axis.label.clone(), choice.label.clone()));
    }
    Ok(Some(labels))
}
