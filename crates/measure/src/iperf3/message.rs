//! What client and server of iperf3 say on the control connection: a byte for each state, and JSON behind its length.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Longest JSON that is read: results of 128 streams have 40 kB.
pub const MAX_TEXT: usize = 1 << 20;
/// Of a cookie, its closing zero included.
pub const COOKIE: usize = 37;
/// Characters of a cookie: those of base 32.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A word by which one test's connections are known.
pub fn cookie(random: &[u8; COOKIE - 1]) -> [u8; COOKIE] {
    let mut cookie = [0; COOKIE];
    for (letter, byte) in cookie.iter_mut().zip(random) {
        *letter = LETTERS[usize::from(byte % 32)];
    }
    cookie
}

/// The states of a test, as their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server wants the parameters.
    Parameters,
    /// It waits for the streams.
    Streams,
    /// All are there.
    Start,
    /// Data may flow.
    Running,
    /// The client has measured enough.
    End,
    /// Both say what they saw.
    Results,
    /// The server has read the client's.
    Display,
    /// The client is done.
    Done,
    /// The server ends it.
    Terminated,
    /// Another client measures.
    Denied,
    /// The server failed.
    Failed,
}

/// Each state and its byte.
const BYTES: [(State, u8); 11] = [
    (State::Start, 1),
    (State::Running, 2),
    (State::End, 4),
    (State::Parameters, 9),
    (State::Streams, 10),
    (State::Terminated, 11),
    (State::Results, 13),
    (State::Display, 14),
    (State::Done, 16),
    // Negative numbers there.
    (State::Denied, 255),
    (State::Failed, 254),
];

impl State {
    /// Of a byte; `None`: not one of this protocol.
    pub fn of(byte: u8) -> Option<State> {
        BYTES.iter().find(|(_, own)| *own == byte).map(|(state, _)| *state)
    }

    /// As a byte.
    pub fn byte(self) -> u8 {
        BYTES.iter().find(|(state, _)| *state == self).map_or(0, |(_, byte)| *byte)
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// Streams of each direction.
    pub streams: usize,
    /// Load to the client only.
    pub down: bool,
    /// Load in both directions.
    pub both: bool,
    /// Seconds at most.
    pub seconds: u64,
    /// Congestion control at both ends.
    pub cc: Option<&'a str>,
}

/// Bytes of one write at the server: what iperf3 has for TCP.
const BLOCK: u32 = 128 << 10;

impl Parameters<'_> {
    /// As the server reads them.
    pub fn text(&self) -> Value {
        let mut text = json!({
            "tcp": true, "omit": 0, "time": self.seconds, "num": 0, "blockcount": 0,
            "parallel": self.streams, "len": BLOCK, "pacing_timer": 1000, "client_version": "3.12",
        });
        if self.down {
            text["reverse"] = true.into();
        }
        if self.both {
            text["bidirectional"] = true.into();
        }
        if let Some(cc) = self.cc {
            text["congestion"] = cc.into();
        }
        text
    }
}

/// What one side saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    cpu_util_total: f64,
    cpu_util_user: f64,
    cpu_util_system: f64,
    sender_has_retransmits: i64,
    /// Its congestion control.
    pub congestion_used: Option<String>,
    /// Its streams.
    pub streams: Vec<StreamResults>,
}

/// What one side saw of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamResults {
    /// 1, 3, 4, 5 …: iperf3 leaves out 2.
    pub id: i64,
    /// Sent or received.
    pub bytes: u64,
    /// At a sender. Where they are unknown, -1, which iperf 3.12 writes as 2^64 - 1.
    retransmits: f64,
    jitter: f64,
    errors: i64,
    packets: i64,
    start_time: f64,
    end_time: f64,
}

impl StreamResults {
    /// At a sender, where they are known.
    pub fn retransmissions(&self) -> Option<u32> {
        (0.0..=f64::from(u32::MAX)).contains(&self.retransmits).then_some(self.retransmits as u32)
    }
}

impl Results {
    /// Of the bytes of each stream, in the order in which they were opened. iperf 3.12 ends with a segmentation fault where the
    /// congestion control is missing.
    pub fn of(bytes: &[u64], seconds: f64, cc: &str) -> Results {
        let stream = |(n, bytes): (usize, &u64)| StreamResults {
            id: if n == 0 { 1 } else { n as i64 + 2 },
            bytes: *bytes,
            retransmits: -1.0,
            end_time: seconds,
            ..StreamResults::default()
        };
        let streams = bytes.iter().enumerate().map(stream).collect();
        Results {
            sender_has_retransmits: -1,
            congestion_used: Some(cc.to_owned()),
            streams,
            ..Results::default()
        }
    }

    /// Of the other side's JSON; `None`: it is none of this form.
    pub fn read(text: &[u8]) -> Option<Results> {
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_bytes_of_iperf3() {
        for byte in 0..=255 {
            assert!(State::of(byte).is_none_or(|state| state.byte() == byte));
        }
        assert_eq!(State::of(9), Some(State::Parameters));
        assert_eq!(State::of(255), Some(State::Denied));
        assert_eq!(State::of(3), None);
    }

    #[test]
    fn streams_are_counted_as_iperf3_does() {
        let ids = |n| {
            Results::of(&vec![7; n], 1.0, "cubic").streams.iter().map(|s| s.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(4), [1, 3, 4, 5]);
    }

    #[test]
    fn results_of_a_server() {
        let text = br#"{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":1,
            "congestion_used":"cubic","streams":[{"id":1,"bytes":5,"retransmits":2,"jitter":0,"errors":0,
            "omitted_errors":0,"packets":0,"omitted_packets":0,"start_time":0,"end_time":1.5},
            {"id":3,"bytes":6,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1}]}"#;
        let found = Results::read(text).unwrap();
        assert_eq!(found.congestion_used.as_deref(), Some("cubic"));
        let streams: Vec<_> =
            found.streams.iter().map(|s| (s.bytes, s.retransmissions())).collect();
        assert_eq!(streams, [(5, Some(2)), (6, None)]);
        assert_eq!(Results::read(b"{}"), None);
    }

    #[test]
    fn parameters_name_what_was_asked_for() {
        let asked =
            Parameters { streams: 8, down: true, both: false, seconds: 20, cc: Some("bbr") };
        let text = asked.text();
        assert_eq!((&text["parallel"], &text["reverse"]), (&json!(8), &json!(true)));
        assert_eq!((&text["congestion"], text.get("bidirectional")), (&json!("bbr"), None));
    }

    #[test]
    fn a_cookie_is_36_letters_and_a_zero() {
        let found = cookie(&[255; COOKIE - 1]);
        assert_eq!((found[35], found[36]), (b'7', 0));
    }
}
