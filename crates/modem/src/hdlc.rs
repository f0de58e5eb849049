//! Frames of a DIAG stream, as HDLC has them: a flag ends a frame, an escape protects flags within it,
//! and the last two bytes are a CRC.
//!
//! Source: ISO/IEC 13239 section 4.5.2 (bytes to escape); the CRC is CRC-16/X.25, least significant byte first.
//! Real streams begin with the first byte of a frame, without a flag before it.

/// Ends a frame.
pub const FLAG: u8 = 0x7e;
const ESCAPE: u8 = 0x7d;
/// The difference between an escaped byte and itself.
const FLIP: u8 = 0x20;
/// Longest frame that is assembled, without its escapes. A message states its length in 16 bits, and a wrapper and
/// the CRC come on top: whatever is longer is no message.
const MAX_FRAME: usize = (1 << 16) + 64;

/// A frame that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// It was damaged, or is no frame of DIAG.
    #[error("wrong CRC in a frame of {0} bytes")]
    Crc(usize),
    /// Not even a CRC and one byte.
    #[error("a frame of {0} bytes")]
    Short(usize),
    /// No flag came for longer than any message is.
    #[error("a frame of more than {MAX_FRAME} bytes")]
    Long,
}

/// The message of a frame, without its CRC.
pub type Framed<'a> = Result<&'a [u8], BadFrame>;

/// Assembles frames from pieces of a stream.
#[derive(Clone, Debug, Default)]
pub struct Deframer {
    frame: Vec<u8>,
    escaped: bool,
    /// The frame was longer than [`MAX_FRAME`]; the rest of it is skipped.
    is_long: bool,
}

impl Deframer {
    /// Takes a piece, of any length; each frame that it completes goes to `each`, without its CRC.
    pub fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Framed)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(*byte, FLAG | ESCAPE)) {
            self.extend(&rest[..at]);
            if rest[at] == ESCAPE {
                // An escape before an escape: the second is the protected byte.
                if self.escaped {
                    self.extend(&[ESCAPE]);
                } else {
                    self.escaped = true;
                }
            } else {
                self.end_frame(each);
            }
            rest = &rest[at + 1..];
        }
        self.extend(rest);
    }

    /// Bytes of a frame that has not ended.
    pub fn pending(&self) -> usize {
        self.frame.len() + usize::from(self.escaped)
    }

    fn extend(&mut self, bytes: &[u8]) {
        let Some(first) = bytes.first() else { return };
        if self.frame.len() + bytes.len() > MAX_FRAME {
            self.is_long = true;
            self.escaped = false;
            return;
        }
        let begin = self.frame.len();
        self.frame.extend_from_slice(bytes);
        if std::mem::take(&mut self.escaped) {
            self.frame[begin] = first ^ FLIP;
        }
    }

    fn end_frame(&mut self, each: &mut dyn FnMut(Framed)) {
        self.escaped = false;
        if std::mem::take(&mut self.is_long) {
            each(Err(BadFrame::Long));
        } else if let Some((message, sum)) = self.frame.split_last_chunk::<2>() {
            each(match message.len() {
                0 => Err(BadFrame::Short(2)),
                _ if crc(message) == u16::from_le_bytes(*sum) => Ok(message),
                length => Err(BadFrame::Crc(length + 2)),
            });
        } else if !self.frame.is_empty() {
            each(Err(BadFrame::Short(self.frame.len())));
        }
        self.frame.clear();
    }
}

/// The frame of a message: its CRC, escapes, and the flag behind it.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 8);
    for byte in message.iter().copied().chain(crc(message).to_le_bytes()) {
        if matches!(byte, FLAG | ESCAPE) {
            frame.extend([ESCAPE, byte ^ FLIP]);
        } else {
            frame.push(byte);
        }
    }
    frame.push(FLAG);
    frame
}

/// CRC-16/X.25.
fn crc(bytes: &[u8]) -> u16 {
    let add =
        |sum: u16, byte: &u8| TABLE[usize::from((sum ^ u16::from(*byte)) & 0xff)] ^ (sum >> 8);
    !bytes.iter().fold(0xffff, add)
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u16, 0);
        while bit < 8 {
            // The polynomial of X.25, its bits in reverse.
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x8408 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(pieces: &[&[u8]]) -> Vec<Result<Vec<u8>, BadFrame>> {
        let (mut deframer, mut found) = (Deframer::default(), Vec::new());
        for piece in pieces {
            deframer.push(piece, &mut |frame| found.push(frame.map(<[u8]>::to_vec)));
        }
        found
    }

    #[test]
    fn the_crc_is_that_of_x25() {
        // The check value of CRC-16/X.25 in catalogues of CRCs.
        assert_eq!(crc(b"123456789"), 0x906e);
    }

    #[test]
    fn an_answer_of_a_phone_is_read() {
        // The answer to an echo of seven zeros, as written by hand: command 0x1c, version 8, answers 0.
        assert_eq!(frames(&[b"\x1c\x08\x00\x3a\x28\x7e"]), [Ok(vec![0x1c, 8, 0])]);
    }

    #[test]
    fn damaged_short_and_empty_frames_are_no_messages() {
        let mut damaged = frame(b"message");
        damaged[3] ^= 1;
        assert_eq!(frames(&[&damaged]), [Err(BadFrame::Crc(9))]);
        assert_eq!(
            frames(&[b"\x7e\x7ea\x7eab\x7e"]),
            [Err(BadFrame::Short(1)), Err(BadFrame::Short(2))]
        );
    }

    #[test]
    fn a_frame_that_never_ends_takes_a_bounded_memory_and_the_next_is_read() {
        let mut stream = vec![1; 3 * MAX_FRAME];
        stream.push(FLAG);
        stream.extend(frame(b"next"));
        let pieces: Vec<&[u8]> = stream.chunks(1_000).collect();
        assert_eq!(frames(&pieces), [Err(BadFrame::Long), Ok(b"next".to_vec())]);
    }

    proptest! {
        #[test]
        fn a_stream_cut_at_any_byte_has_the_same_frames(
            messages in prop::collection::vec(prop::collection::vec(
                prop_oneof![any::<u8>(), Just(FLAG), Just(ESCAPE)], 1..40), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|message| frame(message)).collect();
            let (head, tail) = stream.split_at(cut.index(stream.len() + 1));
            let expected: Vec<_> = messages.into_iter().map(Ok).collect();
            prop_assert_eq!(frames(&[head, tail]), expected.clone());
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            prop_assert_eq!(frames(&bytes), expected);
        }

        #[test]
        fn any_bytes_have_the_same_frames_however_they_are_cut(
            stream in prop::collection::vec(prop_oneof![any::<u8>(), Just(FLAG), Just(ESCAPE)], 0..200),
            length in 1..20_usize,
        ) {
            let pieces: Vec<&[u8]> = stream.chunks(length).collect();
            prop_assert_eq!(frames(&[&stream]), frames(&pieces));
        }
    }
}
