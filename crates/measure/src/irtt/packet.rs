//! Packets of irtt: written and read, on bytes alone.
//!
//! ```text
//! magic 3 · flags 1 · [HMAC 16] · token 8 · then
//!   of opening: parameters, each a number and a signed number (LEB128, zigzag); text has a length instead
//!   of a probe: number 4 · zeros
//!   of its answer: number 4 · [count 4] · [window 8] · times of 8, which the parameters select · filling
//! ```
//!
//! Numbers of fixed length are little-endian. The HMAC is HMAC-MD5 (RFC 2104) over the packet with zeros in its place.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;

const MAGIC: [u8; 3] = [0x14, 0xa7, 0x5b];
const OPEN: u8 = 1;
const REPLY: u8 = 2;
const CLOSE: u8 = 4;
const SIGNED: u8 = 8;
/// Magic and flags.
const HEAD: usize = 4;
const TAG: usize = 16;
/// Of the protocol.
pub const VERSION: i64 = 1;
/// Of parameters: the server sends how many probes it has had.
pub const COUNT: i64 = 1;
/// Likewise: a map of the last 64 probes. It is not asked for: after a packet that was overtaken the server's map is wrong.
const WINDOW: i64 = 2;
/// Of stamps: when it answered, when it received, one time between the two.
const AT_SEND: i64 = 1;
const AT_RECEIVE: i64 = 2;
const AT_MIDDLE: i64 = 4;
/// Both times of a probe.
pub const AT_BOTH: i64 = AT_SEND | AT_RECEIVE;
const WALL: i64 = 1;
/// Of clocks: one that no time server sets.
pub const MONOTONIC: i64 = 2;

/// Why a datagram is no packet of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It begins otherwise, has unknown flags, or is no answer.
    #[error("no answer of irtt")]
    Foreign,
    /// It ends early.
    #[error("truncated")]
    Truncated,
    /// No HMAC where one is needed, a wrong one, or one without a key.
    #[error("not signed with the key")]
    Unsigned,
    /// A number of a parameter has more than 64 bits.
    #[error("a parameter is out of range")]
    Parameter,
}

/// What a client asks for, and what the server grants. 0: not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Version of the protocol.
    pub version: i64,
    /// Of the session, ns.
    pub duration_ns: i64,
    /// Between two probes, ns.
    pub interval_ns: i64,
    /// Of a probe and its answer, without UDP's header.
    pub length: i64,
    /// What the server says of the probes that it has had.
    pub counts: i64,
    /// Which times it says.
    pub stamps: i64,
    /// Of which clocks.
    pub clocks: i64,
}

/// A text among the parameters: what answers are filled with.
const FILLING: u64 = 9;

impl Parameters {
    fn field(&mut self, which: u64) -> Option<&mut i64> {
        match which {
            1 => Some(&mut self.version),
            2 => Some(&mut self.duration_ns),
            3 => Some(&mut self.interval_ns),
            4 => Some(&mut self.length),
            5 => Some(&mut self.counts),
            6 => Some(&mut self.stamps),
            7 => Some(&mut self.clocks),
            // The server's own: DSCP and later ones.
            _ => None,
        }
    }

    /// As bytes; what is 0 is left out.
    pub fn write(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for which in 1..=7 {
            let value = self.field(which).map_or(0, |field| *field);
            if value != 0 {
                put(which, &mut bytes);
                put(((value << 1) ^ (value >> 63)) as u64, &mut bytes);
            }
        }
        bytes
    }

    /// From bytes. Unknown parameters are left out.
    pub fn read(mut bytes: &[u8]) -> Result<Parameters, Malformed> {
        let mut all = Parameters::default();
        while !bytes.is_empty() {
            let which = take(&mut bytes)?;
            let value = take(&mut bytes)?;
            if which == FILLING {
                let length = usize::try_from(value).map_err(|_| Malformed::Parameter)?;
                bytes = bytes.get(length..).ok_or(Malformed::Truncated)?;
            } else if let Some(field) = all.field(which) {
                *field = (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
        Ok(all)
    }
}

fn put(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        *bytes = rest;
        let part = u64::from(first & 0x7f);
        // Of the tenth byte only one bit has room.
        if shift == 63 && part > 1 {
            return Err(Malformed::Parameter);
        }
        value |= part << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Parameter)
}

fn mac(key: &[u8], bytes: &[u8]) -> Hmac<Md5> {
    // HMAC takes keys of every length.
    let mut mac = <Hmac<Md5> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| <Hmac<Md5> as KeyInit>::new(&Default::default()));
    mac.update(&bytes[..HEAD]);
    mac.update(&[0; TAG]);
    mac.update(&bytes[HEAD + TAG..]);
    mac
}

/// A packet of this length at least; without a key it is not signed.
fn packet(flags: u8, body: &[u8], length: usize, key: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(flags);
    if !key.is_empty() {
        bytes[HEAD - 1] |= SIGNED;
        bytes.extend([0; TAG]);
    }
    bytes.extend(body);
    bytes.resize(bytes.len().max(length), 0);
    if !key.is_empty() {
        let tag = mac(key, &bytes).finalize().into_bytes();
        bytes[HEAD..HEAD + TAG].copy_from_slice(&tag);
    }
    bytes
}

/// Flags and body of a packet that the server sent.
fn unpack<'a>(bytes: &'a [u8], key: &[u8]) -> Result<(u8, &'a [u8]), Malformed> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Malformed::Truncated)?;
    let flags = head[HEAD - 1];
    if !head.starts_with(&MAGIC) || flags > OPEN | REPLY | CLOSE | SIGNED || flags & REPLY == 0 {
        return Err(Malformed::Foreign);
    }
    if (flags & SIGNED != 0) == key.is_empty() {
        return Err(Malformed::Unsigned);
    }
    if key.is_empty() {
        return Ok((flags, rest));
    }
    let (tag, body) = rest.split_first_chunk::<TAG>().ok_or(Malformed::Truncated)?;
    mac(key, bytes).verify_slice(tag).map_err(|_| Malformed::Unsigned)?;
    Ok((flags, body))
}

/// The next number of a body.
fn number<const N: usize>(body: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (number, rest) = body.split_first_chunk::<N>().ok_or(Malformed::Truncated)?;
    *body = rest;
    Ok(*number)
}

/// Asks for a session.
pub fn open(parameters: Parameters, key: &[u8]) -> Vec<u8> {
    packet(OPEN, &parameters.write(), 0, key)
}

/// Ends a session.
pub fn close(token: u64, key: &[u8]) -> Vec<u8> {
    packet(CLOSE, &token.to_le_bytes(), 0, key)
}

/// A probe.
pub fn probe(token: u64, number: u32, length: usize, key: &[u8]) -> Vec<u8> {
    let body = [&token.to_le_bytes()[..], &number.to_le_bytes()].concat();
    packet(0, &body, length, key)
}

/// The shortest probe.
pub fn shortest(key: &[u8]) -> usize {
    probe(0, 0, 0, key).len()
}

/// What the server says of a session that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Of the session.
    pub token: u64,
    /// It was not opened.
    pub closed: bool,
    /// What is granted.
    pub parameters: Parameters,
}

impl Opened {
    /// From a datagram.
    pub fn read(bytes: &[u8], key: &[u8]) -> Result<Opened, Malformed> {
        let (flags, mut body) = unpack(bytes, key)?;
        if flags & OPEN == 0 {
            return Err(Malformed::Foreign);
        }
        let token = u64::from_le_bytes(number(&mut body)?);
        Ok(Opened { token, closed: flags & CLOSE != 0, parameters: Parameters::read(body)? })
    }
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the session.
    pub token: u64,
    /// Of the probe.
    pub number: u32,
    /// The session ends with it.
    pub closed: bool,
    /// How many probes the server has had.
    pub had: Option<u32>,
    /// When it received the probe and when it answered, by its clock, ns.
    pub times: Option<(i64, i64)>,
}

impl Reply {
    /// From a datagram, in the form that was granted.
    pub fn read(bytes: &[u8], key: &[u8], granted: &Parameters) -> Result<Reply, Malformed> {
        let (flags, mut body) = unpack(bytes, key)?;
        if flags & OPEN != 0 {
            return Err(Malformed::Foreign);
        }
        let token = u64::from_le_bytes(number(&mut body)?);
        let seq = u32::from_le_bytes(number(&mut body)?);
        let had = match granted.counts & COUNT {
            0 => None,
            _ => Some(u32::from_le_bytes(number(&mut body)?)),
        };
        if granted.counts & WINDOW != 0 {
            let _: [u8; 8] = number(&mut body)?;
        }
        // The monotonic clock where there are both: it comes behind the other one.
        let mut time = |at: i64| -> Result<Option<i64>, Malformed> {
            let mut last = None;
            for clock in [WALL, MONOTONIC] {
                if granted.stamps & at != 0 && granted.clocks & clock != 0 {
                    last = Some(i64::from_le_bytes(number(&mut body)?));
                }
            }
            Ok(last)
        };
        let (received, middle, sent) = (time(AT_RECEIVE)?, time(AT_MIDDLE)?, time(AT_SEND)?);
        let times = received.or(middle).or(sent).zip(sent.or(middle).or(received));
        Ok(Reply { token, number: seq, closed: flags & CLOSE != 0, had, times })
    }
}

/// What a server of irtt would send; for tests of others' readers.
#[cfg(test)]
pub mod server {
    use super::*;

    /// Opens a session.
    pub fn opened(token: u64, parameters: Parameters, closed: bool, key: &[u8]) -> Vec<u8> {
        let body = [&token.to_le_bytes()[..], &parameters.write()].concat();
        packet(OPEN | REPLY | if closed { CLOSE } else { 0 }, &body, 0, key)
    }

    /// Answers with a count and two times.
    pub fn reply(
        (token, number): (u64, u32),
        had: u32,
        times: (i64, i64),
        flags: u8,
        key: &[u8],
    ) -> Vec<u8> {
        let body = [
            &token.to_le_bytes()[..],
            &number.to_le_bytes(),
            &had.to_le_bytes(),
            &times.0.to_le_bytes(),
            &times.1.to_le_bytes(),
        ];
        packet(REPLY | flags, &body.concat(), 88, key)
    }
}

#[cfg(test)]
mod tests {
    use super::server::{opened, reply};
    use super::*;

    const GRANTED: Parameters = Parameters {
        version: 1,
        duration_ns: 25_000_000_000,
        interval_ns: 16_000_000,
        length: 88,
        counts: COUNT,
        stamps: AT_BOTH,
        clocks: MONOTONIC,
    };

    #[test]
    fn parameters_are_numbers_of_variable_length() {
        let few = Parameters { version: 1, length: 88, ..Parameters::default() };
        // Zigzag: 1 is 2, 88 is 176, which is 0xb0 0x01.
        assert_eq!(few.write(), [1, 2, 4, 0xb0, 1]);
        assert_eq!(Parameters::read(&GRANTED.write()), Ok(GRANTED));
        let negative = Parameters { length: i64::MIN, ..GRANTED };
        assert_eq!(Parameters::read(&negative.write()), Ok(negative));
        // DSCP, a filling, and one of the future are left out.
        let more = [&[8, 4, 9, 4][..], b"rand", &[77, 2], &few.write()].concat();
        assert_eq!(Parameters::read(&more), Ok(few));
    }

    #[test]
    fn broken_parameters_are_refused() {
        for (bytes, why) in [
            (&[1][..], Malformed::Truncated),
            (&[1, 0x80], Malformed::Truncated),
            (&[9, 5, b'r'], Malformed::Truncated),
            (&[1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], Malformed::Parameter),
            (&[1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 129, 1], Malformed::Parameter),
        ] {
            assert_eq!(Parameters::read(bytes), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn a_probe_has_its_number_behind_the_token() {
        let bytes = probe(0x0102, 3, 40, b"");
        assert_eq!(bytes[..16], [0x14, 0xa7, 0x5b, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes.len(), 40);
        assert_eq!((shortest(b""), shortest(b"key")), (16, 32));
    }

    #[test]
    fn a_signature_covers_the_whole_packet() {
        let key = b"key";
        let bytes = reply((7, 8), 9, (10, 11), 0, key);
        assert_eq!(Reply::read(&bytes, key, &GRANTED).unwrap().number, 8);
        for at in [3, 4, 20, bytes.len() - 1] {
            let mut other = bytes.clone();
            // Of the flags the one that closes.
            other[at] ^= CLOSE;
            assert_eq!(Reply::read(&other, key, &GRANTED), Err(Malformed::Unsigned), "{at}");
        }
        assert_eq!(Reply::read(&bytes, b"other", &GRANTED), Err(Malformed::Unsigned));
        assert_eq!(Reply::read(&bytes, b"", &GRANTED), Err(Malformed::Unsigned));
        let bare = reply((7, 8), 9, (10, 11), 0, b"");
        assert_eq!(Reply::read(&bare, key, &GRANTED), Err(Malformed::Unsigned));
    }

    #[test]
    fn the_granted_parameters_say_where_the_times_are() {
        let body = |parts: &[&[u8]]| packet(REPLY, &parts.concat(), 0, b"");
        let (token, seq) = (7_u64.to_le_bytes(), 8_u32.to_le_bytes());
        let time = |ns: i64| ns.to_le_bytes();
        let read = |granted: Parameters, bytes: &[u8]| {
            Reply::read(bytes, b"", &granted).map(|reply| (reply.had, reply.times))
        };
        let none = Parameters { counts: 0, stamps: 0, ..GRANTED };
        assert_eq!(read(none, &body(&[&token, &seq])), Ok((None, None)));
        let middle = Parameters { stamps: AT_MIDDLE, ..none };
        assert_eq!(read(middle, &body(&[&token, &seq, &time(5)])), Ok((None, Some((5, 5)))));
        let all = Parameters { counts: COUNT | WINDOW, clocks: WALL | MONOTONIC, ..GRANTED };
        let times = [time(1), time(2), time(3), time(4)].concat();
        let bytes = body(&[&token, &seq, &6_u32.to_le_bytes(), &[0; 8], &times]);
        assert_eq!(read(all, &bytes), Ok((Some(6), Some((2, 4)))));
        assert_eq!(read(all, &bytes[..bytes.len() - 1]), Err(Malformed::Truncated));
    }

    #[test]
    fn an_opened_session_and_a_closed_one_are_read() {
        let bytes = opened(7, GRANTED, false, b"key");
        let session = Opened { token: 7, closed: false, parameters: GRANTED };
        assert_eq!(Opened::read(&bytes, b"key"), Ok(session));
        let refused = Opened::read(&opened(0, GRANTED, true, b""), b"").unwrap();
        assert!(refused.closed);
        // What a client sends is no answer, and an answer to a probe opens nothing.
        assert_eq!(Opened::read(&open(GRANTED, b""), b""), Err(Malformed::Foreign));
        let answer = reply((7, 8), 9, (10, 11), 0, b"");
        assert_eq!(Opened::read(&answer, b""), Err(Malformed::Foreign));
    }
}
