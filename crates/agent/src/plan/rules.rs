//! The rules of `plan`: each one looks at host and traffic, and gives advice or none.
//!
//! signal: [`Host`] and [`Observation`] · model: one rule per file · action: [`Advice`], in the
//! order of the table. A new rule is a file and a line in the table.

use std::path::Path;

use super::advice::{Advice, Confidence, Rank};
use super::host::Host;
use super::observation::{Flow, Observation, Place, Way};
use super::text::{count, ms};
use crate::cures::{Lambda, MIN_LAMBDA};
use crate::kernel::FeatureId;

mod congestion;
mod download;
mod forward;
mod own_queue;
mod reader;
#[cfg(test)]
mod testing;
mod upload;
mod window;

/// The input of a rule.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Properties of this host.
    pub host: &'a Host,
    /// The traffic that was observed.
    pub seen: &'a Observation,
    /// Where programs are pinned.
    pub pins: &'a Path,
}

impl View<'_> {
    /// Whether the traffic is this host's, so that the host's properties count.
    pub fn here(&self) -> bool {
        self.seen.place == Place::Here
    }

    /// Why this host lacks a feature; `None` where the traffic is another host's.
    fn lacks(&self, feature: FeatureId) -> Option<String> {
        if self.here() { self.host.lacks(feature).map(str::to_owned) } else { None }
    }
}

/// The agent's default λ where it helps one of these flows, else that for low delay; `None` where
/// neither does. The law allows an RTT of λ · RTTmin.
fn lambda(flows: &[&Flow]) -> Option<f64> {
    [Lambda::AGENT.default, Lambda::AGENT.low_delay]
        .into_iter()
        .find(|lambda| flows.iter().any(|flow| helps(flow, *lambda)))
}

/// Minimum part of the RTT that a cure must save to be worth a change.
const SAVES: f64 = 0.2;

/// Whether the RTT with the law is well below the flow's present RTT.
fn helps(flow: &Flow, lambda: f64) -> bool {
    let now = flow.rtt_min_ms.and(flow.rtt_ms);
    now.is_some_and(|(_, p95)| by_law(flow, lambda) <= (1.0 - SAVES) * p95)
}

/// RTT with the law: λ · RTTmin, but never less than two segments take on the air, the law's
/// minimum window.
fn by_law(flow: &Flow, lambda: f64) -> f64 {
    let floor_ms = 2.0 * flow.mss_bytes as f64 * 8e3 / flow.rate_bps.max(1.0);
    (lambda * flow.rtt_min_ms.unwrap_or(0.0)).max(flow.rtt_min_ms.unwrap_or(0.0) + floor_ms)
}

/// What the RTT is expected to follow: the smallest λ on a link whose rate is steady.
fn law(lambda: f64) -> String {
    format!("λ · RTTmin, λ = {MIN_LAMBDA}; up to {lambda} where the rate varies")
}

/// λ in TOML's notation.
fn toml(lambda: f64) -> String {
    format!("{lambda:?}")
}

/// A rule of the table.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name of the rule.
    pub name: &'static str,
    /// Its advice in one line.
    pub about: &'static str,
    /// The function that applies it.
    pub check: fn(&View<'_>) -> Vec<Advice>,
}

/// All rules, in order.
pub const TABLE: &[Rule] = &[
    download::RULE,
    upload::RULE,
    congestion::RULE,
    forward::RULE,
    window::RULE,
    reader::RULE,
    own_queue::RULE,
];

/// The advice of all rules, alternatives last.
pub fn advice(view: &View<'_>) -> Vec<Advice> {
    let of = |rule: &'static Rule| {
        (rule.check)(view).into_iter().map(|advice| Advice { rule: rule.name, ..advice })
    };
    let mut all: Vec<Advice> = TABLE.iter().flat_map(of).collect();
    // If no recommended cure of the uplink is available, its alternatives are recommended.
    let available = |all: &[Advice]| {
        all.iter().any(|a| a.cure == "uplink" && a.rank == Rank::Recommended && a.blocked.is_none())
    };
    if !available(&all) {
        for advice in all.iter_mut().filter(|a| a.rank == Rank::Instead && a.blocked.is_none()) {
            advice.rank = Rank::Recommended;
        }
    }
    together(&mut all);
    // Keep only the first advice for [receive], which says more.
    let first = all.iter().position(|advice| advice.cure == "receive");
    let mut place = 0..;
    all.retain(|advice| place.next() == first || advice.cure != "receive");
    all.sort_by_key(|advice| advice.rank == Rank::Instead);
    all
}

/// An RTT contains both directions' queues: where both are loaded, confidence falls.
fn together(all: &mut [Advice]) {
    let loaded = |way| {
        move |advice: &Advice| {
            advice.expects.is_some()
                && advice.flow.as_ref().is_some_and(|(flow, _)| flow.way == way)
        }
    };
    if !(all.iter().any(loaded(Way::Download)) && all.iter().any(loaded(Way::Upload))) {
        return;
    }
    for advice in all.iter_mut().filter(|advice| advice.expects.is_some()) {
        advice.sure = advice.sure.min(Confidence::Medium);
        advice.unknown.push(
            "which direction's queue it is: both are under load, and an RTT goes both ways; their cures belong together"
                .to_owned(),
        );
    }
}

/// Why nothing is advised.
pub fn nothing(view: &View<'_>) -> String {
    let judged: Vec<&Flow> = view.seen.flows.iter().filter(|flow| flow.judgeable()).collect();
    if judged.is_empty() {
        if view.seen.undecided > 0 {
            return format!(
                "Nothing can be advised: the capture does not show which end is the host, so the direction of {} is unknown. \
                 Name the host's address: --host ADDRESS.",
                count(view.seen.undecided, "transfer")
            );
        }
        let what = match view.seen.connections {
            0 => "no TCP connection was seen",
            _ => "no transfer was long enough to judge (100 KB and 20 round trips under load)",
        };
        return format!(
            "Nothing to cure was seen: {what}. A queue shows under load: look again while something is transferred."
        );
    }
    let worst = judged
        .iter()
        .filter_map(|flow| Some((flow.queue_ms()?.1, *flow)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match worst {
        Some((queue, flow)) if queue >= super::observation::BLOATED_MS => format!(
            "Nothing to cure: {} of queueing delay (p95), but on a path of {} no cure would save a fifth of the RTT.",
            ms(queue),
            ms(flow.rtt_min_ms.unwrap_or(0.0))
        ),
        Some((queue, flow)) => format!(
            "Nothing to cure: {} of queueing delay under load (p95, grade {}).",
            ms(queue),
            flow.grade().unwrap_or("–")
        ),
        None => "Nothing to cure was seen: no RTT under load could be measured.".to_owned(),
    }
}

/// Bloated flows of a direction, forwarded or this host's own.
fn bloated<'a>(view: &View<'a>, way: Way, forwarded: bool) -> Vec<&'a Flow> {
    view.seen.of(way, |flow| flow.forwarded == forwarded && flow.bloated())
}

#[cfg(test)]
mod tests {
    use super::testing::{Case, flow};
    use super::*;

    #[test]
    fn rules_have_names_of_their_own_and_say_what_they_advise() {
        for (i, rule) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..i].iter().all(|other| other.name != rule.name) && !rule.about.is_empty()
            );
        }
    }

    #[test]
    fn every_rule_is_in_the_docs() {
        let page = include_str!("../../../../docs/agent-plan.md");
        for rule in TABLE {
            assert!(page.contains(&format!("| `{}` |", rule.name)), "{}", rule.name);
        }
    }

    #[test]
    fn nothing_wrong_is_said_with_its_figure() {
        let case = Case::new(vec![flow(Way::Download, 60.0, 70.0, 75.0)]);
        assert!(advice(&case.view()).is_empty());
        assert_eq!(
            nothing(&case.view()),
            "Nothing to cure: 15 ms of queueing delay under load (p95, grade A)."
        );
        let idle = Case::new(Vec::new());
        assert!(advice(&idle.view()).is_empty());
        assert!(nothing(&idle.view()).starts_with("Nothing to cure was seen: no TCP connection"));
    }

    #[test]
    fn a_long_path_with_a_queue_of_a_fraction_of_it_is_left_alone() {
        let case = Case::new(vec![flow(Way::Download, 600.0, 660.0, 690.0)]);
        assert!(advice(&case.view()).is_empty());
        assert!(
            nothing(&case.view()).contains("no cure would save a fifth"),
            "{}",
            nothing(&case.view())
        );
    }

    #[test]
    fn lambda_is_the_agents_own_and_smaller_where_the_queue_is_short() {
        let of = |median: f64, p95: f64| lambda(&[&flow(Way::Download, 60.0, median, p95)]);
        assert_eq!(of(1_500.0, 2_000.0), Some(1.75));
        assert_eq!(of(150.0, 170.0), Some(1.75));
        assert_eq!(of(115.0, 125.0), Some(1.5));
        assert_eq!(of(90.0, 100.0), None);
    }

    #[test]
    fn with_both_directions_under_load_neither_is_sure() {
        let both =
            vec![flow(Way::Download, 60.0, 900.0, 950.0), flow(Way::Upload, 60.0, 900.0, 950.0)];
        let case = Case::new(both.clone());
        let all = advice(&case.view());
        assert_eq!(
            all.iter()
                .filter(|a| a.sure == Confidence::Medium
                    && a.unknown.iter().any(|u| u.contains("both ways")))
                .count(),
            3
        );
        let case = Case::new(both[..1].to_vec());
        assert!(advice(&case.view()).iter().all(|a| a.sure == Confidence::High));
    }

    #[test]
    fn a_flow_in_anothers_queue_is_not_the_one_to_cure() {
        let small = Flow { in_others_queue: true, ..flow(Way::Download, 60.0, 900.0, 950.0) };
        assert!(advice(&Case::new(vec![small]).view()).is_empty());
    }

    #[test]
    fn a_slow_link_cannot_go_below_two_segments() {
        let slow = Flow { rate_bps: 128e3, ..flow(Way::Upload, 60.0, 3_000.0, 4_000.0) };
        assert!((by_law(&slow, 2.0) - (60.0 + 2.0 * 1_448.0 * 8e3 / 128e3)).abs() < 1e-9);
        assert_eq!(by_law(&flow(Way::Upload, 60.0, 3_000.0, 4_000.0), 2.0), 120.0);
    }
}
