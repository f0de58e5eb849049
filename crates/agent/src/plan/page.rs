//! The plan as text for a terminal: what was observed, each piece of advice, and what to type.

use std::fmt::Write as _;
use std::io::IsTerminal;

use super::advice::{Advice, Rank};
use super::host::Host;
use super::observation::{Place, Way};
use super::text::{bytes, count, endpoint, ms, paragraph, rate};
use super::{Options, Plan};
use crate::commands::columns;

/// Column at which the text of a paragraph begins.
const INDENT: usize = 12;
/// Number of flows that are listed.
const LISTED: usize = 8;

/// A flow: ends, rate, bytes, RTT, grade.
type Line = (String, String, String, String, String);

/// Width of the terminal, but never so wide that a line is hard to read.
pub fn width() -> usize {
    columns().unwrap_or(96).clamp(40, 100)
}

/// Whether titles are bold: on a terminal, unless NO_COLOR is set.
pub fn bold() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The plan as text.
pub fn text(plan: &Plan, options: &Options, width: usize, bold: bool) -> String {
    let mut text = String::new();
    let strong =
        |line: &str| if bold { format!("\x1b[1m{line}\x1b[0m\n") } else { format!("{line}\n") };
    text += &strong(&plan.seen.words);
    let place = match &plan.seen.place {
        Place::Here => format!("on {}", about(&plan.host)),
        Place::Elsewhere(hosts) => {
            let whose: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let whose = whose.join(" and ");
            format!("taken at {whose}, which is not this host: what its kernel can do is not known")
        }
        Place::Unknown => {
            "taken at an unknown host: no address in it is this host's, and no end is near"
                .to_owned()
        }
    };
    text += &paragraph("", &place, 2, width);
    text.push('\n');
    text += &flows(plan, width);
    for found in plan.seen.findings.iter().filter(|found| found.severity != "info") {
        text +=
            &paragraph("", &format!("{} {}: {}", found.severity, found.rule, found.text), 2, width);
    }
    if plan.seen.place == Place::Here {
        for missing in &plan.host.missing {
            text += &paragraph("", &format!("not seen: {missing}"), 2, width);
        }
    }
    if let Some(nothing) = &plan.nothing {
        text.push('\n');
        text += &strong(paragraph("", nothing, 0, width).trim_end());
    }
    let mut printed: Vec<&str> = Vec::new();
    for (number, advice) in plan.advice.iter().enumerate() {
        text += &piece(number + 1, advice, &printed, width, &strong);
        printed.extend(advice.why.iter().map(String::as_str));
    }
    text += &ending(plan, options, &strong);
    text.trim_end().to_owned()
}

/// The uplink's device and the host's settings in one line.
fn about(host: &Host) -> String {
    let mut words = match &host.device {
        None => "no uplink".to_owned(),
        Some(device) => {
            let driver =
                device.driver.as_ref().map_or(String::new(), |driver| format!(", {driver}"));
            let limits = if device.bql == Some(true) { ", byte queue limits" } else { "" };
            let (name, link, mtu) = (&device.name, device.link.words(), device.mtu);
            format!("{name} ({link}{driver}, MTU {mtu}, {}{limits})", device.qdisc())
        }
    };
    if let Some(name) = host.sysctl("net.ipv4.tcp_congestion_control") {
        let _ = write!(words, ", {name}");
    }
    if let Some(most) = host.largest("net.ipv4.tcp_rmem") {
        let _ = write!(words, ", receive buffers up to {}", bytes(most as f64));
    }
    if let Some(path) = &host.modem {
        let _ = write!(words, ", a modem that reports on {}", path.display());
    }
    if host.forwards() {
        words.push_str(", forwarding");
    }
    words
}

fn flows(plan: &Plan, width: usize) -> String {
    let all = &plan.seen.flows;
    if all.is_empty() && plan.seen.connections == 0 {
        return "  no TCP connection\n".to_owned();
    }
    let left_out = match plan.seen.undecided {
        0 => String::new(),
        number => {
            let line =
                format!("{} left out: which end is near is unknown", count(number, "transfer"));
            paragraph("", &line, 2, width)
        }
    };
    if all.is_empty() {
        let what = count(plan.seen.connections, "connection");
        return if left_out.is_empty() {
            paragraph("", &format!("{what} without data"), 2, width)
        } else {
            paragraph("", &what, 2, width) + &left_out
        };
    }
    let mut lines = Vec::new();
    for flow in all.iter().take(LISTED) {
        let arrow = if flow.way == Way::Download { "←" } else { "→" };
        let rtt = match (flow.rtt_min_ms, flow.rtt_ms) {
            (Some(min), Some((median, _))) => format!("RTT {} → {}", ms(min), ms(median)),
            (Some(min), None) => format!("RTT {}", ms(min)),
            _ => "RTT –".to_owned(),
        };
        let ends = format!(
            "{arrow} {}{}",
            endpoint(flow.remote),
            if flow.forwarded { ", passed on" } else { "" }
        );
        let grade = flow.grade().map_or(String::new(), |grade| format!("grade {grade}"));
        // A transfer too short to judge has no rate.
        let speed = if flow.rate_bps > 0.0 { rate(flow.rate_bps) } else { "–".to_owned() };
        lines.push((ends, speed, bytes(flow.bytes as f64), rtt, grade));
    }
    let longest = |of: &dyn Fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let (ends, rtts) =
        (longest(&|line| line.0.chars().count()), longest(&|line| line.3.chars().count()));
    let mut text = String::new();
    for (end, rate, bytes, rtt, grade) in &lines {
        let line = format!("  {end:<ends$}  {rate:>10}  {bytes:>8}  {rtt:<rtts$}  {grade}");
        text += line.trim_end();
        text.push('\n');
    }
    if all.len() > LISTED {
        let rest: f64 = all[LISTED..].iter().map(|flow| flow.rate_bps).sum();
        let _ =
            writeln!(text, "  and {}, {}", count(all.len() - LISTED, "smaller flow"), rate(rest));
    }
    text + &left_out
}

fn piece(
    number: usize,
    advice: &Advice,
    printed: &[&str],
    width: usize,
    strong: &dyn Fn(&str) -> String,
) -> String {
    let how = match (&advice.blocked, advice.rank) {
        (Some(_), _) => "not available on this host",
        (None, Rank::Instead) => "would do instead",
        (None, rank) => rank.name(),
    };
    let title = paragraph(&format!("{number}"), &format!("{} · {how}", advice.title), 2, width);
    let mut text = format!("\n{}", strong(title.trim_end()));
    let mut part = |name: &str, lines: &[String]| {
        for (i, line) in lines.iter().enumerate() {
            text += &paragraph(if i == 0 { name } else { "" }, line, INDENT, width);
        }
    };
    // Reasons that an earlier piece has already printed are not repeated.
    let new: Vec<&str> =
        advice.why.iter().map(String::as_str).filter(|why| !printed.contains(why)).collect();
    let again = if new.len() < advice.why.len() { ", as above" } else { "" };
    let colon = if new.is_empty() {
        ""
    } else if again.is_empty() {
        ": "
    } else {
        "; "
    };
    part("  why", &[format!("{}{again}{colon}{}", advice.finding, new.join("; "))]);
    if let Some(why) = &advice.blocked {
        part("  missing", std::slice::from_ref(why));
    }
    part("  changes", &advice.changes);
    part("  expects", &advice.expected());
    let mut sure = vec![format!("confidence {}", advice.sure.name())];
    if !advice.unknown.is_empty() {
        sure[0].push_str(". Not known: ");
        sure[0] += &advice.unknown.join("; ");
    }
    part("  how sure", &sure);
    part("  type", &advice.commands);
    text
}

fn ending(plan: &Plan, options: &Options, strong: &dyn Fn(&str) -> String) -> String {
    let Some(configuration) = &plan.configuration else {
        return match (&options.out, plan.advice.is_empty()) {
            (Some(path), _) => {
                format!("\n{} was not written: there is nothing to switch on\n", path.display())
            }
            _ => String::new(),
        };
    };
    let mut text = format!("\n{}", strong("Configuration"));
    for line in configuration.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let _ = writeln!(text, "  {line}");
    }
    match &options.out {
        Some(path) => {
            let _ = write!(
                text,
                "\nNothing was changed. To apply it: unbloat-agent on --config {}\n",
                path.display()
            );
        }
        None => {
            text += "\nNothing was changed. To apply it: plan with --out plan.toml, then\nunbloat-agent on --config plan.toml\n";
        }
    }
    text
}
