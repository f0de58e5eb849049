//! What a cure reports about itself: a line for `status`, and samples for the metrics.
//!
//! The families that several cures fill are a table here; the others are one in the module of their
//! cure.

/// Kinds of families (OpenMetrics 1.0, "Metric Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Labels with a fixed value of 1.
    Info,
    /// One of several states.
    StateSet,
}

/// A family of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, without the suffix of its kind.
    pub name: &'static str,
    /// The type of its metrics in OpenMetrics.
    pub kind: Kind,
    /// Its unit, which ends the name; empty if it counts.
    pub unit: &'static str,
    /// The help text on the metrics page.
    pub help: &'static str,
}

/// A family of counters; `name` and `unit` as in [`Family`].
pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, help }
}

/// A family of gauges; `name` and `unit` as in [`Family`].
pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit, help }
}

/// The families of a cure: a constant for each.
macro_rules! families {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $family:expr;)+) => {
        $($(#[$doc])* $vis const $name: $crate::cures::figures::Family = $family;)+
    };
}
pub(crate) use families;

/// A name and a value.
pub type Label = (&'static str, &'static str);

/// A sample of a family, in the family's unit.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The family that it belongs to.
    pub family: Family,
    /// Labels that distinguish it within its family.
    pub labels: &'static [Label],
    /// The value, in the family's unit.
    pub value: f64,
}

/// A sample of a count.
pub fn count(family: Family, labels: &'static [Label], count: u64) -> Sample {
    Sample { family, labels, value: count as f64 }
}

/// A sample of another value.
pub fn value(family: Family, labels: &'static [Label], value: f64) -> Sample {
    Sample { family, labels, value }
}

/// What a cure reports about itself, besides its JSON.
pub trait Figures {
    /// A line for `status`, without the cure's name.
    fn line(&self) -> String;
    /// Samples for the metrics page.
    fn samples(&self) -> Vec<Sample>;
}

families! {
    /// Connections or flows of a cure.
    pub CONNECTIONS = counter("unbloat_connections", "", "Connections that a cure took up.");
    /// Segments that a cure examined.
    pub ACKS = counter("unbloat_acks", "", "ACKs and other segments that a cure looked at.");
    /// Samples of a law.
    pub SAMPLES = counter("unbloat_samples", "", "Samples of RTT and rate that laws took.");
    /// Decisions of a law.
    pub DECISIONS = counter("unbloat_decisions", "", "Windows that laws decided.");
    /// Windows by what was done to them.
    pub WINDOWS = counter("unbloat_windows", "",
        "Windows by what was done: applied; reapplied, because autotuning had moved the clamp; \
         lifted after the lease; refused by the kernel; rewritten in an ACK; held above what is \
         wanted, because a right edge never moves back.");
}

/// The families that several cures fill, in the order of the page.
pub const SHARED: [Family; 5] = [CONNECTIONS, ACKS, SAMPLES, DECISIONS, WINDOWS];
