//! The control connection: frames of a length (u32, big endian) and a JSON object with `type`.
//!
//! Unknown fields are ignored; an unknown type is [`ToServer::Unknown`] or [`ToClient::Unknown`], which the other side
//! answers or ignores.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest frame: sixteen streams with all their figures take 8 KiB.
pub const MAX_FRAME: usize = 64 << 10;

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ToServer {
    /// First: which versions it speaks, and its proof of the token.
    Hello {
        /// Versions of the protocol.
        v: Vec<u32>,
        /// 64 hexadecimal digits.
        proof: String,
    },
    /// End all data connections.
    Stop,
    /// Still here.
    Alive,
    /// Take connections by QUIC, from now on with this congestion control.
    Quic {
        /// Its name; `None`: the usual one.
        cc: Option<String>,
    },
    /// Nothing comes for so long, and nothing shall be sent: the silence is what is measured.
    Quiet {
        /// Milliseconds; a minute at most.
        ms: u32,
    },
    /// Nothing that this version knows.
    #[serde(other)]
    Unknown,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ToClient {
    /// The session begins.
    Welcome {
        /// Its number, 16 hexadecimal digits.
        session: String,
        /// Congestion controls that may be asked for.
        cc: Vec<String>,
        /// What the session may take.
        limits: Limits,
        /// Congestion controls of its QUIC; none: an older server, without QUIC.
        #[serde(default)]
        quic: Vec<String>,
        /// QUIC probes a second that it answers; 0: an older server, which answers none.
        #[serde(default)]
        quic_probes: u32,
    },
    /// Connections by QUIC are taken.
    Quic {
        /// Why they are not.
        why: Option<String>,
    },
    /// Another client measures; two at once would measure each other.
    Busy {
        /// Ask again after so many seconds.
        retry_s: u32,
    },
    /// No session, and why.
    Refused {
        /// In words.
        why: String,
    },
    /// What the streams did, ten times a second.
    Info(Info),
    /// All data connections have ended.
    Stopped,
    /// Something went wrong, or a limit was reached.
    Error {
        /// In words.
        why: String,
    },
    /// Nothing that this version knows.
    #[serde(other)]
    Unknown,
}

/// What a session may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Length of the session.
    pub seconds: u32,
    /// Bytes of all loads together.
    pub bytes: u64,
    /// Data connections at a time.
    pub streams: u32,
    /// Probes a second.
    pub pps: u32,
}

/// What the streams did until a time of the server's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// The server's clock, ns.
    pub t_ns: i64,
    /// Bytes that the server has read of all streams of the session.
    pub up_bytes: u64,
    /// Streams that are open.
    pub streams: Vec<StreamInfo>,
}

/// What the kernel says of a stream (`TCP_INFO`), or quinn of one by QUIC; of a stream that sends, at its sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInfo {
    /// Its number.
    pub id: u32,
    /// Its congestion control.
    pub cc: String,
    /// Why it is not the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Smoothed RTT, µs.
    pub rtt_us: u32,
    /// Smallest RTT, µs.
    pub min_rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Payload of a segment; 0 where the other program does not say it.
    pub mss: u32,
    /// Bytes that wait to be sent.
    pub notsent: u32,
    /// Segments that were sent again.
    pub retrans: u32,
    /// Bytes that the receiver has acknowledged.
    pub acked: u64,
    /// Latest delivery rate, bit/s.
    pub delivery_bps: u64,
    /// Time with data to send, µs.
    pub busy_us: u64,
    /// Of it, limited by the receiver's window.
    pub rwnd_us: u64,
    /// Of it, limited by the send buffer.
    pub sndbuf_us: u64,
    /// Of a connection of QUIC; the other figures are then 0 but for RTT, window and length of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicInfo>,
}

/// What is known of a connection of QUIC alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuicInfo {
    /// Packets that this end sent and holds for lost.
    pub lost_packets: u64,
    /// How often this end's congestion control met congestion.
    pub congestion_events: u64,
    /// Bytes that this end has received.
    pub received: u64,
}

/// Why a frame cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length that no frame has.
    #[error("a frame of {0} bytes: at most {MAX_FRAME} are allowed")]
    Length(usize),
    /// Not a message.
    #[error("a frame that is no message: {0}")]
    Content(String),
}

/// A message as a frame.
pub fn frame(message: &impl Serialize) -> Vec<u8> {
    // Messages are plain structs with text keys, which always become JSON.
    let json = serde_json::to_vec(message).unwrap_or_default();
    [&(json.len() as u32).to_be_bytes(), json.as_slice()].concat()
}

/// Frames from bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Takes bytes that were received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes come. After an error the connection is of no use any more.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::Length(length));
        }
        let Some(json) = rest.get(..length) else { return Ok(None) };
        // The first line only: what the other side sent goes into no message of ours as it is.
        let message = serde_json::from_slice(json).map_err(|e| FrameError::Content(e.to_string()));
        self.bytes.drain(..4 + length);
        message.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_survives_its_frame_in_pieces_of_one_byte() {
        let hello = ToServer::Hello { v: vec![1], proof: "b".to_owned() };
        let mut frames = Frames::default();
        let bytes = frame(&hello);
        for byte in &bytes[..bytes.len() - 1] {
            frames.push(&[*byte]);
            assert_eq!(frames.take::<ToServer>(), Ok(None));
        }
        frames.push(&bytes[bytes.len() - 1..]);
        assert_eq!(frames.take(), Ok(Some(hello)));
        assert_eq!(frames.take::<ToServer>(), Ok(None));
    }

    #[test]
    fn unknown_fields_are_ignored_and_unknown_types_are_named_so() {
        let mut frames = Frames::default();
        for json in [r#"{"type":"alive","more":[1]}"#, r#"{"type":"dance","with":2}"#] {
            frames.push(&(json.len() as u32).to_be_bytes());
            frames.push(json.as_bytes());
        }
        assert_eq!(frames.take(), Ok(Some(ToServer::Alive)));
        assert_eq!(frames.take(), Ok(Some(ToServer::Unknown)));
    }

    #[test]
    fn an_older_server_has_no_quic() {
        let limits = r#"{"seconds":1,"bytes":2,"streams":3,"pps":4}"#;
        let json = format!(r#"{{"type":"welcome","session":"","cc":[],"limits":{limits}}}"#);
        let mut frames = Frames::default();
        frames.push(&(json.len() as u32).to_be_bytes());
        frames.push(json.as_bytes());
        let welcome = frames.take().unwrap();
        let Some(ToClient::Welcome { quic, quic_probes, .. }) = welcome else { panic!() };
        assert_eq!((quic.len(), quic_probes), (0, 0));
    }

    #[test]
    fn a_long_frame_is_refused_before_it_is_stored() {
        let mut frames = Frames::default();
        frames.push(&(MAX_FRAME as u32 + 1).to_be_bytes());
        assert_eq!(frames.take::<ToServer>(), Err(FrameError::Length(MAX_FRAME + 1)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.take::<ToServer>() {}
        }
    }
}
