//! Which congestion control the rounds show, or none.
//!
//! signal: the rounds of one direction · model: `cuts`, `laws` for growth, `probes` for BBR, `delay` · action: a name with
//! its figures; nothing where the evidence is below the counts stated here

use super::cuts::{Cut, IGNORED, median_ratio, median_window, to_seven_tenths, to_the_half};
use super::delay::answers;
use super::laws::{Growth, cuts_and_growth};
use super::probes::{Probes, probes};
use super::rounds::{EndedBy, Round, Rounds};
use super::{CongestionControl, Recognised};

/// Rounds below which nothing is said: BBR's Startup, Drain and one gain cycle, or two cuts, take as many.
const MIN_ROUNDS: usize = 20;
/// Cuts from which their factor decides alone.
const MIN_CUTS: usize = 3;
/// RTTs of growth that stand for the cuts that are missing, and by how much the window must have grown in them.
const LONG_GROWTH_RTTS: f64 = 20.0;
const LONG_GROWTH: f64 = 0.1;
/// Probes for bandwidth from which they decide alone.
const MIN_PROBES: u32 = 3;
/// Cuts without a reaction from which a sender does not take loss for congestion.
const MIN_IGNORED: usize = 5;
/// Share of the cuts that must be to CUBIC's seven tenths.
const RATIO_SHARE: f64 = 0.6;
/// Share of the epochs that may be ahead of Reno's growth: a recovery that is undone gives the window back.
const AHEAD_SHARE: f64 = 0.1;
/// Mean distance between the window and the law's, as a share of the window, up to which it fits.
const FIT: f64 = 0.04;
/// And by how much it must fit better than Reno: H-TCP and Westwood cut to 0.7 with a queue of the right length, but grow
/// in a line.
const BETTER: f64 = 0.6;
/// The same for Reno, whose law has no free point of inflection.
const RENO_FIT: f64 = 0.02;
/// Growth of Reno in segments per RTT: 1 with byte counting (RFC 3465), less what bursts hide. LEDBAT far below its target
/// (RFC 6817) does the same.
const RENO_SLOPE: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// One segment more or less, in which windows are counted, and what else a mean of some rounds can be off by.
const SEGMENT: f64 = 1.1;
/// Linux' window follows CUBIC's Reno-friendly estimate a segment later (`tcp_cubic.c`: `max_cnt`), and both are rounded.
const LATE_SEGMENT: f64 = 1.5;
/// RTTs while segments wait, and the growth in them, that a delay-based sender would not have shown: Vegas stays or shrinks.
const QUEUED_RTTS: f64 = 10.0;
const QUEUED_SLOPE: f64 = 0.7;

/// The congestion control that `rounds` show, with segments of `mss` bytes.
pub(crate) fn recognise(rounds: &Rounds, mss: u32) -> Option<Recognised> {
    recognise_rounds(rounds.closed(), f64::from(mss.max(1)))
        .filter(|found| !(found.control == CongestionControl::Reno && may_be_dctcp(rounds)))
}

/// DCTCP asks for ECN, and does as Reno does until there is a mark (RFC 8257).
fn may_be_dctcp(rounds: &Rounds) -> bool {
    rounds.ecn_capable && rounds.closed().iter().all(|r| r.ended_by != EndedBy::Mark)
}

fn recognise_rounds(rounds: &[Round], mss: f64) -> Option<Recognised> {
    if rounds.len() < MIN_ROUNDS {
        return None;
    }
    let (cuts, growth) = cuts_and_growth(rounds, mss);
    let probes = probes(rounds, mss);
    let ratio = median_ratio(&cuts);
    if let Some(found) = bbr(&cuts, ratio, &probes, &growth) {
        return Some(found);
    }
    if let Some(evidence) = answers(rounds, mss).evidence() {
        return Some(Recognised { control: CongestionControl::DelayBased, evidence });
    }
    loss_based(&cuts, ratio?, &growth)
}

fn bbr(cuts: &[Cut], ratio: Option<f64>, p: &Probes, growth: &Growth) -> Option<Recognised> {
    let control = CongestionControl::Bbr;
    let marks = p.bandwidth >= MIN_PROBES
        || p.rtt >= 1 && (p.bandwidth >= 1 || p.drained)
        || p.rtt >= 2
        || p.drained && p.bandwidth >= 1;
    if marks {
        return Some(Recognised { control, evidence: evidence(p) });
    }
    let flat = growth.segments / growth.rtts.max(1.0) < 0.3;
    if cuts.len() >= MIN_IGNORED && ratio? >= IGNORED && flat {
        let evidence = format!(
            "{} losses without a cut: {:.2} of the bytes in flight remained",
            cuts.len(),
            ratio?
        );
        return Some(Recognised { control, evidence });
    }
    None
}

fn evidence(p: &Probes) -> String {
    let mut parts = Vec::new();
    if p.drained {
        parts.push("a start drained without a loss".to_owned());
    }
    if p.bandwidth > 0 {
        parts.push(format!("{} probes for bandwidth", p.bandwidth));
    }
    if p.rtt > 0 {
        parts.push(format!("{} probes for the RTT", p.rtt));
    }
    parts.join(", ")
}

fn loss_based(cuts: &[Cut], ratio: f64, growth: &Growth) -> Option<Recognised> {
    let long = growth.rtts >= LONG_GROWTH_RTTS && growth.widest >= LONG_GROWTH;
    if cuts.len() < MIN_CUTS && !long {
        return None;
    }
    let slope = growth.segments / growth.rtts.max(1.0);
    let cubic_fit = FIT.max(LATE_SEGMENT / median_window(cuts)).min(BETTER * growth.reno_error);
    let cubic = to_seven_tenths(cuts, RATIO_SHARE) && growth.cubic_error <= cubic_fit;
    let queued_slope = growth.queued_segments / growth.queued_rtts.max(1.0);
    // A sender that answers the delay lets no queue grow: without one it does as Reno does, and is not known.
    let fills = growth.queued_rtts >= QUEUED_RTTS && queued_slope >= QUEUED_SLOPE;
    let reno = to_the_half(cuts)
        && growth.ahead_of_reno as f64 <= AHEAD_SHARE * growth.epochs as f64
        && growth.reno_error <= RENO_FIT.max(SEGMENT / median_window(cuts))
        && RENO_SLOPE.contains(&growth.steady.unwrap_or(slope))
        && fills
        && queued_slope <= *RENO_SLOPE.end();
    // Nothing that answers the delay grows by more than a segment per RTT while a queue stands.
    let faster = fills && slope > *RENO_SLOPE.end();
    let control = match (cubic, reno) {
        (true, false) => CongestionControl::Cubic,
        (false, true) => CongestionControl::Reno,
        _ if cuts.len() >= MIN_CUTS && ratio <= 0.85 && faster => CongestionControl::LossBased,
        _ => return None,
    };
    let times = if cuts.len() == 1 { "cut" } else { "cuts" };
    let evidence = format!(
        "{} {times} to {ratio:.2} of the bytes in flight, {slope:.1} segments per RTT between them",
        cuts.len()
    );
    Some(Recognised { control, evidence })
}

#[cfg(test)]
mod tests {
    use super::super::rounds::Kind;
    use super::*;

    const MSS: f64 = 1_000.0;

    /// Rounds, and losses where a test puts them.
    struct Made(Vec<Round>);

    impl Made {
        fn free(&mut self, window: f64, rtt_ms: f64) {
            let begin_us = self.0.last().map_or(0, |r| r.begin_us + u64::from(r.span_us));
            let us = (rtt_ms * 1e3) as u32;
            let flight = (window * MSS) as u32;
            self.0.push(Round { begin_us, span_us: us, rtt_us: us, flight, ..Round::default() });
        }
        fn lost(&mut self) {
            let last = self.0.last_mut().expect("a round before");
            last.ended_by = EndedBy::Loss;
            let recovery = Round {
                begin_us: last.begin_us + u64::from(last.span_us),
                kind: Kind::Recovery,
                ended_by: EndedBy::Ack,
                ..*last
            };
            self.0.push(recovery);
        }
    }

    /// A path that holds 50 segments, with a queue for 50 more.
    fn sawtooth(beta: f64, cuts: usize, grow: impl Fn(f64, usize) -> f64) -> Vec<Round> {
        let mut made = Made(Vec::new());
        let mut floor = 100.0 * beta;
        for _ in 0..cuts {
            let (mut window, mut n) = (floor, 0);
            while window < 100.0 {
                made.free(window, 50.0_f64.max(window));
                n += 1;
                window = grow(floor, n);
            }
            made.free(100.0, 100.0);
            made.lost();
            floor = 100.0 * beta;
        }
        made.0
    }

    fn named(rounds: &[Round]) -> Option<&'static str> {
        recognise_rounds(rounds, MSS).map(|found| found.control.name())
    }

    #[test]
    fn half_and_a_segment_per_round_trip_is_reno() {
        let rounds = sawtooth(0.5, 5, |floor, n| floor + n as f64);
        let found = recognise_rounds(&rounds, MSS).expect("five cuts");
        assert_eq!(found.control, CongestionControl::Reno);
        assert_eq!(
            found.evidence,
            "4 cuts to 0.50 of the bytes in flight, 1.0 segments per RTT between them"
        );
    }

    #[test]
    fn growth_ahead_of_renos_at_first_is_not_reno() {
        let hybla = |floor: f64, n: usize| floor + n as f64 + n.min(4) as f64;
        assert_eq!(named(&sawtooth(0.5, 5, hybla)), None);
    }

    #[test]
    fn a_window_of_eighteen_segments_is_enough_for_reno() {
        let mut made = Made(Vec::new());
        for _ in 0..12 {
            (9..19).for_each(|w| made.free(f64::from(w), 36.0 * f64::from(w.max(13)) / 13.0));
            made.lost();
        }
        assert_eq!(named(&made.0), Some("reno"));
    }

    #[test]
    fn half_and_faster_growth_is_some_other_loss_based_control() {
        assert_eq!(named(&sawtooth(0.5, 5, |floor, n| floor + 2.0 * n as f64)), Some("loss-based"));
    }

    #[test]
    fn a_cut_to_seven_tenths_is_cubic_by_its_curve_alone() {
        let k = (30.0_f64 / 0.4).cbrt();
        let curve = |_: f64, n: usize| 100.0 + 0.4 * (n as f64 * 0.085 - k).powi(3);
        assert_eq!(named(&sawtooth(0.7, 5, curve)), Some("cubic"));
        assert_eq!(named(&sawtooth(0.7, 5, |floor, n| floor + n as f64)), None);
    }

    #[test]
    fn the_gain_cycle_of_eight_rounds_is_bbr() {
        let mut made = Made(Vec::new());
        for i in 0..40 {
            made.free(if i % 8 == 4 { 125.0 } else { 100.0 }, 50.0);
        }
        assert_eq!(named(&made.0), Some("bbr"));
    }

    #[test]
    fn four_segments_for_200_ms_every_ten_seconds_are_bbr() {
        let mut made = Made(Vec::new());
        for i in 0..250 {
            made.free(
                if (100..104).contains(&i) || (204..208).contains(&i) { 4.0 } else { 60.0 },
                50.0,
            );
        }
        assert_eq!(named(&made.0), Some("bbr"));
    }

    /// A level of twenty segments, and a loss, after which `low` are in flight for 250 ms.
    fn lows_after_a_loss(low: impl Fn(usize) -> f64) -> Vec<Round> {
        let mut made = Made(Vec::new());
        for _ in 0..2 {
            (0..100).for_each(|_| made.free(20.0, 50.0));
            made.lost();
            (0..5).for_each(|n| made.free(low(n), 50.0));
        }
        (0..20).for_each(|_| made.free(20.0, 50.0));
        made.0
    }

    #[test]
    fn four_segments_that_stay_four_after_a_loss_are_bbr() {
        assert_eq!(named(&lows_after_a_loss(|_| 4.0)), Some("bbr"));
        assert_eq!(named(&lows_after_a_loss(|n| 4.0 + n as f64 / 2.0)), None);
    }

    #[test]
    fn a_start_that_halves_and_doubles_is_not_bbr() {
        let mut made = Made(Vec::new());
        for low in [11.0, 34.0] {
            made.free(2.0 * low, 75.0);
            (0..3).for_each(|_| made.free(low, 75.0));
            made.free(2.0 * low, 75.0);
        }
        (0..40).for_each(|_| made.free(68.0, 75.0));
        assert_eq!(named(&made.0), None);
    }

    #[test]
    fn half_and_a_segment_per_round_trip_without_a_queue_may_be_vegas() {
        let mut rounds = sawtooth(0.5, 5, |floor, n| floor + n as f64);
        rounds.iter_mut().for_each(|r| r.rtt_us = 50_000);
        assert_eq!(named(&rounds), None);
    }

    #[test]
    fn cuts_without_a_loss_while_a_queue_stands_are_delay_based() {
        let mut made = Made(Vec::new());
        for _ in 0..4 {
            (40..60).for_each(|w| made.free(f64::from(w), 50.0 + f64::from(w - 40) / 4.0));
        }
        assert_eq!(named(&made.0), Some("delay-based"));
        let losses: Vec<Round> = made
            .0
            .iter()
            .map(|r| Round {
                ended_by: if r.flight == 59_000 { EndedBy::Mark } else { r.ended_by },
                ..*r
            })
            .collect();
        assert_ne!(named(&losses), Some("delay-based"));
    }

    #[test]
    fn one_segment_without_a_loss_while_a_queue_stands_is_delay_based() {
        let mut made = Made(Vec::new());
        for _ in 0..4 {
            (40..60).for_each(|w| made.free(f64::from(w), 50.0 + f64::from(w - 40) / 4.0));
            (0..3).for_each(|_| made.free(1.0, 50.0));
        }
        assert_eq!(named(&made.0), Some("delay-based"));
    }

    #[test]
    fn a_segment_less_per_round_trip_while_a_queue_stands_is_delay_based() {
        let mut made = Made(Vec::new());
        (0..30).for_each(|n| made.free(100.0 - f64::from(n), 100.0 - f64::from(n)));
        (0..30).for_each(|_| made.free(70.0, 70.0));
        assert_eq!(named(&made.0), Some("delay-based"));
        made.0.iter_mut().for_each(|r| r.rtt_us = 70_000);
        assert_eq!(named(&made.0), None, "no queue: the application has less to send");
    }

    #[test]
    fn a_host_that_pauses_is_not_bbr() {
        let mut made = Made(Vec::new());
        for i in 0..250 {
            made.free(60.0, 50.0);
            if i == 100 || i == 200 {
                made.free(4.0, 50.0);
                let pause = made.0.last_mut().expect("just made");
                pause.span_us = 300_000;
            }
        }
        assert_eq!(named(&made.0), None);
    }

    #[test]
    fn a_level_window_a_limited_sender_and_a_short_flow_are_unknown() {
        let mut level = Made(Vec::new());
        (0..200).for_each(|_| level.free(40.0, 50.0));
        assert_eq!(named(&level.0), None);
        let mut limited = sawtooth(0.5, 5, |floor, n| floor + n as f64);
        limited.iter_mut().filter(|r| r.kind == Kind::Free).for_each(|r| r.kind = Kind::Limited);
        assert_eq!(named(&limited), None);
        assert_eq!(named(&sawtooth(0.5, 5, |floor, n| floor + n as f64)[..19]), None);
    }
}
