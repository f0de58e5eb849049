//! What probes over a path without a load say, and its text.

use std::fmt::Write;

use algo::Rng;

use super::session::Agreed;
use crate::delay::{Clocks, Times, When};
use crate::figures::Figures;
use crate::losses::{Fate, fates};
use crate::outcome::{Delay, Idle, delays};
use crate::screen::{ms, percent};
use crate::seen::Seen;

impl Idle {
    /// Of what a test saw; `None` without an answer.
    pub(super) fn of(seen: &Seen, agreed: &Agreed, rng: &mut Rng) -> Option<Idle> {
        let (first, last) = (seen.records.first()?.t1, seen.records.last()?.t1);
        let answered: Vec<(Times, When)> = seen
            .records
            .iter()
            .filter(|record| !record.late)
            .filter_map(|record| Some((record.answer?.0, When::Before)))
            .collect();
        let clocks = Clocks::fit(&answered)?;
        let counts = seen.records.iter().map(|r| r.answer.map(|(_, had)| had)).collect::<Vec<_>>();
        let fates = fates(&counts);
        let mut figures = |lost: &dyn Fn(Fate) -> bool, delay: &dyn Fn(&Times) -> f64| {
            let delays = delays(seen, (first, last + 1), lost, &fates, delay);
            Figures::of(&delays, seen.per_s, rng).as_ref().map(Delay::from)
        };
        let rtt = figures(&|_| true, &|times| times.rtt_ns() as f64 / 1e6)?;
        let down = figures(&|fate| fate == Fate::LostDown, &|times| clocks.queue(times).down_ms);
        let up = figures(&|fate| fate == Fate::LostUp, &|times| clocks.queue(times).up_ms);
        let has = agreed.has_directions();
        let mut kept: Vec<i64> = answered.iter().map(|(times, _)| times.t3 - times.t2).collect();
        kept.sort_unstable();
        Some(Idle {
            probes_per_s: seen.per_s,
            seconds: (last - first) as f64 / 1e9,
            rtt,
            delay_down: down.filter(|_| has),
            delay_up: up.filter(|_| has),
            server_ms: has.then(|| kept[kept.len() / 2] as f64 / 1e6),
        })
    }

    /// As text.
    pub fn screen(&self, host: &str) -> String {
        let mut text = String::new();
        let of = |d: &Delay| {
            let variation =
                d.jitter_ms.map_or_else(String::new, |own| format!(", variation {}", ms(own)));
            let [p50, p95, p99] = [d.p50_ms.ms, d.p95_ms.ms, d.p99_ms.ms].map(ms);
            format!("p50 {p50}, p95 {p95}, p99 {p99}{variation} ms")
        };
        let _ = writeln!(text, "RTT to {host} without a load of ours: {}.", of(&self.rtt));
        let lost = &self.rtt;
        let _ = writeln!(
            text,
            "{} probes in {:.0} s, {} lost.",
            lost.probes,
            self.seconds,
            percent(lost.loss)
        );
        for (way, delay) in [("↓", &self.delay_down), ("↑", &self.delay_up)] {
            match delay {
                Some(d) => {
                    let _ = writeln!(
                        text,
                        "{way} above the least delay: {}; {} lost.",
                        of(d),
                        percent(d.loss)
                    );
                }
                None => {
                    let _ = writeln!(text, "{way} the server says no times or no count: unknown.");
                }
            }
        }
        let _ = writeln!(
            text,
            "No grade: a server of irtt carries no load. `unbloat measure serve` at the other side does, or"
        );
        let _ = writeln!(text, "`iperf3 -s` beside it, with --protocol iperf3 --probe irtt here.");
        text
    }
}
