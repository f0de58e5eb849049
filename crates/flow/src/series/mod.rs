//! Figures over time: one limit per bin (`limits`), a flow in at most 512 bins (`profile`), and the rows and
//! series that the analysis returns. Timestamps of the other host (`stamps`, `tick`) give each direction's own delay
//! (`directions`), what arrived while a queue stood (`arrivals`), and what stood in the queue at a loss (`losses`).

pub mod arrivals;
pub mod directions;
pub mod evidence;
pub(crate) mod growth;
pub(crate) mod last_second;
pub(crate) mod limits;
pub(crate) mod losses;
pub(crate) mod output;
pub mod profile;
pub mod rows;
pub(crate) mod stamps;
pub(crate) mod tick;
