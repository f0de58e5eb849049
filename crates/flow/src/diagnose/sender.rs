//! Cures at the sender, worded by the congestion control that its packets show.
//!
//! signal: [`Flow::congestion_control`] · model: BBR is a cure for a loss-based sender alone · action: the text of the
//! rule for that sender; where it is not known, a text that says on what it depends

use crate::congestion_control::CongestionControl;
use crate::series::rows::Flow;

/// The congestion control of the sender of `flow`, where it was recognised.
pub(super) fn control(flow: &Flow) -> Option<CongestionControl> {
    flow.congestion_control.as_ref().map(|found| found.control)
}

/// The cure between `$before` and `$after`: BBR, worded by the sender's congestion control. `$near` and `$far` stand around
/// the words for a sender that BBR would not help.
macro_rules! cure_at_sender {
    ($flow:expr, $before:literal, $after:literal, not_needed: $near:literal, $far:literal) => {
        match crate::diagnose::sender::control($flow) {
            Some(crate::congestion_control::CongestionControl::Bbr) => {
                concat!($near, "This sender runs BBR already", $far)
            }
            Some(crate::congestion_control::CongestionControl::DelayBased) => {
                concat!($near, "This sender sends less when the delay rises already", $far)
            }
            Some(crate::congestion_control::CongestionControl::Cubic) => {
                concat!($before, "Use BBR instead of CUBIC (this sender runs CUBIC)", $after)
            }
            Some(crate::congestion_control::CongestionControl::Reno) => {
                concat!(
                    $before,
                    "Use BBR instead of Reno (this sender cuts and grows as Reno does)",
                    $after
                )
            }
            Some(crate::congestion_control::CongestionControl::LossBased) => {
                concat!(
                    $before,
                    "Use BBR at the sender (its congestion control is loss-based)",
                    $after
                )
            }
            None => concat!($before, "If the sender uses CUBIC, use BBR instead", $after),
        }
    };
}
pub(super) use cure_at_sender;

#[cfg(test)]
mod tests {
    use super::super::flow_findings;
    use super::super::testing::Case;
    use crate::congestion_control::{CongestionControl, Recognised};

    fn cures(control: Option<CongestionControl>) -> Vec<&'static str> {
        let mut case = Case::transfer(20, |t, bin| bin.rtt(if t < 5.0 { 50.0 } else { 450.0 }));
        case.flow.congestion_control =
            control.map(|control| Recognised { control, evidence: String::new() });
        flow_findings(&case.evidence()).iter().map(|f| f.cure).collect()
    }

    #[test]
    fn bbr_is_advised_to_what_is_not_bbr() {
        for (control, words) in [
            (None, "If the sender uses CUBIC, use BBR"),
            (Some(CongestionControl::Cubic), "Use BBR instead of CUBIC (this sender runs CUBIC)"),
            (Some(CongestionControl::Reno), "Use BBR instead of Reno (this sender cuts"),
            (Some(CongestionControl::LossBased), "Use BBR at the sender"),
        ] {
            let cures = cures(control);
            assert!(cures.iter().any(|cure| cure.contains(words)), "{cures:?}");
        }
    }

    #[test]
    fn a_sender_that_bbr_does_not_help_is_not_advised_to_use_it() {
        for (control, words) in [
            (CongestionControl::Bbr, "runs BBR already"),
            (CongestionControl::DelayBased, "sends less when the delay rises already"),
        ] {
            let cures = cures(Some(control));
            assert!(!cures.is_empty());
            assert!(cures.iter().all(|cure| !cure.contains("se BBR")), "{cures:?}");
            assert!(cures.iter().any(|cure| cure.contains(words)), "{cures:?}");
        }
    }
}
