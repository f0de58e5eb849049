//! Everything that a test saw, on one clock, for programs that draw or store it: probes, counted bytes, streams.
//!
//! Times are seconds since the first moment of the test, [`Samples::start_unix_s`]. Those of the server's reports are put on
//! the client's clock, which is wrong by the delay of one direction at most.

use std::net::SocketAddr;

use serde::Serialize;

use crate::delay::Clocks;
use crate::losses::Fate;
use crate::seen::{Kind, Load, Opened, Seen, Transport};
use crate::wire::message::StreamInfo;

/// All samples of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Samples {
    /// When the times begin, seconds of Unix time.
    pub start_unix_s: f64,
    /// Parts of the test, in order; between two of them a queue drained.
    pub steps: Vec<StepSample>,
    /// Every probe that left in time.
    pub probes: Vec<ProbeSample>,
    /// Bytes that the client had received of all streams.
    pub received_by_client: Vec<CountSample>,
    /// Bytes that the server had received of all streams.
    pub received_by_server: Vec<CountSample>,
    /// Every stream.
    pub streams: Vec<StreamSamples>,
}

/// A part of the test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSample {
    /// `idle`, `down`, `up` or `both`.
    pub name: &'static str,
    /// What carried a load.
    pub transport: Option<Transport>,
    /// The congestion control that was asked for.
    pub congestion_control: Option<String>,
    /// When it began.
    pub from_s: f64,
    /// Of a load: from when on it was measured; `None`: it never came so far.
    pub measured_s: Option<f64>,
    /// When it was over.
    pub until_s: f64,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeSample {
    /// When it was sent.
    pub t_s: f64,
    /// Round trip; `None` without an answer.
    pub rtt_ms: Option<f64>,
    /// Added delay towards the client.
    pub added_down_ms: Option<f64>,
    /// Added delay towards the server.
    pub added_up_ms: Option<f64>,
    /// Where it was lost: `up`, `down`, `unknown`; `None`: it was answered.
    pub lost: Option<&'static str>,
}

/// Bytes until a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountSample {
    /// When.
    pub t_s: f64,
    /// How many.
    pub bytes: u64,
}

/// A stream, as both ends saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSamples {
    /// `down`, `up` or `both`.
    pub phase: &'static str,
    /// What carried it.
    pub transport: Transport,
    /// The congestion control that was asked for.
    pub congestion_control_asked: Option<String>,
    /// `up` or `down`.
    pub direction: &'static str,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
    /// What the client's kernel said, ten times a second.
    pub at_client: Vec<SocketSample>,
    /// What the server's kernel said, ten times a second.
    pub at_server: Vec<SocketSample>,
}

/// What a kernel says of a socket (`TCP_INFO`), or quinn of a connection, which knows less.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SocketSample {
    /// When.
    pub t_s: f64,
    /// This end's congestion control.
    pub congestion_control: String,
    /// Bytes that the other end has acknowledged.
    pub acked_bytes: Option<u64>,
    /// Smoothed RTT.
    pub rtt_ms: f64,
    /// Smallest RTT.
    pub rtt_min_ms: f64,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Segments in flight.
    pub in_flight_segments: Option<u32>,
    /// Payload of a segment; `None` where the other program does not know it.
    pub mss_bytes: Option<u32>,
    /// Bytes that wait to be sent.
    pub notsent_bytes: Option<u32>,
    /// Segments that were sent again.
    pub retransmissions: Option<u32>,
    /// Latest delivery rate.
    pub delivery_bps: Option<u64>,
    /// Time with data to send.
    pub busy_s: Option<f64>,
    /// Of it, limited by the receiver's window.
    pub rwnd_limited_s: Option<f64>,
    /// Of it, limited by the send buffer.
    pub sndbuf_limited_s: Option<f64>,
    /// Packets that this end of QUIC holds for lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// How often this end of QUIC met congestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_events: Option<u64>,
    /// Bytes that this end of QUIC has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
}

/// To a thousandth: of a millisecond, more than a clock is worth.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl SocketSample {
    fn new(t_s: f64, info: &StreamInfo) -> SocketSample {
        let ms = |us: u32| f64::from(us) / 1e3;
        let of_tcp = info.quic.is_none();
        let seconds = |us: u64| of_tcp.then_some(us as f64 / 1e6);
        let count = |count: u32| of_tcp.then_some(count);
        SocketSample {
            t_s,
            congestion_control: info.cc.clone(),
            acked_bytes: of_tcp.then_some(info.acked),
            rtt_ms: ms(info.rtt_us),
            rtt_min_ms: ms(info.min_rtt_us),
            cwnd_segments: info.cwnd,
            in_flight_segments: count(info.unacked),
            mss_bytes: (info.mss > 0).then_some(info.mss),
            notsent_bytes: count(info.notsent),
            retransmissions: count(info.retrans),
            delivery_bps: of_tcp.then_some(info.delivery_bps),
            busy_s: seconds(info.busy_us),
            rwnd_limited_s: seconds(info.rwnd_us),
            sndbuf_limited_s: seconds(info.sndbuf_us),
            lost_packets: info.quic.map(|quic| quic.lost_packets),
            congestion_events: info.quic.map(|quic| quic.congestion_events),
            received_bytes: info.quic.map(|quic| quic.received),
        }
    }
}

impl Samples {
    /// Of what a test saw; `fates` are those of its probes.
    pub fn of(seen: &Seen, clocks: Clocks, fates: &[Fate]) -> Samples {
        let (zero, unix) = seen.unix;
        // Nanoseconds of a clock are more than a file needs.
        let since = |t: i64| ((t - zero) as f64 / 1e3).round() / 1e6;
        let of_server = |t: i64| since(clocks.on_client(t));
        let steps = seen.steps.iter().map(|step| {
            let (name, transport, congestion_control, measured) = match &step.kind {
                Kind::Idle(_) => ("idle", None, None, None),
                Kind::Load(Load { part, measured, .. }) => {
                    (part.phase.name(), Some(part.transport), part.cc.clone(), *measured)
                }
            };
            StepSample {
                name,
                transport,
                congestion_control,
                from_s: since(step.from),
                measured_s: measured.map(since),
                until_s: since(step.until),
            }
        });
        let probes = seen.records.iter().zip(fates).filter(|(record, _)| !record.late).map(
            |(record, fate)| {
                let times = record.answer.map(|(times, _)| times);
                let queue = times.map(|times| clocks.queue(&times));
                ProbeSample {
                    t_s: since(record.t1),
                    rtt_ms: times.map(|times| thousandths(times.rtt_ns() as f64 / 1e6)),
                    added_down_ms: queue.map(|queue| thousandths(queue.down_ms)),
                    added_up_ms: queue.map(|queue| thousandths(queue.up_ms)),
                    lost: match fate {
                        Fate::Answered => None,
                        Fate::LostUp => Some("up"),
                        Fate::LostDown => Some("down"),
                        Fate::Unknown => Some("unknown"),
                    },
                }
            },
        );
        let stream = |opened: &Opened| {
            let of = |streams: &[StreamInfo], t_s: f64| {
                let info = streams.iter().find(|info| info.id == opened.id)?;
                Some(SocketSample::new(t_s, info))
            };
            StreamSamples {
                phase: opened.part.phase.name(),
                transport: opened.part.transport,
                congestion_control_asked: opened.part.cc.clone(),
                direction: opened.direction.name(),
                client: opened.client,
                server: opened.server,
                at_client: seen.of_client.iter().filter_map(|(t, s)| of(s, since(*t))).collect(),
                at_server: seen
                    .of_server
                    .iter()
                    .filter_map(|info| of(&info.streams, of_server(info.t_ns)))
                    .collect(),
            }
        };
        Samples {
            start_unix_s: unix as f64 / 1e9,
            steps: steps.collect(),
            probes: probes.collect(),
            received_by_client: seen
                .down
                .iter()
                .map(|(t, bytes)| CountSample { t_s: since(*t), bytes: *bytes })
                .collect(),
            received_by_server: seen
                .of_server
                .iter()
                .map(|info| CountSample { t_s: of_server(info.t_ns), bytes: info.up_bytes })
                .collect(),
            streams: seen.opened.iter().map(stream).collect(),
        }
    }
}
