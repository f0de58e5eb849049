//! The program, as it is called.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use modem::contents::{Block, Channel, Sample};
use modem::hdlc::frame;
use modem::layout;
use modem::time::ModemTime;
use modem::written;

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unbloat-modem"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Two records: 1,500 bytes in the buffer, then a grant of 1,000 bytes.
fn records() -> [(u16, Vec<u8>); 2] {
    let channel = Channel { lcid: 3, priority: 9, compressed: 1_500, ..Channel::default() };
    let sample = Sample { tti: None, channels: vec![channel] };
    let block = Block { tti: None, granted: 1_000, padding: 0, report: None };
    [
        (layout::BUFFER, written::buffer(24, &[sample])),
        (layout::BLOCKS, written::blocks(5, &[block])),
    ]
}

fn log() -> Vec<u8> {
    let at = ModemTime::from_ns(1);
    records()
        .iter()
        .flat_map(|(code, payload)| frame(&written::message(*code, at, payload)))
        .collect()
}

#[test]
fn a_log_on_standard_input_has_a_summary() {
    let done = run(&["decode", "-"], &log());
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
    let out = text(&done.stdout);
    assert!(out.contains("buffer, bytes: p50 1500, p95 1500, max 1500"), "{out}");
    assert!(out.contains("grants less padding: 1000 bytes"), "{out}");
}

#[test]
fn frames_and_files_of_records_have_the_same_lines_of_json() {
    let at = ModemTime::from_ns(1);
    let file: Vec<u8> = records()
        .iter()
        .flat_map(|(code, payload)| written::file_record(*code, at, payload))
        .collect();
    let [frames, file] = [log(), file].map(|log| run(&["decode", "--json", "-"], &log));
    assert_eq!((file.status.code(), text(&file.stdout)), (Some(0), text(&frames.stdout)));
    let lines: Vec<serde_json::Value> =
        text(&file.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["samples"][0]["channels"][0]["compressed"], 1_500);
    assert_eq!((&lines[1]["code"], &lines[1]["version"]), (&"0xB064".into(), &"5".into()));
    assert_eq!(lines[2]["summary"]["granted_bytes"], 1_000);
}

#[test]
fn a_log_that_is_cut_off_has_what_came_before_and_one_line() {
    let log = log();
    let cut = log.len() - 3;
    let done = run(&["decode", "-"], &log[..cut]);
    assert_eq!(done.status.code(), Some(3));
    assert!(text(&done.stdout).contains("max 1500"), "{done:?}");
    let expected = "unbloat-modem: -: the last record is cut off: the input ends ";
    assert!(text(&done.stderr).starts_with(expected), "{done:?}");
    assert_eq!(text(&done.stderr).lines().count(), 1);
}

#[test]
fn what_is_no_log_is_one_line() {
    for (input, expected) in [
        (&b""[..], "unbloat-modem: -: empty\n"),
        (b"no log", "unbloat-modem: -: neither frames of DIAG nor records of a .dlf file\n"),
    ] {
        let done = run(&["decode", "-"], input);
        assert_eq!((done.status.code(), text(&done.stderr)), (Some(3), expected));
        assert!(done.stdout.is_empty());
    }
    let done = run(&["decode", "/nowhere/log"], b"");
    let expected = "unbloat-modem: /nowhere/log: No such file or directory (os error 2)\n";
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(3), expected));
}

#[test]
fn help_has_an_example() {
    let done = run(&["decode", "--help"], b"");
    assert!(text(&done.stdout).contains("Example: unbloat-modem decode"), "{done:?}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let log: Vec<u8> = std::iter::repeat_n(log(), 2_000).flatten().collect();
    let file = std::env::temp_dir().join(format!("unbloat-modem-{}.qmdl", std::process::id()));
    std::fs::write(&file, log).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_unbloat-modem"))
        .args(["decode", "--json"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
}
