//! `unbloat-modem decode`: a log in, lines out. What came before an error is printed.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use modem::contents::{Part, parts};
use modem::layout;
use modem::message::Record;
use modem::stream::{Damage, Event, Format, Stream};
use modem::summary::{Summary, code_text, version_text};
use serde_json::{Value, json};

use super::End;
use super::arguments::DecodeArgs;

/// Bytes of one read, and those by which a format is recognised: a few frames of the longest kind.
const PIECE: usize = 256 << 10;

/// Decodes a file, or standard input.
pub(crate) fn decode(args: &DecodeArgs) -> Result<(), End> {
    let name = args.file.display().to_string();
    let unreadable = |error: io::Error| End(3, format!("{name}: {error}"));
    let mut input: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(unreadable)?)
    };
    let mut bytes = vec![0; PIECE];
    let head = fill(&mut input, &mut bytes).map_err(unreadable)?;
    if head == 0 {
        return Err(End(3, format!("{name}: empty")));
    }
    let format = Format::of(&bytes[..head]).ok_or_else(|| {
        End(3, format!("{name}: neither frames of DIAG nor records of a .dlf file"))
    })?;
    let mut output = Output {
        stream: Stream::new(format),
        summary: Summary::default(),
        out: BufWriter::new(io::stdout().lock()),
        json: args.json,
        at: 0,
    };
    let end = output.read(&bytes[..head], &mut input, &mut vec![0; PIECE], &name);
    output.finish()?;
    end
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match input.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What came before an error counts; the next read fails again.
            Err(_) if length > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

struct Output<W: Write> {
    stream: Stream,
    summary: Summary,
    out: W,
    json: bool,
    /// Bytes that were read.
    at: u64,
}

impl<W: Write> Output<W> {
    /// Reads to the end of the input, or to where it cannot be read any further.
    fn read(
        &mut self,
        head: &[u8],
        input: &mut dyn Read,
        bytes: &mut [u8],
        name: &str,
    ) -> Result<(), End> {
        self.take(head, name)?;
        loop {
            match fill(input, bytes) {
                Ok(0) => break,
                Ok(length) => self.take(&bytes[..length], name)?,
                Err(error) => return Err(End(3, format!("{name}: at byte {}: {error}", self.at))),
            }
        }
        match self.stream.pending() {
            0 => Ok(()),
            left => {
                let text = "the last record is cut off: the input ends";
                Err(End(3, format!("{name}: {text} {left} bytes behind its beginning")))
            }
        }
    }

    fn take(&mut self, bytes: &[u8], name: &str) -> Result<(), End> {
        let (mut error, mut end) = (None, None);
        let Output { stream, summary, out, json, .. } = self;
        stream.push(bytes, &mut |event| {
            let found = match &event {
                Event::Record(record) => parts(record),
                _ => Vec::new(),
            };
            summary.add(&event, &found);
            match event {
                Event::Record(record) if *json && error.is_none() => {
                    error = found.iter().try_for_each(|part| line(out, &record, part)).err();
                }
                Event::Damage(damage @ Damage::Length(_)) => end = Some(damage),
                _ => {}
            }
        });
        self.at += bytes.len() as u64;
        match (error, end) {
            (Some(error), _) => Err(closed(&error)),
            (_, Some(damage)) => {
                Err(End(3, format!("{name}: {damage}; nothing behind it is read")))
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), End> {
        let text = match self.json {
            true => json!({"summary": self.summary.json()}).to_string(),
            false => self.summary.text(),
        };
        writeln!(self.out, "{text}").and_then(|()| self.out.flush()).map_err(|e| closed(&e))
    }
}

/// Standard output cannot be written: a disk is full, or the program behind a pipe has read enough (`| head`), which is no
/// failure.
fn closed(error: &io::Error) -> End {
    let code = if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { 1 };
    End(code, format!("standard output: {error}"))
}

/// A line of JSON for a part of a record.
fn line(out: &mut impl Write, record: &Record, part: &Part) -> io::Result<()> {
    let mut object = json!({
        "code": code_text(record.code),
        "name": layout::name(record.code),
        "version": version_text(record.code, part.version),
        "modem_ns": record.at,
        "radio": record.radio,
    });
    match &part.contents {
        Ok((contents, basis)) => {
            object["layout"] = json!(basis);
            if let (Value::Object(to), Ok(Value::Object(from))) =
                (&mut object, serde_json::to_value(contents))
            {
                to.extend(from);
            }
        }
        Err(unread) => object["unread"] = json!(unread.to_string()),
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}
