//! Windows that close because an application does not read: no window law cures that.

use super::{Rule, View};
use crate::plan::advice::{Advice, Rank, reason};
use crate::plan::observation::{MIN_BYTES, Way};

/// Share of the time from which it matters (`docs/findings/zero-window.md`).
const COSTS: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    name: "slow-reader",
    about: "windows that close because an application does not read: look at the application",
    check,
};

fn check(view: &View<'_>) -> Vec<Advice> {
    let slow =
        |way| view.seen.of(way, |flow| flow.unread_share >= COSTS && flow.bytes >= MIN_BYTES);
    let mut all = Vec::new();
    for (way, title, whose) in [
        (Way::Download, "Downloads: an application here does not read fast enough", "here"),
        (
            Way::Upload,
            "Uploads: the application at the other end does not read fast enough",
            "there",
        ),
    ] {
        let flows = slow(way);
        let Some(flow) = flows.first() else { continue };
        let mut advice = Advice::new("by_hand", "zero-window", Rank::ByHand, title);
        advice.why = vec![
            reason(flow),
            format!(
                "for {:.0} % of the time the window was closed, or nearly, with data unread {whose}",
                flow.unread_share * 100.0
            ),
        ];
        advice.flow = Some(((*flow).clone(), flows.len()));
        advice.changes =
            vec!["nothing: no cure of the network makes an application read".to_owned()];
        advice.hopes = vec![
            "look at its disk, its processor, or a player whose buffer is full (that is intended)"
                .to_owned(),
        ];
        if way == Way::Download && !flow.forwarded {
            advice.hopes.push(
                "receive.rate_term offers on top what it reads within a round trip (AFC), which shortens each stall's end"
                    .to_owned(),
            );
        }
        all.push(advice);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, flow};
    use super::*;
    use crate::plan::observation::Flow;

    #[test]
    fn an_application_that_does_not_read_is_named_on_its_side() {
        let slow = |way| Flow { unread_share: 0.4, ..flow(way, 60.0, 70.0, 80.0) };
        let case = Case::new(vec![slow(Way::Download), slow(Way::Upload)]);
        let [here, there] = &check(&case.view())[..] else { panic!() };
        assert!(
            here.why[1].contains("40 %")
                && here.why[1].ends_with("here")
                && there.why[1].ends_with("there")
        );
        assert!(!here.configured() && here.hopes.len() == 2 && there.hopes.len() == 1);
        let case =
            Case::new(vec![Flow { unread_share: 0.04, ..flow(Way::Download, 60.0, 70.0, 80.0) }]);
        assert!(check(&case.view()).is_empty());
    }
}
