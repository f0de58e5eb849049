//! How plain values are written, in short: for tables of keys.

use algo::Unit;

use crate::section::Form;

type Bound = &'static str;

/// True or false.
pub const FLAG: Form = Form::Plain(Unit::Flag, None);

/// A duration in these bounds.
pub const fn duration(min: Bound, max: Bound) -> Form {
    Form::Plain(Unit::Duration, Some((min, max)))
}

/// An amount of data in these bounds.
pub const fn bytes(min: Bound, max: Bound) -> Form {
    Form::Plain(Unit::Bytes, Some((min, max)))
}

/// A rate in these bounds.
pub const fn rate(min: Bound, max: Bound) -> Form {
    Form::Plain(Unit::Rate, Some((min, max)))
}

/// A whole number in these bounds.
pub const fn count(min: Bound, max: Bound) -> Form {
    Form::Plain(Unit::Count, Some((min, max)))
}

/// A number in these bounds.
pub const fn number(min: Bound, max: Bound) -> Form {
    Form::Plain(Unit::Number, Some((min, max)))
}

/// One of these words.
pub const fn choice(words: &'static [&'static str]) -> Form {
    Form::Plain(Unit::Choice(words), None)
}
