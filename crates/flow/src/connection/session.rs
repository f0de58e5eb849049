//! From capture files to an [`Analysis`]: one file, or several of one capture merged in time order.
//!
//! Files of a rotating capture are opened when their time comes, so that a thousand of them need neither a thousand
//! descriptors nor a thousand buffers. A corrupt record ends its file alone: the packets before it count, and a warning
//! names the place and the reason. A file that cannot be read from its start is an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use capture::{Decoded, Decoder, Limit, OpenError, ReadError, Reader};
use units::Instant;

use crate::connection::table::{Analysis, Analyzer, Options};

/// Packets between two calls of the progress function: a few milliseconds.
const PROGRESS_EVERY: u64 = 65_536;

/// Why nothing could be analysed.
#[derive(thiserror::Error, Debug)]
pub enum AnalyzeError {
    /// A file could not be opened or is no capture.
    #[error("{path}: {source}")]
    Open {
        /// The path as given.
        path: String,
        /// The reason.
        source: OpenError,
    },
    /// A packed file is larger than [`Options::unpacked`] permits.
    #[error("{path}: {reason}")]
    TooLarge {
        /// The path as given.
        path: String,
        /// By how much.
        reason: String,
    },
    /// The progress function asked to stop.
    #[error("stopped")]
    Stopped,
}

/// An interface that packets came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Interface name; empty where the file has none.
    pub name: String,
    /// LINKTYPE_ number of its packets.
    pub linktype: u16,
}

/// An analysis with its inputs.
#[derive(Debug)]
pub struct Report {
    /// The rows and the series requested.
    pub analysis: Analysis,
    /// Files in the order of their packets.
    pub files: Vec<PathBuf>,
    /// Interfaces, by the index that connections name.
    pub interfaces: Vec<Source>,
    /// Incomplete inputs: where and why reading stopped.
    pub warnings: Vec<String>,
}

/// Counts the bytes read of the file as it is on disk, compressed or not.
struct CountingReader<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

struct Input {
    path: PathBuf,
    reader: Reader<Box<dyn Read + Send>>,
    /// Interface index in this file → index in the run.
    interfaces: Vec<u32>,
    next: Option<(Instant, u32, Decoded)>,
    warned_skips: bool,
}

fn open(
    path: &Path,
    count: &Arc<AtomicU64>,
    limit: Option<Limit>,
) -> Result<Reader<Box<dyn Read + Send>>, AnalyzeError> {
    let fail = |source: OpenError| match source.too_large() {
        Some(reason) => too_large(path, reason),
        None => AnalyzeError::Open { path: path.display().to_string(), source },
    };
    let count = Arc::clone(count);
    let input: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(CountingReader { inner: io::stdin(), count })
    } else {
        Box::new(CountingReader {
            inner: File::open(path).map_err(|e| fail(OpenError::Io(e)))?,
            count,
        })
    };
    Reader::limited(input, limit).map_err(fail)
}

fn too_large(path: &Path, reason: &io::Error) -> AnalyzeError {
    AnalyzeError::TooLarge { path: path.display().to_string(), reason: reason.to_string() }
}

/// Analyses `paths` as one capture (`-` is standard input). `progress` gets the bytes read and the total (0 if
/// unknown); returning false stops the analysis.
pub fn analyze_files(
    paths: &[PathBuf],
    options: Options,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Report, AnalyzeError> {
    let count = Arc::new(AtomicU64::new(0));
    let total: u64 = paths.iter().filter_map(|p| std::fs::metadata(p).ok()).map(|m| m.len()).sum();
    let mut run = Run {
        limit: options.unpacked,
        analyzer: Analyzer::new(options),
        decoder: Decoder::new(),
        interfaces: Vec::new(),
        warnings: Vec::new(),
        drops: None,
        ended: Instant::ZERO,
        files: Vec::new(),
        packets: 0,
    };
    let mut tick = |packets: &mut u64| {
        *packets += 1;
        !packets.is_multiple_of(PROGRESS_EVERY) || progress(count.load(Ordering::Relaxed), total)
    };
    if let [path] = paths {
        let mut input = Input::new(path, open(path, &count, run.limit)?);
        run.files.push(path.clone());
        run.read_file(&mut input, &mut tick)?;
        run.close(input);
    } else {
        run.merge(paths, &count, &mut tick)?;
    }
    let Run { mut analyzer, interfaces, warnings, drops, ended, files, .. } = run;
    analyzer.capture_lasted_to(ended);
    Ok(Report { analysis: analyzer.finish(drops), files, interfaces, warnings })
}

struct Run {
    limit: Option<Limit>,
    analyzer: Analyzer,
    decoder: Decoder,
    interfaces: Vec<Source>,
    warnings: Vec<String>,
    drops: Option<u64>,
    /// End of the capture, as its files say.
    ended: Instant,
    files: Vec<PathBuf>,
    packets: u64,
}

impl Input {
    fn new(path: &Path, reader: Reader<Box<dyn Read + Send>>) -> Input {
        Input {
            path: path.to_owned(),
            reader,
            interfaces: Vec::new(),
            next: None,
            warned_skips: false,
        }
    }
}

impl Run {
    /// Reads the only file from beginning to end.
    fn read_file(
        &mut self,
        input: &mut Input,
        tick: &mut impl FnMut(&mut u64) -> bool,
    ) -> Result<(), AnalyzeError> {
        let mut decoded = Decoded::NotIp;
        loop {
            match input.reader.next_frame() {
                Ok(Some(frame)) => {
                    // The index of a single file's interface is that of the run: nothing to renumber.
                    self.decoder.decode_into(&frame, &mut decoded);
                    self.analyzer.push(frame.time, frame.wire_len, &decoded);
                    if frame.interface as usize >= input.interfaces.len() {
                        let index = frame.interface;
                        self.learn_interfaces(input, index);
                    }
                }
                Ok(None) => return Ok(()),
                Err(e) => return self.ended_early(&input.path, &e),
            }
            if !tick(&mut self.packets) {
                return Err(AnalyzeError::Stopped);
            }
        }
    }

    /// Merges several files by time. A file is open only from its first packet to its last.
    fn merge(
        &mut self,
        paths: &[PathBuf],
        count: &Arc<AtomicU64>,
        tick: &mut impl FnMut(&mut u64) -> bool,
    ) -> Result<(), AnalyzeError> {
        let mut waiting: Vec<(Instant, PathBuf)> = Vec::new();
        let mut active: Vec<Input> = Vec::new();
        for path in paths {
            let unused = Arc::new(AtomicU64::new(0));
            let input = Input::new(path, open(path, &unused, self.limit)?);
            if path == Path::new("-") {
                active.push(input);
                continue;
            }
            let mut input = input;
            let first = match input.reader.next_frame() {
                Ok(Some(frame)) => frame.time,
                // An empty file has no time; a broken one says so when it is read.
                Ok(None) | Err(_) => Instant::ZERO,
            };
            waiting.push((first, path.clone()));
        }
        waiting.sort();
        waiting.reverse();
        for input in &mut active {
            self.refill(input)?;
            self.files.push(input.path.clone());
        }
        loop {
            let earliest = active.iter().filter_map(|i| i.next.as_ref().map(|n| n.0)).min();
            if waiting.last().is_some_and(|(first, _)| earliest.is_none_or(|e| *first <= e)) {
                if let Some((_, path)) = waiting.pop() {
                    let mut input = Input::new(&path, open(&path, count, self.limit)?);
                    self.files.push(path);
                    self.refill(&mut input)?;
                    active.push(input);
                }
                continue;
            }
            let Some(earliest) = earliest else { break };
            let Some(i) =
                active.iter().position(|i| i.next.as_ref().is_some_and(|n| n.0 == earliest))
            else {
                break;
            };
            if let Some((time, wire_len, decoded)) = active[i].next.take() {
                self.analyzer.push(time, wire_len, &decoded);
            }
            self.refill(&mut active[i])?;
            if active[i].next.is_none() {
                let done = active.swap_remove(i);
                self.close(done);
            }
            if !tick(&mut self.packets) {
                return Err(AnalyzeError::Stopped);
            }
        }
        for input in active {
            self.close(input);
        }
        Ok(())
    }

    fn refill(&mut self, input: &mut Input) -> Result<(), AnalyzeError> {
        input.next = None;
        match input.reader.next_frame() {
            Ok(Some(frame)) => {
                let mut decoded = self.decoder.decode(&frame);
                let (time, wire_len, index) = (frame.time, frame.wire_len, frame.interface);
                if index as usize >= input.interfaces.len() {
                    self.learn_interfaces(input, index);
                }
                renumber(&mut decoded, &input.interfaces);
                input.next = Some((time, wire_len, decoded));
            }
            Ok(None) => {}
            Err(e) => self.ended_early(&input.path, &e)?,
        }
        Ok(())
    }

    fn learn_interfaces(&mut self, input: &mut Input, index: u32) {
        for interface in input.reader.interfaces().iter().skip(input.interfaces.len()) {
            let source = Source { name: interface.name.clone(), linktype: interface.linktype };
            // The same name in the next file of a rotating capture is the same interface; within one file
            // two descriptions are two interfaces, even if they are alike.
            let again =
                self.files.len() > 1 && (!source.name.is_empty() || input.interfaces.is_empty());
            let known =
                if again { self.interfaces.iter().position(|s| *s == source) } else { None };
            let row = known.unwrap_or_else(|| {
                self.interfaces.push(source);
                self.interfaces.len() - 1
            });
            input.interfaces.push(row as u32);
        }
        // A frame of an interface that the file never described cannot come from the reader.
        while input.interfaces.len() <= index as usize {
            input.interfaces.push(0);
        }
    }

    /// A file that breaks off is analysed up to there, with a warning. One that is larger than its limit ends the analysis.
    fn ended_early(&mut self, path: &Path, why: &ReadError) -> Result<(), AnalyzeError> {
        if let Some(reason) = why.too_large() {
            return Err(too_large(path, reason));
        }
        self.warnings.push(format!("{}: {why}; what came before is analysed", path.display()));
        Ok(())
    }

    fn close(&mut self, mut input: Input) {
        if let Some(drops) = input
            .reader
            .interfaces()
            .iter()
            .filter_map(|i| i.reported_drops)
            .reduce(|a, b| a.saturating_add(b))
        {
            self.drops = Some(self.drops.unwrap_or(0).saturating_add(drops));
        }
        let ended = input.reader.interfaces().iter().filter_map(|i| i.ended).max();
        self.ended = self.ended.max(ended.unwrap_or(Instant::ZERO));
        let skipped = input.reader.skipped();
        if skipped > 0 && !input.warned_skips {
            input.warned_skips = true;
            let s = if skipped == 1 { "" } else { "s" };
            self.warnings.push(format!(
                "{}: {skipped} packet{s} of undescribed interfaces or broken blocks left out",
                input.path.display()
            ));
        }
        let described = input.reader.interfaces().len();
        if described > input.interfaces.len() && described > 0 {
            self.learn_interfaces(&mut input, described as u32 - 1);
        }
    }
}

fn renumber(decoded: &mut Decoded, interfaces: &[u32]) {
    let ip = match decoded {
        Decoded::Tcp(s) => &mut s.ip,
        Decoded::Datagram(d) => &mut d.ip,
        _ => return,
    };
    if let Some(common) = interfaces.get(ip.interface as usize) {
        ip.interface = *common;
    }
}
