//! What is measured over time: rows, limits per interval, a flow's outline, and the tests on them.

pub mod changepoint;
pub mod evidence;
pub mod grade;
pub(crate) mod limits;
pub(crate) mod output;
pub mod profile;
pub mod rows;
