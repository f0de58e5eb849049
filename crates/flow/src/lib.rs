//! Packets → connections → time series → findings.
//!
//! [`analyze_files`] reads captures and returns an [`Analysis`]; [`Analyzer`] takes decoded packets one by one.
//! A packet goes through `connection::table` to its connection. There it is data for `tcp::stream` and an
//! acknowledgement for `tcp::ack` of the other direction. Both report to `series::limits`, which divides time into
//! bins. A finished connection goes through `connection::summary` to `diagnose`.
//!
//! Each folder uses only those before it: `identity` ← `series` ← `tcp` ← `connection`. `diagnose` needs `series` alone,
//! `locate` needs `identity` and `series`. `clock`, the difference of two clocks, needs nothing; `series` and `locate`
//! use it. `tests/house/test_rust_modules.py` checks that there is no circle.
//!
//! No code here reads a clock: all times are those of the capture.
//!
//! Definitions and their reasons: `docs/measures.md`. Columns: `docs/format.md`.

mod clock;
pub mod congestion_control;
mod connection;
pub mod diagnose;
mod identity;
pub mod locate;
pub mod sent;
pub mod series;
mod tcp;

pub use crate::connection::session::{AnalyzeError, Report, Source, analyze_files};
pub use crate::connection::table::{Analysis, Analyzer, Options, Packets};
pub use crate::series::output::Select;
