//! # capture-quality
//!
//! What is missing in the capture itself, so that its gaps are not taken for faults of the network.
//!
//! ## How it is measured
//!
//! These are counted over the whole capture:
//!
//! - drops that the capture program reported
//! - TCP bytes acknowledged but never seen
//! - packets captured twice (mirror ports), dropped before the analysis
//! - connections without SYN (window scale unknown, a lower bound is inferred)
//! - connections seen in one direction only (no RTT, no window)
//! - connections of which the capture lacks most of the data, or more ACKs than any sender could do without: neither limit
//!   nor RTT is stated of them (`capture_lacks` in `docs/format.md`)
//! - segments larger than any MTU (GSO/GRO: the capture was taken above the offload of the network
//!   card)
//! - times that run backwards
//! - packets with invalid headers, or cut off before the end of the TCP header
//!
//! It is a warning when figures are affected: drops or gaps, a fifth or more of the connections one-sided, 1 % of
//! packets broken, 0.1 % of times backwards. So it is for a connection that cannot be judged. Otherwise info: missing SYNs from 5 % of the
//! connections (at least one) on, duplicates from 0.1 % of the packets on, GSO/GRO segments always.
//!
//! Minimum: one packet.
//!
//! ## Evidence
//!
//! `packets`, `reported_drops`, `gap_bytes`, `duplicates`, `connections`, `without_syn`, `one_sided`,
//! `incomplete`, `giants` (connections with GSO/GRO segments), `backward_steps`, `broken` (packets). `packets` and
//! `connections` are always there, the others where they are not zero.
//!
//! ## What cures it
//!
//! That of the first flaw in the list, those that affect figures first:
//!
//! - drops and gaps: capture with a small snap length (`-s 128`) and a large buffer (`-B 65536`)
//! - one direction only: capture on one of the hosts, or on a tap that sees both directions
//! - most of a connection: both together
//! - broken headers: a larger snap length; times backwards: sort with `reordercap`
//! - missing SYNs: start before the connection
//! - copies and GSO/GRO segments: nothing. Where single packets matter, use `ethtool -K … gro off tso off`
//!
//! ## Traps
//!
//! - A capture that begins in the middle of long connections always lacks their SYNs.
//! - The reported drops of some programs are those of the whole interface, before the filter.
//! - Gaps also arise where a second path carried part of a connection.
//!
//! ## Sources
//!
//! pcapng (draft-ietf-opsawg-pcapng, interface statistics block). Paxson, "Strategies for sound Internet
//! measurement", IMC 2004.

use super::reading::{Values, bytes, counted, percent, ratio};
use super::{Check, Rule, page::page};
use crate::series::evidence::CaptureFacts;
use crate::series::rows::{Finding, Severity};

/// Shares from which each defect is reported, as on the page.
const ONE_SIDED: f64 = 0.2;
const BROKEN: f64 = 0.01;
const BACKWARD: f64 = 0.001;
const WITHOUT_SYN: f64 = 0.05;
const DUPLICATES: f64 = 0.001;

const CURE_LOST: &str = "Capture with a small snap length and a large buffer (tcpdump -s 128 -B 65536), so that no packet is \
                         missing.";
const CURE_ONE_SIDED: &str =
    "Capture where both directions pass: on one of the two hosts, or at a tap that sees both.";
const CURE_INCOMPLETE: &str = "Capture where all packets of both directions pass, with a small snap length and a large buffer (tcpdump -s 128 \
                               -B 65536).";
const CURE_BROKEN: &str =
    "Capture at least 128 bytes of each packet, so that all headers are complete.";
const CURE_ORDER: &str = "Times run backwards where files were put one after the other, or a clock was set. Sort the packets \
                          with reordercap, or analyse the files one by one.";
const CURE_SYN: &str =
    "Begin the capture before the connection, so that it contains the handshake.";
const CURE_COPIES: &str = "Nothing: copies are not counted. A capture of one interface, or of one side of a mirror port, has none.";
const CURE_OFFLOAD: &str = "Nothing: a large segment counts as those that it stands for. Where single packets matter, turn the \
                            offload off (ethtool -K, gro off, tso off).";

pub(super) const RULE: Rule = Rule {
    name: "capture-quality",
    about: "what is missing in the capture itself",
    source: "pcapng; Paxson (IMC 2004)",
    page: page!("capture_quality.rs"),
    check: Check::Capture(check),
};

fn check(facts: &CaptureFacts) -> Option<Finding> {
    if facts.packets == 0 {
        return None;
    }
    let of_packets = |n: u64| ratio(n as f64, facts.packets as f64);
    let of_connections = |n: u64| ratio(n as f64, facts.connections as f64);
    let drops = facts.reported_drops.unwrap_or(0);
    let connections = |n, one: &str, many: &str| {
        let (noun, verb) = if n == 1 { ("connection", one) } else { ("connections", many) };
        format!("{n} {noun} ({}) {verb}", percent(of_connections(n)))
    };

    // (mentioned, spoils figures, what, what cures it)
    let flaws = [
        (
            drops > 0,
            true,
            format!(
                "the capture program dropped {} ({})",
                counted(drops, "packet", "packets"),
                percent(ratio(drops as f64, facts.packets.saturating_add(drops) as f64)),
            ),
            CURE_LOST,
        ),
        (
            facts.gap_bytes.0 > 0,
            true,
            format!(
                "{} of TCP data were acknowledged but never captured",
                bytes(facts.gap_bytes.0 as f64)
            ),
            CURE_LOST,
        ),
        (
            facts.one_sided > 0 && of_connections(facts.one_sided) >= ONE_SIDED,
            true,
            format!("{} seen in one direction only", connections(facts.one_sided, "was", "were")),
            CURE_ONE_SIDED,
        ),
        (
            facts.incomplete > 0,
            true,
            format!(
                "of {} most of the data or of the ACKs is missing, so that limit and RTT are unknown",
                counted(facts.incomplete, "connection", "connections")
            ),
            CURE_INCOMPLETE,
        ),
        (
            of_packets(facts.broken) >= BROKEN,
            true,
            format!(
                "{} had invalid or cut-off headers",
                counted(facts.broken, "packet", "packets")
            ),
            CURE_BROKEN,
        ),
        (
            of_packets(facts.backward_steps) >= BACKWARD,
            true,
            format!(
                "the clock stepped backwards {}",
                counted(facts.backward_steps, "time", "times")
            ),
            CURE_ORDER,
        ),
        (
            facts.without_syn > 0 && of_connections(facts.without_syn) >= WITHOUT_SYN,
            false,
            format!(
                "{} the SYN, so that windows are lower bounds",
                connections(facts.without_syn, "lacks", "lack")
            ),
            CURE_SYN,
        ),
        (
            of_packets(facts.duplicates) >= DUPLICATES && facts.duplicates > 0,
            false,
            format!(
                "{} captured twice and dropped",
                counted(facts.duplicates, "packet was", "packets were")
            ),
            CURE_COPIES,
        ),
        (
            facts.offloaded > 0,
            false,
            format!(
                "{} segments larger than any MTU (offload)",
                connections(facts.offloaded, "shows", "show")
            ),
            CURE_OFFLOAD,
        ),
    ];
    let found: Vec<&str> = flaws.iter().filter(|f| f.0).map(|f| f.2.as_str()).collect();
    if found.is_empty() {
        return None;
    }
    let spoiled = flaws.iter().any(|f| f.0 && f.1);
    // Of the first flaw that spoils figures, else of the first one. Those that spoil them stand before the others.
    let cure = flaws.iter().find(|f| f.0).map_or("", |f| f.3);
    let seen = |n: u64| (n > 0).then_some(n as f64);
    let mut v = Values::default();
    v.number("packets", facts.packets as f64)
        .number("reported_drops", seen(drops))
        .number("gap_bytes", seen(facts.gap_bytes.0))
        .number("duplicates", seen(facts.duplicates))
        .number("connections", facts.connections as f64)
        .number("without_syn", seen(facts.without_syn))
        .number("one_sided", seen(facts.one_sided))
        .number("incomplete", seen(facts.incomplete))
        .number("giants", seen(facts.offloaded))
        .number("backward_steps", seen(facts.backward_steps))
        .number("broken", seen(facts.broken));
    Some(Finding {
        rule: RULE.name,
        severity: if spoiled { Severity::Warning } else { Severity::Info },
        flow: None,
        from: facts.start,
        to: facts.end,
        values: v.take(),
        text: format!("About the capture itself: {}.", found.join("; ")),
        cure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    fn facts() -> CaptureFacts {
        CaptureFacts {
            packets: 100_000,
            connections: 100,
            reported_drops: Some(0),
            ..CaptureFacts::default()
        }
    }

    #[test]
    fn a_clean_capture_and_an_empty_one_have_no_finding() {
        assert!(check(&facts()).is_none());
        assert!(check(&CaptureFacts::default()).is_none());
    }

    #[test]
    fn each_flaw_is_said_in_words_and_figures() {
        let f = check(&CaptureFacts {
            reported_drops: Some(1_000),
            gap_bytes: Bytes(1_500_000),
            without_syn: 40,
            duplicates: 5_000,
            offloaded: 1,
            one_sided: 1,
            ..facts()
        })
        .expect("flawed");
        assert_eq!((f.severity, f.flow), (Severity::Warning, None));
        for part in [
            "dropped 1000 packets (0.99 %)",
            "1.50 MB",
            "40 connections (40 %) lack",
            "5000 packets were captured twice",
        ] {
            assert!(f.text.contains(part), "{part}: {}", f.text);
        }
        assert!(!f.text.contains("one direction"));
        assert_eq!(f.number("one_sided"), 1.0);
    }

    #[test]
    fn flaws_that_spoil_no_figure_are_only_info() {
        let with = |without_syn, duplicates| {
            check(&CaptureFacts { without_syn, duplicates, ..facts() }).map(|f| f.severity)
        };
        assert_eq!(
            [with(4, 99), with(5, 0), with(0, 100)],
            [None, Some(Severity::Info), Some(Severity::Info)]
        );
    }

    #[test]
    fn the_cure_is_that_of_the_first_flaw_and_what_affects_figures_comes_first() {
        let cure = |change: fn(&mut CaptureFacts)| {
            let mut facts = facts();
            change(&mut facts);
            check(&facts).expect("a flaw").cure
        };
        assert_eq!(cure(|f| f.offloaded = 3), CURE_OFFLOAD);
        assert_eq!(cure(|f| f.duplicates = 900), CURE_COPIES);
        assert_eq!(cure(|f| (f.incomplete, f.without_syn) = (1, 40)), CURE_INCOMPLETE);
        assert_eq!(cure(|f| f.without_syn = 40), CURE_SYN);
        assert_eq!(cure(|f| (f.backward_steps, f.without_syn) = (900, 40)), CURE_ORDER);
        assert_eq!(cure(|f| (f.one_sided, f.without_syn) = (30, 40)), CURE_ONE_SIDED);
        assert_eq!(cure(|f| (f.gap_bytes, f.one_sided) = (Bytes(9), 30)), CURE_LOST);
    }

    #[test]
    fn the_boundaries_of_the_warnings() {
        let one = |one_sided| check(&CaptureFacts { one_sided, ..facts() }).is_some();
        let broken = |broken| check(&CaptureFacts { broken, ..facts() }).is_some();
        let back = |backward_steps| check(&CaptureFacts { backward_steps, ..facts() }).is_some();
        assert_eq!([one(19), one(20)], [false, true]);
        assert_eq!([broken(999), broken(1_000)], [false, true]);
        assert_eq!([back(99), back(100)], [false, true]);
    }
}
