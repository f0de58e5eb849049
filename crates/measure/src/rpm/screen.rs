//! The result as text, and the line that is renewed while it runs.

use std::fmt::Write;

use super::{Confidence, Look, Outcome, PhaseOutcome, band};
use crate::screen::{ms, rate, title};

/// One line while it runs.
pub fn look(look: &Look) -> String {
    let mut line = format!("{:<10}  {}", title(look.step), look.variant);
    for (arrow, bps) in [("↓", look.down_bps), ("↑", look.up_bps)] {
        if let Some(bps) = bps {
            let _ = write!(line, "  {arrow} {}", rate(bps));
        }
    }
    if let Some(rpm) = look.rpm {
        let _ = write!(line, "  {rpm:.0} RPM");
    }
    let _ = write!(line, "  at most {:.0} s left", look.left_s);
    line
}

fn word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

fn row(phase: &PhaseOutcome) -> [String; 8] {
    let figure = &phase.figure;
    let milliseconds = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), ms);
    let goodput: Vec<String> = [("↓", phase.goodput_down_bps), ("↑", phase.goodput_up_bps)]
        .iter()
        .filter_map(|(arrow, bps)| Some(format!("{arrow} {}", rate((*bps)?))))
        .collect();
    [
        format!("{}, {}", title(phase.phase), phase.variant),
        phase.rpm.map_or_else(|| "none".to_owned(), |rpm| format!("{rpm:.0} {}", band(rpm))),
        word(phase.confidence).to_owned(),
        milliseconds(figure.tcp_ms),
        milliseconds(figure.tls_ms),
        milliseconds(figure.http_ms),
        milliseconds(figure.loaded_ms),
        goodput.join(" "),
    ]
}

/// The whole result.
pub fn screen(outcome: &Outcome) -> String {
    let head = ["", "RPM", "confidence", "ms: TCP", "TLS", "GET", "loaded", "goodput"];
    let rows: Vec<[String; 8]> =
        std::iter::once(head.map(str::to_owned)).chain(outcome.phases.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| match column {
                3..=6 => format!("{cell:>0$}", width(column)),
                _ => format!("{cell:<0$}", width(column)),
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    let _ = writeln!(text);
    if let (Some(rtt), Some(rpm)) = (outcome.unloaded_rtt_ms, outcome.unloaded_rpm) {
        let _ = writeln!(text, "Without a load: RTT {} ms, {rpm:.0} RPM.", ms(rtt));
    }
    let waiting: usize = outcome.phases.iter().map(|phase| phase.figure.waiting).sum();
    if waiting > 0 {
        let _ = writeln!(text, "Probes that still waited, and count with that time: {waiting}.");
    }
    for phase in outcome.phases.iter().filter(|phase| phase.confidence < Confidence::High) {
        let what = match (phase.goodput_confidence, phase.confidence) {
            (Confidence::Low | Confidence::Medium, _) => "goodput was not steady",
            (_, Confidence::Low) => "too few intervals",
            _ => "responsiveness was not steady",
        };
        let (name, variant) = (title(phase.phase), phase.variant);
        let _ = writeln!(text, "{name}, {variant}: {what} within {:.0} s.", phase.seconds);
    }
    let _ = writeln!(
        text,
        "TCP, TLS, GET: round trips of new connections; loaded: a request on a connection with a load."
    );
    let _ = writeln!(
        text,
        "A server of RPM has no probes of ours: no delay per direction, no loss, no place of the queue."
    );
    if let Some(why) = &outcome.ended {
        let _ = writeln!(text, "Incomplete: {why}.");
    }
    text
}
