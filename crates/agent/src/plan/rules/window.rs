//! Downloads limited by this host's own window without a queue: a larger window carries more.

use super::{Rule, View, toml};
use crate::cures::Lambda;
use crate::kernel::FeatureId;
use crate::plan::advice::{Advice, Confidence, Rank, reason};
use crate::plan::observation::Way;
use crate::plan::text::{bytes, rate};

/// Share of the time from which it matters (`docs/findings/receive-window.md`).
const COSTS: f64 = 0.10;
/// The kernel's default maximum of the receive buffer on hosts with enough memory (tcp(7)).
const KERNELS: u64 = 6_291_456;
/// Part of a buffer that Linux advertises as window: about half (scaling_ratio starts at 128/256).
const OFFERED: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    name: "small-receive-window",
    about: "downloads held back by this host's window: a larger tcp_rmem, with DRWA to keep it from becoming a queue",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let flows = view.seen.of(Way::Download, |flow| {
        !flow.forwarded
            && flow.judgeable()
            && !flow.bloated()
            && flow.window_share >= COSTS
            && flow.unread_share < COSTS
    });
    let Some(flow) = flows.first() else { return Vec::new() };
    let (Some(window), Some(min)) = (flow.window_bytes, flow.rtt_min_ms) else { return Vec::new() };
    let title = "Downloads: a larger receive window (net.ipv4.tcp_rmem, third value)";
    let mut advice = Advice::new("by_hand", "receive-window", Rank::ByHand, title);
    advice.why = vec![
        reason(flow),
        format!(
            "the window of {} was full for {:.0} % of the time: it carries {} at most over an RTT of {min:.0} ms",
            bytes(window as f64),
            flow.window_share * 100.0,
            rate(window as f64 * 8e3 / min.max(0.1)),
        ),
    ];
    advice.flow = Some(((*flow).clone(), flows.len()));
    let most = view.host.largest("net.ipv4.tcp_rmem").filter(|_| view.here());
    // Four times the window: two doublings of the present limit, and no less than the kernel's
    // default.
    let larger = (window * 4 * 2).next_power_of_two().max(KERNELS);
    match most {
        Some(most)
            if most < larger
                && (flow.buffer_full_grown || window as f64 >= most as f64 * OFFERED * 0.8) =>
        {
            let first_two =
                view.host.sysctl("net.ipv4.tcp_rmem").unwrap_or("4096 131072").split(' ').take(2);
            let text = first_two.collect::<Vec<_>>().join(" ");
            advice.why.push(format!(
                "the largest receive buffer is {} (net.ipv4.tcp_rmem)",
                bytes(most as f64)
            ));
            advice.commands.push(format!("sysctl -w net.ipv4.tcp_rmem=\"{text} {larger}\""));
        }
        Some(most) => {
            advice.title = "Downloads: let autotuning choose the receive window".to_owned();
            advice.why.push(format!(
                "net.ipv4.tcp_rmem allows {}, so the application has set SO_RCVBUF, or autotuning was still growing it",
                bytes(most as f64)
            ));
        }
        None => {
            advice.commands.push(format!("sysctl -w net.ipv4.tcp_rmem=\"4096 131072 {larger}\""))
        }
    }
    if view.here() && view.host.sysctl("net.ipv4.tcp_window_scaling") == Some("0") {
        advice.why.push(
            "net.ipv4.tcp_window_scaling is 0: no window above 64 KB can be advertised".to_owned(),
        );
        advice.commands.push("sysctl -w net.ipv4.tcp_window_scaling=1".to_owned());
    }
    advice.changes = vec![
        "nothing by the agent; the commands hold for connections that begin after them".to_owned(),
    ];
    advice.hopes.push(format!(
        "up to {} with a buffer of {}, if the path carries it; with [receive] beside it RTT at most 3 · RTTmin ({:.0} ms)",
        rate(larger as f64 * OFFERED * 8e3 / min.max(0.1)),
        bytes(larger as f64),
        3.0 * min,
    ));
    advice
        .unknown
        .push("what the path carries: nothing was ever in the way but the window".to_owned());
    advice.sure = Confidence::Medium;
    let lambda = Lambda::AGENT.default;
    let mut beside = Advice::new(
        "receive",
        "receive-window",
        Rank::Recommended,
        "Downloads: DRWA beside it, so that the larger window does not become a queue",
    );
    beside.why =
        vec!["a window that is larger than the path fills whatever queue it has".to_owned()];
    beside.changes = vec![
        "a BPF program (sock_ops) on the cgroup's sockets sets TCP_WINDOW_CLAMP; no sysctl"
            .to_owned(),
    ];
    beside.hopes = vec![format!(
        "RTT at most λ · RTTmin, λ = {lambda}: {:.0} ms; nothing changes before the window is larger",
        lambda * min
    )];
    beside.settings =
        vec![("receive.enabled", "true".to_owned()), ("receive.lambda", toml(lambda))];
    beside.blocked = view.lacks(FeatureId::DownloadWindows);
    vec![advice, beside]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::*;
    use crate::plan::observation::Flow;

    /// A phone's static window over 100 ms: 4.3 Mbit/s of 30.
    fn held() -> Flow {
        Flow {
            rate_bps: 4.3e6,
            window_bytes: Some(55_104),
            window_share: 0.95,
            buffer_full_grown: true,
            ..flow(Way::Download, 100.0, 101.0, 104.0)
        }
    }

    #[test]
    fn a_phones_static_window_is_raised_with_drwa_beside_it() {
        let case = Case::new(vec![held()]).sysctl("net.ipv4.tcp_rmem", "4096 87380 110208");
        let [by_hand, beside] = &check(&case.view())[..] else { panic!() };
        assert_eq!(by_hand.commands, ["sysctl -w net.ipv4.tcp_rmem=\"4096 87380 6291456\""]);
        assert!(by_hand.hopes[0].contains("252 Mbit/s"), "{:?}", by_hand.hopes);
        assert!(!by_hand.configured() && beside.configured());
    }

    #[test]
    fn a_small_window_under_a_large_maximum_is_the_applications() {
        let case = Case::new(vec![Flow { buffer_full_grown: false, ..held() }]);
        let by_hand = &check(&case.view())[0];
        assert!(
            by_hand.commands.is_empty() && by_hand.why[2].contains("SO_RCVBUF"),
            "{:?}",
            by_hand.why
        );
    }

    #[test]
    fn a_window_that_a_queue_fills_is_left_to_the_other_rule() {
        let case = Case::new(vec![Flow {
            window_share: 0.9,
            ..flow(Way::Download, 60.0, 1_500.0, 1_600.0)
        }]);
        assert!(check(&case.view()).is_empty());
        assert!(check(&Case::new(vec![Flow { window_share: 0.05, ..held() }]).view()).is_empty());
    }
}
