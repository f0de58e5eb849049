//! What a test saw: probes, counted bytes, steps with their times, streams.

use std::net::SocketAddr;
use std::str::FromStr;

use serde::Serialize;

use crate::delay::{Times, When};
use crate::hops::HopProbe;
use crate::treatment::RoundTrip;
use crate::wire::data::Direction;
use crate::wire::message::{Info, StreamInfo};

/// A loaded phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Data to the client.
    Down,
    /// Data to the server.
    Up,
    /// Data both ways at once.
    Both,
}

impl Phase {
    /// All, in the order in which they are measured.
    pub const ALL: [Phase; 3] = [Phase::Down, Phase::Up, Phase::Both];

    /// Name on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Down => "down",
            Phase::Up => "up",
            Phase::Both => "both",
        }
    }

    /// Which ways its data go.
    pub const fn directions(self) -> &'static [Direction] {
        match self {
            Phase::Down => &[Direction::Down],
            Phase::Up => &[Direction::Up],
            Phase::Both => &[Direction::Down, Direction::Up],
        }
    }
}

/// What carries a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP of the kernel.
    #[default]
    Tcp,
    /// QUIC by quinn.
    Quic,
}

/// A word that is no transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither tcp nor quic")]
pub struct NoTransport(String);

impl FromStr for Transport {
    type Err = NoTransport;

    fn from_str(text: &str) -> Result<Transport, NoTransport> {
        match text {
            "tcp" => Ok(Transport::Tcp),
            "quic" => Ok(Transport::Quic),
            _ => Err(NoTransport(text.to_owned())),
        }
    }
}

/// A loaded phase, and what its streams shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which way its data go.
    pub phase: Phase,
    /// What carries them.
    pub transport: Transport,
    /// The congestion control that is asked for.
    pub cc: Option<String>,
}

/// A probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, client's clock.
    pub t1: i64,
    /// It left this host too late to say anything.
    pub late: bool,
    /// Its times, and how many probes the server had had.
    pub answer: Option<(Times, u32)>,
}

/// A part of the test, client's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it was.
    pub kind: Kind,
    /// When it began.
    pub from: i64,
    /// When it was over.
    pub until: i64,
}

/// What a part of the test was.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing was transferred.
    Idle(When),
    /// A load.
    Load(Load),
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Which.
    pub part: Part,
    /// From when on it counts; `None`: it never came so far.
    pub measured: Option<i64>,
    /// Goodput was steady then.
    pub steady: bool,
    /// The streams, shortly before they were ended.
    pub streams: Vec<Stream>,
}

/// A stream, as its sending end saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// `up` or `down`.
    pub direction: &'static str,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// Why it is another than was asked for.
    pub congestion_control_why: Option<String>,
    /// Smallest RTT, ms.
    pub rtt_min_ms: Option<f64>,
    /// Smoothed RTT at the end, ms.
    pub rtt_ms: Option<f64>,
    /// Congestion window at the end, segments.
    pub cwnd: Option<u32>,
    /// Segments that were sent again; of QUIC that is not counted.
    pub retransmissions: Option<u32>,
    /// Packets that its sender holds for lost; of QUIC alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// How often its congestion control met congestion; of QUIC alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_events: Option<u64>,
    /// Share of the bytes sent that were sent again, of a server of ndt7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_share: Option<f64>,
    /// Share of the busy time that the receiver's window limited.
    pub share_rwnd: Option<f64>,
    /// Share of the busy time that the send buffer limited.
    pub share_sndbuf: Option<f64>,
}

impl Stream {
    /// From what the kernel says, or quinn.
    pub fn new(direction: Direction, info: StreamInfo, why: Option<String>) -> Stream {
        let share = |part: u64| (info.busy_us > 0).then(|| part as f64 / info.busy_us as f64);
        Stream {
            direction: direction.name(),
            congestion_control_why: why,
            rtt_min_ms: Some(f64::from(info.min_rtt_us) / 1e3),
            rtt_ms: Some(f64::from(info.rtt_us) / 1e3),
            cwnd: Some(info.cwnd),
            retransmissions: info.quic.is_none().then_some(info.retrans),
            lost_packets: info.quic.map(|quic| quic.lost_packets),
            congestion_events: info.quic.map(|quic| quic.congestion_events),
            retransmitted_share: None,
            share_rwnd: share(info.rwnd_us),
            share_sndbuf: share(info.sndbuf_us),
            congestion_control: info.cc,
        }
    }
}

/// A data connection that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Its number.
    pub id: u32,
    /// The load that it belongs to.
    pub part: Part,
    /// Which way its data go.
    pub direction: Direction,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
}

/// What became of a capture of the test's packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recorded {
    /// Packets in the file.
    pub packets: u64,
    /// Packets of all traffic that the kernel dropped, because this program was late.
    pub dropped: u64,
    /// Packets that came when the file was full.
    pub left_out: u64,
    /// Why the file ends early.
    pub failed: Option<String>,
}

/// All that a test saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Every probe.
    pub records: Vec<Record>,
    /// Every probe that expires on the way.
    pub hops: Vec<HopProbe>,
    /// TCP handshakes beside them, in the order of time.
    pub handshakes: Vec<RoundTrip>,
    /// QUIC probes, likewise.
    pub quic_probes: Vec<RoundTrip>,
    /// Every step.
    pub steps: Vec<Step>,
    /// Bytes that the client had received, by its clock.
    pub down: Vec<(i64, u64)>,
    /// Bytes that the server had received, and its ends of the streams, by its own clock.
    pub of_server: Vec<Info>,
    /// The client's ends of the streams.
    pub of_client: Vec<(i64, Vec<StreamInfo>)>,
    /// Every data connection.
    pub opened: Vec<Opened>,
    /// Probes a second.
    pub per_s: f64,
    /// The client's clock and CLOCK_REALTIME at one moment, ns.
    pub unix: (i64, i64),
    /// Of the packets that were kept.
    pub capture: Option<Recorded>,
    /// Why it ended before its time.
    pub ended: Option<String>,
}
