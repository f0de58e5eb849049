//! Scenario text in, the tables of a simulated run out.
//!
//! Parsing and running happen without the interpreter lock, so that Python's threads use all
//! processors.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use scenario::{
    Document, Family, On, Place, Scenario, Statistic, TraceMissing as NoTrace, TraceText,
};
use sim::{Captures, Results, SimError};

use crate::add;
use crate::progress::Progress;
use crate::sim_tables as tables;
use crate::tables as captured;

create_exception!(_native, ScenarioError, PyValueError, "A scenario that cannot be run.");
create_exception!(
    _native,
    TraceMissing,
    ScenarioError,
    "A scenario that names a trace which is not there."
);

/// Times of a simulated run count from here, in its captures and in `start_s`: midnight of
/// 2020-01-01 (UTC).
const EPOCH_S: f64 = 1_577_836_800.0;

pub(crate) type Pairs = Vec<(String, String)>;

/// Why there is no run.
pub(crate) enum Refused {
    Scenario(String),
    Trace(String),
    Sim(SimError),
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> PyErr {
        match refused {
            Refused::Scenario(text) => ScenarioError::new_err(text),
            Refused::Trace(text) => TraceMissing::new_err(text),
            Refused::Sim(SimError::Stopped) => PyKeyboardInterrupt::new_err("stopped"),
            Refused::Sim(error @ SimError::NotConserved(_)) => {
                PyRuntimeError::new_err(error.to_string())
            }
            Refused::Sim(SimError::Capture { path, source }) => {
                PyOSError::new_err((source.raw_os_error().unwrap_or(5), source.to_string(), path))
            }
        }
    }
}

fn document(text: &str, set: &Pairs) -> Result<Document, scenario::ScenarioError> {
    let document = Document::parse(text)?;
    if set.is_empty() { Ok(document) } else { document.with(set) }
}

fn wrong(error: scenario::ScenarioError) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

/// Runs one scenario. `overrides` are dotted keys with TOML values or plain text, a later one
/// wins.
#[pyfunction]
#[pyo3(signature = (text, *, overrides = Vec::new(), seed = None, traces = HashMap::new(), pcap_dir = None, events = false, progress = None))]
#[allow(clippy::too_many_arguments)]
pub fn simulate<'py>(
    py: Python<'py>,
    text: &str,
    overrides: Pairs,
    seed: Option<u64>,
    traces: HashMap<String, String>,
    pcap_dir: Option<PathBuf>,
    events: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut progress = Progress::new(progress);
    let outcome = py.detach(|| {
        run(text, &overrides, seed, &traces, pcap_dir, events, &mut |share| {
            progress.report((share,))
        })
    });
    match outcome {
        Ok(done) => convert(py, &done, events),
        Err(refused) => Err(progress.raised().unwrap_or_else(|| refused.into())),
    }
}

struct Done {
    scenario: Scenario,
    warnings: Vec<String>,
    results: Results,
    captures: Vec<PathBuf>,
}

fn run(
    text: &str,
    overrides: &Pairs,
    seed: Option<u64>,
    traces: &HashMap<String, String>,
    pcap_dir: Option<PathBuf>,
    events: bool,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Done, Refused> {
    let (scenario, warnings) = scenario_of(text, overrides, seed, traces)?;
    let options = sim::Options { events };
    let (results, captures) = match pcap_dir {
        Some(dir) => {
            let captures = Captures::create(&scenario, &dir).map_err(Refused::Sim)?;
            sim::run_with_captures(&scenario, options, captures, progress).map_err(Refused::Sim)?
        }
        None => (sim::run(&scenario, options, progress).map_err(Refused::Sim)?, Vec::new()),
    };
    Ok(Done { scenario, warnings, results, captures })
}

/// One run of a scenario file, resolved, and what a person should know about it.
pub(crate) fn scenario_of(
    text: &str,
    overrides: &Pairs,
    seed: Option<u64>,
    traces: &HashMap<String, String>,
) -> Result<(Scenario, Vec<String>), Refused> {
    let missing = Cell::new(false);
    let read = |name: &str| match traces.get(name) {
        Some(text) => Ok(TraceText(Arc::from(text.as_str()))),
        None => {
            missing.set(true);
            Err(NoTrace(
                "not found beside the scenario, nor in a directory of traces (--traces)".to_owned(),
            ))
        }
    };
    let refused = |error: scenario::ScenarioError| match missing.get() {
        true => Refused::Trace(error.to_string()),
        false => Refused::Scenario(error.to_string()),
    };
    let document = Document::parse(text).map_err(refused)?;
    let seed = seed.unwrap_or_else(|| document.seed());
    document.scenario(overrides, seed, &read).map_err(refused)
}

fn convert<'py>(py: Python<'py>, done: &Done, events: bool) -> PyResult<Bound<'py, PyDict>> {
    let Done { scenario, warnings, results, captures } = done;
    let run = PyDict::new(py);
    run.set_item("format", 1)?;
    run.set_item("tool", concat!("unbloat ", env!("CARGO_PKG_VERSION")))?;
    run.set_item("origin", "simulated")?;
    run.set_item("name", &scenario.name)?;
    run.set_item("about", &scenario.about)?;
    run.set_item("seed", scenario.seed)?;
    run.set_item("start_s", EPOCH_S)?;
    run.set_item("duration_s", scenario.duration.as_secs_f64())?;
    run.set_item("warmup_s", scenario.warmup.as_secs_f64())?;
    run.set_item("bin_ms", scenario.bin.as_millis_f64())?;
    let tcp: u64 = results.connections.iter().map(|c| c.packets).sum();
    let c = &results.conservation;
    for (key, value) in [
        ("packets", c.sent),
        ("bytes", results.connections.iter().map(|c| c.bytes).sum()),
        ("tcp_packets", tcp),
        ("delivered_packets", c.delivered),
        ("dropped_packets", c.dropped),
        ("lost_packets", c.lost),
        ("queued_packets", c.queued),
        ("flying_packets", c.in_flight),
        ("engine_events", results.engine_events),
        ("data_packets", results.data_packets),
    ] {
        run.set_item(key, value)?;
    }
    run.set_item("conserved", c.holds())?;
    run.set_item("nodes", scenario.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>())?;
    run.set_item("links", scenario.links.iter().map(|l| l.name.as_str()).collect::<Vec<_>>())?;
    run.set_item("transfers", scenario.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>())?;
    let probed: Vec<&str> = scenario.probes.iter().map(|p| p.name.as_str()).collect();
    run.set_item("probed", probed)?;
    let captures: Vec<String> = captures.iter().map(|p| p.display().to_string()).collect();
    run.set_item("captures", captures)?;
    run.set_item("warnings", warnings)?;

    let out = PyDict::new(py);
    add(py, &out, "connections", &mut |put| tables::connections(scenario, results, put))?;
    add(py, &out, "flows", &mut |put| tables::flows(scenario, results, put))?;
    add(py, &out, "findings", &mut |put| captured::findings(&[], units::Instant::ZERO, put))?;
    add(py, &out, "samples", &mut |put| tables::samples(results, put))?;
    if events {
        add(py, &out, "events", &mut |put| tables::events(results, put))?;
    }
    add(py, &out, "queues", &mut |put| tables::queues(scenario, results, put))?;
    add(py, &out, "stages", &mut |put| tables::stages(scenario, results, put))?;
    add(py, &out, "probes", &mut |put| tables::probes(scenario, results, put))?;
    add(py, &out, "apps", &mut |put| tables::apps(scenario, results, put))?;
    let result = PyDict::new(py);
    result.set_item("run", run)?;
    result.set_item("tables", out)?;
    Ok(result)
}

/// A run of a scenario file: labels, dotted keys with their values, seed.
type Spec = (Pairs, Pairs, u64);

/// The runs of a scenario file with some keys set from outside.
#[pyfunction]
#[pyo3(signature = (text, *, set = Vec::new()))]
pub fn scenario_runs(text: &str, set: Pairs) -> PyResult<Vec<Spec>> {
    let document = document(text, &set).map_err(wrong)?;
    Ok(document.runs().into_iter().map(|r| (r.labels, r.overrides, r.seed)).collect())
}

/// The traces that any run of a scenario file may ask for.
#[pyfunction]
#[pyo3(signature = (text, *, set = Vec::new()))]
pub fn scenario_traces(text: &str, set: Pairs) -> PyResult<Vec<String>> {
    Ok(document(text, &set).map_err(wrong)?.traces_named())
}

/// Name and description of a scenario file.
#[pyfunction]
pub fn scenario_about(text: &str) -> PyResult<(String, String)> {
    let document = Document::parse(text).map_err(wrong)?;
    Ok((document.name().to_owned(), document.about().to_owned()))
}

/// What a scenario file expects: line, labels of the runs, flow, probe, link, bounds.
#[pyfunction]
#[pyo3(signature = (text, *, set = Vec::new()))]
pub fn scenario_expectations<'py>(
    py: Python<'py>,
    text: &str,
    set: Pairs,
) -> PyResult<Bound<'py, PyList>> {
    let document = document(text, &set).map_err(wrong)?;
    let list = PyList::empty(py);
    for e in document.expectations() {
        let one = PyDict::new(py);
        let line = match e.place {
            Place::Line(n) => Some(n),
            Place::Set | Place::Nowhere => None,
        };
        one.set_item("line", line)?;
        one.set_item("run", e.run.clone())?;
        one.set_item("flow", &e.flow)?;
        one.set_item("probe", &e.probe)?;
        one.set_item("link", &e.link)?;
        let bounds = PyList::empty(py);
        for b in &e.bounds {
            let bound = PyDict::new(py);
            bound.set_item("metric", b.metric.name)?;
            bound.set_item("on", on(b.metric.on))?;
            bound.set_item("statistic", b.statistic.map(statistic))?;
            bound.set_item("min", b.min)?;
            bound.set_item("max", b.max)?;
            bounds.append(bound)?;
        }
        one.set_item("bounds", bounds)?;
        list.append(one)?;
    }
    Ok(list)
}

fn statistic(wanted: Statistic) -> &'static str {
    scenario::STATISTICS.iter().find(|(_, s)| *s == wanted).map_or("", |(name, _)| name)
}

/// What `[[expect]]` can ask: name, what it is measured on, whether it is a distribution, what it
/// says.
#[pyfunction]
pub fn scenario_metrics() -> Vec<(&'static str, &'static str, bool, &'static str)> {
    scenario::METRICS.iter().map(|m| (m.name, on(m.on), m.distribution, m.about)).collect()
}

fn on(on: On) -> &'static str {
    match on {
        On::Flow => "flow",
        On::Probe => "probe",
        On::Link => "link",
        On::Run => "run",
    }
}

/// Every algorithm: family, name, one line, whether an outside implementation was a judge of it, source, parameters.
#[pyfunction]
pub fn algorithms(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for family in Family::ALL {
        for entry in family.entries() {
            let one = PyDict::new(py);
            one.set_item("family", family.noun())?;
            one.set_item("name", entry.name)?;
            one.set_item("about", one_line(&entry.about_text()))?;
            one.set_item("judged", entry.judged)?;
            one.set_item("source", one_line(entry.source))?;
            let params = PyList::empty(py);
            for p in entry.params {
                let shown = |value: &algo::Value| scenario::scenario_value(p.unit, value);
                let range = p.range.map(|range| range());
                let param = PyDict::new(py);
                param.set_item("name", p.name)?;
                param.set_item("about", one_line(p.about))?;
                param.set_item("unit", unit(p.unit))?;
                param.set_item("default", shown(&(p.default)()))?;
                param.set_item("min", range.as_ref().and_then(|r| shown(&r.0)))?;
                param.set_item("max", range.as_ref().and_then(|r| shown(&r.1)))?;
                params.append(param)?;
            }
            one.set_item("params", params)?;
            list.append(one)?;
        }
    }
    Ok(list)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unit(unit: algo::Unit) -> String {
    match unit {
        algo::Unit::Number => "number".to_owned(),
        algo::Unit::Count => "count".to_owned(),
        algo::Unit::Flag => "flag".to_owned(),
        algo::Unit::Duration => "duration".to_owned(),
        algo::Unit::Bytes => "bytes".to_owned(),
        algo::Unit::Rate => "rate".to_owned(),
        algo::Unit::Capacity => "packets or bytes".to_owned(),
        algo::Unit::Choice(words) => words.join(" | "),
        algo::Unit::Numbers => "numbers".to_owned(),
    }
}
