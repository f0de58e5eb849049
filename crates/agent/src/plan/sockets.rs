//! Observes this host's TCP connections by sampling their sockets.
//!
//! signal: `tcp_info` and buffers of every socket, the device's counters and backlog, every 100 ms
//! · model: the bytes between two samples are a rate; the receiver's own RTT (`tcpi_rcv_rtt`) is
//! that of a download, the sender's that of an upload, each counted only when data flowed in
//! between · action: [`Observation`].
//!
//! Pitfalls. Data beyond a hole does not count as received until the hole is filled, so that a rate
//! derived from it varies although the path's does not: data segments show it. A sender that pauses
//! makes the receiver's RTT too long (the echoed timestamp is from before the pause), so it counts
//! only where it means no more in flight than the window allows. A connection that began in a
//! standing queue never saw the path empty, so the minimum RTT is that of all connections to its
//! address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink::Netlink;
use netlink::diag::{self, Socket, TcpInfo};

use super::host::{self, Host};
use super::observation::{DeviceTraffic, Flow, Observation, Way, quantile, swing};

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// A sample may take this part of that interval; with very many connections the interval grows.
const MAX_SHARE: u32 = 10;
/// Minimum of bytes for a flow to be shown.
const MIN_SHOWN_BYTES: u64 = 20_000;
/// Segments in flight that count as load, as in the findings.
const LOADED_SEGMENTS: u64 = 4;
/// Maximum ratio of bytes in flight to the window. More is impossible, but the window is that of
/// the sample and not of an RTT before.
const MAX_IN_FLIGHT: f64 = 1.5;
/// Ratio of bytes in flight to the window from which the window counts as full: what an ACK frees
/// is on its way.
const FULL_WINDOW: f64 = 0.8;

type Key = (u64, (IpAddr, u16), (IpAddr, u16));

/// DirectionSums over the samples of one connection in one direction.
#[derive(Clone, Debug, Default)]
struct DirectionSums {
    /// RTT samples with data in between, ms.
    rtts: Vec<f64>,
    /// Bits in each second, in order or not.
    seconds: Vec<f64>,
    /// Bytes moved, in order or not.
    carried: u64,
    loaded_s: f64,
    full_s: f64,
    unread_s: f64,
    window_bytes: Option<u32>,
}

/// A connection: its first and last sample, and sums over all.
#[derive(Clone, Debug)]
struct ConnectionHistory {
    first: (f64, Socket),
    last: (f64, Socket),
    sums: [DirectionSums; 2],
}

/// All connections so far.
#[derive(Debug, Default)]
struct ConnectionTable {
    connections: HashMap<Key, ConnectionHistory>,
    /// Minimum RTT to each address, µs.
    minima: HashMap<IpAddr, u32>,
}

const WAYS: [Way; 2] = [Way::Download, Way::Upload];

impl ConnectionTable {
    fn add(&mut self, at_s: f64, sockets: Vec<Socket>, host: &Host) {
        for socket in sockets {
            if socket.remote.0.is_loopback() || host.owns(socket.remote.0) {
                continue;
            }
            if let Some(info) = &socket.info {
                let known = [info.min_rtt_us, Some(info.rtt_us), Some(info.rcv_rtt_us)];
                for rtt in known.into_iter().flatten().filter(|rtt| *rtt > 0) {
                    let minimum_us = self.minima.entry(socket.remote.0).or_insert(rtt);
                    *minimum_us = rtt.min(*minimum_us);
                }
            }
            match self.connections.entry((socket.cookie, socket.local, socket.remote)) {
                Entry::Occupied(mut known) => known.get_mut().again(at_s, socket),
                Entry::Vacant(new) => {
                    let look = (at_s, socket);
                    new.insert(ConnectionHistory {
                        first: look.clone(),
                        last: look,
                        sums: Default::default(),
                    });
                }
            }
        }
    }

    /// Bytes received for this host, in order or not.
    fn downloaded(&self) -> u64 {
        self.connections.values().map(|history| history.sums[0].carried).sum()
    }

    fn flows(&self, largest_buffer: Option<u64>) -> Vec<Flow> {
        let minimum = |remote: IpAddr| self.minima.get(&remote).map(|us| f64::from(*us) / 1e3);
        let mut flows: Vec<Flow> = self
            .connections
            .values()
            .flat_map(|history| WAYS.map(|way| history.flow(way, largest_buffer)))
            .flatten()
            .map(|flow| Flow { rtt_min_ms: minimum(flow.remote.0), ..flow })
            .collect();
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.local, flow.remote));
        flows
    }
}

/// Bytes that a connection has moved in a direction since it began.
fn moved(socket: &Socket, way: Way) -> Option<u64> {
    let info = socket.info.as_ref()?;
    match way {
        Way::Download => info.bytes_received,
        Way::Upload => info.bytes_acked,
    }
}

/// Bytes that came or went, in order or not: all that the uplink carried of it.
fn carried(socket: &Socket, way: Way) -> Option<u64> {
    let info = socket.info.as_ref()?;
    let segments = info.data_segs_in.filter(|_| way == Way::Download);
    let of_segments = |segments: u32| u64::from(segments) * u64::from(info.rcv_mss_bytes.max(1));
    segments.map(of_segments).or_else(|| moved(socket, way))
}

/// Segment size, RTT and window of a direction.
fn figures(info: &TcpInfo, way: Way) -> (u64, u32, Option<u32>) {
    match way {
        Way::Download => {
            (u64::from(info.rcv_mss_bytes.max(1)), info.rcv_rtt_us, info.rcv_wnd_bytes)
        }
        Way::Upload => (u64::from(info.snd_mss_bytes.max(1)), info.rtt_us, info.snd_wnd_bytes),
    }
}

impl ConnectionHistory {
    fn again(&mut self, at_s: f64, socket: Socket) {
        let (before_s, before) = &self.last;
        let lasted_s = (at_s - before_s).max(1e-3);
        let second = (at_s - self.first.0).max(0.0) as usize;
        for (sums, way) in self.sums.iter_mut().zip(WAYS) {
            let step = moved(&socket, way).zip(moved(before, way));
            let step = step.map_or(0, |(now, was)| now.saturating_sub(was));
            let came = carried(&socket, way).zip(carried(before, way));
            sums.second(second, came.map_or(0, |(now, was)| now.saturating_sub(was)));
            sums.step(way, step, lasted_s, (before, &socket));
        }
        self.last = (at_s, socket);
    }

    fn flow(&self, way: Way, largest_buffer: Option<u64>) -> Option<Flow> {
        let ((first_s, first), (last_s, last)) = (&self.first, &self.last);
        let bytes = moved(last, way)?.saturating_sub(moved(first, way)?);
        let info = last.info.as_ref()?;
        if bytes < MIN_SHOWN_BYTES {
            return None;
        }
        let sums = &self.sums[usize::from(way == Way::Upload)];
        let span = (last_s - first_s).max(1e-3);
        let grown = last.memory.zip(largest_buffer);
        Some(Flow {
            bytes,
            lasted_s: span,
            rate_bps: bytes as f64 * 8.0 / span,
            swing: swing(&sums.seconds),
            rtt_ms: quantile(&sums.rtts, 0.5).zip(quantile(&sums.rtts, 0.95)),
            samples: sums.rtts.len() as u64,
            rtt_by_window: way == Way::Download && !info.timestamps,
            mss_bytes: figures(info, way).0,
            window_bytes: sums.window_bytes.map(u64::from),
            window_share: if sums.loaded_s > 0.0 {
                (sums.full_s / sums.loaded_s).min(1.0)
            } else {
                0.0
            },
            unread_share: (sums.unread_s / span).min(1.0),
            buffer_full_grown: way == Way::Download
                && grown.is_some_and(|(memory, most)| u64::from(memory.rcvbuf_bytes) >= most),
            congestion: last.congestion.clone().filter(|_| way == Way::Upload),
            ..Flow::new(way, last.local, last.remote)
        })
    }
}

impl DirectionSums {
    /// Adds bytes to a second.
    fn second(&mut self, second: usize, bytes: u64) {
        if bytes > 0 {
            self.seconds.resize(self.seconds.len().max(second + 1), 0.0);
            self.seconds[second] += bytes as f64 * 8.0;
            self.carried += bytes;
        }
    }

    /// Adds `step` bytes that moved within `lasted_s`, between two samples.
    fn step(&mut self, way: Way, step: u64, lasted_s: f64, (before, now): (&Socket, &Socket)) {
        let (Some(was), Some(info)) = (&before.info, &now.info) else { return };
        let (mss, rtt_us, window) = figures(info, way);
        self.window_bytes = self.window_bytes.max(window);
        if way == Way::Download && unread(now) {
            self.unread_s += lasted_s;
        }
        let in_flight = step as f64 / lasted_s * f64::from(rtt_us) / 1e6;
        if in_flight < (LOADED_SEGMENTS * mss) as f64 {
            return;
        }
        self.loaded_s += lasted_s;
        let window = window.map_or(f64::INFINITY, f64::from);
        match way {
            Way::Download if in_flight > window * MAX_IN_FLIGHT => return,
            Way::Download if in_flight >= window * FULL_WINDOW => self.full_s += lasted_s,
            Way::Download => {}
            Way::Upload => {
                let limited = info.rwnd_limited_us.zip(was.rwnd_limited_us);
                self.full_s +=
                    limited.map_or(0.0, |(now, was)| now.saturating_sub(was) as f64 / 1e6);
            }
        }
        self.rtts.push(f64::from(rtt_us) / 1e3);
    }
}

/// Whether the application is behind: as much data is unread as may still come.
fn unread(socket: &Socket) -> bool {
    let window = socket.info.as_ref().and_then(|info| info.rcv_wnd_bytes).unwrap_or(u32::MAX);
    socket.unread_bytes > 0 && socket.unread_bytes >= window
}

/// Observes for so long. `progress` gets the share that is done.
pub fn observe(
    lasting: Duration,
    host: &Host,
    mut progress: impl FnMut(f64),
) -> std::io::Result<Observation> {
    let begun = Instant::now();
    let mut looks = ConnectionTable::default();
    let mut netlink = Netlink::open().ok().zip(host.device.as_ref().map(|device| device.index));
    let mut counters = Vec::new();
    let mut backlogs = Vec::new();
    loop {
        let at = Instant::now();
        let at_s = at.duration_since(begun).as_secs_f64();
        looks.add(at_s, diag::established()?, host);
        if let Some((netlink, index)) = &mut netlink {
            counters.extend(host::carried(netlink, *index).map(|carried| (at_s, carried)));
            let waits = netlink.qdiscs(*index as i32).unwrap_or_default();
            backlogs
                .push(waits.iter().filter(|q| q.is_root()).map(|q| q.backlog).sum::<u64>() as f64);
        }
        if at_s >= lasting.as_secs_f64() {
            break;
        }
        progress(at_s / lasting.as_secs_f64());
        let next = at + SAMPLE_INTERVAL.max(at.elapsed() * MAX_SHARE);
        std::thread::sleep(next.min(begun + lasting).saturating_duration_since(Instant::now()));
    }
    progress(1.0);
    let span_s = begun.elapsed().as_secs_f64();
    let carried = counters.first().zip(counters.last()).map(|(first, last)| {
        let lasted = (last.0 - first.0).max(1e-3);
        let rate = |was: u64, is: u64| is.saturating_sub(was) as f64 * 8.0 / lasted;
        DeviceTraffic {
            received_bps: rate(first.1.0, last.1.0),
            sent_bps: rate(first.1.1, last.1.1),
            own_bps: looks.downloaded() as f64 * 8.0 / lasted,
            backlog_bytes: quantile(&backlogs, 0.5).unwrap_or(0.0) as u64,
        }
    });
    let mut warnings = Vec::new();
    if looks.connections.values().any(|history| history.last.1.info.is_none()) {
        warnings.push("the kernel reported nothing about some connections".to_owned());
    }
    Ok(Observation {
        source: "live",
        words: format!("this host's TCP connections, {span_s:.0} s"),
        span_s,
        flows: looks.flows(host.largest("net.ipv4.tcp_rmem")),
        connections: looks.connections.len(),
        carried,
        warnings,
        ..Observation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 50_000);
    const THERE: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9)), 443);

    fn socket(cookie: u64, info: TcpInfo) -> Socket {
        let (local, remote) = (HERE, THERE);
        Socket {
            local,
            remote,
            cookie,
            unread_bytes: 0,
            device: 0,
            user: 0,
            cgroup: None,
            info: Some(info),
            memory: None,
            congestion: None,
        }
    }

    /// A download of 8 Mbit/s behind a queue, at its `look`th look.
    fn download(look: u32) -> TcpInfo {
        TcpInfo {
            timestamps: true,
            rcv_mss_bytes: 1_448,
            rtt_us: 61_000,
            min_rtt_us: Some(60_000),
            rcv_rtt_us: 1_500_000,
            bytes_received: Some(u64::from(look) * 200_000),
            bytes_acked: Some(100),
            rcv_wnd_bytes: Some(3_000_000),
            ..TcpInfo::default()
        }
    }

    fn looked(at: impl Fn(u32) -> Vec<Socket>) -> Vec<Flow> {
        let mut looks = ConnectionTable::default();
        for look in 0..41 {
            looks.add(f64::from(look) * 0.2, at(look), &Host::default());
        }
        looks.flows(Some(6_000_000))
    }

    #[test]
    fn what_waits_behind_a_hole_came_all_the_same() {
        let held = |look: u32| TcpInfo {
            bytes_received: Some(u64::from(look / 10) * 2_000_000),
            data_segs_in: Some(look * 138),
            ..download(look)
        };
        let [flow] = &looked(|look| vec![socket(1, held(look))])[..] else { panic!() };
        assert!(flow.swing.is_some_and(|swing| swing < 1.3), "{flow:?}");
        let mut looks = ConnectionTable::default();
        for look in 0..8 {
            looks.add(f64::from(look) * 0.2, vec![socket(1, held(look))], &Host::default());
        }
        assert!(looks.flows(None).is_empty(), "nothing of it is received yet");
        assert_eq!(looks.downloaded(), 7 * 138 * 1_448);
    }

    #[test]
    fn a_download_behind_a_queue_has_the_receivers_rtt_and_the_handshakes_minimum() {
        let flows = looked(|look| vec![socket(1, download(look))]);
        let [flow] = &flows[..] else { panic!("{flows:?}") };
        assert_eq!(
            (flow.way, flow.rtt_min_ms, flow.rtt_ms),
            (Way::Download, Some(60.0), Some((1_500.0, 1_500.0)))
        );
        assert!((flow.rate_bps / 8e6 - 1.0).abs() < 0.01 && flow.bloated(), "{flow:?}");
        assert!(flow.swing.is_some_and(|swing| swing < 1.3));
        assert_eq!(flow.window_share, 0.0);
    }

    #[test]
    fn a_latecomer_takes_the_minimum_of_others_to_the_same_address() {
        let flows = looked(|look| {
            let late = TcpInfo { min_rtt_us: Some(1_400_000), rtt_us: 1_450_000, ..download(look) };
            let early = TcpInfo { bytes_received: Some(5), ..download(look) };
            vec![socket(1, late), socket(2, early)]
        });
        assert_eq!(flows.iter().map(|flow| flow.rtt_min_ms).collect::<Vec<_>>(), [Some(60.0)]);
    }

    #[test]
    fn an_rtt_that_means_more_in_flight_than_the_window_is_a_senders_pause() {
        let flows = looked(|look| {
            vec![socket(1, TcpInfo { rcv_wnd_bytes: Some(200_000), ..download(look) })]
        });
        assert_eq!((flows[0].samples, flows[0].rtt_ms), (0, None));
    }

    #[test]
    fn a_full_window_and_an_application_that_does_not_read_are_found() {
        let flows = looked(|look| {
            vec![socket(1, TcpInfo { rcv_wnd_bytes: Some(1_600_000), ..download(look) })]
        });
        assert_eq!(flows[0].window_share, 1.0);
        let slow = |look| Socket {
            unread_bytes: 90_000,
            ..socket(1, TcpInfo { rcv_wnd_bytes: Some(10_000), ..download(look) })
        };
        assert!(looked(|look| vec![slow(look)])[0].unread_share > 0.9);
    }

    #[test]
    fn an_upload_has_the_senders_rtt_and_congestion_control() {
        let flows = looked(|look| {
            let info = TcpInfo {
                snd_mss_bytes: 1_448,
                rtt_us: 3_500_000,
                rcv_rtt_us: 0,
                bytes_received: Some(0),
                bytes_acked: Some(u64::from(look) * 50_000),
                busy_us: Some(u64::from(look) * 200_000),
                rwnd_limited_us: Some(u64::from(look) * 20_000),
                ..download(look)
            };
            vec![Socket { congestion: Some("cubic".to_owned()), ..socket(1, info) }]
        });
        let [flow] = &flows[..] else { panic!("{flows:?}") };
        assert_eq!(
            (flow.way, flow.rtt_ms.map(|rtt| rtt.0), flow.congestion.as_deref()),
            (Way::Upload, Some(3_500.0), Some("cubic"))
        );
        assert!((flow.window_share - 0.1).abs() < 0.01, "{}", flow.window_share);
    }

    #[test]
    fn loopback_and_this_hosts_own_addresses_are_no_path() {
        let mut looks = ConnectionTable::default();
        let host = Host { addresses: vec![THERE.0], ..Host::default() };
        looks.add(0.0, vec![socket(1, download(0))], &host);
        assert!(looks.connections.is_empty());
    }
}
