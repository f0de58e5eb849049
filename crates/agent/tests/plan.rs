//! The program `plan` on the bundled captures: what it advises, what it promises, and that its
//! configuration is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(format!("{name}.pcapng.zst"))
}

fn plan(words: &[&str], capture: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unbloat-agent"))
        .args(words)
        .arg("plan")
        .arg("--capture")
        .arg(capture)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn judged(name: &str) -> Value {
    let done = plan(&["--json"], &sample(name));
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn ranked<'a>(said: &'a Value, rank: &str) -> Vec<&'a Value> {
    said["advice"].as_array().unwrap().iter().filter(|advice| advice["rank"] == rank).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The smallest λ times the smallest RTT (a steady link), goodput as measured, and a configuration that the agent takes.
fn keeps_its_law(said: &Value, advice: &Value, lambda_key: &str) {
    let lambda: f64 = advice["settings_toml"][lambda_key].as_str().unwrap().parse().unwrap();
    let (flow, expects) = (&advice["flow"], &advice["expects"]);
    let promised = number(&expects["rtt_ms"]);
    assert!((promised / (1.25 * number(&flow["rtt_ms_min"])) - 1.0).abs() < 0.01, "{advice:#}");
    assert!(lambda > 1.25);
    assert!(promised < 0.8 * number(&expects["rtt_ms_p95_now"]));
    assert_eq!(expects["goodput_bps"], flow["goodput_bps"]);
    let text = said["configuration"].as_str().unwrap();
    agent::config::Config::parse(text, &[], "/pins".as_ref()).unwrap();
}

#[test]
fn a_bloated_download_seen_at_its_receiver_gets_drwa() {
    let said = judged("bloated-download-at-receiver");
    let [advice] = ranked(&said, "recommended")[..] else { panic!("{said:#}") };
    assert_eq!((&advice["cure"], &advice["finding"]), (&"receive".into(), &"bufferbloat".into()));
    keeps_its_law(&said, advice, "receive.lambda");
    assert_eq!(said["seen"]["of_hosts"][0], "10.77.0.1");
    assert!((number(&advice["flow"]["rtt_ms_min"]) - 60.0).abs() < 5.0);
}

#[test]
fn a_bloated_upload_gets_windows_of_acks_and_bbr_would_do_instead() {
    let said = judged("bloated-cubic-upload");
    let [advice] = ranked(&said, "recommended")[..] else { panic!("{said:#}") };
    assert_eq!((&advice["cure"], &advice["flow"]["grade"]), (&"uplink".into(), &"F".into()));
    keeps_its_law(&said, advice, "uplink.lambda");
    let [instead] = ranked(&said, "instead")[..] else { panic!("{said:#}") };
    assert_eq!((&instead["cure"], &instead["confidence"]), (&"congestion".into(), &"low".into()));
    assert_eq!(instead["flow"]["congestion_control"], "cubic", "as its packets show");
}

#[test]
fn the_same_link_with_bbr_has_nothing_to_cure() {
    let said = judged("bloated-bbr-upload");
    assert_eq!((&said["verdict"], &said["configuration"]), (&"nothing".into(), &Value::Null));
    assert!(said["nothing"].as_str().unwrap().starts_with("Nothing to cure"));
}

#[test]
fn a_slow_reader_is_found_and_no_cure_is_switched_on() {
    let said = judged("slow-reader");
    let [advice] = ranked(&said, "by hand")[..] else { panic!("{said:#}") };
    assert_eq!((&advice["finding"], &said["configuration"]), (&"zero-window".into(), &Value::Null));
    assert!(advice["title"].as_str().unwrap().contains("at the other end"));
}

#[test]
fn losses_without_a_queue_are_not_bufferbloat() {
    let said = judged("lossy");
    assert!(ranked(&said, "recommended").is_empty(), "{said:#}");
}

#[test]
fn the_page_fits_a_terminal_and_names_what_it_says() {
    let done = plan(&[], &sample("bloated-download-at-receiver"));
    let page = String::from_utf8(done.stdout).unwrap();
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in [
        "  why ",
        "  changes ",
        "  expects ",
        "  how sure ",
        "Configuration",
        "λ · RTTmin",
        "grade F",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn what_is_no_capture_is_one_line_and_code_3() {
    let done = plan(&[], Path::new(env!("CARGO_MANIFEST_PATH")));
    assert_eq!(done.status.code(), Some(3));
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("Cargo.toml"), "{said}");
    assert_eq!(plan(&[], Path::new("/no/such.pcap")).status.code(), Some(3));
}

#[test]
fn a_capture_that_breaks_off_is_judged_by_its_good_part_with_a_warning() {
    let whole = std::fs::read(sample("bloated-download-at-receiver")).unwrap();
    let folder = std::env::temp_dir().join(format!("ub-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let half = folder.join("half.pcapng.zst");
    std::fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let done = plan(&["--json"], &half);
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(done.status.code(), Some(0));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said["verdict"], "advice");
    assert!(String::from_utf8(done.stderr).unwrap().contains("what came before is analysed"));
}
