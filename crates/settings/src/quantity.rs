//! Values as they are written: `"20 ms"`, `"1000 packets"`, `0.7`; in both directions, exactly.
//!
//! The `Display` of the quantities rounds to three digits. Here a value is written without loss, so
//! that it is read back as itself.

use algo::{Capacity, Unit, Value};
use units::{Bytes, Duration, Rate};

use toml_edit::Value as TomlValue;

use crate::tree::{Item, Tree};

/// Longest list of numbers that a value may be: no algorithm takes more.
const MAX_NUMBERS: usize = 1_000;

/// The value of `tree` in `unit`; `None` where it is of another kind.
pub fn read(unit: Unit, tree: &Tree) -> Option<Value> {
    match (unit, &tree.item) {
        (Unit::Number, Item::Number(x)) => x.is_finite().then_some(Value::Number(*x)),
        (Unit::Number, Item::Whole(n)) => Some(Value::Number(*n as f64)),
        (Unit::Count, Item::Whole(n)) => u64::try_from(*n).ok().map(Value::Count),
        (Unit::Flag, Item::Flag(b)) => Some(Value::Flag(*b)),
        (Unit::Numbers, Item::List(list)) if list.len() <= MAX_NUMBERS => {
            let one = |t: &Tree| match t.item {
                Item::Number(x) if x.is_finite() => Some(x),
                Item::Whole(n) => Some(n as f64),
                _ => None,
            };
            list.iter().map(one).collect::<Option<Vec<f64>>>().map(Value::Numbers)
        }
        (_, Item::Text(text)) => from_text(unit, text),
        _ => None,
    }
}

/// A value that is written in quotes.
fn from_text(unit: Unit, text: &str) -> Option<Value> {
    match unit {
        Unit::Duration => text.parse().ok().map(Value::Duration),
        Unit::Bytes => text.parse().ok().map(Value::Bytes),
        Unit::Rate => text.parse().ok().map(Value::Rate),
        Unit::Capacity => capacity(text).map(Value::Capacity),
        Unit::Choice(words) => words.iter().position(|w| *w == text.trim()).map(Value::Choice),
        Unit::Number | Unit::Count | Unit::Flag | Unit::Numbers => None,
    }
}

fn capacity(text: &str) -> Option<Capacity> {
    let text = text.trim();
    let packets = text.strip_suffix("packets").or_else(|| text.strip_suffix("packet"));
    match packets {
        Some(n) => n.trim().replace('_', "").parse().ok().map(Capacity::Packets),
        None => text.parse().ok().map(Capacity::Bytes),
    }
}

/// A default or the end of a range, as the tables of keys give it.
pub fn constant(unit: Unit, text: &str) -> Option<Value> {
    match unit {
        Unit::Number => text.parse().ok().map(Value::Number),
        Unit::Count => text.replace('_', "").parse().ok().map(Value::Count),
        Unit::Flag => text.parse().ok().map(Value::Flag),
        Unit::Numbers => None,
        _ => from_text(unit, text),
    }
}

/// How a value of this kind is written.
pub fn expected(unit: Unit) -> String {
    match unit {
        Unit::Number => "a number".to_owned(),
        Unit::Count => "a whole number, not negative".to_owned(),
        Unit::Flag => "true or false".to_owned(),
        Unit::Duration => {
            "a duration such as \"20 ms\" (ns, us, ms, s, min), not negative".to_owned()
        }
        Unit::Bytes => "bytes such as \"300 KB\" (B, KB, KiB, MB, MiB, GB, GiB)".to_owned(),
        Unit::Rate => "a rate such as \"12 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)".to_owned(),
        Unit::Capacity => "a capacity such as \"1000 packets\" or \"3 MB\"".to_owned(),
        Unit::Choice(words) => {
            format!("one of {}", quoted(words, ", "))
        }
        Unit::Numbers => format!("a list of at most {MAX_NUMBERS} numbers"),
    }
}

/// One word for the kind, for tables.
pub fn noun(unit: Unit) -> String {
    match unit {
        Unit::Number => "number".to_owned(),
        Unit::Count => "count".to_owned(),
        Unit::Flag => "flag".to_owned(),
        Unit::Duration => "duration".to_owned(),
        Unit::Bytes => "bytes".to_owned(),
        Unit::Rate => "rate".to_owned(),
        Unit::Capacity => "packets or bytes".to_owned(),
        Unit::Choice(words) => quoted(words, " or "),
        Unit::Numbers => "numbers".to_owned(),
    }
}

/// The value as text, without loss.
pub fn shown(unit: Unit, value: &Value) -> String {
    match value {
        Value::Unset => "none".to_owned(),
        Value::Number(x) => format!("{x}"),
        Value::Count(n) => n.to_string(),
        Value::Flag(b) => b.to_string(),
        Value::Duration(Duration(ns)) => largest(
            *ns,
            &[
                ("min", 60_000_000_000),
                ("s", 1_000_000_000),
                ("ms", 1_000_000),
                ("us", 1_000),
                ("ns", 1),
            ],
            120,
        ),
        Value::Bytes(Bytes(b)) | Value::Capacity(Capacity::Bytes(Bytes(b))) => largest(
            *b,
            &[
                ("GB", 1_000_000_000),
                ("GiB", 1 << 30),
                ("MB", 1_000_000),
                ("MiB", 1 << 20),
                ("KB", 1_000),
                ("KiB", 1 << 10),
                ("B", 1),
            ],
            1,
        ),
        Value::Rate(Rate(r)) => largest(
            *r,
            &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)],
            1,
        ),
        Value::Capacity(Capacity::Packets(1)) => "1 packet".to_owned(),
        Value::Capacity(Capacity::Packets(n)) => format!("{n} packets"),
        Value::Choice(i) => match unit {
            Unit::Choice(words) => words.get(*i).copied().unwrap_or("none").to_owned(),
            _ => i.to_string(),
        },
        Value::Numbers(list) => {
            format!("[{}]", list.iter().map(|x| format!("{x}")).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The value as TOML; `None` for one that is not set.
pub fn toml(unit: Unit, value: &Value) -> Option<String> {
    Some(match value {
        Value::Unset => return None,
        Value::Number(x) => TomlValue::from(*x).to_string(),
        Value::Count(_) | Value::Flag(_) => shown(unit, value),
        Value::Numbers(list) => list.iter().copied().collect::<TomlValue>().to_string(),
        _ => TomlValue::from(shown(unit, value)).to_string(),
    })
}

fn quoted(words: &[&str], between: &str) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(between)
}

/// In the first unit that divides the value; a duration turns into minutes only from two of them
/// on.
fn largest(n: u64, table: &[(&str, u64)], from: u64) -> String {
    let last = table[table.len() - 1].0;
    if n == 0 {
        return format!("0 {last}");
    }
    let fits = |(name, factor): &&(&str, u64)| {
        n.is_multiple_of(*factor) && (*name != "min" || n / factor * 60 >= from)
    };
    table
        .iter()
        .find(fits)
        .map_or_else(|| format!("{n} {last}"), |(name, factor)| format!("{} {name}", n / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_as_itself() {
        for ns in [0, 1, 1_500, 100_000_000, 60_000_000_000, 600_000_000_000, u64::MAX] {
            let value = Value::Duration(Duration(ns));
            assert_eq!(constant(Unit::Duration, &shown(Unit::Duration, &value)), Some(value));
        }
        for bytes in [0, 1_500, 65_536, 300_000, 4 << 20, u64::MAX] {
            let value = Value::Capacity(Capacity::Bytes(Bytes(bytes)));
            assert_eq!(constant(Unit::Capacity, &shown(Unit::Capacity, &value)), Some(value));
        }
    }

    #[test]
    fn values_are_shown_in_the_unit_that_people_use() {
        assert_eq!(shown(Unit::Duration, &Value::Duration(Duration::from_secs(60))), "60 s");
        assert_eq!(
            shown(Unit::Duration, &Value::Duration(Duration::from_millis(1_500))),
            "1500 ms"
        );
        assert_eq!(shown(Unit::Bytes, &Value::Bytes(Bytes(4 << 20))), "4 MiB");
        assert_eq!(shown(Unit::Rate, &Value::Rate(Rate(1_500_000))), "1500 kbit/s");
    }
}
