//! Packets → connections → time series → findings.
//!
//! One door: [`analyze_files`] reads captures and hands out an [`Analysis`] (or [`Analyzer`] takes decoded packets
//! one by one). Inside, a packet goes `table` → `connection` → `stream` (its data) and `feedback` (what it
//! acknowledges) → `bins` (time, limits); a finished connection goes `summary` → `diagnose`.
//!
//! Nothing here holds a clock or knows how the packets came to be: times are those of the capture.
//!
//! Definitions and their reasons: `docs/measures.md`. Columns: `docs/format.md`.

mod bins;
mod bursts;
pub mod changepoint;
mod connection;
mod datagram;
mod dedup;
pub mod diagnose;
mod echo;
pub mod evidence;
mod feedback;
pub mod grade;
mod hosts;
mod key;
mod late;
pub mod locate;
mod measured;
mod out;
pub mod profile;
pub mod record;
mod scoreboard;
mod seq;
mod session;
mod stream;
mod summary;
mod table;

pub use out::Select;
pub use session::{AnalyzeError, Report, Source, analyze_files};
pub use table::{Analysis, Analyzer, Options, Packets};
