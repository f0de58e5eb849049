//! Log records in the messages of DIAG, and in files of records.
//!
//! | message | bytes, little endian |
//! |---|---|
//! | 0x10 | command, messages that wait, length u16 twice, then a record |
//! | 0x98 | command, 3 bytes, the radio u32, then a message 0x10: phones with several SIMs |
//!
//! | record | bytes |
//! |---|---|
//! | of a message | code u16, time u64, payload; the length covers all of it |
//! | of a file .dlf | length u16, code u16, time u64, payload; the length covers all of it |
//!
//! A length is a bound, never a promise: a payload ends where its frame ends, whatever its length says.

use crate::bytes::{long, short, word};
use crate::time::ModemTime;

/// A message with a record.
const LOG: u8 = 0x10;
/// A message of one of several radios.
const OF_RADIO: u8 = 0x98;
/// Bytes in front of the record of a message 0x10.
const LOG_HEADER: usize = 6;
/// Bytes in front of the message within 0x98.
const RADIO_HEADER: usize = 8;
/// Code and time of a record.
const RECORD_HEADER: usize = 10;
/// The same in a file of records, behind its length.
pub(crate) const FILE_HEADER: usize = 12;

/// A log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it contains: 0xB066 and others.
    pub code: u16,
    /// When the modem closed it.
    pub at: ModemTime,
    /// Which radio wrote it, where a message says so.
    pub radio: Option<u32>,
    /// Its contents, by its layout.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record in a message; `None` in messages of other kinds, and where the header does not fit.
    pub fn of_message(message: &'a [u8]) -> Option<Record<'a>> {
        match *message.first()? {
            LOG => Record::read(message, None),
            OF_RADIO => {
                let radio = word(message, 4)?;
                let inside = message.get(RADIO_HEADER..)?;
                (inside.first() == Some(&LOG)).then(|| Record::read(inside, Some(radio)))?
            }
            _ => None,
        }
    }

    fn read(message: &'a [u8], radio: Option<u32>) -> Option<Record<'a>> {
        let length = usize::from(short(message, 4)?);
        let payload = message.get(LOG_HEADER + RECORD_HEADER..)?;
        // The length covers itself as well: 2 bytes, code, time, payload.
        let stated = length.checked_sub(FILE_HEADER)?;
        Some(Record {
            code: short(message, LOG_HEADER)?,
            at: ModemTime(long(message, LOG_HEADER + 2)?),
            radio,
            payload: &payload[..stated.min(payload.len())],
        })
    }

    /// The first record of a file of records, and the bytes that it takes; `None` if it is not complete.
    /// A length below that of a header ends the file: see [`crate::stream::Damage::Length`].
    pub(crate) fn of_file(bytes: &'a [u8]) -> Option<(Record<'a>, usize)> {
        let length = usize::from(short(bytes, 0)?);
        let record = bytes.get(..length)?;
        let payload = record.get(FILE_HEADER..)?;
        let (code, at) = (short(record, 2)?, ModemTime(long(record, 4)?));
        Some((Record { code, at, radio: None, payload }, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![LOG, 0];
        bytes.extend([length.to_le_bytes(), length.to_le_bytes()].concat());
        bytes.extend(0xb066_u16.to_le_bytes());
        bytes.extend(77_u64.to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_payload_ends_at_its_length_and_never_beyond_its_frame() {
        let payload =
            |length| Record::of_message(&message(length, b"abcd")).map(|r| r.payload.to_vec());
        assert_eq!(payload(16), Some(b"abcd".to_vec()));
        assert_eq!(payload(14), Some(b"ab".to_vec()));
        assert_eq!(payload(60_000), Some(b"abcd".to_vec()));
        assert_eq!(payload(11), None);
    }

    #[test]
    fn a_message_of_a_radio_has_a_message_inside() {
        let mut bytes = vec![OF_RADIO, 1, 0, 0, 2, 0, 0, 0];
        bytes.extend(message(13, b"x"));
        let record = Record::of_message(&bytes).unwrap();
        assert_eq!((record.code, record.at.0, record.radio), (0xb066, 77, Some(2)));
        assert_eq!(record.payload, b"x");
        // One within another is none.
        let twice = [vec![OF_RADIO; 8], bytes].concat();
        assert_eq!(Record::of_message(&twice), None);
    }

    #[test]
    fn a_part_of_a_message_or_of_a_record_is_none() {
        let whole = message(12, b"");
        assert!((0..whole.len()).all(|end| Record::of_message(&whole[..end]).is_none()));
        assert!(Record::of_message(&whole).is_some());
        let record = [14_u8, 0, 0x66, 0xb0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 7];
        assert!((0..14).all(|end| Record::of_file(&record[..end]).is_none()));
        let (read, length) = Record::of_file(&record).unwrap();
        assert_eq!((read.code, read.at.0, read.payload, length), (0xb066, 1, &[9, 9][..], 14));
        assert_eq!(Record::of_file(&[11, 0, 0x66, 0xb0, 1, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
