//! What is wrong with a file: line, key, what was found, what would fit.

/// Where a key was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the file, on this line, counted from 1.
    Line(usize),
    /// Not in the file: set from outside, such as by an option of the command line.
    Set,
    /// The key is missing, or the problem concerns the whole file.
    Nowhere,
}

/// A file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.message())]
pub struct Error {
    /// The line of the file, where there is one.
    pub place: Place,
    /// The full key, such as `link.up.queue.limit`; empty for the whole file.
    pub key: String,
    /// What is wrong there.
    pub problem: Box<Problem>,
}

impl Error {
    fn message(&self) -> String {
        let place = match self.place {
            Place::Line(n) => format!("line {n}: "),
            Place::Set => "set: ".to_owned(),
            Place::Nowhere => String::new(),
        };
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        format!("{place}{key}{}", self.problem)
    }
}

/// The kinds of problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The text is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// The key is not in the table of keys.
    #[error("unknown key{}known: {}", did_you_mean(.nearest), listed(.known))]
    UnknownKey {
        /// The known key that was probably meant.
        nearest: Option<String>,
        /// All known keys of the section.
        known: Vec<String>,
    },
    /// No element has this name.
    #[error("no {what} is called \"{found}\"{}{}", did_you_mean(.nearest), there_are(.known))]
    UnknownName {
        /// The kind of element.
        what: &'static str,
        /// The name that was given.
        found: String,
        /// The known name that was probably meant.
        nearest: Option<String>,
        /// All names that exist.
        known: Vec<String>,
    },
    /// A value of another kind, such as a number without unit.
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// How such a value is written.
        expected: String,
        /// The value that was given.
        found: String,
    },
    /// A value outside the range of its key.
    #[error("{found} is out of range: {min} to {max}")]
    OutOfRange {
        /// The value that was given.
        found: String,
        /// The smallest allowed value.
        min: String,
        /// The largest allowed value.
        max: String,
    },
    /// A required key that is not given.
    #[error("missing: {0}")]
    Missing(&'static str),
    /// A name given twice.
    #[error("a second {what} \"{name}\"")]
    Twice {
        /// The kind of element.
        what: &'static str,
        /// The name of both.
        name: String,
    },
    /// Keys that exclude each other.
    #[error("not together with {0}")]
    Excluded(String),
    /// A section that another key needs is not in the file.
    #[error("there is no {0}")]
    Absent(&'static str),
    /// A list without elements.
    #[error("an empty list")]
    Empty,
    /// More elements than the memory of a machine carries.
    #[error("{found} {what}; {max} at most")]
    TooMany {
        /// What kind of element is counted.
        what: &'static str,
        /// How many are given.
        found: u64,
        /// How many are allowed.
        max: u64,
    },
    /// Values that contradict each other, or another problem; the text says which.
    #[error("{0}")]
    Contradiction(String),
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or("; ".to_owned(), |name| format!("; did you mean \"{name}\"? "))
}

fn there_are(known: &[String]) -> String {
    if known.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", listed(known))
    }
}

/// The first 24 names: about one line.
fn listed(known: &[String]) -> String {
    let first = known.iter().take(24).map(String::as_str);
    first.chain((known.len() > 24).then_some("…")).collect::<Vec<_>>().join(", ")
}

/// The result of a step of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// A problem at a key.
pub fn wrong<T>(place: Place, key: impl Into<String>, problem: Problem) -> Result<T> {
    Err(Error { place, key: key.into(), problem: Box::new(problem) })
}

/// The problem of a name that is none of `known`.
pub fn unknown_name<'a>(
    what: &'static str,
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Problem {
    let known: Vec<&str> = known.into_iter().collect();
    Problem::UnknownName {
        what,
        found: found.chars().take(64).collect(),
        nearest: crate::nearest(found, known.iter().copied()).map(str::to_owned),
        known: known.into_iter().map(str::to_owned).collect(),
    }
}

/// The problem of a key that is none of `known`.
pub fn unknown_key<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Problem {
    let known: Vec<&str> = known.into_iter().collect();
    Problem::UnknownKey {
        nearest: crate::nearest(found, known.iter().copied()).map(str::to_owned),
        known: known.into_iter().map(str::to_owned).collect(),
    }
}
