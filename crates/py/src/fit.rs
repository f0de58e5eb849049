//! The rate of a link over time, from one flow of a capture.

use std::collections::HashSet;
use std::path::PathBuf;

use algo::Rng;
use fit::{Refused, Seen};
use flow::{AnalyzeError, Options, Select, analyze_files};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::CaptureError;
use crate::progress::Progress;

/// Fits the link in front of flow `flow` of the capture `paths`: `from_s` (since 1970), `width_s`, `draws` (bit/s by slot),
/// `seen_bps` and `queued` (whether it is the rate or a lower bound), `arrived_bps`, `drift` and `jump`, `pauses` and `filled` (whether
/// others share the queue), `hold_ms` (length and period of the holds of ACKs, whether only a long queue has them, and when the first one ended, or none), `at_losses` (bytes of all in it), `losses_in_short`
/// `segments_in_short`, `rank_in_short` and `short` (losses in a short queue, the segments lost in them, how long their queue was among all
/// short ones, and the part of the segments there),
/// `first_flight_bytes` (or none) and `pauses_s` (bytes before each, and its length). The flows `beside` are those that may. Where nothing is known: `refused`, and a lower bound of the
/// rate, if there is one.
#[pyfunction]
#[pyo3(signature = (paths, flow, *, beside, draws, seed, progress = None))]
pub fn fit_rate<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    flow: u32,
    beside: Vec<u32>,
    draws: usize,
    seed: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let own = || Select::Connections(HashSet::from([flow / 2]));
    let options = Options {
        directions: Select::Connections(
            beside.iter().chain([&flow]).map(|id| id / 2).collect::<HashSet<u32>>(),
        ),
        events: own(),
        segments: own(),
        trips_every: fit::TRIPS_EVERY,
        ..Options::default()
    };
    let mut progress = Progress::new(progress);
    let read =
        py.detach(|| analyze_files(&paths, options, |done, total| progress.report((done, total))));
    let analysis = match read {
        Ok(report) => report.analysis,
        Err(AnalyzeError::Stopped) => return Err(progress.stopped()),
        Err(e) => return Err(CaptureError::new_err(e.to_string())),
    };
    let row = analysis.flows.iter().find(|row| row.id == flow);
    let connection = analysis.connections.iter().find(|row| row.id == flow / 2);
    let Some((row, connection)) = row.zip(connection) else {
        return Err(PyValueError::new_err(format!("flow: the capture has no flow {flow}")));
    };
    let out = PyDict::new(py);
    let found = analysis.directions.iter().find(|(id, _)| *id == flow);
    let Some((_, directions)) = found else {
        out.set_item("refused", "no timestamps")?;
        return Ok(out);
    };
    let others: Vec<_> = analysis
        .directions
        .iter()
        .filter(|(id, _)| *id != flow && beside.contains(id))
        .map(|(_, directions)| directions)
        .collect();
    let v6 = connection.a_addr.to_ip().is_ipv6();
    let mut random = Rng::new(seed, "fit");
    match py.detach(|| fit::rate(row, directions, &others, v6, draws, &mut random)) {
        Err(Refused::Short) => out.set_item("refused", "short")?,
        Err(Refused::NeverFull { queued_s, at_least_bps }) => {
            out.set_item("refused", "never full")?;
            out.set_item("queued_s", queued_s)?;
            out.set_item("at_least_bps", at_least_bps)?;
        }
        Ok(rate) => {
            let complete = connection.syn_seen;
            let ends = fit::ends(row, &analysis.segments, &analysis.events, complete);
            out.set_item("first_flight_bytes", ends.first_flight)?;
            let pauses = ends.pauses.iter().map(|(at, length)| (*at, length.as_secs_f64()));
            out.set_item("pauses_s", pauses.collect::<Vec<_>>())?;
            let seen = || rate.seen.iter();
            out.set_item("from_s", rate.from.as_nanos() as f64 / 1e9)?;
            out.set_item("width_s", rate.width.as_secs_f64())?;
            let bps = seen().map(|slot| match slot {
                Seen::Rate { bps, .. } | Seen::AtLeast { bps } => *bps,
            });
            out.set_item("seen_bps", bps.collect::<Vec<f64>>())?;
            let queued = seen().map(|slot| matches!(slot, Seen::Rate { .. }));
            out.set_item("queued", queued.collect::<Vec<bool>>())?;
            out.set_item("drift", rate.habit.drift)?;
            out.set_item("jump", rate.habit.jump)?;
            out.set_item("pauses", rate.sharing.pauses)?;
            out.set_item("filled", rate.sharing.filled)?;
            out.set_item("shared", rate.shared)?;
            let ms = |duration: units::Duration| duration.as_millis_f64();
            let hold = rate
                .holds
                .map(|hold| (ms(hold.length), ms(hold.every), hold.in_long_queue, ms(hold.from)));
            out.set_item("hold_ms", hold)?;
            out.set_item("at_losses", rate.losses.queued)?;
            out.set_item("losses_in_short", rate.losses.in_short)?;
            out.set_item("segments_in_short", rate.losses.segments)?;
            out.set_item("rank_in_short", rate.losses.rank)?;
            out.set_item("short", rate.losses.short)?;
            out.set_item("arrived_bps", rate.arrived)?;
            out.set_item("draws", rate.draws)?;
        }
    }
    Ok(out)
}
