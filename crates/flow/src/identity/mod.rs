//! Facts about one packet: its connection (`key`), its place in the stream (`sequence`), and whether the capture
//! contains it twice (`dedup`).

pub(crate) mod dedup;
pub(crate) mod key;
pub(crate) mod sequence;
