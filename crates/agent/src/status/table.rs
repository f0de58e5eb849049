//! The text of `status`: the uplink's cure, problems, a line per cure, trials, and every flow with
//! what limits it, the fastest first. At most 80 columns with IPv4 addresses, 98 with longer ones;
//! a narrower terminal shows fewer figures.

use units::text::{scaled, step};

use super::{Status, TrialStatus};
use crate::cures::trial::Stage;
use crate::cures::{FlowStatus, flow::Limit};

/// Columns of a remote address; longer ones are cut in their middle.
const REMOTE: usize = 28;
const TITLES: [&str; 9] =
    ["remote", "cure", "RTT ms", "min", "Mbit/s", "target", "adv.", "flight", "queue"];
/// Columns of each figure.
const WIDTHS: [usize; 7] = [6, 5, 6, 7, 7, 7, 7];

/// Figures that a narrow terminal leaves out, in this order: advertised and target window, in flight, queue.
const LEFT_OUT: [usize; 4] = [4, 3, 5, 6];

/// The status as text, for a terminal of so many columns.
pub fn table(status: &Status, columns: Option<u64>) -> String {
    let mut lines = vec![format!("on for {}, process {}", span(status.up_s), status.pid)];
    if status.lifted {
        lines.push("all cures watch, and change nothing".to_owned());
    }
    let device = status.device.as_ref().map_or(String::new(), |device| format!(" {device}"));
    let active = match status.uplink.active {
        "gate" => "gate",
        "shaper" => "HTB",
        "acks" => "ACK-window rewriting",
        other => other,
    };
    lines.push(format!("uplink{device}: upload control: {active}: {}", status.uplink.why));
    lines.extend(status.problems.iter().map(|text| format!("! {text}")));
    lines.extend(status.other_programs.iter().map(|other| {
        format!(
            "another program on the same sockets: {other}; of flags, window clamp and congestion control the last writer wins"
        )
    }));
    if status.flags_replaced > 0 {
        lines.push(format!(
            "callback flags of {} connections had been replaced, and were set again",
            status.flags_replaced
        ));
    }
    for (about, figures) in status.cures.each() {
        lines.extend(figures.map(|figures| format!("{}: {}", about.title, figures.line())));
    }
    lines.extend(status.trials.iter().filter_map(trial));
    let mut flows: Vec<_> = status.flows.iter().collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.rate_now()));
    let flows: Vec<_> = flows.into_iter().map(flow).collect();
    let longest = |title: &str, of: &dyn Fn(&Row) -> usize| {
        flows.iter().map(of).chain([title.len()]).max().unwrap_or(0)
    };
    let ends =
        (longest("remote", &|flow| flow.0.chars().count()), longest("cure", &|flow| flow.1.len()));
    // Cells of the figures and of the limit, with the blanks between them.
    let over = (ends.0 + ends.1 + 60).saturating_sub(columns.map_or(usize::MAX, |c| c as usize));
    let left_out = &LEFT_OUT[..over.div_ceil(8).min(LEFT_OUT.len())];
    if !flows.is_empty() {
        let [remote, cure, numbers @ ..] = TITLES;
        let titles = (remote.to_owned(), cure, numbers.map(str::to_owned), "limit");
        lines.push(String::new());
        lines.push(row(ends, left_out, &titles));
    }
    lines.extend(flows.iter().map(|flow| row(ends, left_out, flow)));
    lines.join("\n")
}

fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// A trial that runs, or that found a regression.
fn trial(trial: &TrialStatus) -> Option<String> {
    let what = match (trial.remote, trial.remote_port, trial.cure) {
        (Some(remote), Some(port), _) => format!("the flow with {remote}:{port}"),
        (_, _, "gate") => "the gate".to_owned(),
        _ => "downloads".to_owned(),
    };
    let mbps =
        |bps: Option<u64>| bps.map_or("-".to_owned(), |bps| format!("{:.2}", bps as f64 / 1e6));
    match trial.state {
        Stage::Resting => None,
        Stage::Trying => Some(format!("trial: whether the cure of {what} costs goodput")),
        Stage::Withdrawn => Some(format!(
            "! withdrawn: the cure of {what}: {} Mbit/s with it, {} without",
            mbps(trial.with_bps),
            mbps(trial.without_bps)
        )),
    }
}

/// Remote end, cure, figures, limit.
type Row = (String, &'static str, [String; 7], &'static str);

fn flow(flow: &FlowStatus) -> Row {
    let (remote, port) = flow.remote;
    let end = if remote.is_ipv6() { format!("[{remote}]") } else { remote.to_string() };
    let limit = match flow.limit() {
        Limit::Agent => "agent",
        Limit::Gate => "gate",
        Limit::Sender => "sender",
        Limit::Idle => "idle",
    };
    (
        short(&format!("{end}:{port}")),
        flow.cure,
        [
            ms(flow.rtt_ms()),
            ms(flow.rtt_min_ms()),
            mbps(flow.rate_now() as f64 * 8.0 / 1e6),
            bytes(flow.wanted as f64),
            bytes(flow.advertised as f64),
            bytes(flow.in_flight() as f64),
            bytes(flow.queue() as f64),
        ],
        limit,
    )
}

fn row(
    (ends, cures): (usize, usize),
    left_out: &[usize],
    (remote, cure, numbers, limit): &Row,
) -> String {
    let mut line = format!("{remote:<ends$} {cure:<cures$}");
    for (place, (number, width)) in numbers.iter().zip(WIDTHS).enumerate() {
        if !left_out.contains(&place) {
            line += &format!(" {number:>width$}");
        }
    }
    format!("{line} {limit}")
}

/// Milliseconds in at most six columns.
fn ms(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Mbit/s in at most six columns.
fn mbps(value: f64) -> String {
    if value < 999.5 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Bytes with a unit, in at most seven columns.
fn bytes(count: f64) -> String {
    let (b, kb) = (step(1e4, 1.0, 0, " B"), step(1e6, 1e3, 0, " KB"));
    let (mb, gb) = (step(1e9, 1e6, 1, " MB"), step(f64::MAX, 1e9, 1, " GB"));
    scaled(count, &[b, kb, mb, gb])
}

/// A long address without its middle: its ends distinguish it better.
fn short(text: &str) -> String {
    if text.len() <= REMOTE || !text.is_ascii() {
        return text.to_owned();
    }
    let tail = REMOTE / 2;
    format!("{}…{}", &text[..REMOTE - tail - 1], &text[text.len() - tail..])
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn status(remote: &str, cure: &'static str) -> Status {
        let mut flow = testing::flow(cure, remote, 9_999_000_000, 12_345);
        (flow.rtt_min_us, flow.wanted, flow.advertised) = (999_900, 1_073_741_824, 999_999);
        flow.remote.1 = 65_535;
        Status {
            up_s: 7_300.2,
            problems: vec!["something".to_owned()],
            trials: vec![
                testing::trial("acks", Some("192.0.2.1"), Stage::Withdrawn),
                testing::trial("receive", None, Stage::Resting),
            ],
            flows: vec![flow],
            ..testing::status()
        }
    }

    #[test]
    fn it_fits_a_terminal_whatever_the_numbers_are() {
        let text = table(&status("2001:db8:ffff:ffff:ffff:ffff:ffff:1", "acks down"), None);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 100, "{widest}\n{text}");
        assert!(text.contains("[2001:db8:fff…:ffff:1]:65535"), "{text}");
        assert!(text.ends_with("agent"), "{text}");
    }

    #[test]
    fn with_ipv4_alone_eighty_columns_are_enough() {
        let mut status = status("192.0.2.1", "receive");
        status.flows[0].remote.1 = 443;
        let text = table(&status, None);
        let flows: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(flows.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn it_names_the_uplinks_cure_what_is_wrong_and_what_was_withdrawn() {
        let text = table(&status("192.0.2.1", "receive"), None);
        for line in [
            "on for 2 h, process 41",
            "uplink wwan0: upload control: ACK-window rewriting: no reports",
            "! something",
            "! withdrawn: the cure of the flow with 192.0.2.1:443: 1.00 Mbit/s with it, 2.00 without",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("downloads costs"), "{text}");
    }

    #[test]
    fn it_names_other_programs_on_the_same_sockets_and_what_they_did() {
        let other = super::super::others::OtherProgram {
            id: 23,
            name: Some("bpftune_conn_tu".to_owned()),
            cgroup: Some("/sys/fs/cgroup".into()),
        };
        let mut status = testing::status();
        assert!(!table(&status, None).contains("another program"));
        status.other_programs.push(other);
        status.flags_replaced = 4;
        let text = table(&status, None);
        assert!(text.contains("same sockets: bpftune_conn_tu (sock_ops program 23"), "{text}");
        assert!(text.contains("callback flags of 4 connections had been replaced"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_figures_and_keeps_rtt_rate_and_limit() {
        let mut status = status("192.0.2.1", "receive");
        status.flows[0].remote.1 = 443;
        for (columns, left) in [(80, 10), (79, 9), (60, 7), (40, 6)] {
            let text = table(&status, Some(columns));
            let titles = text.lines().rev().nth(1).unwrap();
            assert!(titles.len() <= columns.max(48) as usize, "{text}");
            assert_eq!(titles.replace("RTT ms", "RTT").split_whitespace().count(), left, "{text}");
        }
    }

    #[test]
    fn columns_stand_below_their_names() {
        let text = table(&status("192.0.2.1", "receive"), None);
        let lines: Vec<&str> = text.lines().rev().take(2).collect();
        let ends = |line: &str, word: &str| {
            line.find(word).map(|at| line[..at].chars().count() + word.len())
        };
        assert_eq!(ends(lines[1], "target"), ends(lines[0], "1.1 GB"));
    }
}
