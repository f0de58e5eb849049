//! The log mask of a modem: which records it writes.
//!
//! | message 0x73 | bytes, little endian |
//! |---|---|
//! | request | command, 3 bytes, operation u32, equipment u32; to set: items u32, a bit for each |
//! | answer | command, 3 bytes, operation u32, status u32 (0: done), equipment u32, items u32, a bit for each |
//!
//! Operation 3 sets a mask, 4 reads it. Bit n is bit n mod 8 of byte n / 8. A modem that does not know or permit a
//! request answers with a command of its own, and the request behind it.
//!
//! Source: the field lists of osmo-qcdiag and QCSuper. Facts only.

use crate::bytes::word;

const COMMAND: u8 = 0x73;
const SET: u32 = 3;
const READ: u32 = 4;
/// The upper four bits of the codes that are read: LTE and NR.
const EQUIPMENT: u32 = 0xb;
/// Twelve bits of a code are left for a record.
const MAX_ITEMS: u32 = 0x1000;
/// Behind command, operation, status, equipment and number of items.
const ANSWER_HEADER: usize = 20;
/// Commands by which a request is refused: unknown, wrong parameters, wrong length, wrong mode, locked.
const REFUSALS: [u8; 6] = [0x13, 0x14, 0x15, 0x18, 0x42, 0x47];

/// Which records of LTE and NR a modem writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    items: u32,
    bits: Vec<u8>,
}

impl Mask {
    /// Codes that are set.
    pub fn codes(&self) -> Vec<u16> {
        let is_set = |item: &u32| self.bits[(item / 8) as usize] >> (item % 8) & 1 == 1;
        (0..self.items).filter(is_set).map(|item| (EQUIPMENT << 12 | item) as u16).collect()
    }

    /// This mask and some codes more.
    pub fn with(&self, codes: impl IntoIterator<Item = u16>) -> Mask {
        let mut mask = self.clone();
        for code in codes {
            let item = u32::from(code & 0xfff);
            mask = mask.of_items(item + 1);
            mask.bits[(item / 8) as usize] |= 1 << (item % 8);
        }
        mask
    }

    /// This mask, so that it also clears what `other` has set.
    pub fn over(&self, other: &Mask) -> Mask {
        self.of_items(other.items)
    }

    fn of_items(&self, items: u32) -> Mask {
        let mut mask = self.clone();
        mask.items = mask.items.max(items);
        mask.bits.resize(mask.items.div_ceil(8) as usize, 0);
        mask
    }
}

/// What a program asks of the modem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To read the mask.
    Read,
    /// To set it.
    Set(Mask),
}

impl Request {
    fn operation(&self) -> u32 {
        match self {
            Request::Read => READ,
            Request::Set(_) => SET,
        }
    }

    /// Its message.
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = header(self.operation());
        bytes.extend(EQUIPMENT.to_le_bytes());
        if let Request::Set(mask) = self {
            bytes.extend(mask.items.to_le_bytes());
            bytes.extend(&mask.bits);
        }
        bytes
    }

    /// The request in a message, for a modem that is played; `None` in others.
    pub fn of_message(message: &[u8]) -> Option<Request> {
        if message.first() != Some(&COMMAND) || word(message, 8) != Some(EQUIPMENT) {
            return None;
        }
        match word(message, 4)? {
            READ => Some(Request::Read),
            SET => Some(Request::Set(mask(word(message, 12)?, message.get(16..)?).ok()?)),
            _ => None,
        }
    }

    /// The answer to it, for a modem that is played.
    pub fn answer(&self, status: u32, mask: &Mask) -> Vec<u8> {
        let mut bytes = header(self.operation());
        bytes.extend([status, EQUIPMENT, mask.items].map(u32::to_le_bytes).concat());
        bytes.extend(&mask.bits);
        bytes
    }

    /// Whether a message answers it, and what: the mask as it is now.
    pub fn answered(&self, message: &[u8]) -> Option<Result<Mask, Refusal>> {
        match message {
            [command, COMMAND, ..] if REFUSALS.contains(command) => {
                Some(Err(Refusal::Command(*command)))
            }
            [COMMAND, ..] if word(message, 4) == Some(self.operation()) => Some(self.read(message)),
            _ => None,
        }
    }

    fn read(&self, message: &[u8]) -> Result<Mask, Refusal> {
        let cut = Refusal::Short(message.len());
        match word(message, 8).ok_or(cut)? {
            0 => {}
            status => return Err(Refusal::Status(status)),
        }
        match self {
            // Not all modems repeat the mask.
            Request::Set(mask) => Ok(mask.clone()),
            Request::Read => {
                match word(message, 12).ok_or(cut)? {
                    EQUIPMENT => {}
                    other => return Err(Refusal::Equipment(other)),
                }
                let bits = message.get(ANSWER_HEADER..).ok_or(cut)?;
                mask(word(message, 16).ok_or(cut)?, bits)
            }
        }
    }
}

/// Why a modem has no mask for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It does not know or permit the request.
    #[error("the modem refused the request with 0x{0:02x}")]
    Command(u8),
    /// It could not do it.
    #[error("the modem answered with status {0}")]
    Status(u32),
    /// It answered for other records.
    #[error("the modem answered for equipment 0x{0:x}")]
    Equipment(u32),
    /// More records than codes have room for.
    #[error("the modem answered with a mask of {0} items")]
    Items(u32),
    /// The answer ends before its mask does.
    #[error("the modem answered with {0} bytes, which is too short")]
    Short(usize),
}

fn header(operation: u32) -> Vec<u8> {
    [&[COMMAND, 0, 0, 0], &operation.to_le_bytes()[..]].concat()
}

fn mask(items: u32, bits: &[u8]) -> Result<Mask, Refusal> {
    if items > MAX_ITEMS {
        return Err(Refusal::Items(items));
    }
    let bits = bits.get(..items.div_ceil(8) as usize).ok_or(Refusal::Short(bits.len()))?;
    let mut mask = Mask { items, bits: bits.to_vec() };
    // Bits behind the last item would become items when the mask is made longer.
    if let (Some(last), used @ 1..) = (mask.bits.last_mut(), items % 8) {
        *last &= (1 << used) - 1;
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_as_other_programs_write_them() {
        assert_eq!(Request::Read.message(), b"\x73\0\0\0\x04\0\0\0\x0b\0\0\0");
        let mask = Mask::default().with([0xb003, 0xb008]);
        let expected = b"\x73\0\0\0\x03\0\0\0\x0b\0\0\0\x09\0\0\0\x08\x01";
        assert_eq!(Request::Set(mask).message(), expected);
    }

    #[test]
    fn what_was_set_stays_set_and_is_put_back_without_what_came_on_top() {
        let before = Mask::default().with([0xb0c0]);
        let during = before.with([0xb064, 0xb881]);
        assert_eq!(during.codes(), [0xb064, 0xb0c0, 0xb881]);
        let after = before.over(&during);
        assert_eq!((after.codes(), after.items), (vec![0xb0c0], 0x882));
    }

    #[test]
    fn a_mask_is_read_only_from_a_whole_answer_to_the_request() {
        let mask = Mask::default().with([0xb064, 0xb139]);
        let answer = Request::Read.answer(0, &mask);
        assert_eq!(Request::Read.answered(&answer), Some(Ok(mask.clone())));
        for end in 8..answer.len() {
            let found = Request::Read.answered(&answer[..end]);
            assert!(matches!(found, Some(Err(Refusal::Short(_)))), "{end}: {found:?}");
        }
        let set = Request::Set(mask.clone());
        assert_eq!(set.answered(&answer), None, "the answer to another request");
        assert_eq!(set.answered(&set.answer(0, &mask)[..12]), Some(Ok(mask.clone())));
        let found = set.answered(&set.answer(1, &mask));
        assert_eq!(found, Some(Err(Refusal::Status(1))));
        assert_eq!(Request::Read.answered(b"\x10\0"), None);
        let refused = Request::Read.answered(b"\x13\x73\0\0\0\x04");
        assert_eq!(refused, Some(Err(Refusal::Command(0x13))));
        let mut other = answer.clone();
        other[12] = 1;
        assert_eq!(Request::Read.answered(&other), Some(Err(Refusal::Equipment(1))));
        let mut large = answer;
        large[18] = 1;
        assert!(matches!(Request::Read.answered(&large), Some(Err(Refusal::Items(_)))));
    }

    #[test]
    fn bits_behind_the_last_item_are_none() {
        let answer = [&Request::Read.answer(0, &Mask::default())[..16], &[3, 0, 0, 0, 0xfd]];
        let mask = Request::Read.answered(&answer.concat()).unwrap().unwrap();
        assert_eq!(mask.with([0xb064]).codes(), [0xb000, 0xb002, 0xb064]);
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(items in prop::collection::vec(0..0x1000_u16, 0..9)) {
            let set = Request::Set(Mask::default().with(items.iter().map(|item| 0xb000 | item)));
            prop_assert_eq!(Request::of_message(&set.message()), Some(set));
            prop_assert_eq!(Request::of_message(&Request::Read.message()), Some(Request::Read));
        }
    }
}
