//! What is wrong with a scenario: line, key, what was found, what would fit.

/// Where a key was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the file, on this line, counted from 1.
    Line(usize),
    /// Not in the file: set from outside.
    Set,
    /// Nowhere: it is missing, or stands for the whole file.
    Nowhere,
}

/// A scenario that cannot be run, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.line_of_text())]
pub struct ScenarioError {
    /// Where.
    pub place: Place,
    /// The full key, such as `link.up.queue.limit`; empty for the whole file.
    pub key: String,
    /// What.
    pub problem: Box<Problem>,
}

impl ScenarioError {
    fn line_of_text(&self) -> String {
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
    /// Not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that means nothing here.
    #[error("unknown key{}known: {}", did_you_mean(.nearest), listed(.known))]
    UnknownKey {
        /// What was probably meant.
        nearest: Option<String>,
        /// What there is.
        known: Vec<String>,
    },
    /// A name that nothing has.
    #[error("no {what} is called \"{found}\"{}{}", did_you_mean(.nearest), there_are(.known))]
    UnknownName {
        /// The kind of thing.
        what: &'static str,
        /// The name given.
        found: String,
        /// What was probably meant.
        nearest: Option<String>,
        /// What there is.
        known: Vec<String>,
    },
    /// A value of another kind.
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// How it is written.
        expected: String,
        /// The value given.
        found: String,
    },
    /// A value that makes no sense.
    #[error("{found} is out of range: {min} to {max}")]
    OutOfRange {
        /// The value given.
        found: String,
        /// The smallest that does.
        min: String,
        /// The largest that does.
        max: String,
    },
    /// A key that has no default.
    #[error("missing: {0}")]
    Missing(&'static str),
    /// A name given twice.
    #[error("a second {what} \"{name}\"")]
    Twice {
        /// The kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Keys that exclude each other.
    #[error("not together with {0}")]
    Excluded(String),
    /// No way from one node to the other.
    #[error("no path of links leads from \"{from}\" to \"{to}\"")]
    Unconnected {
        /// The first node.
        from: String,
        /// The last.
        to: String,
    },
    /// A part that something needs is not there.
    #[error("there is no {0}")]
    Absent(&'static str),
    /// The trace of a link cannot be had.
    #[error("trace \"{name}\": {reason}")]
    Trace {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A key that stays as it is during a run.
    #[error("does not change in mid-run; what can: {0}")]
    Unchangeable(&'static str),
    /// A list without elements.
    #[error("an empty list")]
    Empty,
    /// More than a machine holds.
    #[error("{found} {what}; {most} at most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// A time after the run, or values that contradict each other.
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

/// As many names as a line holds.
fn listed(known: &[String]) -> String {
    let shown = known.iter().take(24).map(String::as_str);
    shown.chain((known.len() > 24).then_some("…")).collect::<Vec<_>>().join(", ")
}

/// What a step of reading gives.
pub(crate) type Result<T> = std::result::Result<T, ScenarioError>;

/// A problem at a key.
pub(crate) fn wrong<T>(place: Place, key: impl Into<String>, problem: Problem) -> Result<T> {
    Err(ScenarioError { place, key: key.into(), problem: Box::new(problem) })
}

/// A name that is none of `known`.
pub(crate) fn unknown_name<'a>(
    what: &'static str,
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Problem {
    let known: Vec<&str> = known.into_iter().collect();
    Problem::UnknownName {
        what,
        found: found.chars().take(64).collect(),
        nearest: crate::nearest::nearest(found, known.iter().copied()).map(str::to_owned),
        known: known.into_iter().map(str::to_owned).collect(),
    }
}

/// A key that is none of `known`.
pub(crate) fn unknown_key<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Problem {
    let known: Vec<&str> = known.into_iter().collect();
    Problem::UnknownKey {
        nearest: crate::nearest::nearest(found, known.iter().copied()).map(str::to_owned),
        known: known.into_iter().map(str::to_owned).collect(),
    }
}
