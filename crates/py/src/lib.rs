//! `unbloat._native`: what crosses to Python are paths, options and whole columns; no object per
//! packet, and nothing here decides anything. Types are in `python/unbloat/_native.pyi`.

use std::collections::HashSet;
use std::path::PathBuf;

use capture::{Limit, linktype_name};
use flow::AnalyzeError;
use flow::Options;
use flow::Report;
use flow::Select;
use flow::analyze_files;
use flow::diagnose;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use scenario::JitterBuffer;
use units::{Duration, Instant};

use crate::progress::Progress;

mod columns;
mod fit;
mod locate;
mod modem;
mod plan;
mod progress;
mod sim_tables;
mod simulate;
mod tables;

create_exception!(_native, CaptureError, PyValueError, "Input that cannot be read from its start.");

fn select(wanted: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Select> {
    let Some(wanted) = wanted else { return Ok(Select::None) };
    if let Ok(text) = wanted.extract::<String>() {
        return match text.as_str() {
            "all" => Ok(Select::All),
            _ => Err(PyValueError::new_err(format!(
                "{name}: expected None, \"all\" or connection ids, got \"{text}\""
            ))),
        };
    }
    let ids: Vec<u32> = wanted.extract()?;
    Ok(Select::Connections(ids.into_iter().collect::<HashSet<u32>>()))
}

/// Analyses `paths` as one capture. `span` are two times (ns since 1970): statistics begin at the
/// first, reading ends at the second; the result then says with which sequence number each flow
/// begins. `unpacked`, a ratio and bytes, limits how large a packed file may be ([`Limit`]).
#[pyfunction]
#[pyo3(signature = (paths, *, bin_ms = 100.0, samples = None, events = None, segments = None, max_segments = 200_000, span = None, unpacked = None, progress = None))]
#[allow(clippy::too_many_arguments)]
fn analyze<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    bin_ms: f64,
    samples: Option<Bound<'py, PyAny>>,
    events: Option<Bound<'py, PyAny>>,
    segments: Option<Bound<'py, PyAny>>,
    max_segments: usize,
    span: Option<(u64, u64)>,
    unpacked: Option<(u64, u64)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    if !(1.0..=60_000.0).contains(&bin_ms) {
        return Err(PyValueError::new_err(format!("bin_ms: expected 1 to 60000, got {bin_ms}")));
    }
    if paths.is_empty() {
        return Err(PyValueError::new_err("paths: no file given"));
    }
    let options = Options {
        bin: Duration((bin_ms * 1e6) as u64),
        samples: select(samples.as_ref(), "samples")?,
        events: select(events.as_ref(), "events")?,
        segments: select(segments.as_ref(), "segments")?,
        max_segments,
        measured_from: span.map_or(Instant::ZERO, |s| Instant(s.0)),
        until: span.map_or(Instant(u64::MAX), |s| Instant(s.1)),
        unpacked: unpacked.map(|(ratio, harmless)| Limit { ratio, harmless }),
        ..Options::default()
    };
    let with = (samples.is_some(), events.is_some(), segments.is_some());
    let mut progress = Progress::new(progress);
    let result =
        py.detach(|| analyze_files(&paths, options, |done, total| progress.report((done, total))));
    match result {
        Ok(report) => convert(py, report, with, span.is_some()),
        Err(AnalyzeError::Stopped) => Err(progress.stopped()),
        Err(e) => Err(CaptureError::new_err(e.to_string())),
    }
}

fn convert<'py>(
    py: Python<'py>,
    mut report: Report,
    with: (bool, bool, bool),
    first_seqs: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let mut a = std::mem::take(&mut report.analysis);
    let origin = a.facts.start;
    let run = PyDict::new(py);
    run.set_item("format", 1)?;
    run.set_item("tool", concat!("unbloat ", env!("CARGO_PKG_VERSION")))?;
    let files: Vec<String> = report.files.iter().map(|p| p.display().to_string()).collect();
    run.set_item("files", files)?;
    let mut linktypes: Vec<String> = Vec::new();
    for source in &report.interfaces {
        let name = linktype_name(source.linktype);
        if !linktypes.contains(&name) {
            linktypes.push(name);
        }
    }
    run.set_item("linktypes", linktypes)?;
    let names: Vec<&str> = report.interfaces.iter().map(|s| s.name.as_str()).collect();
    run.set_item("interfaces", names)?;
    run.set_item("start_s", origin.as_nanos() as f64 / 1e9)?;
    run.set_item("duration_s", a.facts.end.since(origin).as_secs_f64())?;
    let p = &a.packets;
    for (key, value) in [
        ("packets", p.all),
        ("bytes", p.wire_bytes),
        ("tcp_packets", p.tcp),
        ("udp_packets", p.udp),
        ("icmp_packets", p.icmp),
        ("other_packets", p.other),
        ("not_ip_packets", p.not_ip),
        ("broken_packets", p.broken),
        ("fragments", p.fragments),
        ("duplicates", a.facts.duplicates),
    ] {
        run.set_item(key, value)?;
    }
    if let Some(drops) = a.facts.reported_drops {
        run.set_item("reported_drops", drops)?;
    }
    run.set_item("warnings", report.warnings.clone())?;

    let out = PyDict::new(py);
    // Rows are dropped table by table: with many connections they are most of the memory.
    let rows = std::mem::take(&mut a.flows);
    add(py, &out, "flows", &mut |put| tables::flows(&rows, origin, put))?;
    let result = PyDict::new(py);
    if first_seqs {
        result.set_item("first_seqs", rows.iter().map(|f| f.first_seq).collect::<Vec<_>>())?;
    }
    drop(rows);
    add(py, &out, "connections", &mut |put| tables::connections(&a.connections, origin, put))?;
    add(py, &out, "findings", &mut |put| tables::findings(&a.findings, origin, put))?;
    if with.0 {
        add(py, &out, "samples", &mut |put| tables::samples(&a.samples, origin, put))?;
    }
    if with.1 {
        add(py, &out, "events", &mut |put| tables::events(&a.events, origin, put))?;
    }
    if with.2 {
        add(py, &out, "segments", &mut |put| tables::segments(&a.segments, origin, put))?;
    }
    result.set_item("run", run)?;
    result.set_item("tables", out)?;
    Ok(result)
}

/// Makes a table and puts it under its name.
fn add(
    py: Python<'_>,
    out: &Bound<'_, PyDict>,
    name: &str,
    make: &mut dyn FnMut(tables::Put<'_>),
) -> PyResult<()> {
    let list = PyList::empty(py);
    let mut failed = None;
    make(&mut |column| {
        let appended = column.into_py(py).and_then(|column| list.append(column));
        failed = failed.take().or(appended.err());
    });
    match failed {
        Some(error) => Err(error),
        None => out.set_item(name, list),
    }
}

/// Name, one line, source and manual page of every rule.
#[pyfunction]
fn rules() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    diagnose::TABLE.iter().map(|r| (r.name, r.about, r.source, r.page)).collect()
}

/// Name and number of every link type that can be read.
#[pyfunction]
fn linktypes() -> Vec<(u16, String)> {
    capture::LINKTYPES.iter().map(|(number, _)| (*number, linktype_name(*number))).collect()
}

/// MOS of a mouth-to-ear delay (ms) and a share of lost packets, by the E-model.
#[pyfunction]
fn mos(delay_ms: f64, loss: f64) -> f64 {
    sim::mos(delay_ms, loss)
}

/// From which pauses on the next packet takes longer: last pause without, first one with, median of the extra time (ms).
#[pyfunction]
fn pause_steps(pauses_s: Vec<f64>, extras_ms: Vec<f64>) -> Vec<(f64, f64, f64)> {
    let steps = diagnose::pauses::steps(pauses_s.into_iter().zip(extras_ms).collect());
    steps.into_iter().map(|step| (step.from_s, step.until_s, step.extra_ms)).collect()
}

/// Packets sent and arrived to (time, MOS) of each ten seconds and MOS of the call.
type Scores = (Vec<(f64, f64)>, Option<f64>);

/// Scores a call as the simulator does: from the times of sending and the (time, delay) of arrivals,
/// in seconds. The jitter buffer waits `jitter_buffer_s` after the smallest delay; without it it
/// adapts, and waits `jitter_min_s` at least.
#[pyfunction]
#[pyo3(signature = (every_s, jitter_buffer_s, jitter_min_s, sent_s, arrived_s))]
fn voice_scores(
    every_s: f64,
    jitter_buffer_s: Option<f64>,
    jitter_min_s: Option<f64>,
    sent_s: Vec<f64>,
    arrived_s: Vec<(f64, f64)>,
) -> Scores {
    let ns = |s: f64| (s * 1e9).round() as u64;
    let buffer = match jitter_buffer_s {
        Some(wait) => JitterBuffer::Fixed(Duration(ns(wait))),
        None => JitterBuffer::Adaptive { least: Duration(ns(jitter_min_s.unwrap_or(0.0))) },
    };
    let sent: Vec<Instant> = sent_s.into_iter().map(|at| Instant(ns(at))).collect();
    let arrived =
        arrived_s.into_iter().map(|(at, delay)| (Instant(ns(at)), Duration(ns(delay)))).collect();
    let (windows, total) = sim::scores(Duration(ns(every_s)), buffer, &sent, arrived);
    (windows.into_iter().map(|(at, score)| (at.0 as f64 / 1e9, score)).collect(), total)
}

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("version", env!("CARGO_PKG_VERSION"))?;
    m.add("CaptureError", m.py().get_type::<CaptureError>())?;
    m.add_function(wrap_pyfunction!(analyze, m)?)?;
    m.add("ScenarioError", m.py().get_type::<simulate::ScenarioError>())?;
    m.add("TraceMissing", m.py().get_type::<simulate::TraceMissing>())?;
    m.add_function(wrap_pyfunction!(simulate::simulate, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::scenario_runs, m)?)?;
    m.add_function(wrap_pyfunction!(plan::scenario_plan, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::scenario_traces, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::scenario_about, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::scenario_expectations, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::scenario_metrics, m)?)?;
    m.add_function(wrap_pyfunction!(simulate::algorithms, m)?)?;
    m.add_function(wrap_pyfunction!(locate::locate, m)?)?;
    m.add_function(wrap_pyfunction!(fit::fit_rate, m)?)?;
    m.add_function(wrap_pyfunction!(modem::modem_log, m)?)?;
    m.add_function(wrap_pyfunction!(modem::modem_clock, m)?)?;
    m.add_function(wrap_pyfunction!(mos, m)?)?;
    m.add_function(wrap_pyfunction!(pause_steps, m)?)?;
    m.add_function(wrap_pyfunction!(voice_scores, m)?)?;
    m.add_function(wrap_pyfunction!(rules, m)?)?;
    m.add_function(wrap_pyfunction!(linktypes, m)?)
}
