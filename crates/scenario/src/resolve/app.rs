//! The application of a flow.

use algo::Unit;
use settings::{Item, Key, Problem, Result, Section, Tree, plain, unknown_name, wrong};
use units::{Bytes, Rate};

use super::profile;
use crate::keys::{self, APPS, SIZE_RANGE, THINK_RANGE};
use crate::types::{App, JitterBuffer, Page};

/// Largest number of objects of a page, and of rates of a ladder.
const MAX_OBJECTS: u64 = 1_000;
const MAX_RATES: u64 = 100;
/// Largest number of responses of different size: those of an hour, one every three seconds and more.
const MAX_TURNS: u64 = 1_000;

/// `app = "web"` or `app = { kind = "web", … }`.
pub(super) fn read(flow: &Section<'_>) -> Result<App> {
    let path = flow.full("app");
    let Some(tree) = flow.get("app") else { return Ok(App::Bulk) };
    let kind = match &tree.item {
        Item::Text(kind) => Some((tree, kind.as_str())),
        Item::Table(table) => match table.get("kind") {
            None => Some((tree, "bulk")),
            Some(kind) => kind.text().map(|text| (kind, text)),
        },
        _ => None,
    };
    let Some((at, kind)) = kind else {
        let expected = "the name of an application, or a table with its kind".to_owned();
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    let section = |keys: &'static [&'static [Key]]| match &tree.item {
        Item::Table(_) => Section::open(tree, path.clone(), keys, &["kind"]),
        _ => Ok(Section::absent(path.clone(), tree.place, keys)),
    };
    Ok(match kind {
        "bulk" => {
            section(&[])?;
            App::Bulk
        }
        "file" => file(&section(&[keys::FILE])?)?,
        "web" => web(&section(&[keys::WEB])?)?,
        "abr-video" => video(&section(&[keys::VIDEO])?)?,
        "voip" => {
            let s = section(&[keys::VOIP])?;
            let (every, bytes) = (s.duration("every")?, s.bytes("bytes")?);
            App::Voip { every, bytes, jitter_buffer: jitter_buffer(&s)? }
        }
        "requests" => {
            let s = section(&[keys::REQUESTS])?;
            App::Requests {
                request: s.bytes("request")?,
                responses: by_turns(&s, "response", SIZE_RANGE)?,
                thinks: by_turns(&s, "think", THINK_RANGE)?,
            }
        }
        "rate-profile" => {
            let (rates, slot) = profile::read(&section(&[keys::PROFILE])?)?;
            App::Rates { rates, slot }
        }
        other => {
            let problem = unknown_name("application", other, APPS.iter().map(|(name, _, _)| *name));
            let key = if at.place == tree.place && tree.text().is_some() {
                path
            } else {
                format!("{path}.kind")
            };
            return wrong(at.place, key, problem);
        }
    })
}

fn file(section: &Section<'_>) -> Result<App> {
    if !section.has("bytes") {
        return section.wrong("bytes", Problem::Missing("the size of the file, such as \"10 MB\""));
    }
    Ok(App::File { bytes: section.bytes("bytes")?, every: section.duration_if_given("every")? })
}

fn web(section: &Section<'_>) -> Result<App> {
    Ok(App::Web(Page {
        html: section.bytes("html")?,
        objects: objects(section)?,
        depth: section.count("depth")?,
        connections: section.count("connections")?,
        request: section.bytes("request")?,
        compute: section.duration("compute")?,
        every: section.duration("every")?,
    }))
}

/// `"adaptive"`, with the least wait, or a fixed time.
fn jitter_buffer(section: &Section<'_>) -> Result<JitterBuffer> {
    match section.get("jitter_buffer") {
        Some(tree) if tree.text() != Some("adaptive") => {
            if section.has("jitter_min") {
                let text = "a fixed jitter buffer waits neither more nor less".to_owned();
                return section.wrong("jitter_min", Problem::Contradiction(text));
            }
            let value =
                plain(Unit::Duration, Some(("0 s", "10 s")), tree, &section.full("jitter_buffer"))?;
            Ok(JitterBuffer::Fixed(algo::Setting::from_value(&value).unwrap_or_default()))
        }
        _ => Ok(JitterBuffer::Adaptive { least: section.duration("jitter_min")? }),
    }
}

/// One value, or a list of them that is gone through again and again.
fn by_turns<T: algo::Setting>(
    section: &Section<'_>,
    key: &str,
    range: (&'static str, &'static str),
) -> Result<Vec<T>> {
    if section.has(key) { section.list(key, range, MAX_TURNS) } else { Ok(section.defaults(key)) }
}

/// A list of sizes, or so many of one size.
fn objects(section: &Section<'_>) -> Result<Vec<Bytes>> {
    match section.get("objects") {
        Some(Tree { item: Item::List(_), .. }) => section.list("objects", SIZE_RANGE, MAX_OBJECTS),
        _ => {
            let alike = section.below("objects", &[keys::OBJECTS])?;
            Ok(vec![alike.bytes("bytes")?; alike.count("count")? as usize])
        }
    }
}

fn video(section: &Section<'_>) -> Result<App> {
    let ladder: Vec<Rate> = if section.has("ladder") {
        section.list("ladder", ("1 kbit/s", "10 Gbit/s"), MAX_RATES)?
    } else {
        section.defaults("ladder")
    };
    if !ladder.is_sorted() {
        return section
            .wrong("ladder", Problem::Contradiction("not in ascending order".to_owned()));
    }
    let (segment, max_buffer) = (section.duration("segment")?, section.duration("max_buffer")?);
    let start_buffer = section.duration("start_buffer")?;
    if max_buffer < segment || max_buffer < start_buffer {
        let text = format!(
            "{max_buffer} holds neither a segment ({segment}) nor the start ({start_buffer}) in whole"
        );
        return section.wrong("max_buffer", Problem::Contradiction(text));
    }
    Ok(App::Video { ladder, segment, start_buffer, max_buffer, safety: section.number("safety")? })
}
