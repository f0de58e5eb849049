//! Downloads of hosts behind this one: ACK-window rewriting in the ACKs that they send through it.

use super::{MIN_LAMBDA, Rule, View, bloated, by_law, helps, lambda, law, toml};
use crate::cures::Lambda;
use crate::kernel::FeatureId;
use crate::plan::advice::{Advice, Confidence, Expectation, Rank};
use crate::plan::observation::Way;
use crate::plan::text::rate;

/// Minimum rate of a device's traffic beyond this host's own TCP …
const MIN_BPS: f64 = 200e3;
/// … and its minimum part of the whole.
const PART: f64 = 0.2;
/// Bytes of headers beside the payload that sockets count: 40 to 72 in a packet of 1,500, and ACKs.
const HEADERS: f64 = 1.08;

pub(super) const RULE: Rule = Rule {
    name: "forwarded-bufferbloat",
    about: "downloads of hosts behind this one: ACK-window rewriting",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let flows = bloated(view, Way::Download, true);
    match lambda(&flows) {
        Some(lambda) => {
            let flows: Vec<_> = flows.into_iter().filter(|flow| helps(flow, lambda)).collect();
            let Some(flow) = flows.first() else { return Vec::new() };
            let mut advice = start(view, lambda).for_flows(&flows);
            advice.expects = Expectation::of(flow, by_law(flow, MIN_LAMBDA), law(lambda));
            vec![advice]
        }
        None => unseen(view).into_iter().collect(),
    }
}

fn start(view: &View<'_>, lambda: f64) -> Advice {
    let title = "Downloads of hosts behind this one: ACK-window rewriting, by the delay (DRWA)";
    let mut advice = Advice::new("forward", "bufferbloat", Rank::Recommended, title);
    let device = view.host.device.as_ref().filter(|_| view.here());
    let name = device.map_or("the uplink's device", |device| device.name.as_str());
    advice.changes = vec![
        format!(
            "two BPF programs on {name}, ingress and egress (TCX; on older kernels a clsact discipline), with their maps"
        ),
        "the window field of ACKs that leave through it, from 20 KB on; never more than the receiver offered"
            .to_owned(),
        "no sysctl, no queue discipline; no packet is held or dropped".to_owned(),
    ];
    advice.settings =
        vec![("forward.enabled", "true".to_owned()), ("forward.lambda", toml(lambda))];
    if view.here() {
        advice.blocked = match device {
            None => Some("no device is known: no default route, and no --device".to_owned()),
            Some(_) => view.lacks(FeatureId::AckWindows),
        };
        if device.is_some_and(|device| !device.smart()) {
            let qdisc = device.map_or("", |device| device.qdisc());
            advice.why.push(format!(
                "{name} has no smart queue management: its queue discipline is {qdisc}"
            ));
        }
    }
    advice
}

/// Advice without a measured flow: sockets do not show forwarded traffic; the device's counters do,
/// but not its RTT.
fn unseen(view: &View<'_>) -> Option<Advice> {
    let carried = view.seen.carried.filter(|_| view.host.forwards())?;
    let others = carried.received_bps - carried.own_bps * HEADERS;
    if others < MIN_BPS
        || others < PART * carried.received_bps
        || view.host.device.as_ref()?.smart()
    {
        return None;
    }
    let mut advice = start(view, Lambda::AGENT.default);
    advice.finding = "forwarded-traffic";
    advice.sure = Confidence::Low;
    advice.why.insert(
        0,
        format!(
            "this host forwards, and {} of the {} that came in were not for its own TCP connections",
            rate(others),
            rate(carried.received_bps)
        ),
    );
    advice.hopes.push(format!(
        "RTT of each download at most λ · RTTmin, λ = {}; goodput unchanged",
        Lambda::AGENT.default
    ));
    advice.unknown.push(
        "their RTT: sockets do not show what is passed on; a capture of the uplink (--capture) does"
            .to_owned(),
    );
    advice.unknown.push("how much of it is UDP, which has no window".to_owned());
    Some(advice)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::*;
    use crate::plan::observation::{DeviceTraffic, Flow};

    #[test]
    fn bloated_flows_that_pass_are_cured_by_their_acks() {
        let case = Case::new(vec![Flow {
            forwarded: true,
            ..flow(Way::Download, 60.0, 1_084.0, 2_059.0)
        }]);
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert_eq!(
            (advice.cure, advice.expects.as_ref().map(|e| e.to_ms)),
            ("forward", Some(75.0))
        );
        assert!(advice.why.iter().any(|line| line.contains("pfifo_fast")), "{:?}", advice.why);
    }

    #[test]
    fn what_a_forwarding_host_carries_beyond_its_own_is_reported_without_a_figure() {
        let mut case = Case::new(Vec::new()).sysctl("net.ipv4.ip_forward", "1");
        case.seen.carried = Some(DeviceTraffic { received_bps: 8e6, ..DeviceTraffic::default() });
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert!(
            advice.expects.is_none()
                && advice.sure == Confidence::Low
                && advice.why[0].contains("8.0 Mbit/s")
        );
        case.seen.carried =
            Some(DeviceTraffic { received_bps: 8e6, own_bps: 7.5e6, ..DeviceTraffic::default() });
        assert!(check(&case.view()).is_empty(), "it is its own");
        let mut case = Case::new(Vec::new()).sysctl("net.ipv4.ip_forward", "0");
        case.seen.carried = Some(DeviceTraffic { received_bps: 8e6, ..DeviceTraffic::default() });
        assert!(check(&case.view()).is_empty(), "it does not forward");
    }
}
