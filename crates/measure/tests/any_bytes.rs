//! No bytes of others make the readers of the wire panic or break a promise: the fuzz targets' properties, on bytes near
//! valid ones.

use measure::wire::data::{Direction, Opening};
use measure::wire::keys::Key;
use measure::wire::message::{Info, Limits, QuicInfo, StreamInfo, ToClient, ToServer, frame};
use measure::wire::probe::Probe;
use measure::wire::quic_probe::{self, QuicProbe};
use netlink::Attributes;
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "../../../fuzz/src/measure.rs"]
mod driven;

fn frames() -> Vec<Vec<u8>> {
    let limits = Limits { seconds: 1, bytes: 2, streams: 3, pps: 4 };
    let stream = StreamInfo { quic: Some(QuicInfo::default()), ..StreamInfo::default() };
    let info = Info { t_ns: -1, up_bytes: 2, streams: vec![stream; 2] };
    let hello = ToServer::Hello { v: vec![1, 2], proof: "cd".repeat(32) };
    let (cc, quic) = (vec!["bbr".into()], vec!["newreno".into()]);
    let welcome = ToClient::Welcome { session: "0f".repeat(8), cc, limits, quic, quic_probes: 10 };
    let no_quic = ToClient::Quic { why: Some("a\u{1b}[2Jb".into()) };
    let said =
        [ToClient::Refused { why: "a\u{1b}[2Jb".into() }, welcome, no_quic, ToClient::Info(info)];
    let mut all: Vec<Vec<u8>> = said.iter().map(frame).collect();
    all.push(frame(&hello));
    all.push(
        [frame(&ToServer::Alive), frame(&ToServer::Quic { cc: None }), frame(&hello)].concat(),
    );
    all.iter_mut().for_each(|bytes| bytes.insert(0, 5));
    all
}

fn signed() -> Vec<Vec<u8>> {
    let key = Key::derived("another token", &[1; 32]);
    let probe = Probe { answer: true, session: 1, number: 2, t1: 3, t2: 4, t3: 5, had: 6 };
    let cc = Some("cubic".to_owned());
    let opening = Opening { session: 1, id: 2, direction: Direction::Down, cc };
    vec![probe.write(&key).to_vec(), opening.write(&key).to_vec()]
}

fn quic_probes() -> Vec<Vec<u8>> {
    let probe = QuicProbe::new(3, [9; quic_probe::RANDOM]);
    let key = Key::derived("token", &[1; 32]);
    vec![probe.write(&key, &[5; quic_probe::LENGTH]).to_vec(), probe.answer().to_vec()]
}

fn configurations() -> Vec<Vec<u8>> {
    let urls = r#""small_download_url":"https://a.example/s","large_download_url":"https://A.example:443/l","upload_url":"https://a.example/u""#;
    let old =
        urls.replace("_download", "_https_download").replace("upload_url", "https_upload_url");
    [urls, &old]
        .map(|urls| {
            format!(r#"{{"version":1,"urls":{{{urls}}},"test_endpoint":"b.example"}}"#).into_bytes()
        })
        .to_vec()
}

fn results() -> Vec<Vec<u8>> {
    let head = r#"{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":1,"sender_has_retransmits":1,"congestion_used":"cubic","#;
    let stream = r#"{"id":1,"bytes":5,"retransmits":2,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1}"#;
    vec![format!(r#"{head}"streams":[{stream},{stream}]}}"#).into_bytes()]
}

fn of_irtt() -> Vec<Vec<u8>> {
    let head = |flags: u8| [&[0x14, 0xa7, 0x5b, flags, 7, 0, 0, 0, 0, 0, 0, 0][..]].concat();
    let opened = [head(3), vec![1, 2, 4, 0xb0, 1, 5, 2, 6, 6, 7, 4, 9, 4, b'r', b'a', b'n', b'd']];
    let answer = [head(2), [&[1, 0, 0, 0, 5, 0, 0, 0][..], &[9; 60]].concat()];
    vec![opened.concat(), answer.concat()]
}

fn of_wifi() -> Vec<Vec<u8>> {
    let station = Attributes::default()
        .with(7, &[200])
        .with_nested(8, &Attributes::default().with(5, &[1, 2, 0, 0]))
        .with(10, &[9, 0, 0, 0])
        .with(11, &[1, 0, 0, 0]);
    let survey = Attributes::default().with(3, &[]).with(4, &[9; 8]).with(5, &[1; 8]);
    let both = Attributes::default().with_nested(21, &station).with_nested(84, &survey);
    vec![both.bytes().to_vec()]
}

fn measurements() -> Vec<Vec<u8>> {
    let tcp = r#""TCPInfo":{"RTT":21000,"MinRTT":20000,"BusyTime":9,"RWndLimited":1,"SndBufLimited":0,"BytesSent":7,"BytesRetrans":1,"ElapsedTime":250000}"#;
    vec![format!(r#"{{"AppInfo":{{"NumBytes":5}},{tcp}}}"#).into_bytes()]
}

/// Valid bytes with a few changed, put in or cut out.
fn near(valid: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 0..6);
    (prop::sample::select(valid), edits).prop_map(|(mut bytes, edits)| {
        for (at, value, how) in edits {
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = value,
                1 => bytes.insert(at.min(bytes.len()), value),
                _ => drop(
                    bytes
                        .drain(at.min(bytes.len())..(at + usize::from(value % 16)).min(bytes.len()))
                        .count(),
                ),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn control_frames(bytes in near(frames())) {
        driven::control(&bytes);
    }

    #[test]
    fn probes_and_data_connections(bytes in near(signed())) {
        driven::signed(&bytes);
    }

    #[test]
    fn probes_of_quic(bytes in near(quic_probes())) {
        driven::quic(&bytes);
    }

    #[test]
    fn configurations_of_servers(bytes in near(configurations())) {
        driven::configuration(&bytes);
    }

    #[test]
    fn results_of_iperf3(bytes in near(results())) {
        driven::iperf3(&bytes);
    }

    #[test]
    fn datagrams_of_irtt(bytes in near(of_irtt())) {
        driven::irtt(&bytes);
    }

    #[test]
    fn answers_on_wifi(bytes in near(of_wifi())) {
        driven::wifi(&bytes);
    }

    #[test]
    fn measurements_of_ndt7(bytes in near(measurements())) {
        driven::ndt7(&bytes);
    }

    #[test]
    fn numbers(numbers in vec(prop_oneof![0_u32..3000, any::<u32>()], 0..200)) {
        driven::numbers(&numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        driven::control(&bytes);
        driven::signed(&bytes);
        driven::quic(&bytes);
        driven::numbers(&bytes);
        driven::configuration(&bytes);
        driven::iperf3(&bytes);
        driven::irtt(&bytes);
        driven::wifi(&bytes);
        driven::ndt7(&bytes);
    }
}
