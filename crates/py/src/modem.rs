//! `unbloat._native.modem_log` and `modem_clock`: the log of a modem as columns, and the host's clock beside its own.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ::modem::host_clock::fit;
use ::modem::layout;
use ::modem::summary::{code_text, version_text};
use ::modem::timeline::{Batch, Grant, Layer, Moved, Timeline, timeline};
use flow::sent::sent_by;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::CaptureError;
use crate::columns::Column;
use crate::tables::Put;

/// The whole log: tables `buffer`, `grants`, `records`, and how many frames were damaged.
#[pyfunction]
pub fn modem_log<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let log = py.detach(|| read(&path))?;
    let tables = PyDict::new(py);
    crate::add(py, &tables, "buffer", &mut |put| {
        put(Column::u64("modem_ns", log.buffer.iter().map(|s| s.at_ns.unsigned_abs())));
        put(Column::u64("bytes", log.buffer.iter().map(|s| s.bytes)));
    })?;
    crate::add(py, &tables, "grants", &mut |put| grants(&log.grants, put))?;
    crate::add(py, &tables, "records", &mut |put| records(&log.batches, put))?;
    let result = PyDict::new(py);
    result.set_item("tables", tables)?;
    result.set_item("damaged", log.damaged)?;
    Ok(result)
}

/// Fits the clocks of a log and of a capture whose `hosts` are behind the modem. With the offset come the packets that
/// they sent, table `sent`. A `ValueError` says why there is no offset.
#[pyfunction]
pub fn modem_clock<'py>(
    py: Python<'py>,
    path: PathBuf,
    captures: Vec<PathBuf>,
    hosts: Vec<IpAddr>,
) -> PyResult<Bound<'py, PyDict>> {
    let hosts: HashSet<IpAddr> = hosts.into_iter().collect();
    let (sent, clock) = py.detach(|| {
        let log = read(&path)?;
        let sent = sent_by(&captures, &hosts).map_err(|e| CaptureError::new_err(e.to_string()))?;
        let sent: Vec<Moved> = sent
            .into_iter()
            .map(|(at, bytes)| Moved { at_ns: at.0.cast_signed(), bytes: bytes.get() })
            .collect();
        let clock = fit(&sent, &log.buffer, &log.left());
        let clock = clock.map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok::<_, PyErr>((sent, clock))
    })?;
    let tables = PyDict::new(py);
    crate::add(py, &tables, "sent", &mut |put| {
        put(Column::u64("host_ns", sent.iter().map(|s| s.at_ns.unsigned_abs())));
        put(Column::u64("bytes", sent.iter().map(|s| s.bytes)));
    })?;
    let result = PyDict::new(py);
    result.set_item("tables", tables)?;
    result.set_item("at_ns", clock.at_ns)?;
    result.set_item("offset_ns", clock.offset_ns)?;
    result.set_item("skew", clock.skew)?;
    result.set_item("uncertainty_ns", clock.uncertainty_ns)?;
    result.set_item("explained", clock.explained)?;
    Ok(result)
}

fn read(path: &Path) -> PyResult<Timeline> {
    let bytes = std::fs::read(path)?;
    timeline(&bytes).map_err(|e| CaptureError::new_err(format!("{}: {e}", path.display())))
}

fn grants(rows: &[Grant], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u64("modem_ns", r().map(|g| g.at_ns.unsigned_abs())));
    put(Column::str(
        "layer",
        r().map(|g| match g.layer {
            Layer::Mac => "mac",
            Layer::Phy => "phy",
        }),
    ));
    put(Column::u64("granted_bytes", r().map(|g| g.granted)));
    put(Column::maybe_u64("padding_bytes", r().map(|g| g.padding)));
    put(Column::u8("retransmission", r().map(|g| g.retransmission)));
}

fn records(rows: &[Batch], put: Put<'_>) {
    let r = || rows.iter();
    put(Column::u64("modem_ns", r().map(|b| b.at_ns.unsigned_abs())));
    put(Column::str("code", r().map(|b| code_text(b.code))));
    put(Column::maybe_str("name", r().map(|b| layout::name(b.code))));
    put(Column::str("version", r().map(|b| version_text(b.code, b.version))));
    put(Column::u32("entries", r().map(|b| b.entries)));
    put(Column::bool("described", r().map(|b| b.is_described)));
    put(Column::maybe_str("unread", r().map(|b| b.unread.as_deref())));
}
