//! What the agent reads from others: a modem's records, its configuration, the kernel's messages,
//! questions of its socket, requests for its figures.
//!
//! signal: bytes · model: the readers of the agent, on bytes alone · action: panics where one of
//! them breaks a promise that its caller leans on.
//!
//! Also compiled into `crates/agent/tests/any_bytes.rs`; so it needs nothing but `agent`.

use std::path::Path;

use agent::config::Config;
use agent::daemon::control;
use agent::status::metrics::request::{MAX_REQUEST, Request, answer, parse};
use agent::telemetry::socket::Socket;

/// Records of a modem, each behind its length. Sums over blocks never overflow, and padding is a
/// part of what was granted.
pub fn telemetry(bytes: &[u8]) {
    let mut source = Socket::new("/nowhere");
    let mut rest = bytes;
    while let Some((length, more)) = rest.split_first() {
        let length = usize::from(*length).min(more.len());
        let (record, after) = more.split_at(length);
        rest = after;
        let said = source.record(record);
        let ours = matches!(
            (record.get(..6), length),
            (Some(b"UBTM\x01\0"), 48) | (Some(b"UBTB\x01\0"), 32)
        );
        assert_eq!(said.is_ok(), ours, "records of ours are read, all others refused");
        if let Ok(Some(report)) = said
            && record.starts_with(b"UBTB")
        {
            assert!(report.padding <= report.granted);
            assert!(
                report.occupancy <= 4 * 150_000,
                "four groups, the last level taken for 150 KB"
            );
        }
    }
}

/// A configuration, and a key set from outside behind the first NUL. What is refused is refused in
/// one line.
pub fn config(text: &str) {
    let (text, set) = text.split_once('\0').unwrap_or((text, ""));
    let set: Vec<(String, String)> =
        set.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
    match Config::parse(text, &set, Path::new("/pins")) {
        Ok(config) => {
            if let Some(receive) = &config.cures.receive {
                // λ of 1 to 16, in sixteenths; an average below one, or nothing would ever be
                // learnt.
                assert!((1.0..=16.0).contains(&receive.law.lambda) && receive.law.alpha < 16);
                assert!(receive.law.min_window >= 1);
            }
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        }
    }
}

/// What a netlink socket received. Every body is a part of it, and what they say of devices and
/// disciplines is read or left.
pub fn kernel_messages(bytes: &[u8]) {
    let mut found = Vec::new();
    let whole = netlink::bodies(bytes, 1, &mut found);
    assert!(found.iter().map(|body| body.len() + 16).sum::<usize>() <= bytes.len());
    assert!(whole.is_ok() || bytes.len() >= 16, "an error has a header");
    for body in found.iter().map(Vec::as_slice).chain([bytes]) {
        let _ = netlink::device(body);
        let _ = netlink::qdisc(body);
        let _ = netlink::route::default(body);
        let _ = netlink::route::address(body);
        if let Some(socket) = netlink::diag::parse(body) {
            assert!(socket.congestion.is_none_or(|name| !name.is_empty()));
        }
    }
    for kind in 0..16 {
        if let Some(value) = netlink::attribute(bytes, kind) {
            assert!(value.len() + 4 <= bytes.len());
        }
    }
}

/// What a client of the control socket wrote, in two pieces. Lines are the same however they came.
pub fn control_lines(bytes: &[u8]) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let mut at_once = bytes.to_vec();
    let all = control::lines(&mut at_once);
    assert_eq!(all.len(), lines);
    assert!(!at_once.contains(&b'\n'), "what is left is no whole line");
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut text = first.to_vec();
    let mut piecewise = control::lines(&mut text);
    text.extend_from_slice(second);
    piecewise.extend(control::lines(&mut text));
    assert_eq!((&piecewise, &text), (&all, &at_once));
}

/// A request for the figures. More bytes never unsay a refusal or a page, and every answer gives
/// its length.
pub fn http(bytes: &[u8]) {
    for by_address in [false, true] {
        let said = parse(bytes, by_address);
        if said != Request::More {
            let longer = [bytes, b"GET / HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(parse(&longer, by_address), said);
        } else {
            assert!(bytes.len() < MAX_REQUEST, "no client is listened to for ever");
        }
        if let Request::Refused(status) = said {
            let answer = String::from_utf8(answer(status, "why\n", false)).unwrap_or_default();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} "))
                    && answer.ends_with("\r\n\r\nwhy\n")
            );
        }
    }
}
