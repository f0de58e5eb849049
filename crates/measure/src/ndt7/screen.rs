//! The result as text: RTT under load instead of a grade.

use std::fmt::Write;

use crate::cure::Cure;
use crate::outcome::Outcome;
use crate::screen::{LIMITED, captured, cures_text, ms, percent, rate, title};

/// The whole result.
pub fn screen(host: &str, outcome: &Outcome, cures: &[Cure]) -> String {
    let mut text = String::new();
    let least_ms = outcome.rtt_min_ms.unwrap_or(0.0);
    if !outcome.phases.is_empty() {
        let _ = writeln!(
            text,
            "{:<10}{:>18}{:>8}{:>8}{:>13}{:>18}",
            "", "RTT, ms: p50", "p95", "p99", "sent again", "goodput"
        );
    }
    for phase in &outcome.phases {
        let (arrow, bps) = match phase.goodput_down_bps {
            Some(bps) => ("↓", Some(bps)),
            None => ("↑", phase.goodput_up_bps),
        };
        let quantiles = phase.delay_rtt.as_ref().map_or_else(Default::default, |d| {
            [d.p50_ms.ms, d.p95_ms.ms, d.p99_ms.ms].map(|added_ms| ms(least_ms + added_ms))
        });
        let [p50, p95, p99] = quantiles;
        let again = phase.streams.first().and_then(|s| s.retransmitted_share);
        let goodput = bps.map_or_else(String::new, |bps| format!("{arrow} {}", rate(bps)));
        let _ = writeln!(
            text,
            "{:<10}{p50:>18}{p95:>8}{p99:>8}{:>13}{goodput:>18}",
            title(phase.phase),
            again.map_or_else(String::new, percent),
        );
    }
    text.push('\n');
    if let Some(rtt_ms) = outcome.rtt_min_ms {
        let _ = writeln!(text, "Smallest RTT to {host}: {} ms.", ms(rtt_ms));
    }
    for phase in &outcome.phases {
        let name = title(phase.phase);
        match &phase.delay_rtt {
            Some(delay) => {
                let of = if phase.phase == "up" { "this host's" } else { "the server's" };
                let samples = delay.probes;
                let _ = writeln!(text, "{name}: RTT of {of} TCP, {samples} samples.");
                let _ = writeln!(text, "{name}: {}.", phase.usability);
            }
            None => {
                let _ = writeln!(text, "{name}: the sender's kernel named no RTT.");
            }
        }
        if !phase.steady {
            let _ = writeln!(text, "{name}: goodput was not steady yet when measuring began.");
        }
        for stream in &phase.streams {
            for (share, what) in [
                (stream.share_rwnd, "the receiver's window"),
                (stream.share_sndbuf, "the send buffer"),
            ] {
                if let Some(share) = share.filter(|share| *share >= LIMITED) {
                    let share = percent(share);
                    let _ = writeln!(text, "{name}: {what} limited TCP for {share} of its time.");
                }
            }
        }
    }
    if !outcome.phases.is_empty() {
        text.push_str("One stream and no probes: no grade, no delay per direction, no loss.\n");
    }
    if let Some(why) = &outcome.ended {
        let _ = writeln!(text, "Incomplete: {why}.");
    }
    if let Some(recorded) = &outcome.capture {
        let _ = writeln!(text, "Capture: {}.", captured(recorded));
    }
    text + &cures_text(cures)
}
