//! A piece of advice: which cure would help, why, what it would change, what to expect, and how
//! certain that is.

use serde_json::{Value, json};

use super::observation::Flow;
use super::text::{bytes, count, endpoint, ms, rate};

/// Whether the advice is in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It is in the configuration.
    Recommended,
    /// An alternative to a recommended cure; not in the configuration.
    Instead,
    /// The user has to do it; the agent does not.
    ByHand,
}

impl Rank {
    /// Name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Rank::Recommended => "recommended",
            Rank::Instead => "instead",
            Rank::ByHand => "by hand",
        }
    }
}

/// Confidence in the expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// It depends on something that cannot be observed here.
    Low,
    /// It depends on few samples, or on an upper bound.
    Medium,
    /// The path was observed both empty and loaded.
    High,
}

impl Confidence {
    /// Name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What a cure would do to a flow, by its law.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Present RTT under load: median and p95.
    pub from_ms: (f64, f64),
    /// RTT with the cure.
    pub to_ms: f64,
    /// Where that RTT comes from, in words.
    pub law: String,
    /// RTT with the cure where the link's rate jumps, if the law allows more there.
    pub jumps_ms: Option<f64>,
    /// Goodput, with and without the cure.
    pub goodput_bps: f64,
    /// Bytes in the queue: at present, with the cure.
    pub queue_bytes: (f64, f64),
}

impl Expectation {
    /// The expectation for a flow whose RTT becomes `to_ms`. Goodput stays as long as no less is in
    /// flight than the empty path needs.
    pub fn of(flow: &Flow, to_ms: f64, law: impl Into<String>) -> Option<Expectation> {
        let (from_ms, min) = (flow.rtt_ms?, flow.rtt_min_ms?);
        let to_ms = to_ms.max(min).min(from_ms.1);
        let queue = |rtt: f64| (rtt - min).max(0.0) / 1e3 * flow.rate_bps / 8.0;
        Some(Expectation {
            from_ms,
            to_ms,
            law: law.into(),
            jumps_ms: None,
            goodput_bps: flow.rate_bps,
            queue_bytes: (queue(from_ms.0), queue(to_ms)),
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "rtt_ms_p50_now": self.from_ms.0, "rtt_ms_p95_now": self.from_ms.1, "rtt_ms": self.to_ms,
            "rtt_ms_where_the_rate_jumps": self.jumps_ms, "law": self.law,
            "goodput_bps_now": self.goodput_bps.round(), "goodput_bps": self.goodput_bps.round(),
            "queue_bytes_now": self.queue_bytes.0.round(), "queue_bytes": self.queue_bytes.1.round(),
        })
    }

    fn words(&self) -> String {
        let (median, p95) = (ms(self.from_ms.0), ms(self.from_ms.1));
        let now = if median == p95 { median } else { format!("{median} (p95 {p95})") };
        let jumps = self
            .jumps_ms
            .map_or(String::new(), |most| format!(", up to {} where the rate jumps", ms(most)));
        format!(
            "RTT {now} → {}{jumps} ({}); {} of queue → {}; goodput stays {}: no less is in flight than the path holds",
            ms(self.to_ms),
            self.law,
            bytes(self.queue_bytes.0),
            bytes(self.queue_bytes.1),
            rate(self.goodput_bps),
        )
    }
}

/// One piece of advice.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Name of the rule that gave it, set by the table.
    pub rule: &'static str,
    /// Section of the configuration that applies it, or `by_hand`.
    pub cure: &'static str,
    /// The finding, by its name in `unbloat analyze`.
    pub finding: &'static str,
    /// The advice in one line.
    pub title: String,
    /// Whether the configuration contains it.
    pub rank: Rank,
    /// The largest flow that it concerns, and how many there are.
    pub flow: Option<(Flow, usize)>,
    /// Reasons: what was measured.
    pub why: Vec<String>,
    /// What it changes on this host.
    pub changes: Vec<String>,
    /// What to expect for that flow.
    pub expects: Option<Expectation>,
    /// What to expect in words, where the law has no figure.
    pub hopes: Vec<String>,
    /// Keys of the configuration with values in TOML.
    pub settings: Vec<(&'static str, String)>,
    /// Commands for the user; the agent does not run them.
    pub commands: Vec<String>,
    /// Confidence in the expectation.
    pub sure: Confidence,
    /// What could not be measured.
    pub unknown: Vec<String>,
    /// Why this host cannot apply it.
    pub blocked: Option<String>,
}

impl Advice {
    /// Advice without reasons yet.
    pub fn new(
        cure: &'static str,
        finding: &'static str,
        rank: Rank,
        title: impl Into<String>,
    ) -> Advice {
        Advice {
            rule: "",
            cure,
            finding,
            title: title.into(),
            rank,
            flow: None,
            why: Vec::new(),
            changes: Vec::new(),
            expects: None,
            hopes: Vec::new(),
            settings: Vec::new(),
            commands: Vec::new(),
            sure: Confidence::Medium,
            unknown: Vec::new(),
            blocked: None,
        }
    }

    /// Adds the reasons that hold for every flow, and the confidence; `flows` are sorted by size,
    /// the largest first.
    #[must_use]
    pub fn for_flows(mut self, flows: &[&Flow]) -> Advice {
        let Some(flow) = flows.first() else { return self };
        self.why.push(reason(flow));
        if let [_, rest @ ..] = flows
            && !rest.is_empty()
        {
            let sum: f64 = rest.iter().map(|flow| flow.rate_bps).sum();
            self.why.push(format!(
                "likewise {}, {} in all",
                count(rest.len(), "other flow"),
                rate(sum)
            ));
        }
        self.sure = confidence_of(flow);
        if flow.rtt_by_window {
            self.unknown
                .push("no timestamps: the RTT is one by windows, an upper bound".to_owned());
        }
        if self.sure < Confidence::High
            && let Some(min) = flow.rtt_min_ms
        {
            self.unknown.push(format!(
                "whether the path was ever seen empty: the smallest RTT was {}",
                ms(min)
            ));
        }
        self.flow = Some(((*flow).clone(), flows.len()));
        self
    }

    /// What to expect, as text.
    pub fn expected(&self) -> Vec<String> {
        self.expects.iter().map(Expectation::words).chain(self.hopes.iter().cloned()).collect()
    }

    /// Whether the configuration applies it.
    pub fn configured(&self) -> bool {
        self.rank == Rank::Recommended && self.blocked.is_none() && !self.settings.is_empty()
    }

    /// The value in `--json`.
    pub fn to_json(&self) -> Value {
        let settings: serde_json::Map<String, Value> =
            self.settings.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        json!({
            "rule": self.rule, "cure": self.cure, "finding": self.finding, "title": self.title, "rank": self.rank.name(),
            "flow": self.flow.as_ref().map(|(flow, _)| flow.to_json()),
            "flows": self.flow.as_ref().map_or(0, |(_, number)| *number),
            "why": self.why, "changes": self.changes,
            "expects": self.expects.as_ref().map(Expectation::to_json), "expects_text": self.expected(),
            "settings_toml": settings, "commands": self.commands,
            "confidence": self.sure.name(), "not_known": self.unknown, "blocked": self.blocked,
        })
    }
}

/// Figures of a flow in one sentence.
pub fn reason(flow: &Flow) -> String {
    let whose = if flow.forwarded { "passed on, " } else { "" };
    let ends = match flow.way {
        super::observation::Way::Download => format!("from {}", endpoint(flow.remote)),
        super::observation::Way::Upload => format!("to {}", endpoint(flow.remote)),
    };
    let mut text = format!(
        "{} {ends} ({whose}{} in {:.0} s)",
        rate(flow.rate_bps),
        bytes(flow.bytes as f64),
        flow.lasted_s
    );
    if let (Some(min), Some((median, p95))) = (flow.rtt_min_ms, flow.rtt_ms) {
        text += &format!(": RTT {} at least, {} under load (p95 {})", ms(min), ms(median), ms(p95));
    }
    if let (Some(grade), Some(queue)) = (flow.grade(), flow.queue_bytes()) {
        text += &format!(", {} of queue: grade {grade}", bytes(queue));
    }
    text
}

/// The confidence for a flow. The path was observed empty if its minimum RTT is well below the
/// usual one.
fn confidence_of(flow: &Flow) -> Confidence {
    let apart =
        flow.rtt_min_ms.zip(flow.rtt_ms).is_some_and(|(min, (median, _))| median >= 2.0 * min);
    match (flow.rtt_by_window, apart) {
        (false, true) => Confidence::High,
        (true, false) => Confidence::Low,
        _ => Confidence::Medium,
    }
}
