//! What a packet is known by: its connection, its sequence numbers, whether the capture copied it.

pub(crate) mod dedup;
pub(crate) mod key;
pub(crate) mod sequence;
