//! Packets that wait: their bytes in slots that are used again, named by a handle.
//!
//! There are three sizes of slots. They grow a chunk at a time when a queue is longer than ever
//! before, and are never freed, so that a packet costs a copy and no allocation. Queues and links
//! use its handle.
//!
//! Memory is that of the longest queue (what the scenario's buffers allow, plus rate × delay on the
//! way), each packet rounded up to its slot: at most 96 bytes for an ACK, 2,016 for a full packet.

/// Bytes of a slot, by class: an ACK with options (52 to 80 bytes), a small request or voice
/// packet, a full packet of an MTU of 1,500.
const SLOTS: [usize; 3] = [96, 480, 2_016];
/// Slots added at a time: a hundred-odd KB of full packets.
const CHUNK: usize = 64;
/// The class stands in the two highest bits of a handle.
const CLASS_SHIFT: u32 = 30;
const INDEX: u32 = (1 << CLASS_SHIFT) - 1;

/// What is known of a stored packet beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Its number among the packets of this direction, from 0.
    pub number: u64,
    /// Length in bytes, IP header included.
    pub length: u16,
    /// Its transport checksum contains only the pseudo-header's sum; the receiver of the frame has
    /// to finish it.
    pub partial: bool,
}

#[derive(Default)]
struct Class {
    bytes: Vec<u8>,
    meta: Vec<Meta>,
    free: Vec<u32>,
}

/// Stored packets, each named by a handle.
#[derive(Default)]
pub struct Frames {
    classes: [Class; 3],
    stored: usize,
}

impl Frames {
    /// Stores a packet; `None` if it is longer than the longest slot.
    pub fn insert(&mut self, meta: Meta, parts: &[&[u8]]) -> Option<u32> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let at = SLOTS.iter().position(|slot| length <= *slot)?;
        let size = SLOTS[at];
        let class = &mut self.classes[at];
        if class.free.is_empty() {
            let from = class.meta.len() as u32;
            class.bytes.resize(class.bytes.len() + CHUNK * size, 0);
            class.meta.resize(class.meta.len() + CHUNK, Meta::default());
            class.free.extend((from..from + CHUNK as u32).rev());
        }
        let index = class.free.pop()?;
        class.meta[index as usize] = Meta { length: length as u16, ..meta };
        let mut to = index as usize * size;
        for part in parts {
            class.bytes[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
        self.stored += 1;
        Some((at as u32) << CLASS_SHIFT | index)
    }

    /// What is known of a packet.
    pub fn meta(&self, handle: u32) -> Meta {
        let (class, index) = place(handle);
        self.classes[class].meta[index]
    }

    /// The bytes of a stored packet.
    pub fn bytes(&self, handle: u32) -> &[u8] {
        let (class, index) = place(handle);
        let from = index * SLOTS[class];
        &self.classes[class].bytes[from..from + usize::from(self.classes[class].meta[index].length)]
    }

    /// A packet's bytes, to be changed.
    pub fn bytes_mut(&mut self, handle: u32) -> &mut [u8] {
        let (class, index) = place(handle);
        let from = index * SLOTS[class];
        let length = usize::from(self.classes[class].meta[index].length);
        &mut self.classes[class].bytes[from..from + length]
    }

    /// The slot is free again.
    pub fn remove(&mut self, handle: u32) {
        let (class, index) = place(handle);
        self.classes[class].free.push(index as u32);
        self.stored -= 1;
    }

    /// Number of packets stored.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Bytes of memory taken for slots.
    pub fn memory(&self) -> usize {
        self.classes.iter().map(|class| class.bytes.len()).sum()
    }
}

fn place(handle: u32) -> (usize, usize) {
    ((handle >> CLASS_SHIFT) as usize, (handle & INDEX) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_comes_back_as_it_was_and_its_slot_is_used_again() {
        let mut frames = Frames::default();
        let small = frames.insert(Meta { number: 7, ..Meta::default() }, &[&[1, 2], &[3]]);
        let small = small.expect("three bytes fit");
        let large = frames.insert(Meta::default(), &[&[9; 1_500]]).expect("a full packet fits");
        assert_eq!((frames.bytes(small), frames.meta(small).number), (&[1, 2, 3][..], 7));
        assert_eq!(frames.bytes(large), &[9; 1_500]);
        let memory = frames.memory();
        frames.remove(small);
        frames.remove(large);
        for _ in 0..1_000 {
            let again = frames.insert(Meta::default(), &[&[5; 1_400]]).expect("fits");
            frames.remove(again);
        }
        assert_eq!((frames.stored(), frames.memory()), (0, memory));
    }

    proptest! {
        #[test]
        fn packets_in_any_order_of_coming_and_going_keep_their_bytes(
            steps in prop::collection::vec((any::<u8>(), 0..2_017_usize, any::<bool>()), 1..300)
        ) {
            let mut frames = Frames::default();
            let mut stored: Vec<(u32, Vec<u8>, u64)> = Vec::new();
            for (number, (fill, length, remove)) in steps.into_iter().enumerate() {
                if remove && !stored.is_empty() {
                    let (handle, ..) = stored.swap_remove(usize::from(fill) % stored.len());
                    frames.remove(handle);
                } else {
                    let bytes = vec![fill; length];
                    let meta = Meta { number: number as u64, ..Meta::default() };
                    let (front, back) = bytes.split_at(length / 3);
                    let handle = frames.insert(meta, &[front, back]).expect("it fits a slot");
                    prop_assert!(stored.iter().all(|(other, ..)| *other != handle));
                    stored.push((handle, bytes, number as u64));
                }
                prop_assert_eq!(frames.stored(), stored.len());
                for (handle, bytes, number) in &stored {
                    prop_assert_eq!(frames.bytes(*handle), bytes);
                    prop_assert_eq!(frames.meta(*handle).number, *number);
                }
            }
        }
    }

    #[test]
    fn what_no_slot_holds_is_refused() {
        assert_eq!(Frames::default().insert(Meta::default(), &[&[0; 2_017]]), None);
    }
}
