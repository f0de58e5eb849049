//! Rates by turns: `{ profile = [0, 6, 6], unit = "Mbit/s", slot = "600 ms" }`.

use algo::Unit;
use settings::{Item, Problem, Result, Section, Tree, plain};
use units::{Duration, Rate};

use crate::keys;

/// Largest number of slots of a profile.
const MAX_SLOTS: u64 = 1_000;
/// What a number is multiplied with, in the order of the words of `unit`.
const FACTORS: [f64; 4] = [1.0, 1e3, 1e6, 1e9];
/// 1 Tbit/s, the fastest link.
const FASTEST: f64 = 1e12;

/// Rates and slot of a section that has the keys of a profile.
pub(crate) fn read(section: &Section<'_>) -> Result<(Vec<Rate>, Duration)> {
    let list = match section.get("profile") {
        None => return section.wrong("profile", Problem::Missing("a list of rates")),
        Some(Tree { item: Item::List(list), .. }) => list,
        Some(other) => {
            let expected = "a list of rates".to_owned();
            return section.wrong("profile", Problem::WrongKind { expected, found: other.shown() });
        }
    };
    if list.is_empty() {
        return section.wrong("profile", Problem::Empty);
    }
    if list.len() as u64 > MAX_SLOTS {
        return section.wrong(
            "profile",
            Problem::TooMany { what: "slots", found: list.len() as u64, max: MAX_SLOTS },
        );
    }
    let unit = section.choice("unit")?;
    let rates = list.iter().map(|tree| rate(section, tree, unit)).collect::<Result<Vec<Rate>>>()?;
    if rates.iter().all(|r| r.0 == 0) {
        let text = "all rates are zero: nothing would ever move".to_owned();
        return section.wrong("profile", Problem::Contradiction(text));
    }
    match section.duration_if_given("slot")? {
        Some(slot) => Ok((rates, slot)),
        None => section.wrong("slot", Problem::Missing("how long each rate lasts")),
    }
}

fn rate(section: &Section<'_>, tree: &Tree, unit: usize) -> Result<Rate> {
    let number = match tree.item {
        Item::Number(x) => x,
        Item::Whole(n) => n as f64,
        _ => {
            let value = plain(Unit::Rate, Some(keys::RATE_RANGE), tree, &section.full("profile"))?;
            return Ok(algo::Setting::from_value(&value).unwrap_or_default());
        }
    };
    if !section.has("unit") {
        return section
            .wrong("unit", Problem::Missing("the unit of the plain numbers in the profile"));
    }
    let bps = number * FACTORS[unit];
    if !(0.0..=FASTEST).contains(&bps) {
        let (found, min, max) = (tree.shown(), "0 bit/s".to_owned(), "1000 Gbit/s".to_owned());
        return section.wrong("profile", Problem::OutOfRange { found, min, max });
    }
    Ok(Rate((bps + 0.5) as u64))
}
