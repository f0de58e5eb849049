//! Figures over time: one limit per bin (`limits`), a flow in at most 512 bins (`profile`), and the rows and
//! series that the analysis returns.

pub mod evidence;
pub(crate) mod growth;
pub(crate) mod last_second;
pub(crate) mod limits;
pub(crate) mod output;
pub mod profile;
pub mod rows;
