//! The messages of ndt7: JSON measurements of both ends, and how long the binary ones are.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::data::Direction;
use crate::wire::message::StreamInfo;

/// Length of the first binary message: the specification's 1 << 13.
pub const FIRST_SIZE: usize = 1 << 13;
/// Length of the longest one, and of the longest message that has to be taken: the specification's 1 << 24.
pub const MAX_SIZE: usize = 1 << 24;
/// A message doubles when it is less than this share of what was sent: the specification's appendix.
const SHARE: u64 = 16;
/// Longest JSON that is read: ndt-server's has 2 kB.
pub const MAX_TEXT: usize = 64 << 10;

/// Length of the next binary message, behind one of this length, with which so many bytes were sent.
pub fn next_size(size: usize, total: u64) -> usize {
    if size >= MAX_SIZE || size as u64 >= total / SHARE { size } else { size * 2 }
}

/// What the server says of a test. Whatever is missing, or is no number of this kind, is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Measurement {
    /// What its kernel says.
    #[serde(rename = "TCPInfo", default)]
    pub tcp: Option<TcpInfo>,
}

/// `TCP_INFO`; times in µs, sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TcpInfo {
    /// Since the beginning of the test.
    pub elapsed_time: Option<f64>,
    /// Smoothed.
    #[serde(rename = "RTT")]
    pub rtt: Option<f64>,
    /// Smallest.
    #[serde(rename = "MinRTT")]
    pub min_rtt: Option<f64>,
    /// With data to send.
    pub busy_time: Option<f64>,
    /// Of it, without room at the receiver.
    pub r_wnd_limited: Option<f64>,
    /// Of it, without room in the send buffer.
    pub snd_buf_limited: Option<f64>,
    /// Sent, what was sent again included.
    pub bytes_sent: Option<f64>,
    /// Sent again.
    pub bytes_retrans: Option<f64>,
}

impl Measurement {
    /// Of a text message; `None`: it is none of this form.
    pub fn read(text: &[u8]) -> Option<Measurement> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let mut found: Measurement = serde_json::from_slice(text).ok()?;
        if let Some(tcp) = &mut found.tcp {
            for field in [
                &mut tcp.elapsed_time,
                &mut tcp.rtt,
                &mut tcp.min_rtt,
                &mut tcp.busy_time,
                &mut tcp.r_wnd_limited,
                &mut tcp.snd_buf_limited,
                &mut tcp.bytes_sent,
                &mut tcp.bytes_retrans,
            ] {
                *field = field.filter(|value| value.is_finite() && *value >= 0.0);
            }
            // Linux says the largest number before the first sample of the minimum, and 0 before that of the RTT.
            tcp.rtt = tcp.rtt.filter(|us| *us > 0.0);
            tcp.min_rtt = tcp.min_rtt.filter(|us| 0.0 < *us && *us < f64::from(u32::MAX));
        }
        Some(found)
    }
}

/// What this end says of a test, for the server's records.
pub fn own(direction: Direction, elapsed_us: u64, bytes: u64, info: &StreamInfo) -> Value {
    let test = match direction {
        Direction::Down => "download",
        Direction::Up => "upload",
    };
    json!({
        "AppInfo": {"ElapsedTime": elapsed_us, "NumBytes": bytes},
        "Origin": "client",
        "Test": test,
        "TCPInfo": {
            "BusyTime": info.busy_us, "BytesAcked": info.acked, "ElapsedTime": elapsed_us,
            "MinRTT": info.min_rtt_us, "RTT": info.rtt_us, "RWndLimited": info.rwnd_us,
            "SndBufLimited": info.sndbuf_us,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_double_when_they_are_less_than_a_sixteenth() {
        let (mut size, mut total, mut seen) = (FIRST_SIZE, 0, vec![]);
        while size < MAX_SIZE {
            total += size as u64;
            let next = next_size(size, total);
            if next != size {
                seen.push((size, total / size as u64));
            }
            assert!(next == size || next == 2 * size);
            size = next;
        }
        assert_eq!(seen.len(), 11, "from 8 KiB to 16 MiB");
        // The first after 17 of its length: 16 are not less than a sixteenth.
        assert_eq!(seen[0], (FIRST_SIZE, 17));
        assert_eq!(next_size(MAX_SIZE, u64::MAX), MAX_SIZE);
    }

    #[test]
    fn a_measurement_of_a_server() {
        let text = br#"{"ConnectionInfo":{"Client":"10.0.0.1:5","Server":"10.0.0.2:80","UUID":"x"},"BBRInfo":{"BW":5},
            "TCPInfo":{"State":1,"RTT":21000,"MinRTT":20000,"BusyTime":900,"RWndLimited":9,"SndBufLimited":0,
            "BytesSent":1000,"BytesRetrans":10,"ElapsedTime":250000}}"#;
        let tcp = Measurement::read(text).unwrap().tcp.unwrap();
        assert_eq!((tcp.rtt, tcp.min_rtt, tcp.elapsed_time), (Some(21e3), Some(20e3), Some(25e4)));
        assert_eq!((tcp.busy_time, tcp.r_wnd_limited), (Some(900.0), Some(9.0)));
        assert_eq!((tcp.bytes_sent, tcp.bytes_retrans), (Some(1e3), Some(10.0)));
    }

    #[test]
    fn what_is_missing_or_impossible_is_not_known() {
        let none = Measurement::read(br#"{"AppInfo":{"NumBytes":5}}"#).unwrap();
        assert_eq!(none, Measurement::default());
        let odd = br#"{"TCPInfo":{"RTT":0,"MinRTT":4294967295,"BusyTime":-1}}"#;
        assert_eq!(Measurement::read(odd).unwrap().tcp, Some(TcpInfo::default()));
        assert_eq!(Measurement::read(b"<html>"), None);
        assert_eq!(Measurement::read(br#"{"TCPInfo":{"RTT":"fast"}}"#), None);
        assert_eq!(Measurement::read(&vec![b' '; MAX_TEXT + 1]), None);
    }

    #[test]
    fn this_end_says_what_the_specification_names() {
        let info = StreamInfo { rtt_us: 7, ..StreamInfo::default() };
        let text = own(Direction::Up, 5, 9, &info);
        assert_eq!((&text["Test"], &text["AppInfo"]["NumBytes"]), (&json!("upload"), &json!(9)));
        assert_eq!(
            Measurement::read(text.to_string().as_bytes()).unwrap().tcp.unwrap().rtt,
            Some(7.0)
        );
    }
}
