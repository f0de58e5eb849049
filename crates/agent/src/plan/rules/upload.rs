//! Uploads behind a standing queue: a gate above a modem that reports its buffer, else ACK-window
//! rewriting (DRWA at the sending side).

use super::{MIN_LAMBDA, Rule, View, bloated, by_law, helps, lambda, law, toml};
use crate::cures::Lambda;
use crate::kernel::FeatureId;
use crate::plan::advice::{Advice, Expectation, Rank};
use crate::plan::observation::{Flow, Way};
use crate::plan::text::ms;

pub(super) const RULE: Rule = Rule {
    name: "upload-bufferbloat",
    about: "uploads behind a standing queue: a gate above the modem, or ACK-window rewriting",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let flows: Vec<&Flow> =
        view.seen.of(Way::Upload, |flow| flow.bloated() && helps(flow, Lambda::AGENT.low_delay));
    let Some(flow) = flows.first() else { return Vec::new() };
    let Some(lambda) = lambda(&flows) else { return Vec::new() };
    let mut all = Vec::new();
    if view.here() && view.host.modem.is_some() {
        all.push(gate(view, &flows, flow));
    } else {
        all.push(acks(view, &flows, flow, lambda));
    }
    all
}

/// Name of the uplink's device, and why there is none.
fn device(view: &View<'_>) -> (String, Option<String>) {
    match (&view.host.device, view.here()) {
        (_, false) => ("the device of its default route".to_owned(), None),
        (Some(device), true) => (device.name.clone(), None),
        (None, true) => (
            "the uplink".to_owned(),
            Some("no device is known: no default route, and no --device".to_owned()),
        ),
    }
}

fn gate(view: &View<'_>, flows: &[&Flow], flow: &Flow) -> Advice {
    let title = "Uploads: a gate above the modem's buffer (QCUT)";
    let mut advice =
        Advice::new("uplink", "bufferbloat", Rank::Recommended, title).for_flows(flows);
    let law = crate::cures::gate::law();
    let mtu = view.host.device.as_ref().map_or(1_500, |device| device.mtu);
    let packet = f64::from(mtu) * 8e3 / flow.rate_bps.max(1.0);
    // As in `QcutD::new`: it is open below all but one packet of the floor, and the last packet
    // comes on top.
    let queue =
        law.target.as_millis_f64().max((law.floor.saturating_sub(1)) as f64 * packet) + packet;
    let to = flow.rtt_min_ms.unwrap_or(0.0) + queue;
    let words = format!(
        "RTTmin + the {} that the modem's buffer may take to drain, last packet included",
        ms(queue)
    );
    advice.expects = Expectation::of(flow, to, words)
        .map(|expects| Expectation { jumps_ms: Some(to + law.slack.as_millis_f64()), ..expects });
    let (name, none) = device(view);
    advice.changes = vec![
        format!("a BPF program on the egress of {name} (TCX; on older kernels a clsact discipline) with its maps"),
        "packets above what drains within the target are refused: this host's sockets wait, forwarded flows lose one"
            .to_owned(),
        "no sysctl, no rate".to_owned(),
    ];
    advice.settings = vec![("uplink.mode", "\"auto\"".to_owned())];
    if let Some(path) = &view.host.modem {
        advice.why.push(format!("a modem reports its buffer on {}", path.display()));
        advice.settings.push(("uplink.telemetry", format!("{:?}", path.display().to_string())));
    }
    advice.blocked = none.or_else(|| view.lacks(FeatureId::Gate));
    advice.unknown.push(
        "what rate the air allows next; without reports ACK-window rewriting takes over".to_owned(),
    );
    advice
}

fn acks(view: &View<'_>, flows: &[&Flow], flow: &Flow, lambda: f64) -> Advice {
    let title = "Uploads: ACK-window rewriting, by the delay (DRWA at the sending side)";
    let mut advice =
        Advice::new("uplink", "bufferbloat", Rank::Recommended, title).for_flows(flows);
    advice.expects = Expectation::of(flow, by_law(flow, MIN_LAMBDA), law(lambda));
    let (name, none) = device(view);
    advice.changes = vec![
        format!("two BPF programs on {name}, ingress and egress (TCX; on older kernels a clsact discipline), with their maps"),
        "the window field of ACKs that arrive for uploads, from 20 KB on; never more than the receiver offered".to_owned(),
        "no sysctl, no queue discipline; no packet is held or dropped".to_owned(),
    ];
    advice.settings = vec![("uplink.mode", "\"acks\"".to_owned()), ("uplink.lambda", toml(lambda))];
    advice.blocked = none.or_else(|| view.lacks(FeatureId::AckWindows));
    if view.here() {
        advice.unknown.push(
            "whether a modem's buffer is the queue: none reports (a gate would do better then)"
                .to_owned(),
        );
    }
    advice
        .unknown
        .push("QUIC and other UDP have no window: their share of the queue stays".to_owned());
    advice
}

/// Bloated uploads of this host itself, which congestion control could cure.
pub(super) fn own<'a>(view: &View<'a>) -> Vec<&'a Flow> {
    bloated(view, Way::Upload, false)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::*;
    use crate::cures::acks;
    use crate::plan::observation::Place;

    fn upload() -> Flow {
        Flow { rate_bps: 1.92e6, ..flow(Way::Upload, 60.0, 3_546.0, 4_055.0) }
    }

    #[test]
    fn without_a_modems_reports_it_is_windows_of_acks_by_the_agents_own_law() {
        let case = Case::new(vec![upload()]);
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert_eq!(advice.expects.as_ref().map(|e| e.to_ms), Some(75.0));
        assert_eq!(
            advice.settings,
            [("uplink.mode", "\"acks\"".to_owned()), ("uplink.lambda", "1.75".to_owned())]
        );
        let up = acks::Settings::new("").up.unwrap();
        assert_eq!(up.lambda, Lambda::AGENT.default);
        assert!(advice.changes[0].contains("eth0") && advice.configured());
    }

    #[test]
    fn with_them_it_is_the_gate_at_its_target() {
        let mut case = Case::new(vec![upload()]);
        case.host.modem = Some("/run/modem.sock".into());
        let [advice] = &check(&case.view())[..] else { panic!() };
        // 20 ms of target and a packet of 1,500 bytes at 1.92 Mbit/s.
        let expected = |case: &Case| check(&case.view())[0].expects.clone().unwrap();
        assert_eq!((expected(&case).to_ms, expected(&case).jumps_ms), (86.25, Some(236.25)));
        assert_eq!(advice.settings[1], ("uplink.telemetry", "\"/run/modem.sock\"".to_owned()));
        case.seen.flows[0].rate_bps = 480e3;
        assert_eq!(expected(&case).to_ms, 110.0, "two packets of 25 ms each");
    }

    #[test]
    fn a_trickle_whose_least_window_takes_longer_than_its_queue_has_no_cure() {
        // Two segments take 2 s at 11 kbit/s: more than the RTT that is there.
        let slow = Flow { rate_bps: 11.2e3, ..flow(Way::Upload, 55.0, 144.0, 451.0) };
        assert!(slow.bloated());
        assert!(check(&Case::new(vec![slow.clone()]).view()).is_empty());
        let text = crate::plan::rules::nothing(&Case::new(vec![slow]).view());
        assert!(text.contains("no cure would save a fifth of the RTT"), "{text}");
    }

    #[test]
    fn without_a_device_it_cannot_be_done_here() {
        let mut case = Case::new(vec![upload()]);
        case.host.device = None;
        assert!(
            check(&case.view())[0].blocked.as_deref().is_some_and(|why| why.contains("--device"))
        );
        case.seen.place = Place::Elsewhere(vec!["192.0.2.1".parse().unwrap()]);
        assert!(check(&case.view())[0].configured(), "another host has its own");
    }

    #[test]
    fn uploads_that_are_passed_on_are_cured_too() {
        let case = Case::new(vec![Flow { forwarded: true, ..upload() }]);
        assert_eq!(check(&case.view()).len(), 1);
    }
}
