//! A configuration as the cures read it.

use std::path::Path;

use settings::{Form, Group, Section, group};

/// What the cures act on.
pub(crate) const SCOPE: Group = group! {
    [scope]
    /// Whose connections: the directory of a cgroup v2; empty: this whole host's, or in another
    /// network namespace than the host's, those of this namespace. A connection belongs to the
    /// cgroup in which it was made.
    cgroup = "", Form::Text;
    /// Only connections of this user, a name or a number; downloads only. Empty: those of all users.
    user = "\"\"", Form::Other("a name or a number");
    /// The uplink's device; empty: that of the default route, whichever that is now.
    device = "", Form::Text;
};

/// A configuration whose sections and keys all exist.
pub struct Document<'a> {
    pub(crate) root: Section<'a>,
    /// Where programs and maps are pinned.
    pub(crate) pins: &'a Path,
}

impl<'a> Document<'a> {
    /// A section; every key has its default where the configuration lacks it.
    pub(crate) fn section(&self, group: &Group) -> settings::Result<Section<'a>> {
        self.root.below(group.name, group.keys)
    }
}
