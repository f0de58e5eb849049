//! Uploads by a congestion control that fills queues, where the kernel has BBR: switch.

use super::upload::own;
use super::{Rule, View};
use crate::kernel::FeatureId;
use crate::plan::advice::{Advice, Confidence, Expectation, Rank};

/// Congestion controls that fill the queue until a packet is lost, in the kernel's names, and one whose name the packets of
/// a capture do not show.
const FILLS: [&str; 10] = [
    "cubic",
    "reno",
    "bic",
    "htcp",
    "hybla",
    "highspeed",
    "scalable",
    "westwood",
    "illinois",
    LOSS_BASED,
];
/// The name in captures: `congestion_control`.
const LOSS_BASED: &str = "loss-based";
/// BBR's congestion window in BDPs (`cwnd_gain`; draft-cardwell-iccrg-bbr-congestion-control-00
/// section 4.2.3.2).
const CWND_GAIN: f64 = 2.0;

pub(super) const RULE: Rule = Rule {
    name: "upload-congestion-control",
    about: "uploads by a loss-based congestion control where the kernel has BBR: switch",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    if view.here() && !view.host.has_congestion("bbr") {
        return Vec::new();
    }
    let default = view.host.sysctl("net.ipv4.tcp_congestion_control").filter(|_| view.here());
    let fills = |name: &str| FILLS.contains(&name);
    // A capture does not always show the congestion control.
    let flows: Vec<_> = own(view)
        .into_iter()
        .filter(|flow| flow.congestion.as_deref().or(default).is_none_or(fills))
        .collect();
    let Some(flow) = flows.first() else { return Vec::new() };
    let title = "Uploads: BBR instead of a congestion control that fills the queue";
    let mut advice =
        Advice::new("congestion", "bufferbloat", Rank::Instead, title).for_flows(&flows);
    match (flow.congestion.as_deref(), default) {
        (Some(name), _) => {
            let uses = if name == LOSS_BASED {
                "the congestion control of its sender is loss-based".to_owned()
            } else {
                format!("its sender uses {name}")
            };
            if view.here() {
                advice.why.push(format!("{uses}; this kernel has bbr"));
            } else {
                advice.why.push(uses);
                advice.unknown.push("whether the sender's kernel has bbr".to_owned());
            }
        }
        (None, Some(name)) => {
            advice.why.push(format!("{name} is this host's default; this kernel has bbr"));
            advice
                .unknown
                .push("which congestion control it was: the capture does not show it".to_owned());
        }
        (None, None) => {
            advice.unknown.push(
                "which congestion control it was, and whether that kernel has bbr".to_owned(),
            );
        }
    }
    let most = flow.rtt_min_ms.unwrap_or(0.0) * CWND_GAIN;
    advice.expects =
        Expectation::of(flow, most, "at most 2 · RTTmin, BBR's limit of what is in flight");
    advice.changes = vec![
        "TCP_CONGESTION of connections to these prefixes, new ones and those that run; off gives back what they had".to_owned(),
        "a BPF program (sock_ops) on the cgroup's sockets, and a walk over those that exist; no sysctl".to_owned(),
    ];
    advice.settings =
        vec![("congestion.routes", "{ \"0.0.0.0/0\" = \"bbr\", \"::/0\" = \"bbr\" }".to_owned())];
    advice.blocked = view.lacks(FeatureId::CongestionControl);
    advice.unknown.push("a rate that falls suddenly: BBR notices only seconds later".to_owned());
    advice
        .unknown
        .push("only connections of this host itself; hosts behind it keep their own".to_owned());
    if flow.congestion.is_none() || !view.here() {
        advice.sure = Confidence::Low;
    }
    vec![advice]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::super::{Rank, advice};
    use super::*;
    use crate::plan::observation::{Flow, Way};

    #[test]
    fn cubic_is_switched_and_bbr_is_not() {
        let case = Case::new(vec![flow(Way::Upload, 60.0, 1_055.0, 1_200.0)]);
        let [one] = &check(&case.view())[..] else { panic!() };
        assert_eq!((one.expects.as_ref().map(|e| e.to_ms), one.rank), (Some(120.0), Rank::Instead));
        for name in ["bbr", "delay-based", "vegas"] {
            let other = Flow {
                congestion: Some(name.to_owned()),
                ..flow(Way::Upload, 60.0, 1_055.0, 1_200.0)
            };
            assert!(check(&Case::new(vec![other]).view()).is_empty());
        }
    }

    #[test]
    fn a_kernel_without_bbr_gets_no_such_advice() {
        let case = Case::new(vec![flow(Way::Upload, 60.0, 1_055.0, 1_200.0)]);
        let case = case.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic");
        assert!(check(&case.view()).is_empty());
    }

    #[test]
    fn it_is_recommended_where_the_uplinks_cure_is_not_available() {
        let mut case = Case::new(vec![flow(Way::Upload, 60.0, 1_055.0, 1_200.0)]);
        let rank = |case: &Case| {
            advice(&case.view()).into_iter().find(|a| a.cure == "congestion").map(|a| a.rank)
        };
        assert_eq!(rank(&case), Some(Rank::Instead));
        case.host.device = None;
        assert_eq!(rank(&case), Some(Rank::Recommended));
    }
}
