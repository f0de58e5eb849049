//! Evidence for tests: a transfer described bin by bin; the figures of the flow are computed from the bins.

use capture::Addr;
use units::{Bytes, Duration, Instant};

use crate::diagnose::grade::grade;
use crate::series::directions::Directions;
use crate::series::evidence::{Burst, Evidence, Rival, Silences, Wakeup};
use crate::series::profile::{Profile, ProfileBin};
use crate::series::rows::{
    Connection, End, Finding, Flow, Limit, Protocol, RttMethod, Value, Vantage,
};
use units::Histogram;

const TICK: Duration = Duration::from_millis(100);
/// Some day in 2025: captures do not begin at zero.
pub(crate) const START: Instant = Instant(1_750_000_000_000_000_000);
/// The capture began 100 s before the transfer.
const CAPTURE_START: Instant = Instant(START.0 - 100_000_000_000);

pub(crate) fn at(seconds: f64) -> Instant {
    START + Duration((seconds * 1e9) as u64)
}

pub(crate) struct Case {
    pub connection: Connection,
    pub flow: Flow,
    pub reverse: Flow,
    pub profile: Profile,
    pub directions: Option<Directions>,
    pub wakeups: Vec<Wakeup>,
    pub bursts: Vec<Burst>,
    pub silences: Silences,
    pub refused: u64,
    pub rivals: Vec<Rival>,
    pub path_rtt_ms_min: Option<f64>,
}

impl ProfileBin {
    /// Ten RTT samples of `ms`.
    pub(crate) fn rtt(&mut self, ms: f64) {
        self.rtt_ms_min = ms as f32;
        self.rtt_ms_max = ms as f32;
        self.rtt_ms_sum = ms * 10.0;
        self.rtt_count = 10;
    }
    pub(crate) fn delivered(&mut self, bytes: u64) {
        self.delivered = Bytes(bytes);
        self.delivered_squared = (bytes as f64).powi(2);
        self.link_bytes = Bytes(bytes);
    }
    pub(crate) fn limit(&mut self, limit: Limit) {
        self.limit_ns = [0; Limit::COUNT];
        self.limit_ns[limit as usize] = TICK.0;
    }
    pub(crate) fn full(&mut self) {
        self.window_full = TICK;
        self.in_flight_max = self.rwnd_max;
        self.limit(Limit::ReceiveWindow);
    }
}

impl Case {
    /// A transfer at 4 Mbit/s, 50 ms of RTT and a window of 3 MB, unless `each` (given the seconds since the
    /// start) says otherwise.
    pub fn transfer(seconds: u64, mut each: impl FnMut(f64, &mut ProfileBin)) -> Case {
        let mut profile = Profile::new(START, TICK);
        let mut flow = blank(0);
        let (mut rtt, mut queue, mut in_flight) =
            (Histogram::new(), Histogram::new(), Histogram::new());
        let mut bins = Vec::new();
        for tick in 0..seconds * 10 {
            let mut bin = ProfileBin { bins: 1, in_flight_max: Bytes(25_000), ..ProfileBin::EMPTY };
            bin.rwnd_max = Bytes(3_000_000);
            bin.delivered(50_000);
            bin.rtt(50.0);
            bin.limit(Limit::Bottleneck);
            each(tick as f64 / 10.0, &mut bin);
            profile.push(START + TICK * tick, &bin);
            bins.push(bin);
        }
        let base = bins.iter().filter_map(|b| b.rtt_min()).fold(f64::INFINITY, f64::min);
        for (i, bin) in bins.iter().enumerate() {
            flow.bytes += bin.delivered;
            flow.window_full += bin.window_full;
            flow.zero_window += bin.zero_window;
            flow.retransmissions += u64::from(bin.retransmissions);
            flow.out_of_order += u64::from(bin.out_of_order);
            in_flight.record(bin.in_flight_max.0);
            flow.rwnd_max = flow.rwnd_max.max(Some(bin.rwnd_max));
            if let Some(ms) = bin.rtt_ms() {
                (0..bin.rtt_count).for_each(|_| rtt.record((ms * 1e6) as u64));
                (0..bin.rtt_count).for_each(|_| queue.record(((ms - base) * 1e6) as u64));
                if bin.window_full.0 > 0 {
                    flow.window_full_first.get_or_insert(START + TICK * i as u64);
                    flow.window_full_count += 3;
                    flow.window_full_rtt_ms =
                        Some(flow.window_full_rtt_ms.map_or(ms, |best: f64| best.min(ms)));
                }
            }
            for (sum, ns) in flow.limit_time.iter_mut().zip(bin.limit_ns) {
                *sum += Duration(ns);
            }
        }
        flow.payload_bytes = flow.bytes;
        flow.data_packets = flow.bytes.0 / 1448;
        flow.active = Duration::from_secs(seconds);
        flow.goodput = flow.bytes.over(flow.active);
        flow.peak = flow.goodput;
        flow.rtt_ms = rtt.quantiles(1e-6);
        flow.loaded_rtt_ms = flow.rtt_ms;
        flow.queue_ms = queue.quantiles(1e-6);
        flow.in_flight_bytes = in_flight.quantiles(1.0);
        flow.rtt_method = RttMethod::SeqAck;
        flow.grade = flow.queue_ms.map(|q| grade(q.p95));
        flow.bdp =
            flow.goodput.filter(|_| base.is_finite()).map(|r| r * Duration((base * 1e6) as u64));
        flow.in_flight_over_bdp = match (flow.bdp, flow.in_flight_bytes) {
            (Some(bdp), Some(q)) if bdp.0 > 0 => Some(q.p95 / bdp.0 as f64),
            _ => None,
        };
        flow.rtt_ceiling_ms = flow.rwnd_max.zip(flow.peak).map(|(w, r)| (w / r).as_millis_f64());
        let mut connection = blank_connection();
        connection.end = START + Duration::from_secs(seconds);
        Case {
            connection,
            flow,
            reverse: blank(1),
            profile,
            directions: None,
            wakeups: Vec::new(),
            bursts: Vec::new(),
            silences: Silences::default(),
            refused: 0,
            rivals: Vec::new(),
            path_rtt_ms_min: base.is_finite().then_some(base),
        }
    }

    pub fn evidence(&self) -> Evidence<'_> {
        Evidence {
            capture_start: CAPTURE_START,
            connection: &self.connection,
            flow: &self.flow,
            reverse: &self.reverse,
            profile: &self.profile,
            directions: self.directions.as_ref(),
            wakeups: &self.wakeups,
            bursts: &self.bursts,
            silences: &self.silences,
            refused: self.refused,
            rivals: &self.rivals,
            path_rtt_ms_min: self.path_rtt_ms_min,
        }
    }
}

impl Finding {
    /// The number under `key`, NaN if there is none.
    pub(crate) fn number(&self, key: &str) -> f64 {
        match self.values.iter().find(|(k, _)| *k == key) {
            Some((_, Value::Number(n))) => *n,
            _ => f64::NAN,
        }
    }
    /// The word under `key`, empty if there is none.
    pub(crate) fn word(&self, key: &str) -> &str {
        match self.values.iter().find(|(k, _)| *k == key) {
            Some((_, Value::Text(t))) => t,
            _ => "",
        }
    }
}

pub(crate) fn blank_connection() -> Connection {
    Connection {
        id: 0,
        protocol: Protocol::Tcp,
        a_addr: Addr::v4([192, 0, 2, 1]),
        a_port: 40_000,
        b_addr: Addr::v4([198, 51, 100, 1]),
        b_port: 443,
        start: START,
        end: START,
        initial_rtt: None,
        syn_seen: true,
        end_kind: End::Fin,
        vantage: Vantage::Sender,
        mptcp: false,
        interface: 0,
        packets: 0,
        bytes: Bytes::ZERO,
        duplicates: 0,
        capture_gaps: Bytes::ZERO,
    }
}

/// A flow without measurements except its segment size.
pub(crate) fn blank(id: u32) -> Flow {
    Flow { mss: 1448, window_scale: Some(7), ..Flow::blank(id) }
}
