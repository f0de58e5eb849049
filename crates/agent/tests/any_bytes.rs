//! No bytes of others make the agent's readers panic, hang or break a promise: the fuzz targets'
//! properties, on bytes near valid ones.

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "../../../fuzz/src/agent.rs"]
mod driven;

/// Valid bytes with a few changed, a few cut out, a piece of something else put in.
fn near(valid: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 0..6);
    (prop::sample::select(valid.clone()), prop::sample::select(valid), edits).prop_map(
        |(mut bytes, other, edits)| {
            for (at, value, how) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = value,
                    1 => bytes.insert(at, value),
                    2 => drop(bytes.drain(at..(at + usize::from(value % 16)).min(bytes.len()))),
                    _ => drop(bytes.splice(at..at, other.iter().copied().take(usize::from(value)))),
                }
            }
            bytes
        },
    )
}

fn record(head: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(length).unwrap_or(0)];
    bytes.extend(head);
    bytes.resize(length + 1, 0x7f);
    bytes
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([2, 0]);
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// `struct ifinfomsg` or `struct tcmsg` with attributes of small kinds.
fn body() -> Vec<u8> {
    let mut bytes = vec![1; 20];
    for (kind, value) in [
        (1_u16, &b"fq_codel\0\0\0\0"[..]),
        (3, &[5; 36]),
        (4, &[0, 6, 0, 0]),
        (7, &[20, 0, 1, 0, 9, 0, 0, 0]),
    ] {
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
    }
    bytes
}

/// `struct inet_diag_msg` of an IPv4 connection, its tcp_info and the name of its congestion
/// control.
fn diagnosed() -> Vec<u8> {
    let mut bytes = vec![2; 72];
    for (kind, value) in [(2_u16, &[1; 240][..]), (4, b"cubic\0\0\0"), (7, &[9; 36])] {
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
    }
    bytes
}

const STATUS: &str = r#"{"ok":true,"version":"0\"\n","cures":{"receive":{"acks":1e300},"gate":{"telemetry":{"state":"fresh"}}},"flows":[
{"cure":"a\nb","remote":"\\","rate_bps":1e308,"rtt_ms":5,"rtt_min_ms":1},{"cure":"acks","rate_bps":1e308}],"trials":[{}],"problems":[1]}"#;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..600), text in any::<String>()) {
        driven::telemetry(&bytes);
        driven::kernel_messages(&bytes);
        driven::control_lines(&bytes);
        driven::http(&bytes);
        driven::config(&text);
    }

    #[test]
    fn records_that_are_nearly_a_modems(bytes in near(vec![
        [record(b"UBTB\x01\0\0", 32), record(b"UBTM\x01\0", 48), record(b"UBTB\x01\0\x01", 32)].concat(),
        record(b"UBTB\x01\0\x01\0\xff\xff\xff\xff", 32),
    ])) {
        driven::telemetry(&bytes);
    }

    #[test]
    fn a_configuration_that_is_nearly_one(bytes in near(vec![
        agent::config::template().into_bytes(),
        b"[receive]\nlambda = 1.5\naverage = 0.9\nonly = [\"10.0.0.0/8\"]\n\0receive.start=1 MB".to_vec(),
        b"[metrics]\nlisten = \"127.0.0.1:9469\"\n[congestion]\nroutes = { \"::/0\" = \"bbr\" }\n\0a.b=[".to_vec(),
    ])) {
        driven::config(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn messages_that_are_nearly_the_kernels(bytes in near(vec![
        [message(16, &body()), message(36, &body()), message(3, &[0; 4])].concat(),
        message(2, &[0xff; 20]),
        message(2, &i32::MIN.to_ne_bytes()),
        body(),
        diagnosed(),
    ])) {
        driven::kernel_messages(&bytes);
    }

    #[test]
    fn lines_that_are_nearly_questions_or_a_status(bytes in near(vec![
        b"{\"ask\":\"status\"}\n{\"ask\":\"set\",\"set\":[[\"receive.lambda\",\"2\"]]}\n\n".to_vec(),
        format!("{}\n", STATUS.replace('\n', "")).into_bytes(),
        ["[".repeat(300), "\n".to_owned()].concat().into_bytes(),
    ])) {
        driven::control_lines(&bytes);
    }

    #[test]
    fn requests_that_are_nearly_a_scrapers(bytes in near(vec![
        b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9469\r\nUser-Agent: Prometheus/3\r\n\r\n".to_vec(),
        b"GET http://[::1]:1/metrics?x HTTP/1.1\nHost:localhost\n\n".to_vec(),
        [&b"GET /metrics HTTP/1.1\r\n"[..], &[b'a'; 8_200]].concat(),
    ])) {
        driven::http(&bytes);
    }
}
