//! Captures of one path taken at several points: on which stretch the queue stands, and where packets were lost.
//!
//! signal: two to eight captures of successive points · model: `survey` reads each and takes a sample by content, `line`
//! lays them beside each other (flows, order, clocks), `matching` finds each packet at all points in one reading of
//! all files by corrected time, `stretch` counts, `clock` removes what is left of offset and drift · action: [`Located`]
//!
//! What of a delay stands in a queue is counted from the stretch's smallest delay, so the clocks' offset, of which half
//! a round trip can never be known, has no part in it; drift has, and is removed.
//!
//! Memory grows with flows, with packets on the way, and with time (bins), not with packets.

mod path_order;
mod segment;

mod clock;
mod matching;
mod packet;
mod report;
mod rows;
mod survey;

use std::io::Read;
use std::path::{Path, PathBuf};

use capture::{Decoded, Decoder, OpenError, Reader, TcpSegment};
use units::Duration;

use crate::locate::path_order::{Era, Line, to_reference};
use crate::locate::segment::Books;
use matching::{Matching, Passing, Sight};
use packet::{Kept, Packet};
use survey::{Survey, signed};

pub use crate::locate::path_order::OrderBy;
pub use rows::{ClockRow, ConnectionRow, DelayRow, Located, Loss, LossKind, PointRow, StretchRow};

/// Captures of one path: more points than anybody has machines on it.
pub const MOST_POINTS: usize = 8;
/// Frames between two looks at the progress function.
pub(crate) const TICK: u64 = 65_536;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of a bin of the series.
    pub bin: Duration,
    /// Count only this connection; the clocks are still those of all.
    pub connection: Option<u32>,
    /// All captures read one clock: nothing is corrected.
    pub one_clock: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { bin: Duration::from_millis(100), connection: None, one_clock: false }
    }
}

/// Why nothing could be located.
#[derive(thiserror::Error, Debug)]
pub enum LocateError {
    /// A file could not be opened or is no capture.
    #[error("{path}: {source}")]
    Open {
        /// Which.
        path: String,
        /// Why.
        source: OpenError,
    },
    /// Not two to eight captures.
    #[error("a path needs captures of 2 to {MOST_POINTS} points, got {got}")]
    Points {
        /// How many.
        got: usize,
    },
    /// Two captures do not belong to one path, or something between rewrites every packet.
    #[error("{a} and {b} have no packet in common")]
    NothingInCommon {
        /// One.
        a: String,
        /// The other.
        b: String,
    },
    /// The connection that was asked for is not there.
    #[error("no connection {id}: they are numbered from 0 to {last}")]
    NoConnection {
        /// Asked for.
        id: u32,
        /// The last one.
        last: u32,
    },
    /// The progress function asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Where the packets of a point come from, twice.
type Open<'a> = &'a dyn Fn(usize) -> Result<Reader<Box<dyn Read + Send>>, LocateError>;

/// Locates the queue on a path from captures of successive points. `progress` hears bytes read and bytes in all, and may
/// stop the work by returning false.
pub fn locate_files(
    paths: &[PathBuf],
    options: Options,
    progress: impl FnMut(u64, u64) -> bool,
) -> Result<Located, LocateError> {
    let sizes =
        paths.iter().map(|p| std::fs::metadata(p).map_or(0, |m| m.len())).collect::<Vec<u64>>();
    locate(paths, &sizes, &|i| survey::open(&paths[i]), options, progress)
}

/// The same of captures in memory.
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
    if !(2..=MOST_POINTS).contains(&paths.len()) {
        return Err(LocateError::Points { got: paths.len() });
    }
    let readers = (0..paths.len()).map(open).collect::<Result<Vec<_>, _>>()?;
    let kept = survey::kept_by_all(readers);
    let whole: u64 = sizes.iter().sum();
    let mut before = 0;
    let mut surveys = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let most = sizes[i];
        let mut tick = |offset: u64| progress(before + offset.min(most), whole * 2);
        surveys.push(Survey::read(path, open(i)?, kept, &mut tick)?);
        before += most;
    }
    let mut line = crate::locate::path_order::lay(&surveys)?;
    if options.one_clock {
        line.clocks.iter_mut().for_each(Vec::clear);
    }
    let last = line.flows.iter().map(|f| f.way.connection).max().unwrap_or(0);
    if let Some(id) = options.connection.filter(|id| *id > last) {
        return Err(LocateError::NoConnection { id, last });
    }
    let mut inputs = line
        .order
        .iter()
        .enumerate()
        .map(|(position, given)| Ok(Input::new(position, *given, open(*given)?)))
        .collect::<Result<Vec<_>, LocateError>>()?;
    let spans = line
        .order
        .iter()
        .map(|given| span(&surveys[*given], &line.clocks[*given], line.origin))
        .collect();
    let ways: Vec<crate::locate::path_order::Way> = line.flows.iter().map(|f| f.way).collect();
    let mut matching = Matching::new(paths.len(), ways.len());
    let mut books = Books::new(
        ways,
        spans,
        line.origin,
        options.bin.as_nanos().min(i64::MAX as u64) as i64,
        options.connection,
    );
    let mut frames = 0u64;
    for input in &mut inputs {
        input.fill(&line, &surveys, &books, kept);
    }
    loop {
        let earliest = inputs.iter_mut().filter(|i| i.next.is_some()).min_by_key(|i| i.time);
        let Some(input) = earliest else { break };
        if let Some((packet, segment, flow)) = &input.next {
            let sight = Sight { time: input.time, window: packet.window, ecn: packet.ecn };
            let Some(of) = books.ways.get(*flow as usize).copied() else { break };
            let passing = Passing {
                position: input.position,
                sight,
                flow: *flow,
                of,
                packet,
                segment: segment.as_ref(),
            };
            matching.observe(&passing, &mut books);
        }
        input.fill(&line, &surveys, &books, kept);
        frames += 1;
        if frames.is_multiple_of(TICK) {
            let done = inputs.iter().map(|i| i.reader.offset().min(sizes[i.given])).sum::<u64>();
            if !progress(whole + done, whole * 2) {
                return Err(LocateError::Stopped);
            }
        }
    }
    matching.finish(&mut books);
    let elsewhere = inputs.iter().map(|i| i.elsewhere).collect();
    Ok(report::report(&line, &surveys, books, elsewhere, options))
}

/// First and last packet by the reference clock.
fn span(survey: &Survey, eras: &[Era], origin: i64) -> (i64, i64) {
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
    /// Of `next`, by the reference clock.
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

    /// The next packet that another point saw, too.
    fn fill(&mut self, line: &Line, surveys: &[Survey], books: &Books, kept: Kept) {
        self.next = None;
        let (survey, flow_of) = (&surveys[self.given], &line.flow_of[self.given]);
        // What is broken was told of at the first reading.
        while let Ok(Some(frame)) = self.reader.next_frame() {
            let decoded = self.decoder.decode(&frame);
            let ordinal = self.ordinal;
            self.ordinal += 1;
            let Some(packet) = Packet::of(&frame, &decoded, kept) else { continue };
            let flow = survey.index.get(&packet.tuple).and_then(|x| flow_of.get(*x as usize));
            let Some((flow, way)) = flow.and_then(|f| Some((*f, books.ways.get(*f as usize)?)))
            else {
                continue;
            };
            if way.mask.count_ones() < 2 {
                self.elsewhere += 1;
                continue;
            }
            let near = (self.time != i64::MIN).then_some(self.time);
            self.time = to_reference(
                &line.clocks[self.given],
                ordinal,
                signed(frame.time),
                line.origin,
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

/// The name of a file, for sentences.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}
