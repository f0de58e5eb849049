//! Figures over time: one limit per bin (`limits`), a flow in at most 512 bins (`profile`), the search for level shifts
//! (`changepoint`), grades, and the rows and series that the analysis returns.

pub mod changepoint;
pub mod evidence;
pub mod grade;
pub(crate) mod limits;
pub(crate) mod output;
pub mod profile;
pub mod rows;
