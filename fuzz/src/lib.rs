//! What the fuzz targets do with their bytes, and what they check afterwards.
//!
//! `drive` and `invariants` are also compiled into `crates/flow/tests/kept_seeds.rs`, which replays
//! every input that once found something; so they need nothing but `capture`, `flow` and `units`.
//! `scenario_text` is compiled into `crates/scenario/tests/any_text.rs` in the same way.

pub mod agent;
pub mod drive;
pub mod emulator;
pub mod invariants;
pub mod located;
pub mod measure;
pub mod modem;
pub mod scenario_text;
pub mod trace_text;
