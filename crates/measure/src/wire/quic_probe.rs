//! A QUIC probe and its answer: a packet of a version that no server has, and the Version Negotiation packet that every server of
//! QUIC sends back (RFC 9000 sections 5.2.2, 6 and 17.2.1; the layout of all versions: RFC 8999 sections 5.1 and 6).
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | u8 | long header, its low bits random |
//! | 1 | u32 | version, reserved for this: 0x?a?a?a?a; in an answer 0 |
//! | 5 | u8, 8 bytes | destination connection ID |
//! | 14 | u8, 8 bytes | source connection ID |
//! | 23 | u32 | in a probe: its number; in an answer: the versions that the server has |
//! | 27 | 16 bytes | tag of all before |
//! | 43 | | random bytes, as many as a server asks for |
//!
//! Big endian, as QUIC. What follows the connection IDs belongs to the version, so a server of others answers without a look at
//! it. Ours looks at the tag. The answer has both connection IDs swapped, so it belongs to one probe.

use super::keys::{Key, TAG};

/// Length of a probe: a server drops what is shorter (RFC 9000 section 5.2.2), so that no answer is larger than what asked for it.
pub const LENGTH: usize = 1200;
/// Length of an answer of ours: two versions.
pub const ANSWER: usize = HEADER + 2 * 4;
/// Random bytes that a probe is made of: the low bits of its first byte, its version, two connection IDs.
pub const RANDOM: usize = 1 + 4 + 2 * ID;
/// Of a connection ID: the shortest that a client may ask with (RFC 9000 section 7.2), too long to be guessed.
const ID: usize = 8;
/// Up to the end of the connection IDs.
const HEADER: usize = 1 + 4 + 2 * (1 + ID);
/// Header and number.
const SIGNED: usize = HEADER + 4;
/// A long header.
const LONG: u8 = 0x80;
/// Set in all packets of version 1, and in an answer too, for hosts on the way that look at it (RFC 9000 section 17.2.1).
const FIXED: u8 = 0x40;
/// The version of RFC 9000, which loads have.
pub const VERSION_1: u32 = 1;
/// Bits of versions that are reserved (RFC 9000 section 15), and what they are set to.
const RESERVED: (u32, u32) = (0x0f0f_0f0f, 0x0a0a_0a0a);

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicProbe {
    /// Its number.
    pub number: u32,
    /// What the answer gives back.
    pub ids: Ids,
    first: u8,
    version: u32,
}

/// Connection IDs of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ids {
    destination: [u8; ID],
    source: [u8; ID],
}

impl QuicProbe {
    /// A probe of random bytes.
    pub fn new(number: u32, random: [u8; RANDOM]) -> QuicProbe {
        let [first, a, b, c, d, rest @ ..] = random;
        let (mut destination, mut source) = ([0; ID], [0; ID]);
        destination.copy_from_slice(&rest[..ID]);
        source.copy_from_slice(&rest[ID..]);
        QuicProbe {
            number,
            ids: Ids { destination, source },
            // The kind of a first packet of version 1.
            first: LONG | FIXED | (first & 0x0f),
            version: (u32::from_be_bytes([a, b, c, d]) & !RESERVED.0) | RESERVED.1,
        }
    }

    /// As it is sent; `filler`: what the rest of it is.
    pub fn write(&self, key: &Key, filler: &[u8; LENGTH]) -> [u8; LENGTH] {
        let mut bytes = *filler;
        let header = header(self.first, self.version, &self.ids);
        bytes[..HEADER].copy_from_slice(&header);
        bytes[HEADER..SIGNED].copy_from_slice(&self.number.to_be_bytes());
        let tag = key.tag(&bytes[..SIGNED]);
        bytes[SIGNED..SIGNED + TAG].copy_from_slice(&tag);
        bytes
    }

    /// Reads the beginning of what was received; `None`: it is none of this session, or too short to be answered.
    pub fn read(bytes: &[u8], key: &Key) -> Option<QuicProbe> {
        let (first, version, ids) = read_header(bytes)?;
        let tag = bytes.get(SIGNED..SIGNED + TAG)?;
        let ours = bytes.len() >= LENGTH && first & (LONG | FIXED) == LONG | FIXED;
        if !ours || version & RESERVED.0 != RESERVED.1 || !key.is_tag(&bytes[..SIGNED], tag) {
            return None;
        }
        let number = u32::from_be_bytes(*bytes[HEADER..SIGNED].first_chunk()?);
        Some(QuicProbe { number, ids, first, version })
    }

    /// The answer: version 1, and a reserved version, so that clients stay used to unknown ones (RFC 9000 section 6.3).
    pub fn answer(&self) -> [u8; ANSWER] {
        let swapped = Ids { destination: self.ids.source, source: self.ids.destination };
        let mut bytes = [0; ANSWER];
        bytes[..HEADER].copy_from_slice(&header(self.first, 0, &swapped));
        bytes[HEADER..HEADER + 4].copy_from_slice(&VERSION_1.to_be_bytes());
        // Never the version that was asked for.
        let other = self.version ^ 0x1000_0000;
        bytes[HEADER + 4..].copy_from_slice(&other.to_be_bytes());
        bytes
    }
}

/// Of which probe this is the answer of a server of QUIC, ours or another; `None`: of none.
pub fn answered(bytes: &[u8]) -> Option<Ids> {
    let (_, version, ids) = read_header(bytes)?;
    let versions = bytes.len() - HEADER;
    let some = versions >= 4 && versions.is_multiple_of(4);
    (version == 0 && some).then_some(Ids { destination: ids.source, source: ids.destination })
}

fn header(first: u8, version: u32, ids: &Ids) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &[first]);
    put(1, &version.to_be_bytes());
    put(5, &[ID as u8]);
    put(6, &ids.destination);
    put(6 + ID, &[ID as u8]);
    put(7 + ID, &ids.source);
    bytes
}

/// First byte, version and connection IDs of a long header whose connection IDs are as long as ours.
fn read_header(bytes: &[u8]) -> Option<(u8, u32, Ids)> {
    let whole: &[u8; HEADER] = bytes.first_chunk()?;
    let version = u32::from_be_bytes([whole[1], whole[2], whole[3], whole[4]]);
    if whole[0] & LONG == 0 || whole[5] != ID as u8 || whole[6 + ID] != ID as u8 {
        return None;
    }
    let (mut destination, mut source) = ([0; ID], [0; ID]);
    destination.copy_from_slice(&whole[6..6 + ID]);
    source.copy_from_slice(&whole[7 + ID..]);
    Some((whole[0], version, Ids { destination, source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::derived("token", &[1; 32])
    }

    fn probe() -> QuicProbe {
        let mut random = [0xff; RANDOM];
        random[5..13].copy_from_slice(b"destinat");
        random[13..].copy_from_slice(b"source..");
        QuicProbe::new(7, random)
    }

    #[test]
    fn a_probe_is_a_long_header_of_a_reserved_version_and_long_enough() {
        let bytes = probe().write(&key(), &[0x55; LENGTH]);
        assert_eq!(bytes.len(), 1200);
        assert_eq!(bytes[..5], [0xcf, 0xfa, 0xfa, 0xfa, 0xfa]);
        assert_eq!(bytes[5..23], *b"\x08destinat\x08source..");
        assert_eq!(bytes[23..27], [0, 0, 0, 7]);
        assert_eq!(bytes[43..], [0x55; 1157]);
        assert_eq!(QuicProbe::read(&bytes, &key()), Some(probe()));
    }

    #[test]
    fn what_is_too_short_unsigned_or_of_a_version_in_use_is_none() {
        let whole = probe().write(&key(), &[0; LENGTH]);
        assert_eq!(QuicProbe::read(&whole[..LENGTH - 1], &key()), None);
        assert_eq!(QuicProbe::read(&whole, &Key::derived("another", &[1; 32])), None);
        for changed in [0, 1, 5, 6, 14, 15, 23, 27, 42] {
            let mut bytes = whole;
            bytes[changed] ^= 0x80;
            assert_eq!(QuicProbe::read(&bytes, &key()), None, "{changed}");
        }
        let mut version_1 = whole;
        version_1[1..5].copy_from_slice(&VERSION_1.to_be_bytes());
        let tag = key().tag(&version_1[..SIGNED]);
        version_1[SIGNED..SIGNED + TAG].copy_from_slice(&tag);
        assert_eq!(QuicProbe::read(&version_1, &key()), None);
    }

    #[test]
    fn an_answer_is_a_version_negotiation_packet_that_belongs_to_its_probe() {
        let answer = probe().answer();
        // RFC 9000 section 17.2.1: version 0, the connection IDs swapped, a list of versions.
        assert_eq!(answer[..5], [0xcf, 0, 0, 0, 0]);
        assert_eq!(answer[5..23], *b"\x08source..\x08destinat");
        assert_eq!(answer[23..], [0, 0, 0, 1, 0xea, 0xfa, 0xfa, 0xfa]);
        assert_eq!(answered(&answer), Some(probe().ids));
        assert_ne!(answered(&answer), Some(QuicProbe::new(7, [3; RANDOM]).ids));
    }

    #[test]
    fn answers_of_other_servers_are_read_and_what_is_none_is_not() {
        // quinn's: a first byte of its own, a reserved version first, then those that it has.
        let other = [&[0x9b, 0, 0, 0, 0][..], b"\x08source..\x08destinat", &[0x0a; 4], &[1; 24]];
        let other = other.concat();
        assert_eq!(answered(&other), Some(probe().ids));
        assert_eq!(answered(&other[..HEADER]), None, "no version");
        assert_eq!(answered(&other[..other.len() - 1]), None, "a part of a version");
        assert_eq!(answered(&other[..HEADER - 1]), None);
        for (at, byte) in [(0, 0x1b), (4, 1), (5, 7), (14, 9)] {
            let mut bytes = other.clone();
            bytes[at] = byte;
            assert_eq!(answered(&bytes), None, "{at}");
        }
        assert_eq!(answered(&probe().write(&key(), &[0; LENGTH])), None, "a probe is no answer");
    }
}
