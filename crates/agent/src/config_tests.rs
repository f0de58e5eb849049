//! What a configuration may say, and how what it may not is refused.

use units::Bytes;

use super::*;
use crate::cures::gate::From;
use crate::cures::{acks, receive};
use crate::status::metrics::Listen;

fn read(text: &str) -> Result<Config> {
    Config::parse(text, &[], Path::new("/pins"))
}

fn complaint(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn the_template_is_what_an_empty_file_means() {
    let (template, empty) = (read(&template()).unwrap(), read("").unwrap());
    assert_eq!(format!("{template:?}"), format!("{empty:?}"));
    let code = receive::Settings { pins: "/pins".into(), ..receive::Settings::default() };
    assert_eq!(empty.cures.receive, Some(code));
    assert_eq!(empty.cures.gate.map(|gate| gate.law), Some(device::law()));
    assert_eq!(empty.cures.acks.and_then(|acks| acks.up), acks::Settings::new("").up);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_name_and_their_line() {
    assert_eq!(
        complaint("\n[receive]\nlamda = 2\n"),
        "line 3: unknown key receive.lamda; did you mean lambda?"
    );
    assert_eq!(
        complaint("[recieve]\n"),
        "line 1: unknown section [recieve]; did you mean receive?"
    );
    assert!(complaint("[scope]\nhost = 3\n").ends_with("there are cgroup, user, device"));
    assert!(complaint("[receive\n").starts_with("line 1: "));
}

#[test]
fn values_out_of_bounds_are_refused_with_their_key() {
    assert_eq!(
        complaint("[receive]\nlambda = 0.5\n"),
        "line 2: receive.lambda: 0.5 is out of range: 1 to 16"
    );
    assert!(
        complaint("[receive]\nstart = \"much\"\n").starts_with("line 2: receive.start: expected")
    );
    assert!(complaint("[receive]\nonly = [\"10.0.0.0/40\"]\n").contains("10.0.0.0/40"));
    assert!(
        complaint("[receive]\nonly = [\"10.0.0.0/8\"]\nexcept = [\"::/0\"]\n").contains("not both")
    );
    assert!(
        complaint("[congestion]\nroutes = { \"0.0.0.0/0\" = 3 }\n").contains("congestion.routes")
    );
}

#[test]
fn what_the_command_line_sets_counts_more_than_the_file() {
    let set = [
        ("receive.lambda".to_owned(), "1.5".to_owned()),
        ("receive.start".to_owned(), "1 MB".to_owned()),
        ("congestion.routes".to_owned(), "{ \"0.0.0.0/0\" = \"bbr\" }".to_owned()),
    ];
    let config = Config::parse("[receive]\nlambda = 3\n", &set, Path::new("/pins")).unwrap();
    let receive = config.cures.receive.unwrap();
    assert_eq!((receive.law.lambda, receive.start), (1.5, Bytes(1_000_000)));
    assert_eq!(config.cures.congestion.unwrap().routes.len(), 1);
    let set = [("receive.lamda".to_owned(), "1.5".to_owned())];
    assert_eq!(
        Config::parse("", &set, Path::new("/pins")).unwrap_err().to_string(),
        "unknown key receive.lamda; did you mean lambda?"
    );
}

#[test]
fn the_uplink_is_automatic_by_default_and_forwarding_is_off() {
    let config = read("").unwrap();
    assert_eq!(config.uplink, Uplink::default());
    let acks = config.cures.acks.unwrap();
    assert_eq!((config.uplink.mode, acks.up.unwrap().lambda), (Mode::Auto, 1.75));
    assert_eq!(config.cures.gate.unwrap().sources.len(), 2);
    assert_eq!((config.metrics, acks.down.is_none()), (None, true));
    assert!(config.cures.shaper.is_none());
    assert_eq!(config.trial, Some(trial::Config::default()));
    let config = read(
        "[scope]\ndevice = \"wwan0\"\n[uplink]\nmode = \"acks\"\nlambda = 1.5\ntarget = \"40 ms\"\ntelemetry = \"\"\n\
         [forward]\nenabled = true\nlambda = 2\nflows = 100\n[trial]\nenabled = false\n",
    );
    let config = config.unwrap();
    let acks = config.cures.acks.unwrap();
    assert_eq!((config.uplink.mode, acks.up.unwrap().lambda), (Mode::Acks, 1.5));
    assert_eq!(config.uplink.device.as_deref(), Some("wwan0"));
    assert!(config.cures.gate.is_none(), "no gate beside uplink.mode = acks");
    assert_eq!((acks.down.unwrap().lambda, acks.flows), (2.0, 100));
    assert!(config.trial.is_none());
    let text = "[uplink]\nmode = \"gate\"\ntarget = \"40 ms\"\ntelemetry = \"\"\n";
    let gate = read(text).unwrap().cures.gate.unwrap();
    assert_eq!(gate.law.target, units::Duration::from_millis(40));
    assert_eq!(gate.sources, [From::Driver]);
}

#[test]
fn what_cannot_go_together_is_refused() {
    assert!(
        complaint("[uplink]\nmode = \"both\"\n")
            .starts_with("line 2: uplink.mode: \"both\" is none of")
    );
    let blind = "[uplink]\nmode = \"gate\"\ntelemetry = \"\"\ndriver = false\n";
    assert!(complaint(blind).contains("a gate needs reports"));
    assert!(
        complaint("[uplink]\nmode = \"acks\"\n[shaper]\nenabled = true\n")
            .contains("stands for the gate")
    );
    assert!(
        complaint("[uplink]\ntelemetry = \"\"\n[shaper]\nenabled = true\n")
            .contains("needs a modem's reports")
    );
    assert!(
        complaint("[trial]\nspan = \"1 ms\"\n").contains("1 ms is out of range: 0.5 s to 60 s")
    );
    assert!(complaint("[scope]\nuser = \"no-such-user\"\n").contains("knows no user"));
    assert!(
        complaint("[scope]\nuser = \"root\"\n[receive]\nenabled = false\n")
            .contains("only [receive]")
    );
    let ages = "[receive]\nrtt_min_age = \"30 s\"\nshared_minimum = false\n";
    assert!(complaint(ages).contains("only with shared_minimum = false and fair = false"));
    assert!(complaint("[receive]\nrtt_min_age = \"30 s\"\nfair = false\n").contains("shared_min"));
    let law = read(&format!("{ages}fair = false\n")).unwrap().cures.receive.unwrap().law;
    assert_eq!(law.rtt_min_age, Some(units::Duration::from_secs(30)));
    assert_eq!(read("[scope]\nuser = \"root\"\n").unwrap().cures.receive.unwrap().user, Some(0));
    assert_eq!(read("[scope]\nuser = 1000\n").unwrap().cures.receive.unwrap().user, Some(1000));
}

#[test]
fn no_other_host_gets_figures() {
    let listen = |text: &str| read(&format!("[metrics]\nlisten = \"{text}\"\n"));
    assert_eq!(
        listen("unix:/run/m.sock").unwrap().metrics.map(|m| m.listen),
        Some(Listen::Unix("/run/m.sock".into()))
    );
    assert_eq!(
        listen("[::1]:9").unwrap().metrics.map(|m| m.listen),
        Some(Listen::Loopback("[::1]:9".parse().unwrap()))
    );
    for outside in ["0.0.0.0:9469", "192.0.2.1:80", "[::]:80"] {
        assert!(
            listen(outside).unwrap_err().to_string().contains("is no loopback address"),
            "{outside}"
        );
    }
    for wrong in ["unix:m.sock", "9469", "localhost", "unix:"] {
        assert!(listen(wrong).is_err(), "{wrong}");
    }
    assert!(complaint("[metrics]\nflows = 51\n").contains("51 is out of range: 0 to 50"));
}

#[test]
fn a_complaint_is_one_line_whatever_a_key_is_called() {
    let complaint = complaint("[receive]\n\"a\\n\\u001b[31m\" = 1\n");
    assert!(
        complaint.starts_with("line 2: unknown key receive.a\\n\\u{1b}[31m; there are"),
        "{complaint}"
    );
    let set = [(format!("receive.{}", "x".repeat(10_000)), "1".to_owned())];
    assert!(Config::parse("", &set, Path::new("/pins")).unwrap_err().to_string().len() < 600);
}

#[test]
fn an_address_in_brackets_on_the_command_line_is_text_and_not_a_list() {
    let set = [("metrics.listen".to_owned(), "[::1]:9".to_owned())];
    let config = Config::parse("", &set, Path::new("/pins")).unwrap();
    let listen = Some(Listen::Loopback("[::1]:9".parse().unwrap()));
    assert_eq!(config.metrics.map(|m| m.listen), listen);
    let set = [("receive".to_owned(), "3".to_owned())];
    let error = Config::parse("", &set, Path::new("/pins")).unwrap_err().to_string();
    assert_eq!(error, "receive=3: expected SECTION.KEY=VALUE, as receive.lambda=2");
}
