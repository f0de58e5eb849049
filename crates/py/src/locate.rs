//! `unbloat._native.locate`: paths in; what the path is, and the tables of `docs/locate.md`.

use std::path::PathBuf;

use flow::locate::{LocateError, Located, LossKind, Options, SegmentRow, locate_files};
use flow::series::rows::Protocol;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use units::Duration;

use crate::CaptureError;
use crate::columns::Column;
use crate::progress::Progress;
use crate::tables::{Put, quantiles};

/// Locates the queue on the path that captures of successive points show.
#[pyfunction]
#[pyo3(signature = (paths, *, bin_ms = 100.0, connection = None, one_clock = false, progress = None))]
pub fn locate<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    bin_ms: f64,
    connection: Option<u32>,
    one_clock: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    if !(1.0..=60_000.0).contains(&bin_ms) {
        return Err(PyValueError::new_err(format!("bin_ms: expected 1 to 60000, got {bin_ms}")));
    }
    let options = Options { bin: Duration((bin_ms * 1e6) as u64), connection, one_clock };
    let mut progress = Progress::new(progress);
    let result =
        py.detach(|| locate_files(&paths, options, |done, total| progress.report((done, total))));
    match result {
        Ok(located) => convert(py, &located),
        Err(LocateError::Stopped) => Err(progress.stopped()),
        Err(e @ (LocateError::Points { .. } | LocateError::NoConnection { .. })) => {
            Err(PyValueError::new_err(e.to_string()))
        }
        Err(e) => Err(CaptureError::new_err(e.to_string())),
    }
}

fn convert<'py>(py: Python<'py>, located: &Located) -> PyResult<Bound<'py, PyDict>> {
    let run = PyDict::new(py);
    run.set_item("format", 1)?;
    run.set_item("tool", concat!("unbloat ", env!("CARGO_PKG_VERSION")))?;
    run.set_item("origin", "located")?;
    let files: Vec<String> = located.points.iter().map(|p| p.path.display().to_string()).collect();
    run.set_item("files", files)?;
    run.set_item("given", located.points.iter().map(|p| p.given).collect::<Vec<usize>>())?;
    run.set_item("order_by", located.order_by.name())?;
    run.set_item("start_s", located.start_s)?;
    run.set_item("duration_s", located.duration_s)?;
    run.set_item("unlisted_losses", located.unlisted_losses)?;
    run.set_item("warnings", located.warnings.clone())?;
    let out = PyDict::new(py);
    crate::add(py, &out, "points", &mut |put| points(located, put))?;
    crate::add(py, &out, "clocks", &mut |put| clocks(located, put))?;
    crate::add(py, &out, "steps", &mut |put| steps(located, put))?;
    crate::add(py, &out, "stretches", &mut |put| path_segments(&located.segments, put))?;
    crate::add(py, &out, "delays", &mut |put| delays(located, put))?;
    crate::add(py, &out, "losses", &mut |put| losses(located, put))?;
    crate::add(py, &out, "connections", &mut |put| connections(located, put))?;
    let result = PyDict::new(py);
    result.set_item("run", run)?;
    result.set_item("tables", out)?;
    Ok(result)
}

fn points(located: &Located, put: Put<'_>) {
    let r = || located.points.iter();
    put(Column::u32("id", (0..located.points.len()).map(|i| i as u32)));
    put(Column::str("file", r().map(|p| p.path.display().to_string())));
    put(Column::u32("given", r().map(|p| p.given as u32)));
    put(Column::f64("start_s", r().map(|p| p.start_s)));
    put(Column::f64("duration_s", r().map(|p| p.duration_s)));
    put(Column::u64("packets", r().map(|p| p.packets)));
    put(Column::u64("bytes", r().map(|p| p.bytes)));
    put(Column::u64("packets_elsewhere", r().map(|p| p.elsewhere)));
    put(Column::u64("capture_drops", r().map(|p| p.drops)));
    put(Column::u64("capture_drop_bytes", r().map(|p| p.dropped_bytes)));
    put(Column::u64("duplicates", r().map(|p| p.duplicates)));
    put(Column::maybe_u64("reported_drops", r().map(|p| p.reported_drops)));
}

fn clocks(located: &Located, put: Put<'_>) {
    let r = || located.clocks.iter();
    put(Column::u32("from_point", (0..located.clocks.len()).map(|i| i as u32)));
    put(Column::u32("to_point", (0..located.clocks.len()).map(|i| i as u32 + 1)));
    put(Column::f64("offset_ms", r().map(|c| c.offset_ms)));
    put(Column::maybe_f64("uncertainty_ms", r().map(|c| c.uncertainty_ms)));
    put(Column::f64("drift_ppm", r().map(|c| c.drift_ppm)));
    put(Column::u32("steps", r().map(|c| c.steps.len() as u32)));
    put(Column::bool("one_clock", r().map(|c| c.one_clock)));
    put(Column::maybe_u32("hops", r().map(|c| c.hops.map(u32::from))));
    put(Column::u64("renamed_connections", r().map(|c| c.renamed)));
    put(Column::maybe_u32("mss_before", r().map(|c| c.mss.map(|m| u32::from(m.0)))));
    put(Column::maybe_u32("mss_behind", r().map(|c| c.mss.map(|m| u32::from(m.1)))));
}

fn steps(located: &Located, put: Put<'_>) {
    let all: Vec<(u32, f64, f64)> = located
        .clocks
        .iter()
        .enumerate()
        .flat_map(|(i, c)| c.steps.iter().map(move |(t, by)| (i as u32, *t, *by)))
        .collect();
    put(Column::u32("from_point", all.iter().map(|s| s.0)));
    put(Column::f64("t_s", all.iter().map(|s| s.1)));
    put(Column::f64("step_ms", all.iter().map(|s| s.2)));
}

fn direction(forward: bool) -> &'static str {
    if forward { "forward" } else { "backward" }
}

fn path_segments(rows: &[SegmentRow], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u32("id", (0..rows.len()).map(|i| i as u32)));
    put(Column::u32("from_point", r().map(|s| s.from as u32)));
    put(Column::u32("to_point", r().map(|s| s.to as u32)));
    put(Column::str("direction", r().map(|s| direction(s.forward))));
    put(Column::bool("whole_path", r().map(|s| s.path)));
    put(Column::u64("packets", r().map(|s| s.packets)));
    put(Column::u64("bytes", r().map(|s| s.bytes)));
    quantiles(put, "delay_ms", rows, |s| s.delay_ms);
    quantiles(put, "queue_ms", rows, |s| s.queue_ms);
    put(Column::maybe_f64("queue_ms_mean", r().map(|s| s.queue_ms_mean)));
    put(Column::maybe_f64("share", r().map(|s| s.share)));
    put(Column::u64("lost_packets", r().map(|s| s.lost)));
    put(Column::u64("lost_bytes", r().map(|s| s.lost_bytes)));
    put(Column::u64("undecided_packets", r().map(|s| s.undecided)));
    put(Column::u64("reordered_packets", r().map(|s| s.reordered)));
    put(Column::maybe_f64("reordered_ms_max", r().map(|s| s.reordered_ms_max)));
    put(Column::u64("ecn_marked_packets", r().map(|s| s.ecn_marked)));
    put(Column::u64("windows_rewritten", r().map(|s| s.windows_rewritten)));
}

fn delays(located: &Located, put: Put<'_>) {
    let r = || located.delays.iter();
    put(Column::u32("stretch", r().map(|d| d.segment as u32)));
    put(Column::f64("t_s", r().map(|d| d.t_s)));
    put(Column::u64("packets", r().map(|d| d.packets)));
    put(Column::u64("bytes", r().map(|d| d.bytes)));
    put(Column::maybe_f64("delay_ms_min", r().map(|d| d.delay_ms.map(|v| v.0))));
    put(Column::maybe_f64("delay_ms", r().map(|d| d.delay_ms.map(|v| v.1))));
    put(Column::maybe_f64("delay_ms_max", r().map(|d| d.delay_ms.map(|v| v.2))));
    put(Column::maybe_f64("queue_ms_min", r().map(|d| d.queue_ms.map(|v| v.0))));
    put(Column::maybe_f64("queue_ms", r().map(|d| d.queue_ms.map(|v| v.1))));
    put(Column::u64("lost_packets", r().map(|d| d.lost)));
}

fn losses(located: &Located, put: Put<'_>) {
    let r = || located.losses.iter();
    put(Column::f64("t_s", r().map(|l| located.loss_s(l))));
    put(Column::str(
        "kind",
        r().map(|l| match l.kind {
            LossKind::Segment => "lost",
            LossKind::Capture => "capture_drop",
        }),
    ));
    put(Column::u32("place", r().map(|l| l.place as u32)));
    put(Column::str("direction", r().map(|l| direction(l.forward))));
    put(Column::u32("connection", r().map(|l| l.connection)));
    put(Column::u64("packets", r().map(|l| l.packets)));
    put(Column::u64("bytes", r().map(|l| l.bytes)));
    put(Column::u64("seq", r().map(|l| l.from.max(0) as u64)));
}

fn connections(located: &Located, put: Put<'_>) {
    let r = || located.connections.iter();
    put(Column::u32("id", r().map(|c| c.id)));
    put(Column::str(
        "proto",
        r().map(|c| match c.protocol {
            Protocol::Tcp => "tcp".into(),
            Protocol::Udp => "udp".into(),
            Protocol::Icmp => "icmp".into(),
            Protocol::Other(n) => n.to_string(),
        }),
    ));
    put(Column::str("a_addr", r().map(|c| c.a_addr.to_string())));
    put(Column::u16("a_port", r().map(|c| c.a_port)));
    put(Column::str("b_addr", r().map(|c| c.b_addr.to_string())));
    put(Column::u16("b_port", r().map(|c| c.b_port)));
    let names = |c: &flow::locate::ConnectionRow| {
        c.points.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    put(Column::str("points", r().map(|c| names(c).join(" "))));
    put(Column::u64("packets", r().map(|c| c.packets)));
    put(Column::u64("bytes", r().map(|c| c.bytes)));
    put(Column::maybe_str(
        "opened_by",
        r().map(|c| c.opened_by_a.map(|a| if a { "a" } else { "b" })),
    ));
}
