//! What the fuzz targets do with their bytes, and what must hold afterwards.
//!
//! The two modules are also compiled into `crates/flow/tests/kept_seeds.rs`, which replays every input that once
//! found something; so they need nothing but `capture`, `flow` and `units`.

pub mod drive;
pub mod invariants;
