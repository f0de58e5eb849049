//! Log records of a file or a port, from pieces of any length.

use crate::hdlc::{BadFrame, Deframer, Framed};
use crate::message::{FILE_HEADER, Record};

/// How records follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Messages in frames: a DIAG port, files .mi2log and .qmdl.
    Frames,
    /// Records without frames: files .dlf.
    Records,
}

/// Damage in a stream. What comes behind it is read again from the next frame on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// In a stream of frames.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// In a file of records nothing marks the next one, so it ends there.
    #[error("a record of {0} bytes, of which its header takes {FILE_HEADER}")]
    Length(u16),
}

/// What a stream contains, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A log record.
    Record(Record<'a>),
    /// Another message, by its command: answers, events, text.
    Other(u8),
    /// Bytes that are none of these.
    Damage(Damage),
}

impl Format {
    /// The format of a file, by its first bytes (all of a short file); `None` if it is neither.
    ///
    /// signal: CRCs of frames · model: bytes of another kind have a good CRC once in 65,536 times ·
    /// action: frames where half of them are good; else records where two or more follow each other,
    /// or one is the whole file.
    pub fn of(head: &[u8]) -> Option<Format> {
        let (mut good, mut bad) = (0, 0);
        let count = &mut |frame: Framed| match frame {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        };
        Deframer::default().push(head, count);
        if good > 0 && good >= bad {
            return Some(Format::Frames);
        }
        let (first, length) = Record::of_file(head)?;
        let is_log_code = |code: u16| code >= 0x1000;
        let second = Record::of_file(&head[length..]);
        let is_file = match second {
            Some((second, _)) => is_log_code(second.code),
            None => length == head.len(),
        };
        (is_log_code(first.code) && is_file).then_some(Format::Records)
    }
}

/// Reads records from pieces of a stream.
#[derive(Clone, Debug)]
pub struct Stream {
    format: Format,
    deframer: Deframer,
    /// Of a file of records: what is not a whole record yet.
    rest: Vec<u8>,
    is_over: bool,
}

impl Stream {
    /// Begins at the start of a file, or anywhere in a stream of frames.
    pub fn new(format: Format) -> Stream {
        Stream { format, deframer: Deframer::default(), rest: Vec::new(), is_over: false }
    }

    /// Takes a piece, of any length; what it completes goes to `each`.
    pub fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Event)) {
        match self.format {
            Format::Frames => self.deframer.push(bytes, &mut |frame| {
                each(match frame {
                    Ok(message) => match Record::of_message(message) {
                        Some(record) => Event::Record(record),
                        // A frame has at least one byte.
                        None => Event::Other(message.first().copied().unwrap_or_default()),
                    },
                    Err(bad) => Event::Damage(bad.into()),
                });
            }),
            Format::Records => self.push_records(bytes, each),
        }
    }

    fn push_records(&mut self, bytes: &[u8], each: &mut dyn FnMut(Event)) {
        if self.is_over {
            return;
        }
        self.rest.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].first_chunk::<2>() {
            let length = u16::from_le_bytes(*length);
            if usize::from(length) < FILE_HEADER {
                each(Event::Damage(Damage::Length(length)));
                self.is_over = true;
                begin = self.rest.len();
                break;
            }
            let Some((record, length)) = Record::of_file(&self.rest[begin..]) else { break };
            each(Event::Record(record));
            begin += length;
        }
        self.rest.drain(..begin);
    }

    /// Bytes at the end that are not a whole frame or record.
    pub fn pending(&self) -> usize {
        match self.format {
            Format::Frames => self.deframer.pending(),
            Format::Records => self.rest.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdlc::frame;
    use crate::time::ModemTime;
    use crate::written;
    use proptest::prelude::*;

    fn events(format: Format, pieces: &[&[u8]]) -> (Vec<String>, usize) {
        let (mut stream, mut found) = (Stream::new(format), Vec::new());
        for piece in pieces {
            stream.push(piece, &mut |event| found.push(format!("{event:?}")));
        }
        (found, stream.pending())
    }

    fn file(payloads: &[Vec<u8>]) -> Vec<u8> {
        let record = |payload: &Vec<u8>| written::file_record(0xb066, ModemTime(5), payload);
        payloads.iter().flat_map(record).collect()
    }

    #[test]
    fn formats_are_recognised_by_their_contents() {
        let message = written::message(0xb066, ModemTime(5), b"payload");
        assert_eq!(Format::of(&frame(&message)), Some(Format::Frames));
        assert_eq!(Format::of(&file(&[vec![1], vec![2; 20]])), Some(Format::Records));
        assert_eq!(Format::of(&file(&[vec![1]])), Some(Format::Records));
        for other in [&b""[..], b"\n", b"\x7e\x7e", &[0xd4; 99], b"text\x7emore text\x7e"] {
            assert_eq!(Format::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_frame_that_is_cut_off_is_pending_and_damage_does_not_end_the_stream() {
        let message = frame(&written::message(0xb066, ModemTime(5), b"x"));
        let mut stream = [&message[..], b"\x10bad\x7e", &message, &message[..7]].concat();
        let (found, pending) = events(Format::Frames, &[&stream]);
        assert_eq!((found.len(), pending), (3, 7));
        assert!(found[1].contains("Crc"), "{found:?}");
        stream.extend(&message[7..]);
        assert_eq!(events(Format::Frames, &[&stream]).1, 0);
    }

    #[test]
    fn a_length_below_a_header_ends_a_file_of_records() {
        let mut bytes = file(&[vec![1; 3]]);
        bytes.extend([11, 0, 1, 2, 3]);
        bytes.extend(file(&[vec![1; 3]]));
        let (found, pending) = events(Format::Records, &[&bytes, b"more"]);
        assert_eq!((found.len(), pending), (2, 0));
        assert!(found[1].contains("Length(11)"), "{found:?}");
    }

    proptest! {
        #[test]
        fn a_file_of_records_cut_at_any_byte_has_the_same_records(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            length in 1..50_usize,
        ) {
            let bytes = file(&payloads);
            let pieces: Vec<&[u8]> = bytes.chunks(length).collect();
            let whole = events(Format::Records, &[&bytes]);
            prop_assert_eq!(whole.0.len(), payloads.len());
            prop_assert_eq!(whole, events(Format::Records, &pieces));
        }
    }
}
