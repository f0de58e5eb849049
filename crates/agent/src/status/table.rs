//! `status` for people: what holds what, what is wrong, and every flow with who limits it. At most 80 columns where addresses are short, 98 where not.

use serde_json::Value;

/// Columns of a remote address; longer ones are cut in their middle.
const REMOTE: usize = 28;

/// The daemon's answer as text.
pub fn table(answer: &Value) -> String {
    let mut lines = vec![format!("on for {}, process {}", span(&answer["up_s"]), answer["pid"])];
    if answer["lifted"] == true {
        lines.push("all cures watch, and change nothing".to_owned());
    }
    lines.push(uplink(answer));
    lines.extend(
        list(&answer["problems"]).filter_map(Value::as_str).map(|text| format!("! {text}")),
    );
    lines.extend(cures(&answer["cures"]));
    lines.extend(list(&answer["trials"]).filter_map(trial));
    let flows: Vec<_> = list(&answer["flows"]).map(flow).collect();
    let longest = |title: &str, of: &dyn Fn(&Row<'_>) -> usize| {
        flows.iter().map(of).chain([title.len()]).max().unwrap_or(0)
    };
    let ends =
        (longest("remote", &|flow| flow.0.chars().count()), longest("cure", &|flow| flow.1.len()));
    if !flows.is_empty() {
        let titles = ["RTT ms", "least", "Mbit/s", "wanted", "offered", "flying", "queue"];
        lines.push(String::new());
        lines.push(row(ends, &("remote".to_owned(), "cure", titles.map(str::to_owned), "limit")));
    }
    lines.extend(flows.iter().map(|flow| row(ends, flow)));
    lines.join("\n")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn span(seconds: &Value) -> String {
    let seconds = seconds.as_f64().unwrap_or(0.0) as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

fn uplink(answer: &Value) -> String {
    let device = answer["device"].as_str().map_or(String::new(), |device| format!(" {device}"));
    let holder = match answer["uplink"]["active"].as_str() {
        Some("gate") => "the gate holds uploads",
        Some("shaper") => "HTB holds uploads",
        Some("acks") => "windows of passing ACKs hold uploads",
        _ => "nobody holds uploads",
    };
    format!("uplink{device}: {holder}: {}", answer["uplink"]["why"].as_str().unwrap_or("-"))
}

fn cures(cures: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(c) = cures.get("receive") {
        lines.push(format!(
            "downloads: {} connections, {} ACKs, {} decisions, clamp set {} times ({} again)",
            c["connections"], c["acks"], c["decisions"], c["applied"], c["reapplied"]
        ));
    }
    if let Some(c) = cures.get("gate") {
        let delay = c["delay_ms"].as_f64().map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        let below = c["telemetry"]["grade"].as_str().unwrap_or("modem");
        lines.push(format!(
            "gate: the {below} drains in {delay} at {:.2} Mbit/s; held back {} packets of ours, {} of others",
            c["rate_bps"].as_f64().unwrap_or(0.0) / 1e6,
            c["refused_own"],
            c["refused_forwarded"]
        ));
    }
    if let Some(c) = cures.get("shaper") {
        let rate = c["rate_bps"]
            .as_f64()
            .map_or("no rate yet".to_owned(), |bps| format!("{:.2} Mbit/s", bps / 1e6));
        lines.push(format!("HTB: {rate}"));
    }
    if let Some(c) = cures.get("acks") {
        lines.push(format!(
            "passing ACKs: {} flows, {} segments, {} decisions, {} windows rewritten",
            c["flows"], c["segments"], c["decisions"], c["rewritten"]
        ));
    }
    if let Some(c) = cures.get("congestion") {
        lines.push(format!(
            "congestion control: {} connections switched, {} refused",
            c["switched"], c["refused"]
        ));
    }
    lines
}

/// One that is under way, or that found something.
fn trial(trial: &Value) -> Option<String> {
    let what = match (trial["remote"].as_str(), trial["cure"].as_str()) {
        (Some(remote), _) => format!("the flow with {remote}:{}", trial["remote_port"]),
        (None, Some("gate")) => "the gate".to_owned(),
        (None, _) => "downloads".to_owned(),
    };
    let mbps =
        |key: &str| trial[key].as_f64().map_or("-".to_owned(), |bps| format!("{:.2}", bps / 1e6));
    match trial["state"].as_str() {
        Some("trying") => Some(format!("trial: whether the cure of {what} costs goodput")),
        Some("withdrawn") => Some(format!(
            "! withdrawn: the cure of {what}: {} Mbit/s with it, {} without",
            mbps("with_bps"),
            mbps("without_bps")
        )),
        _ => None,
    }
}

/// Remote end, cure, figures, who limits.
type Row<'a> = (String, &'a str, [String; 7], &'a str);

fn flow(flow: &Value) -> Row<'_> {
    let number = |key: &str| flow[key].as_f64().unwrap_or(0.0);
    let remote = flow["remote"].as_str().unwrap_or_default();
    let end = if remote.contains(':') { format!("[{remote}]") } else { remote.to_owned() };
    (
        short(&format!("{end}:{}", flow["remote_port"])),
        flow["cure"].as_str().unwrap_or_default(),
        [
            ms(number("rtt_ms")),
            ms(number("rtt_min_ms")),
            mbps(number("rate_bps") / 1e6),
            bytes(number("wanted_bytes")),
            bytes(number("advertised_bytes")),
            bytes(number("in_flight_bytes")),
            bytes(number("queue_bytes")),
        ],
        flow["limit"].as_str().unwrap_or_default(),
    )
}

fn row((ends, cures): (usize, usize), (remote, cure, numbers, limit): &Row<'_>) -> String {
    let [rtt, least, rate, wanted, offered, flying, queue] = numbers;
    format!(
        "{remote:<ends$} {cure:<cures$} {rtt:>6} {least:>5} {rate:>6} {wanted:>7} {offered:>7} {flying:>7} {queue:>7} {limit}"
    )
    .trim_end()
    .to_owned()
}

/// As exact as it matters, in at most six columns.
fn ms(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// In at most six columns.
fn mbps(value: f64) -> String {
    if value < 999.5 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Bytes with a unit, in at most seven columns.
fn bytes(count: f64) -> String {
    match count {
        ..10_000.0 => format!("{count:.0} B"),
        ..1e6 => format!("{:.0} KB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

/// Both ends of a long address are worth more than its middle.
fn short(text: &str) -> String {
    if text.len() <= REMOTE || !text.is_ascii() {
        return text.to_owned();
    }
    let tail = REMOTE / 2;
    format!("{}…{}", &text[..REMOTE - tail - 1], &text[text.len() - tail..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({
            "up_s": 7_300.2, "pid": 41, "lifted": false, "device": "wwan0", "uplink": {"active": "acks", "why": "no reports"},
            "cures": {
                "receive": {"connections": 1_000_000, "acks": 9_000_000_000_u64, "decisions": 10_000_000, "applied": 5, "reapplied": 2},
                "gate": {"telemetry": {"grade": "driver"}, "delay_ms": 1_000.0, "rate_bps": 1e9, "refused_own": 9_000_000, "refused_forwarded": 0},
                "acks": {"flows": 10_000, "segments": 9_000_000_000_u64, "decisions": 10_000_000, "rewritten": 4_000_000_000_u64},
            },
            "problems": ["something"],
            "trials": [
                {"cure": "acks", "remote": "192.0.2.1", "remote_port": 443, "state": "withdrawn", "with_bps": 1e6, "without_bps": 2e6},
                {"cure": "receive", "remote": null, "state": "resting", "with_bps": null, "without_bps": null},
            ],
            "flows": [{
                "cure": "acks down", "remote": "2001:db8:ffff:ffff:ffff:ffff:ffff:1", "remote_port": 65_535, "rtt_ms": 12_345.6,
                "rtt_min_ms": 999.9, "rate_bps": 9_999_000_000.0_f64, "wanted_bytes": 1_073_741_824, "advertised_bytes": 999_999,
                "in_flight_bytes": 9_999, "queue_bytes": 0, "limit": "sender",
            }],
        })
    }

    #[test]
    fn it_fits_a_terminal_whatever_the_numbers_are() {
        let text = table(&answer());
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 100, "{widest}\n{text}");
        assert!(text.contains("[2001:db8:fff…:ffff:1]:65535"), "{text}");
        assert!(text.ends_with("sender"), "{text}");
    }

    #[test]
    fn with_ipv4_alone_eighty_columns_are_enough() {
        let mut answer = answer();
        answer["flows"][0]["remote"] = json!("192.0.2.1");
        answer["flows"][0]["remote_port"] = json!(443);
        answer["flows"][0]["cure"] = json!("receive");
        let text = table(&answer);
        let flows: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(flows.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn it_says_who_holds_uploads_what_is_wrong_and_what_was_withdrawn() {
        let text = table(&answer());
        for line in [
            "on for 2 h, process 41",
            "uplink wwan0: windows of passing ACKs hold uploads: no reports",
            "! something",
            "! withdrawn: the cure of the flow with 192.0.2.1:443: 1.00 Mbit/s with it, 2.00 without",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("downloads costs"), "{text}");
    }

    #[test]
    fn columns_stand_below_their_names() {
        let text = table(&answer());
        let lines: Vec<&str> = text.lines().rev().take(2).collect();
        let ends = |line: &str, word: &str| {
            line.find(word).map(|at| line[..at].chars().count() + word.len())
        };
        assert_eq!(ends(lines[1], "wanted"), ends(lines[0], "1.1 GB"));
        assert_eq!(ends(lines[1], "queue"), ends(lines[0], " 0 B"));
    }
}
