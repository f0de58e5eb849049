//! A piece of advice: what would help, why, what it would change, what it expects, and how sure that is.

use serde_json::{Value, json};

use super::seen::Flow;
use super::text::{bytes, count, endpoint, ms, rate};

/// Whether the configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Yes.
    Recommended,
    /// No: it would do as well, in place of a recommended one.
    Instead,
    /// The agent does not do it.
    ByHand,
}

impl Rank {
    /// For both outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Rank::Recommended => "recommended",
            Rank::Instead => "instead",
            Rank::ByHand => "by hand",
        }
    }
}

/// How sure the expectation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// It rests on what cannot be seen from here.
    Low,
    /// On few samples, or on an upper bound.
    Medium,
    /// The path was seen both empty and full.
    High,
}

impl Sure {
    /// For both outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Sure::Low => "low",
            Sure::Medium => "medium",
            Sure::High => "high",
        }
    }
}

/// What a cure expects of a flow, by its law.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// RTT now: median and p95.
    pub from_ms: (f64, f64),
    /// RTT then, and where that comes from.
    pub to_ms: f64,
    /// … in words.
    pub law: String,
    /// RTT then where the link's rate jumps, if the law allows more there.
    pub jumps_ms: Option<f64>,
    /// Goodput, now and then.
    pub goodput_bps: f64,
    /// Bytes in the queue: now, then.
    pub queue_bytes: (f64, f64),
}

impl Expectation {
    /// Of a flow whose RTT is to become `to_ms`. Goodput stays as long as no less is in flight than the empty path holds.
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

/// See the module text.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The rule that gives it, set by the table.
    pub rule: &'static str,
    /// Section of the configuration that does it, or `by_hand`.
    pub cure: &'static str,
    /// What is wrong, as `unbloat analyze` names it.
    pub finding: &'static str,
    /// In one line.
    pub title: String,
    /// Whether it is in the configuration.
    pub rank: Rank,
    /// The flow of most bytes that it concerns, and how many there are.
    pub flow: Option<(Flow, usize)>,
    /// What was measured.
    pub why: Vec<String>,
    /// What exactly is changed on this host.
    pub changes: Vec<String>,
    /// What it expects of that flow.
    pub expects: Option<Expectation>,
    /// … in words, where the law has no figure.
    pub hopes: Vec<String>,
    /// Keys of the configuration, with values in TOML.
    pub settings: Vec<(&'static str, String)>,
    /// What to type; the agent does not do it.
    pub commands: Vec<String>,
    /// How sure it is.
    pub sure: Sure,
    /// What is not known.
    pub unknown: Vec<String>,
    /// Why this host cannot do it.
    pub blocked: Option<String>,
}

impl Advice {
    /// Without reasons yet.
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
            sure: Sure::Medium,
            unknown: Vec::new(),
            blocked: None,
        }
    }

    /// For these flows, the largest first: the reasons that every flow has, and how sure they are.
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
        self.sure = sureness(flow);
        if flow.rtt_by_window {
            self.unknown
                .push("no timestamps: the RTT is one by windows, an upper bound".to_owned());
        }
        if self.sure < Sure::High
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

    /// The words of what is expected.
    pub fn expected(&self) -> Vec<String> {
        self.expects.iter().map(Expectation::words).chain(self.hopes.iter().cloned()).collect()
    }

    /// It is done by the configuration.
    pub fn configured(&self) -> bool {
        self.rank == Rank::Recommended && self.blocked.is_none() && !self.settings.is_empty()
    }

    /// For `--json`.
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

/// How a flow fared, in figures.
pub fn reason(flow: &Flow) -> String {
    let whose = if flow.forwarded { "passed on, " } else { "" };
    let ends = match flow.way {
        super::seen::Way::Download => format!("from {}", endpoint(flow.remote)),
        super::seen::Way::Upload => format!("to {}", endpoint(flow.remote)),
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

/// The path was seen empty where its smallest RTT is well below the usual one; a p95 wants samples.
fn sureness(flow: &Flow) -> Sure {
    let apart =
        flow.rtt_min_ms.zip(flow.rtt_ms).is_some_and(|(min, (median, _))| median >= 2.0 * min);
    match (flow.rtt_by_window, apart) {
        (false, true) => Sure::High,
        (true, false) => Sure::Low,
        _ => Sure::Medium,
    }
}
