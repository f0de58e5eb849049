//! The program from outside, as far as it needs neither rights nor a network.

use std::path::PathBuf;
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ub-program-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn agent(folder: &std::path::Path, words: &[&str]) -> Output {
    let pins = format!(
        "/sys/fs/bpf/ub-program-{}-{}",
        std::process::id(),
        folder.file_name().unwrap().to_string_lossy()
    );
    Command::new(env!("CARGO_BIN_EXE_unbloat-agent"))
        .arg("--runtime")
        .arg(folder.join("run"))
        .args(["--pins", &pins])
        .args(words)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn what_it_prints_as_defaults_is_a_configuration_that_it_takes() {
    let folder = folder("defaults");
    let printed = agent(&folder, &["defaults"]);
    assert!(printed.status.success());
    let config = agent::config::Config::parse(&text(&printed.stdout), &[], &folder).unwrap();
    assert_eq!(config.cures.receive.unwrap().law.lambda, 1.75);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_configuration_that_is_wrong_ends_it_with_one_line_and_code_3() {
    if !root() {
        return eprintln!("left out: needs root");
    }
    let folder = folder("wrong");
    let file = folder.join("agent.toml");
    std::fs::write(&file, "[receive]\nlambda = 3\nfloour = 2\n").unwrap();
    for words in [["serve", "--config"], ["on", "--config"]] {
        let mut words = words.to_vec();
        words.push(file.to_str().unwrap());
        let ended = agent(&folder, &words);
        assert_eq!(ended.status.code(), Some(3));
        let said = text(&ended.stderr);
        assert!(said.contains("line 3: unknown key receive.floour; did you mean floor?"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(agent(&folder, &["serve", "--nonsense"]).status.code(), Some(2));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn nothing_to_do_is_no_reason_to_stay() {
    if !root() {
        return eprintln!("left out: needs root");
    }
    let folder = folder("nothing");
    let ended =
        agent(&folder, &["serve", "--set", "receive.enabled=false", "--set", "uplink.mode=off"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("no cure is switched on in the configuration"));
    let status = agent(&folder, &["--json", "status"]);
    assert_eq!(text(&status.stdout).trim(), r#"{"ok":true,"pending":0,"state":"off"}"#);
    assert!(agent(&folder, &["off"]).status.success(), "off without an agent is off");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_change_that_cannot_be_undone_is_named_and_kept() {
    if !root() {
        return eprintln!("left out: needs root");
    }
    let folder = folder("undone");
    let mut journal =
        agent::undo::journal::Journal::open(&folder.join("run/journal.jsonl")).unwrap();
    let change = agent::undo::journal::Change::Command {
        what: "the qdisc of eth0".to_owned(),
        undo: vec!["false".to_owned()],
    };
    journal.write(&change).unwrap();
    let ended = agent(&folder, &["off"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("the qdisc of eth0"));
    assert!(text(&agent(&folder, &["status"]).stdout).contains("unbloat-agent off undoes it"));
    std::fs::remove_dir_all(folder).unwrap();
}
