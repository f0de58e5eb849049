//! Packets → connections → time series → findings.
//!
//! One door: [`analyze_files`] reads captures and hands out an [`Analysis`] (or [`Analyzer`] takes decoded packets
//! one by one). Inside, a packet goes `table` → `connection` → `stream` (its data) and `feedback` (what it
//! acknowledges) → `bins` (time, limits); a finished connection goes `summary` → `diagnose`.
//!
//! Nothing here holds a clock or knows how the packets came to be: times are those of the capture.
//!
//! Definitions and their reasons: `docs/measures.md`. Columns: `docs/format.md`.

mod connection;
pub mod diagnose;
pub mod locate;
mod packet;
pub mod series;
mod tcp;

pub use crate::connection::session::{AnalyzeError, Report, Source, analyze_files};
pub use crate::connection::table::{Analysis, Analyzer, Options, Packets};
pub use crate::series::output::Select;
