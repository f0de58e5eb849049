//! The result as text: one screen. And the line that is renewed while it runs.

use std::fmt::Write;

use crate::client::{Progress, Silences};
use crate::cure::Cure;
use crate::figures::Quantile;
use crate::hops::{Hop, Place};
use crate::outcome::{Delay, Outcome, PhaseOutcome};
use crate::seen::{Recorded, Transport};
use crate::treatment::Treatment;

/// Shares of the busy time below this did not limit a transfer.
pub(crate) const LIMITED: f64 = 0.1;

/// Milliseconds with the digits that they are worth.
pub(crate) fn ms(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "lost".to_owned(),
        ms if ms < 9.95 => format!("{:.1}", ms.max(0.0)),
        ms => format!("{ms:.0}"),
    }
}

pub(crate) fn rate(bps: f64) -> String {
    match bps / 1e6 {
        mbit if mbit < 9.995 => format!("{mbit:.2} Mbit/s"),
        mbit if mbit < 99.95 => format!("{mbit:.1} Mbit/s"),
        mbit => format!("{mbit:.0} Mbit/s"),
    }
}

pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// One line while it runs.
pub fn progress(p: &Progress) -> String {
    let mut line = format!("{:<10}", p.step);
    if let Some(bps) = p.down_bps {
        let _ = write!(line, "  ↓ {}", rate(bps));
    }
    if let Some(bps) = p.up_bps {
        let _ = write!(line, "  ↑ {}", rate(bps));
    }
    if let (Some(down), Some(up)) = (p.down_ms, p.up_ms) {
        let _ = write!(line, "  added delay ↓ {} ms ↑ {} ms", ms(down), ms(up));
    }
    if p.left_s > 0.0 {
        let _ = write!(line, "  at most {:.0} s left", p.left_s);
    }
    line
}

pub(crate) fn title(phase: &str) -> &'static str {
    match phase {
        "down" => "download",
        "up" => "upload",
        _ => "both",
    }
}

/// With the transport, if it is not TCP, and the congestion control that was asked for.
fn name(phase: &PhaseOutcome) -> String {
    let quic = (phase.transport == Transport::Quic).then_some("quic");
    let words = [Some(title(phase.phase)), quic, phase.congestion_control.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn graded(phase: &PhaseOutcome) -> Option<&Delay> {
    match phase.grade.of {
        "down" => phase.delay_down.as_ref(),
        "up" => phase.delay_up.as_ref(),
        _ => phase.delay_rtt.as_ref(),
    }
}

fn with_interval(q: &Quantile) -> String {
    format!("{} ({}–{})", ms(q.ms), ms(q.low_ms), ms(q.high_ms))
}

fn table(phases: &[PhaseOutcome]) -> Vec<[String; 6]> {
    let head = ["", "grade", "added delay, ms: p50", "p95", "p99", "goodput"].map(str::to_owned);
    let rows = phases.iter().map(|phase| {
        let quantiles = graded(phase).map_or_else(Default::default, |d| {
            [ms(d.p50_ms.ms), with_interval(&d.p95_ms), ms(d.p99_ms.ms)]
        });
        let [p50, p95, p99] = quantiles;
        let goodput: Vec<String> = [("↓", phase.goodput_down_bps), ("↑", phase.goodput_up_bps)]
            .iter()
            .filter_map(|(arrow, bps)| Some(format!("{arrow} {}", rate((*bps)?))))
            .collect();
        [name(phase), phase.grade.words(), p50, p95, p99, goodput.join(" ")]
    });
    std::iter::once(head).chain(rows).collect()
}

/// What pauses cost.
pub fn silences(host: &str, found: &Silences) -> String {
    let mut text = String::new();
    if let Some(rtt_ms) = found.rtt_ms {
        let _ = writeln!(text, "RTT to {host} without a pause: {} ms.", ms(rtt_ms));
    }
    for step in &found.steps {
        let kind =
            if step.cycle { "a radio that sleeps in cycles" } else { "a radio that is woken" };
        let _ = writeln!(
            text,
            "After {:.1} to {:.1} s without a packet the next one takes {} ms longer ({}–{}, {} packets): {kind}.",
            step.from_s,
            step.until_s,
            ms(step.extra_ms),
            ms(step.low_ms),
            ms(step.high_ms),
            step.samples
        );
    }
    let longest = found.samples.iter().map(|sample| sample.gap_s).reduce(f64::max);
    if let (true, Some(longest)) = (found.steps.is_empty(), longest) {
        let _ = writeln!(text, "No pause of up to {longest:.1} s makes the next packet 5 ms late.");
    }
    let lost = found.samples.iter().filter(|sample| sample.extra_ms.is_none()).count();
    if lost > 0 {
        let _ = writeln!(text, "Lost: {lost} of {} packets after a pause.", found.samples.len());
    }
    if found.discarded > 0 {
        let _ = writeln!(text, "Other programs' packets broke {} pauses.", found.discarded);
    }
    if let Some(why) = &found.ended {
        let _ = writeln!(text, "Incomplete: {why}.");
    }
    text
}

/// The whole result.
pub fn screen(host: &str, outcome: &Outcome, cures: &[Cure]) -> String {
    let mut text = outcome.idle.as_ref().map_or_else(String::new, |idle| idle.screen(host));
    let rows = table(&outcome.phases);
    let widths: Vec<usize> =
        (0..6).map(|c| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0)).collect();
    for row in rows.iter().filter(|_| !outcome.phases.is_empty()) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(c, (cell, width))| {
                let pad = " ".repeat(width - cell.chars().count());
                // Names and grades to the left, figures to the right.
                if c < 2 { format!("{cell}{pad}") } else { format!("{pad}{cell}") }
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    if outcome.idle.is_none() {
        text.push('\n');
    }
    if let Some(rtt) = outcome.rtt_min_ms {
        let what = if outcome.idle.is_some() { "Smallest" } else { "Unloaded" };
        let _ = writeln!(text, "{what} RTT to {host}: {} ms.", ms(rtt));
    }
    for phase in &outcome.phases {
        lines_of(phase, &outcome.hops, &mut text);
    }
    if let Some(why) = &outcome.ended {
        let _ = writeln!(text, "Incomplete: {why}.");
    }
    if let Some(recorded) = &outcome.capture {
        let _ = writeln!(text, "Capture: {}.", captured(recorded));
    }
    text + &cures_text(cures)
}

/// What to try.
pub(crate) fn cures_text(cures: &[Cure]) -> String {
    let mut text = String::new();
    for cure in cures {
        let _ = writeln!(text, "\n● {} {}: {}", title(cure.direction), cure.on, cure.name);
        let _ = writeln!(text, "  {}", cure.effect);
        if let Some(command) = &cure.command {
            let _ = writeln!(text, "  {command}");
        }
    }
    text
}

/// What was captured, and what is missing.
pub(crate) fn captured(recorded: &Recorded) -> String {
    let mut line =
        format!("{} packets, {} dropped by the kernel", recorded.packets, recorded.dropped);
    if recorded.left_out > 0 {
        let _ = write!(line, "; the file was full, and {} were left out", recorded.left_out);
    }
    if let Some(why) = &recorded.failed {
        let _ = write!(line, "; it ends early: {why}");
    }
    line
}

/// A hop, by number and address.
fn hop(number: u8, hops: &[Hop]) -> String {
    let address = hops.iter().find(|hop| hop.hop == number).map(|hop| hop.address);
    address.map_or_else(|| format!("hop {number}"), |at| format!("hop {number} ({at})"))
}

/// Between which hops a queue stands.
fn between(place: &Place, hops: &[Hop]) -> String {
    let after = match place.after {
        0 => "this host".to_owned(),
        number => hop(number, hops),
    };
    let before = match place.before {
        None => "the server".to_owned(),
        Some(number) => hop(number, hops),
    };
    format!("between {after} and {before}")
}

/// What the network does with some packets otherwise than with others.
fn treated(name: &str, found: Option<Treatment>, words: [&str; 3], text: &mut String) {
    let Some(found) = found.filter(|found| found.differs) else { return };
    let [what, others, more] = words;
    if let Some(later) = found.later_ms {
        let (by, way) = (ms(later.abs()), if later > 0.0 { "longer" } else { "shorter" });
        let _ =
            writeln!(text, "{name}: {what} take {by} ms {way} than {others}{more}: the network");
        let _ = writeln!(text, "  treats them differently, and the grade is that of {others}.");
    } else {
        let _ = writeln!(
            text,
            "{name}: none of {} {what} was answered, but {others} were:",
            found.sent
        );
        let _ = writeln!(text, "  the network blocks them, and the grade is that of {others}.");
    }
}

fn lines_of(phase: &PhaseOutcome, hops: &[Hop], text: &mut String) {
    let name = name(phase);
    if let Some(why) = &phase.grade.why {
        let _ = writeln!(text, "{name}: no grade: {why}.");
    }
    let _ = writeln!(text, "{name}: {}.", phase.usability);
    if let Some(place) = &phase.place {
        let _ = writeln!(text, "{name}: the queue stands {},", between(place, hops));
        let _ = writeln!(text, "  at {}.", place.device);
    }
    let loss = |delay: &Option<Delay>| delay.as_ref().map_or(0.0, |delay| delay.loss);
    let (down, up) = (loss(&phase.delay_down), loss(&phase.delay_up));
    if down > 0.0 || up > 0.0 {
        let _ = writeln!(text, "{name}: lost probes ↓ {} ↑ {}.", percent(down), percent(up));
    }
    treated(&name, phase.handshakes, ["TCP handshakes", "the probes", ", which are UDP"], text);
    treated(&name, phase.quic_probes, ["QUIC probes", "the other probes", ""], text);
    if !phase.steady {
        let _ = writeln!(text, "{name}: goodput was not steady yet when measuring began.");
    }
    for (part, what) in [
        (
            phase.streams.iter().filter_map(|s| s.share_rwnd).reduce(f64::max),
            "the receiver's window",
        ),
        (phase.streams.iter().filter_map(|s| s.share_sndbuf).reduce(f64::max), "the send buffer"),
    ] {
        if let Some(share) = part.filter(|share| *share >= LIMITED) {
            let _ = writeln!(
                text,
                "{name}: {what} limited a stream for {} of its time.",
                percent(share)
            );
        }
    }
    if let Some(why) = phase.streams.iter().find_map(|s| s.congestion_control_why.as_deref()) {
        let why = crate::client::printable(why);
        let _ = writeln!(text, "{name}: another congestion control than asked for: {why}.");
    }
}
