//! What a data connection begins with: which session, which stream, and what the server does on it.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | `UNBDATA1` | |
//! | 8 | u64 | session |
//! | 16 | u32 | number of the stream |
//! | 20 | u8 | 1 up, 2 down |
//! | 21 | 16 bytes | congestion control, filled with zeros; all zero: the system's own |
//! | 37 | 16 bytes | tag of all before |
//!
//! The server answers one byte when the congestion control is set; then data flow until either side ends it.

use super::DATA;
use super::keys::{Key, TAG};

/// Length, first eight bytes included.
pub const LENGTH: usize = SIGNED + TAG;
const SIGNED: usize = 37;
/// As the kernel's TCP_CA_NAME_MAX.
const NAME: usize = 16;

/// Which way the data of a load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

impl Direction {
    /// Name in messages and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// A stream that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its session.
    pub session: u64,
    /// Its number.
    pub id: u32,
    /// Which way its data goes.
    pub direction: Direction,
    /// The congestion control at both ends; the system's own otherwise.
    pub cc: Option<String>,
}

impl Opening {
    /// As it is sent. A name that is too long for the kernel is cut, and then unknown to it.
    pub fn write(&self, key: &Key) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&DATA);
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.id.to_le_bytes());
        bytes[20] = match self.direction {
            Direction::Up => 1,
            Direction::Down => 2,
        };
        let name = self.cc.as_deref().unwrap_or_default().as_bytes();
        let length = name.len().min(NAME);
        bytes[21..21 + length].copy_from_slice(&name[..length]);
        let tag = key.tag(&bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&tag);
        bytes
    }

    /// Reads what was received; `None` for everything that the key did not sign.
    pub fn read(bytes: &[u8; LENGTH], key: &Key) -> Option<Opening> {
        let (said, tag) = bytes.split_at(SIGNED);
        if said[..8] != DATA || !key.is_tag(said, tag) {
            return None;
        }
        let mut session = [0; 8];
        session.copy_from_slice(&said[8..16]);
        let direction = match said[20] {
            1 => Direction::Up,
            2 => Direction::Down,
            _ => return None,
        };
        let name: Vec<u8> = said[21..].iter().copied().take_while(|byte| *byte != 0).collect();
        let cc = String::from_utf8(name).ok()?;
        Some(Opening {
            session: u64::from_le_bytes(session),
            id: u32::from_le_bytes([said[16], said[17], said[18], said[19]]),
            direction,
            cc: (!cc.is_empty()).then_some(cc),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_with_its_key_only(
            session in any::<u64>(), id in any::<u32>(), up in any::<bool>(),
            cc in prop::option::of("[a-z_]{1,16}"), bit in 0..LENGTH * 8,
        ) {
            let direction = if up { Direction::Up } else { Direction::Down };
            let opening = Opening { session, id, direction, cc };
            let key = Key::derived("token", &[1; 32]);
            let mut bytes = opening.write(&key);
            prop_assert_eq!(Opening::read(&bytes, &key), Some(opening));
            prop_assert_eq!(Opening::read(&bytes, &Key::derived("other", &[1; 32])), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Opening::read(&bytes, &key), None);
        }
    }
}
