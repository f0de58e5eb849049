//! Findings: the problems of a flow or a capture, since when, by which figures, and their cure.
//!
//! There is one rule per file. It gets the [`Evidence`] of one flow, or the [`CaptureFacts`], and returns a [`Finding`]
//! or nothing. Each threshold is published, or has its reason beside it.
//!
//! The text at the top of each rule's file is its manual page. It is compiled into [`Rule::page`], and a test compares
//! `docs/findings/` with it (`UNBLOAT_BLESS=1` writes the files). To add a rule, write its file and add one line to
//! [`TABLE`].
//!
//! Rules return nothing for flows too small to judge; each page states the minimum. They check this first, so that a
//! capture of many small connections costs a comparison or two per flow.

use crate::series::evidence::{CaptureFacts, Evidence, ProbePauses};
use crate::series::rows::Finding;

mod application_limited;
mod bottleneck_rate;
mod buffer_size;
mod bufferbloat;
mod burst_after_stall;
mod capture_quality;
pub mod changepoint;
mod ecn_marked;
mod flat_window;
pub mod grade;
mod loss_limited;
mod no_answer;
mod page;
pub mod pauses;
mod queues;
mod radio_promotion;
mod reading;
mod receive_window;
mod reordering;
mod retransmission_timeouts;
mod rtt_inflation_other_flow;
mod sender;
#[cfg(test)]
mod testing;
mod uneven_rate;
mod zero_window;

/// A rule with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, as in [`Finding::rule`].
    pub name: &'static str,
    /// One line on what it finds.
    pub about: &'static str,
    /// Sources of its thresholds.
    pub source: &'static str,
    /// Its manual page in Markdown.
    pub page: &'static str,
    /// The function that checks it.
    pub check: Check,
}

/// The input of a rule.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Checks one flow.
    Flow(fn(&Evidence<'_>) -> Option<Finding>),
    /// Checks one flow, and the probes of one host to another.
    FlowAndProbes(fn(&Evidence<'_>) -> Option<Finding>, fn(&ProbePauses<'_>) -> Option<Finding>),
    /// Checks the capture as a whole.
    Capture(fn(&CaptureFacts) -> Option<Finding>),
}

/// Every rule, in the order in which findings of equal severity are shown.
pub const TABLE: &[Rule] = &[
    bufferbloat::RULE,
    rtt_inflation_other_flow::RULE,
    receive_window::RULE,
    zero_window::RULE,
    flat_window::RULE,
    burst_after_stall::RULE,
    loss_limited::RULE,
    no_answer::RULE,
    retransmission_timeouts::RULE,
    reordering::RULE,
    radio_promotion::RULE,
    bottleneck_rate::RULE,
    buffer_size::RULE,
    uneven_rate::RULE,
    application_limited::RULE,
    ecn_marked::RULE,
    capture_quality::RULE,
];

/// Findings about one flow, in the order of [`TABLE`]. Of a flow that the capture lacks too much of, `capture-quality` says so.
pub fn flow_findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    if evidence.flow.data_packets == 0 || evidence.flow.capture_lacks.is_some() {
        return Vec::new();
    }
    let run = |rule: &Rule| match rule.check {
        Check::Flow(check) | Check::FlowAndProbes(check, _) => check(evidence),
        Check::Capture(_) => None,
    };
    // Where the clock of the capture went back, the last bin may end before the first moment.
    let in_order = |found: Finding| Finding { to: found.to.max(found.from), ..found };
    TABLE.iter().filter_map(run).map(in_order).collect()
}

/// Findings about the capture as a whole, in the order of [`TABLE`].
pub fn capture_findings(facts: &CaptureFacts) -> Vec<Finding> {
    let run = |rule: &Rule| match rule.check {
        Check::Flow(_) | Check::FlowAndProbes(..) => None,
        Check::Capture(check) => check(facts),
    };
    TABLE.iter().filter_map(run).collect()
}

/// Findings about the probes of one host to another, in the order of [`TABLE`].
pub fn probe_findings(pauses: &ProbePauses<'_>) -> Vec<Finding> {
    let run = |rule: &Rule| match rule.check {
        Check::FlowAndProbes(_, check) => check(pauses),
        Check::Flow(_) | Check::Capture(_) => None,
    };
    TABLE.iter().filter_map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::testing::Case;
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_clean_transfer_has_no_findings() {
        let case = Case::transfer(20, |_, _| {});
        let found = flow_findings(&case.evidence());
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn a_flow_without_data_or_with_a_handful_of_packets_has_no_findings() {
        let mut case = Case::transfer(1, |_, bin| bin.rtt(900.0));
        case.flow.bytes = units::Bytes(4_000);
        case.flow.data_packets = 4;
        assert!(flow_findings(&case.evidence()).is_empty());
        case.flow.data_packets = 0;
        assert!(flow_findings(&case.evidence()).is_empty());
    }

    #[test]
    fn names_are_unique_and_every_rule_says_where_it_comes_from() {
        for (i, rule) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|r| r.name != rule.name), "{}", rule.name);
            assert!(!rule.about.is_empty() && !rule.source.is_empty(), "{}", rule.name);
        }
    }

    #[test]
    fn every_page_has_all_of_its_parts() {
        for rule in TABLE {
            assert!(rule.page.starts_with(&format!("# {}\n", rule.name)), "{}", rule.name);
            for part in [
                "## How it is measured",
                "## Evidence",
                "## What cures it",
                "## Traps",
                "## Sources",
            ] {
                assert!(rule.page.contains(part), "{}: {part}", rule.name);
            }
        }
    }

    #[test]
    fn the_pages_in_docs_are_those_of_the_source() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings");
        let bless = std::env::var_os("UNBLOAT_BLESS").is_some();
        for rule in TABLE {
            let file = folder.join(format!("{}.md", rule.name));
            if bless {
                fs::create_dir_all(&folder).expect("docs/findings can be made");
                fs::write(&file, rule.page).expect("page can be written");
            }
            let text = fs::read_to_string(&file).unwrap_or_default();
            assert!(
                text == rule.page,
                "{} is out of date: UNBLOAT_BLESS=1 cargo test",
                file.display()
            );
        }
        for entry in fs::read_dir(&folder).expect("docs/findings exists") {
            let name = entry.expect("entry").file_name().to_string_lossy().into_owned();
            assert!(TABLE.iter().any(|r| format!("{}.md", r.name) == name), "no rule for {name}");
        }
    }
}
