//! Downloads behind a standing queue: the receive window follows the delay (DRWA).

use super::{MIN_LAMBDA, Rule, View, bloated, by_law, helps, lambda, law, toml};
use crate::kernel::FeatureId;
use crate::kernel::socket_walk;
use crate::plan::advice::{Advice, Expectation, Rank};
use crate::plan::observation::Way;

pub(super) const RULE: Rule = Rule {
    name: "download-bufferbloat",
    about: "downloads behind a standing queue: receive windows that follow the delay (DRWA)",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let flows = bloated(view, Way::Download, false);
    let Some(lambda) = lambda(&flows) else { return Vec::new() };
    let flows: Vec<_> = flows.into_iter().filter(|flow| helps(flow, lambda)).collect();
    let Some(flow) = flows.first() else { return Vec::new() };
    let title = "Downloads: the receive window follows the delay (DRWA)";
    let mut advice =
        Advice::new("receive", "bufferbloat", Rank::Recommended, title).for_flows(&flows);
    advice.expects = Expectation::of(flow, by_law(flow, MIN_LAMBDA), law(lambda));
    let pin = socket_walk::folder(view.pins).join("receive");
    let cgroup = view.host.cgroup.as_ref().filter(|_| view.here());
    let whose = cgroup.map_or("this host's sockets".to_owned(), |path| {
        format!("the sockets of cgroup {}", path.display())
    });
    advice.changes = vec![
        format!("a BPF program (sock_ops) on {whose}, pinned as {}, with its maps beside it", pin.display()),
        "TCP_WINDOW_CLAMP of each download, at every ACK from 20 KB on; autotuning no longer moves it"
            .to_owned(),
        "no sysctl, no queue discipline; no packet is held or dropped".to_owned(),
    ];
    advice.settings =
        vec![("receive.enabled", "true".to_owned()), ("receive.lambda", toml(lambda))];
    advice.blocked = view.lacks(FeatureId::DownloadWindows);
    if view.here() {
        if let Some(why) = view.host.lacks(FeatureId::LiveDownloadWindows) {
            advice
                .unknown
                .push(format!("connections that exist already keep their windows: {why}"));
        }
        if view.host.sysctl("net.ipv4.tcp_shrink_window") == Some("1") {
            advice.unknown.push(
                "net.ipv4.tcp_shrink_window is 1: windows may move back, which costs senders retransmissions; 0 is the default"
                    .to_owned(),
            );
        }
    }
    if flow.rate_bps > 0.0 {
        advice
            .unknown
            .push("QUIC and other UDP have no window: their share of the queue stays".to_owned());
    }
    vec![advice]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::*;
    use crate::cures::{Cure, receive};
    use crate::kernel::Tried;
    use crate::plan::advice::Confidence;
    use crate::plan::observation::{Flow, Place};

    #[test]
    fn a_bloated_download_gets_drwa_and_what_its_law_says() {
        let case = Case::new(vec![flow(Way::Download, 60.0, 1_560.0, 2_060.0)]);
        let [advice] = &check(&case.view())[..] else { panic!() };
        let expects = advice.expects.as_ref().unwrap();
        assert_eq!((expects.to_ms, expects.from_ms), (75.0, (1_560.0, 2_060.0)));
        assert_eq!((expects.queue_bytes, expects.goodput_bps), ((1_500_000.0, 15_000.0), 8e6));
        assert_eq!(advice.settings[1], ("receive.lambda", "1.75".to_owned()));
        assert_eq!((advice.sure, advice.configured()), (Confidence::High, true));
        assert!(
            advice.changes[0]
                .contains(&format!("/pins/{}/receive", crate::kernel::socket_walk::LAYOUT)),
            "{:?}",
            advice.changes
        );
        assert!(
            advice.why[0].contains(
                "RTT 60 ms at least, 1.6 s under load (p95 2.1 s), 1.5 MB of queue: grade F"
            ),
            "{:?}",
            advice.why
        );
    }

    #[test]
    fn flows_that_are_passed_on_or_not_bloated_are_not_its_business() {
        let passed = Flow { forwarded: true, ..flow(Way::Download, 60.0, 1_560.0, 2_060.0) };
        let case = Case::new(vec![
            passed,
            flow(Way::Download, 60.0, 70.0, 80.0),
            flow(Way::Upload, 60.0, 900.0, 950.0),
        ]);
        assert!(check(&case.view()).is_empty());
    }

    #[test]
    fn a_kernel_that_cannot_is_said_and_not_configured() {
        let mut case = Case::new(vec![flow(Way::Download, 60.0, 1_560.0, 2_060.0)]);
        let missing = Some("no /sys/kernel/btf/vmlinux".to_owned());
        let feature = receive::Receive::ABOUT.features[0];
        assert_eq!(feature.id, FeatureId::DownloadWindows);
        case.host.features = Some(vec![Tried { feature, missing }]);
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert!(advice.blocked.is_some() && !advice.configured());
        case.seen.place = Place::Elsewhere(vec!["192.0.2.1".parse().unwrap()]);
        assert!(check(&case.view())[0].configured(), "another host may");
    }

    #[test]
    fn several_flows_are_one_piece_of_advice() {
        let case = Case::new(vec![flow(Way::Download, 60.0, 1_560.0, 2_060.0); 3]);
        let [advice] = &check(&case.view())[..] else { panic!() };
        assert_eq!(
            (advice.flow.as_ref().unwrap().1, advice.why[1].as_str()),
            (3, "likewise 2 other flows, 16.0 Mbit/s in all")
        );
    }
}
