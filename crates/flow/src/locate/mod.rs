//! Compares captures from several points of one path: in which path segment the queue is, and where packets were lost.
//! A path segment is the part of the path between two neighbouring points.
//!
//! 1. `survey` reads each capture once and takes a sample of packets by content.
//! 2. `path_order` finds common flows, the order of the points, and the differences of the clocks.
//! 3. `matching` reads all files together by corrected time and finds each packet at all points.
//! 4. `segment` counts delays and losses of each path segment.
//! 5. `report` removes the remaining offset and drift of the clocks (`clock`) and makes the rows ([`Located`]).
//!
//! Queueing delay is relative to the minimum delay of the path segment, so the offset of the clocks has no effect on it:
//! half a round trip of that offset can never be known. Drift has an effect, and is removed.
//!
//! Memory grows with the number of flows, packets on their way and bins, not with the number of packets.

mod matching;
mod packet;
mod path_order;
mod report;
mod rows;
mod segment;
mod survey;

use std::io::Read;
use std::path::{Path, PathBuf};

use capture::{Decoded, Decoder, OpenError, Reader, TcpSegment};
use units::Duration;

use matching::{Matching, Observation, Sighting};
use packet::{CommonContent, Packet};
use path_order::{ClockEra, FlowFacts, PathLayout, to_reference};
use segment::PathStats;
use survey::{Survey, signed};

pub use path_order::OrderBy;
pub use rows::{ClockRow, ConnectionRow, DelayRow, Located, Loss, LossKind, PointRow, SegmentRow};

/// Maximum number of captures; more points are never available on one path.
pub const MAX_POINTS: usize = 8;
/// Frames between two calls of the progress function.
pub(crate) const TICK: u64 = 65_536;

/// Options of [`locate_files`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of a bin in the series of delays.
    pub bin: Duration,
    /// Count only this connection. Order and clocks are still found from all.
    pub connection: Option<u32>,
    /// All captures were taken with one clock, so that no time is corrected.
    pub one_clock: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { bin: Duration::from_millis(100), connection: None, one_clock: false }
    }
}

/// Why the captures could not be compared.
#[derive(thiserror::Error, Debug)]
pub enum LocateError {
    /// A file could not be opened or is no capture.
    #[error("{path}: {source}")]
    Open {
        /// The path as given.
        path: String,
        /// The reason.
        source: OpenError,
    },
    /// The number of captures is not between two and eight.
    #[error("a path needs captures of 2 to {MAX_POINTS} points, got {got}")]
    Points {
        /// Number of captures given.
        got: usize,
    },
    /// Two captures are not from one path, or something between them rewrites every packet.
    #[error("{a} and {b} have no packet in common")]
    NothingInCommon {
        /// The first capture.
        a: String,
        /// The second capture.
        b: String,
    },
    /// The connection requested does not exist.
    #[error("no connection {id}: they are numbered from 0 to {last}")]
    NoConnection {
        /// Number of the connection requested.
        id: u32,
        /// Highest number of a connection.
        last: u32,
    },
    /// The progress function asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Opens the capture of a point; called for each of the two readings.
type Open<'a> = &'a dyn Fn(usize) -> Result<Reader<Box<dyn Read + Send>>, LocateError>;

/// Locates the queue on a path from captures of successive points. `progress` gets the bytes read and the total;
/// returning false stops the work.
pub fn locate_files(
    paths: &[PathBuf],
    options: Options,
    progress: impl FnMut(u64, u64) -> bool,
) -> Result<Located, LocateError> {
    let sizes =
        paths.iter().map(|p| std::fs::metadata(p).map_or(0, |m| m.len())).collect::<Vec<u64>>();
    locate(paths, &sizes, &|i| survey::open(&paths[i]), options, progress)
}

/// As [`locate_files`], for captures in memory.
pub fn locate_bytes(captures: &[Vec<u8>], options: Options) -> Result<Located, LocateError> {
    let names: Vec<PathBuf> =
        (0..captures.len()).map(|i| PathBuf::from(format!("capture {i}"))).collect();
    let sizes: Vec<u64> = captures.iter().map(|c| c.len() as u64).collect();
    let open = |i: usize| {
        let input: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(captures[i].clone()));
        let path = format!("capture {i}");
        Reader::new(input).map_err(|source| LocateError::Open { path, source })
    };
    locate(&names, &sizes, &open, options, |_, _| true)
}

fn locate(
    paths: &[PathBuf],
    sizes: &[u64],
    open: Open<'_>,
    options: Options,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Located, LocateError> {
    if !(2..=MAX_POINTS).contains(&paths.len()) {
        return Err(LocateError::Points { got: paths.len() });
    }
    let readers = (0..paths.len()).map(open).collect::<Result<Vec<_>, _>>()?;
    let common = survey::common_content(readers);
    let whole: u64 = sizes.iter().sum();
    let mut before = 0;
    let mut surveys = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let size = sizes[i];
        let mut tick = |offset: u64| progress(before + offset.min(size), whole * 2);
        surveys.push(Survey::read(path, open(i)?, common, &mut tick)?);
        before += size;
    }
    let mut layout = path_order::lay_out(&surveys)?;
    if options.one_clock {
        layout.clocks.iter_mut().for_each(Vec::clear);
    }
    let last = layout.flows.iter().map(|f| f.facts.connection).max().unwrap_or(0);
    if let Some(id) = options.connection.filter(|id| *id > last) {
        return Err(LocateError::NoConnection { id, last });
    }
    let mut inputs = layout
        .order
        .iter()
        .enumerate()
        .map(|(position, given)| Ok(Input::new(position, *given, open(*given)?)))
        .collect::<Result<Vec<_>, LocateError>>()?;
    let spans = layout
        .order
        .iter()
        .map(|given| span(&surveys[*given], &layout.clocks[*given], layout.origin))
        .collect();
    let flows: Vec<FlowFacts> = layout.flows.iter().map(|f| f.facts).collect();
    let mut matching = Matching::new(paths.len(), flows.len());
    let mut path_stats = PathStats::new(
        flows,
        spans,
        layout.origin,
        options.bin.as_nanos().min(i64::MAX as u64) as i64,
        options.connection,
    );
    let mut frames = 0u64;
    for input in &mut inputs {
        input.fill(&layout, &surveys, &path_stats, common);
    }
    loop {
        let earliest = inputs.iter_mut().filter(|i| i.next.is_some()).min_by_key(|i| i.time);
        let Some(input) = earliest else { break };
        if let Some((packet, segment, flow)) = &input.next {
            let sighting = Sighting { time: input.time, window: packet.window, ecn: packet.ecn };
            let Some(facts) = path_stats.flows.get(*flow as usize).copied() else { break };
            let observation = Observation {
                position: input.position,
                sighting,
                flow: *flow,
                facts,
                packet,
                tcp: segment.as_ref(),
            };
            matching.observe(&observation, &mut path_stats);
        }
        input.fill(&layout, &surveys, &path_stats, common);
        frames += 1;
        if frames.is_multiple_of(TICK) {
            let done = inputs.iter().map(|i| i.reader.offset().min(sizes[i.given])).sum::<u64>();
            if !progress(whole + done, whole * 2) {
                return Err(LocateError::Stopped);
            }
        }
    }
    matching.finish(&mut path_stats);
    let elsewhere = inputs.iter().map(|i| i.elsewhere).collect();
    Ok(report::report(&layout, &surveys, path_stats, elsewhere, options))
}

/// Times of first and last packet by the reference clock, ns.
fn span(survey: &Survey, eras: &[ClockEra], origin: i64) -> (i64, i64) {
    (
        to_reference(eras, 0, survey.first, origin, None),
        to_reference(eras, u64::MAX, survey.last, origin, None),
    )
}

/// A capture in its second reading.
struct Input {
    position: usize,
    given: usize,
    reader: Reader<Box<dyn Read + Send>>,
    decoder: Decoder,
    ordinal: u64,
    /// Time of `next` by the reference clock, ns.
    time: i64,
    next: Option<(Packet, Option<TcpSegment>, u32)>,
    elsewhere: u64,
}

impl Input {
    fn new(position: usize, given: usize, reader: Reader<Box<dyn Read + Send>>) -> Input {
        let decoder = Decoder::new();
        Input {
            position,
            given,
            reader,
            decoder,
            ordinal: 0,
            time: i64::MIN,
            next: None,
            elsewhere: 0,
        }
    }

    /// Reads up to the next packet of a flow that another point has as well.
    fn fill(
        &mut self,
        layout: &PathLayout,
        surveys: &[Survey],
        path_stats: &PathStats,
        common: CommonContent,
    ) {
        self.next = None;
        let (survey, flow_of) = (&surveys[self.given], &layout.flow_of[self.given]);
        // The first reading has already warned of corrupt records.
        while let Ok(Some(frame)) = self.reader.next_frame() {
            let decoded = self.decoder.decode(&frame);
            let ordinal = self.ordinal;
            self.ordinal += 1;
            let Some(packet) = Packet::of(&frame, &decoded, common) else { continue };
            let flow = survey.index.get(&packet.tuple).and_then(|x| flow_of.get(*x as usize));
            let Some((flow, facts)) =
                flow.and_then(|f| Some((*f, path_stats.flows.get(*f as usize)?)))
            else {
                continue;
            };
            if facts.mask.count_ones() < 2 {
                self.elsewhere += 1;
                continue;
            }
            let near = (self.time != i64::MIN).then_some(self.time);
            self.time = to_reference(
                &layout.clocks[self.given],
                ordinal,
                signed(frame.time),
                layout.origin,
                near,
            );
            let segment = match decoded {
                Decoded::Tcp(s) => Some(s),
                _ => None,
            };
            self.next = Some((packet, segment, flow));
            return;
        }
    }
}

/// The name of a file without its folder, for messages.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
