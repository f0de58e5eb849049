//! A queue in this host's own queue discipline, where that is a plain FIFO: smart queue management.

use super::{Rule, View};
use crate::kernel::FeatureId;
use crate::plan::advice::{Advice, Rank};
use crate::plan::text::{bytes, ms, rate};

/// Minimum delay in the own queue that is worth a change: where grade B begins.
const MIN_MS: f64 = 30.0;
/// FQ-CoDel's target (RFC 8290 section 5.2.1): what remains of a standing queue.
const TARGET_MS: f64 = 5.0;

pub(super) const RULE: Rule = Rule {
    name: "own-queue",
    about: "a queue in this host's own plain queue discipline: fq_codel there",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let (Some(carried), Some(device)) = (view.seen.carried, &view.host.device) else {
        return Vec::new();
    };
    if device.smart() || carried.sent_bps <= 0.0 {
        return Vec::new();
    }
    let delay = carried.backlog_bytes as f64 * 8e3 / carried.sent_bps;
    if delay < MIN_MS {
        return Vec::new();
    }
    let (name, qdisc) = (&device.name, device.qdisc());
    let title = format!("The queue of {name} itself: smart queue management");
    let mut advice = Advice::new("by_hand", "own-queue", Rank::ByHand, title);
    advice.why = vec![format!(
        "{} wait in {qdisc} of {name} (median): {} at the {} that it sends",
        bytes(carried.backlog_bytes as f64),
        ms(delay),
        rate(carried.sent_bps),
    )];
    advice.changes = vec!["nothing by the agent".to_owned()];
    advice.commands = vec![format!("tc qdisc replace dev {name} root fq_codel")];
    advice.hopes = vec![format!(
        "{} of this delay → about {TARGET_MS:.0} ms, and sparse flows pass the others",
        ms(delay)
    )];
    advice.blocked = view.lacks(FeatureId::FqCodel);
    if view.host.features.is_none() {
        advice.unknown = vec![
            "whether this kernel has fq_codel (CONFIG_NET_SCH_FQ_CODEL): tc says so".to_owned(),
        ];
    }
    vec![advice]
}

#[cfg(test)]
mod tests {
    use super::super::testing::Case;
    use super::*;
    use crate::plan::observation::DeviceTraffic;

    #[test]
    fn a_standing_backlog_in_a_fifo_is_named_with_its_delay() {
        let mut case = Case::new(Vec::new());
        case.seen.carried = Some(DeviceTraffic {
            sent_bps: 2e6,
            backlog_bytes: 50_000,
            ..DeviceTraffic::default()
        });
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert!(
            advice.why[0].contains("200 ms") && advice.commands[0].contains("eth0 root fq_codel")
        );
        case.host.device.as_mut().unwrap().qdiscs[0].kind = "fq_codel".to_owned();
        assert!(check(&case.view()).is_empty());
    }
}
