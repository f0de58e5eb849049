//! A probe and its answer: 88 bytes of UDP each way, so that an answer is never larger than what asked for it.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | `UBP1` | |
//! | 4 | u8 | 1 probe, 2 answer, 3 a probe that expires on the way |
//! | 5 | 3 bytes | zero |
//! | 8 | u64 | session |
//! | 16 | u32 | number of the probe |
//! | 20 | 4 bytes | zero |
//! | 24 | i64 | t1, sent, client's clock |
//! | 32 | i64 | t2, received, server's clock |
//! | 40 | i64 | t3, answered, server's clock |
//! | 48 | u32 | probes that the server has had |
//! | 52 | 20 bytes | zero |
//! | 72 | 16 bytes | tag of all before |
//!
//! Of one that expires on the way, what follows the number is zero, and nothing signs it: routers quote little of it, and a
//! server that gets one throws it away.
//!
//! Little endian, times in ns. Bytes that are zero now are reserved: a reader does not look at them, the tag covers them.

use super::keys::{Key, TAG};

/// Length of probe and answer.
pub const LENGTH: usize = 88;
/// Begins a datagram of ours.
pub const MAGIC: [u8; 4] = *b"UBP1";
const SIGNED: usize = LENGTH - TAG;

/// A probe or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The server wrote it.
    pub answer: bool,
    /// Which session it belongs to.
    pub session: u64,
    /// Its number.
    pub number: u32,
    /// Sent, on the client's clock.
    pub t1: i64,
    /// Received, on the server's.
    pub t2: i64,
    /// Answered, on the server's.
    pub t3: i64,
    /// Probes that the server has had, this one among them.
    pub had: u32,
}

/// Why a datagram is no probe of this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// Another length.
    #[error("a datagram of {0} bytes: expected {LENGTH}")]
    Length(usize),
    /// Not ours.
    #[error("a datagram that begins otherwise, or of an unknown kind")]
    Foreign,
    /// Not signed with this session's key.
    #[error("a datagram with a wrong tag")]
    Tag,
}

impl Probe {
    /// As it is sent.
    pub fn write(&self, key: &Key) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(4, &[if self.answer { 2 } else { 1 }]);
        put(8, &self.session.to_le_bytes());
        put(16, &self.number.to_le_bytes());
        put(24, &self.t1.to_le_bytes());
        put(32, &self.t2.to_le_bytes());
        put(40, &self.t3.to_le_bytes());
        put(48, &self.had.to_le_bytes());
        let tag = key.tag(&bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&tag);
        bytes
    }

    /// Reads what was received.
    pub fn read(bytes: &[u8], key: &Key) -> Result<Probe, ProbeError> {
        let whole: &[u8; LENGTH] = bytes.try_into().map_err(|_| ProbeError::Length(bytes.len()))?;
        if whole[..4] != MAGIC || !(whole[4] == 1 || whole[4] == 2) {
            return Err(ProbeError::Foreign);
        }
        if !key.is_tag(&whole[..SIGNED], &whole[SIGNED..]) {
            return Err(ProbeError::Tag);
        }
        let eight = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&whole[at..at + 8]);
            field
        };
        let four = |at: usize| {
            u32::from_le_bytes([whole[at], whole[at + 1], whole[at + 2], whole[at + 3]])
        };
        Ok(Probe {
            answer: whole[4] == 2,
            session: u64::from_le_bytes(eight(8)),
            number: four(16),
            t1: i64::from_le_bytes(eight(24)),
            t2: i64::from_le_bytes(eight(32)),
            t3: i64::from_le_bytes(eight(40)),
            had: four(48),
        })
    }
}

/// A probe that expires on the way, as it is sent.
pub fn expiring(session: u64, number: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = 3;
    bytes[8..16].copy_from_slice(&session.to_le_bytes());
    bytes[16..20].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of such a probe of this session, from what a router quotes of it.
pub fn expiring_number(quoted: &[u8], session: u64) -> Option<u32> {
    let head = quoted.first_chunk::<20>()?;
    let number = [head[16], head[17], head[18], head[19]];
    let same = head[..4] == MAGIC && head[4] == 3 && head[8..16] == session.to_le_bytes();
    same.then(|| u32::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::derived("token", &[byte; 32])
    }

    #[test]
    fn a_server_reads_no_probe_that_expires_and_a_client_knows_its_own() {
        let bytes = expiring(7, 300);
        assert_eq!(Probe::read(&bytes, &key(1)), Err(ProbeError::Foreign));
        assert_eq!(expiring_number(&bytes, 7), Some(300));
        assert_eq!(expiring_number(&bytes[..20], 7), Some(300));
        assert_eq!(expiring_number(&bytes, 8), None);
        assert_eq!(expiring_number(&bytes[..19], 7), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            answer in any::<bool>(), session in any::<u64>(), number in any::<u32>(),
            t1 in any::<i64>(), t2 in any::<i64>(), t3 in any::<i64>(), had in any::<u32>(),
        ) {
            let probe = Probe { answer, session, number, t1, t2, t3, had };
            prop_assert_eq!(Probe::read(&probe.write(&key(1)), &key(1)), Ok(probe));
            prop_assert_eq!(Probe::read(&probe.write(&key(1)), &key(2)), Err(ProbeError::Tag));
        }

        #[test]
        fn one_changed_bit_is_refused(bit in 0..LENGTH * 8) {
            let probe = Probe { answer: false, session: 7, number: 1, t1: 2, t2: 0, t3: 0, had: 0 };
            let mut bytes = probe.write(&key(1));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Probe::read(&bytes, &key(1)).is_err());
        }
    }
}
