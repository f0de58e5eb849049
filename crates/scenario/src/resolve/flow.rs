//! Transfers: sender, receiver, copies.

use std::ops::Range;

use settings::{Item, Problem, Result, Section, Tree, plain};
use units::Bytes;

use super::{MAX_FLOWS, Run, app, each, once, profile};
use crate::family::Family;
use crate::keys;
use crate::types::{App, Flow, Read, Receiver, Sender, WindowUpdate};

/// All flows, and which of them each `[[flow]]` became.
pub(super) fn flows(
    root: &Section<'_>,
    run: &Run<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Vec<Flow>, Vec<Range<usize>>)> {
    let (mut flows, mut copies) = (Vec::new(), Vec::new());
    let mut places = Vec::new();
    for (i, (tree, path)) in each(root, "flow", MAX_FLOWS)?.into_iter().enumerate() {
        let (flow, section) = one(tree, path, i, run, warnings)?;
        let (count, stagger) = (section.count("count")?, section.duration("stagger")?);
        let total = flows.len() as u64 + count;
        if total > MAX_FLOWS {
            return section
                .wrong("count", Problem::TooMany { what: "flows", found: total, max: MAX_FLOWS });
        }
        run.within(&section, "stagger", flow.start + stagger * (count - 1))?;
        copies.push(flows.len()..flows.len() + count as usize);
        for copy in 0..count {
            let name = if count == 1 { flow.name.clone() } else { format!("{}-{copy}", flow.name) };
            let later = stagger * copy;
            let stop = flow.stop.map(|stop| stop + later);
            places.push((section.place, section.full("name")));
            flows.push(Flow { name, start: flow.start + later, stop, ..flow.clone() });
        }
    }
    once(
        "flow",
        flows.iter().zip(places).map(|(f, (place, path))| (f.name.as_str(), place, path)),
    )?;
    Ok((flows, copies))
}

/// The name of a `[[flow]]` without one.
pub(super) fn default_name(i: usize) -> String {
    format!("flow{i}")
}

/// One `[[flow]]` without its copies.
fn one<'a>(
    tree: &'a Tree,
    path: String,
    i: usize,
    run: &Run<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Flow, Section<'a>)> {
    let section = Section::open(tree, path, &[keys::FLOW, keys::SENDER], &[])?;
    let from = run.node(&section, "from", None)?;
    let to = to(&section, from, run)?;
    let from_server = run.nodes[from].name.starts_with("server");
    let sender_opens =
        if section.has("opens") { section.choice("opens")? == 0 } else { !from_server };
    let (start, stop) = (section.duration("start")?, section.duration_if_given("stop")?);
    run.within(&section, "start", start)?;
    if stop.is_some_and(|stop| stop <= start) {
        return section.wrong("stop", Problem::Contradiction("not after the start".to_owned()));
    }
    let app = app::read(&section)?;
    let name = section.text("name")?.map_or_else(|| default_name(i), str::to_owned);
    let unused = if matches!(app, App::Voip { .. }) { section.get("congestion") } else { None };
    if let Some(settings::Place::Line(line)) = unused.map(|t| t.place) {
        warnings.push(format!(
            "line {line}: {}: not used: voice runs over UDP",
            section.full("congestion")
        ));
    }
    let (sender, receiver) = (sender(&section)?, receiver(&section)?);
    Ok((Flow { name, from, to, sender_opens, start, stop, sender, receiver, app }, section))
}

/// The receiving node; between two hosts it need not be given.
fn to(section: &Section<'_>, from: usize, run: &Run<'_>) -> Result<usize> {
    let other = match run.nodes[from].name.as_str() {
        "client" => Some("server"),
        "server" => Some("client"),
        _ => None,
    };
    let default = match run.nodes {
        [a, b] => Some(if from == 0 { b.name.as_str() } else { a.name.as_str() }),
        nodes => other.filter(|o| nodes.iter().any(|n| n.name == *o)),
    };
    let to = run.node(section, "to", default)?;
    if to == from {
        let text = format!("from {} to itself", run.nodes[from].name);
        return section.wrong("to", Problem::Contradiction(text));
    }
    run.connected(section, from, to)?;
    run.connected(section, to, from)?;
    Ok(to)
}

/// The sending end: keys of [flow.sender], or of the flow itself.
fn sender(flow: &Section<'_>) -> Result<Sender> {
    let nested = flow.below("sender", &[keys::SENDER])?;
    for key in keys::SENDER {
        if nested.has(key.name) && flow.has(key.name) {
            return flow.wrong(key.name, Problem::Excluded(nested.full(key.name)));
        }
    }
    let at = |key: &str| if flow.has(key) { flow } else { &nested };
    let timestamps = at("timestamps").flag("timestamps")?;
    let mss = at("mss");
    // Without the option a segment carries 12 bytes more (RFC 7323 appendix A).
    let mss = if mss.has("mss") || timestamps { mss.bytes("mss")? } else { Bytes(1_460) };
    Ok(Sender {
        congestion: Family::Congestion.of(flow, "congestion")?,
        initial_window: at("initial_window").count("initial_window")?,
        mss,
        buffer: at("buffer").bytes("buffer")?,
        waits_for_space: at("waits_for_space").flag("waits_for_space")?,
        tsq: tsq(at("tsq"))?,
        pacing: at("pacing").flag("pacing")?,
        sack: at("sack").flag("sack")?,
        timestamps,
        ecn: at("ecn").flag("ecn")?,
        class: at("class").class("class")?,
        slow_start_after_idle: at("slow_start_after_idle").flag("slow_start_after_idle")?,
    })
}

/// TCP small queues: an amount, or `false`.
fn tsq(section: &Section<'_>) -> Result<Option<Bytes>> {
    match section.get("tsq") {
        None => Ok(section.defaults("tsq").first().copied()),
        Some(Tree { item: Item::Flag(false), .. }) => Ok(None),
        Some(tree) if tree.text().is_some() => {
            let value =
                plain(algo::Unit::Bytes, Some(("1 B", "1 GB")), tree, &section.full("tsq"))?;
            Ok(algo::Setting::from_value(&value))
        }
        Some(tree) => {
            let expected = "bytes such as \"128 KB\", or false".to_owned();
            section.wrong("tsq", Problem::WrongKind { expected, found: tree.shown() })
        }
    }
}

fn receiver(flow: &Section<'_>) -> Result<Receiver> {
    let section = flow.below("receiver", &[keys::RECEIVER])?;
    Ok(Receiver {
        window: Family::Window.of(&section, "window")?,
        read: read(&section)?,
        window_update: match section.choice("window_update")? {
            0 => WindowUpdate::Linux,
            _ => WindowUpdate::Segment,
        },
        ack_every: section.count("ack_every")?,
        ack_delay: section.duration("ack_delay")?,
        ack_class: section.class("ack_class")?,
    })
}

/// How the application drains the buffer.
fn read(section: &Section<'_>) -> Result<Read> {
    let Some(tree) = section.get("read") else { return Ok(Read::AtOnce) };
    match tree.text() {
        Some("at-once") => Ok(Read::AtOnce),
        Some(_) => {
            let expected = "\"at-once\", { profile = […], unit, slot, tick }, or { work_per_kb, cpu, background }".to_owned();
            section.wrong("read", Problem::WrongKind { expected, found: tree.shown() })
        }
        None => {
            let all: &[_] = &[keys::PROFILE, keys::TICK, keys::PROCESSOR];
            let inner = Section::open(tree, section.full("read"), all, &[])?;
            if let Some(key) = keys::PROCESSOR.iter().find(|key| inner.has(key.name)) {
                return processor(&inner, key.name);
            }
            let (rates, slot) = profile::read(&inner)?;
            let tick = inner.duration("tick")?;
            if inner.has("tick") && tick > slot {
                let text = format!("{tick} is longer than the slot, {slot}");
                return inner.wrong("tick", Problem::Contradiction(text));
            }
            Ok(Read::Profile { rates, slot, tick: tick.min(slot) })
        }
    }
}

/// A reader that its processor limits; `given` is one of its keys.
fn processor(inner: &Section<'_>, given: &str) -> Result<Read> {
    for key in keys::PROFILE.iter().chain(keys::TICK) {
        if inner.has(key.name) {
            return inner.wrong(key.name, Problem::Excluded(inner.full(given)));
        }
    }
    let Some(work_per_kb) = inner.duration_if_given("work_per_kb")? else {
        let what = "the processor time for each 1,000 bytes";
        return inner.wrong("work_per_kb", Problem::Missing(what));
    };
    let (cpu, background) = (inner.number("cpu")?, inner.count("background")?);
    Ok(Read::Processor { work_per_kb, cpu, background })
}

/// The algorithm that a change gives to a flow, read from the tree in which it stands.
pub(super) fn changed(tree: &Tree, path: String, key: &str) -> Result<crate::types::Algorithm> {
    let section = Section::open(tree, path, &[keys::FLOW, keys::SENDER], &[])?;
    match key {
        "congestion" => Family::Congestion.of(&section, "congestion"),
        _ => Family::Window.of(&section.below("receiver", &[keys::RECEIVER])?, "window"),
    }
}
