//! TOML files that are checked against a table of keys.
//!
//! Each key stands once in such a table: form, range, default, meaning ([`Key`]). [`Section`] reads
//! a table of the file by it and refuses every unknown key, wrong unit and value out of range, with
//! line, full key and the nearest known name. Documentation and templates are printed from the same
//! tables, so that they cannot disagree with the parser.
//!
//! Nothing here opens a file, and nothing knows what the keys are for.

mod error;
pub mod form;
mod group;
mod nearest;
pub mod quantity;
mod section;
mod tree;

pub use error::{Error, Place, Problem, Result, unknown_key, unknown_name, wrong};
pub use group::Group;
pub use nearest::nearest;
pub use section::{Form, Key, Section, plain};
pub use tree::{Item, Table, Tree, addresses, flatten, index_of, shortened};
