//! Grades the added delay, and judges which applications a path still supports.
//!
//! signal: p95 of the queueing delay under load; RTT = unloaded RTT + queue · model: published thresholds ·
//! action: the `grade` column and the sentence about usability in the bufferbloat finding.
//!
//! The grade follows the DSLReports speed test's bufferbloat steps on the added delay
//! (dslreports.com/faq/17930): A+ below 5 ms, A below 30, B below 60, C below 200, D below 400, F above. They
//! are steps on the *increase*, so a satellite path may have an A.
//!
//! [`usability`] judges the *total* RTT, since users notice that one:
//! - calls: ITU-T G.114 (05/2003): one-way delay up to 150 ms suits most, up to 400 ms is the planning limit.
//!   A standing queue lies in one direction, so on a loaded path nearly the whole RTT is delay of one way:
//!   the RTT is compared with both figures as it is. On an unloaded long path this is too strict by up to a
//!   factor of two.
//! - games: Claypool & Claypool, "Latency and player actions in online games", CACM 49(11), 2006: performance
//!   drops above 100 ms where one moves an avatar in first person, above 500 ms in third person.
//! - web: a page waits for ten round trips and more, one after the other (DNS, TCP, TLS, the page, its style
//!   sheets and scripts, what those load; Belshe, "More bandwidth doesn't matter (much)", 2010: load time is
//!   linear in RTT). Ten of them are to take 3 s (half of mobile visitors leave, DoubleClick 2016) or at
//!   worst 10 s (Nielsen's limit of attention, "Usability Engineering", 1993): 300 ms and 1 s.

/// Upper bounds in ms of the p95 of added delay, with the grade below each (DSLReports).
pub const STEPS: [(f64, &str); 5] =
    [(5.0, "A+"), (30.0, "A"), (60.0, "B"), (200.0, "C"), (400.0, "D")];

/// The grade of a p95 of added delay in ms.
pub fn grade(added_ms: f64) -> &'static str {
    STEPS.iter().find(|(below, _)| added_ms < *below).map_or("F", |(_, name)| name)
}

/// How well an application works at some RTT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// The delay is not noticed.
    Good,
    /// It works, with noticeable delay.
    Strained,
    /// The delay makes it useless.
    Unusable,
}

impl Use {
    /// Name in the evidence of findings.
    pub const fn name(self) -> &'static str {
        match self {
            Use::Good => "good",
            Use::Strained => "strained",
            Use::Unusable => "unusable",
        }
    }

    fn of(rtt_ms: f64, good: f64, limit: f64) -> Use {
        if rtt_ms <= good {
            Use::Good
        } else if rtt_ms <= limit {
            Use::Strained
        } else {
            Use::Unusable
        }
    }
}

/// Which applications work at a total RTT; sources at the top of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usability {
    /// Loading of web pages.
    pub web: Use,
    /// Voice and video calls, both directions.
    pub calls: Use,
    /// Real-time games.
    pub games: Use,
}

/// Milliseconds of RTT up to which each is good, and up to which it works at all.
const WEB: (f64, f64) = (300.0, 1000.0);
const CALLS: (f64, f64) = (150.0, 400.0);
const GAMES: (f64, f64) = (100.0, 500.0);

/// Usability at a total RTT (unloaded RTT + queue) in ms.
pub fn usability(rtt_ms: f64) -> Usability {
    Usability {
        web: Use::of(rtt_ms, WEB.0, WEB.1),
        calls: Use::of(rtt_ms, CALLS.0, CALLS.1),
        games: Use::of(rtt_ms, GAMES.0, GAMES.1),
    }
}

impl Usability {
    /// As text: `web pages, calls and games work well`, `calls and games are unusable, web pages suffer`.
    pub fn words(&self) -> String {
        let all = [("web pages", self.web), ("calls", self.calls), ("games", self.games)];
        let list = |level: Use| {
            let names: Vec<&str> =
                all.iter().filter(|(_, u)| *u == level).map(|(n, _)| *n).collect();
            match names.split_last() {
                None => None,
                Some((one, [])) => Some((*one).to_owned()),
                Some((last, rest)) => Some(format!("{} and {last}", rest.join(", "))),
            }
        };
        let mut parts = Vec::new();
        parts.extend(list(Use::Unusable).map(|names| format!("{names} are unusable")));
        parts.extend(
            list(Use::Strained).map(|names| format!("{names} stay usable with noticeable delay")),
        );
        parts.extend(list(Use::Good).map(|names| format!("{names} work well")));
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_change_exactly_at_the_published_steps() {
        let at = [0.0, 4.99, 5.0, 29.9, 30.0, 59.9, 60.0, 199.9, 200.0, 399.9, 400.0, 9999.0];
        assert_eq!(at.map(grade), ["A+", "A+", "A", "A", "B", "B", "C", "C", "D", "D", "F", "F"]);
    }

    #[test]
    fn post_8_calls_the_link_usable_below_200_ms_and_lost_at_seconds() {
        let before = usability(95.0);
        assert_eq!((before.web, before.calls, before.games), (Use::Good, Use::Good, Use::Good));
        let bbr = usability(200.0);
        assert!(bbr.web < Use::Unusable && bbr.calls < Use::Unusable);
        let after = usability(2100.0);
        assert_eq!(
            (after.web, after.calls, after.games),
            (Use::Unusable, Use::Unusable, Use::Unusable)
        );
    }

    #[test]
    fn the_words_name_everything_once() {
        assert_eq!(usability(50.0).words(), "web pages, calls and games work well");
        assert_eq!(
            usability(450.0).words(),
            "calls are unusable, web pages and games stay usable with noticeable delay"
        );
        assert_eq!(
            usability(200.0).words(),
            "calls and games stay usable with noticeable delay, web pages work well"
        );
    }
}
