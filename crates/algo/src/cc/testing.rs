//! What the tests of both BBR versions share: single ACKs, and connections over a small path.
//!
//! The path has a paced sender, one bottleneck with a buffer, and a receiver that acknowledges every
//! other segment. Segments are numbered and never reused, so the delivery rate of each ACK is
//! unambiguous.

use std::collections::VecDeque;
use std::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use crate::Rng;
use crate::cc::{Ack, CongestionControl, Loss, RateSample, Recovery, Sent, Timeout};

/// Payload bytes of a segment.
pub(in crate::cc) const MSS: u64 = 1448;
/// Bytes of a segment on the wire.
const WIRE: u64 = MSS + 52;
/// Time that the receiver waits for a second segment.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Segments delivered beyond a hole that make it a loss (RFC 5681).
const REORDERING: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Segment {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight: u64,
    lost: u64,
    number: u64,
    app_limited: bool,
    dropped: bool,
    acked: bool,
}

/// State of the path at an ACK.
#[derive(Clone, Copy, Debug)]
pub(in crate::cc) struct Observation {
    /// Time of the ACK.
    pub(in crate::cc) at: Instant,
    /// In flight after the ACK, payload bytes.
    pub(in crate::cc) in_flight: u64,
    /// Waiting time that a segment sent now would have.
    pub(in crate::cc) queue: Duration,
    /// RTT of the newest segment delivered.
    pub(in crate::cc) rtt: Duration,
    /// Delivered so far, payload bytes.
    pub(in crate::cc) delivered: u64,
    /// Dropped so far, segments.
    pub(in crate::cc) drops: u64,
}

/// A simulated path for the tests of both versions.
pub(in crate::cc) struct Path {
    /// Rate of the bottleneck.
    pub(in crate::cc) rate: Rate,
    /// Both ways together, without queue.
    pub(in crate::cc) rtt: Duration,
    /// Bytes that fit into the bottleneck's buffer.
    pub(in crate::cc) buffer: Bytes,
    /// Share of segments that the path loses at random.
    pub(in crate::cc) loss: f64,
    /// Rate at which the application has data; `None`: it always has data.
    pub(in crate::cc) app_rate: Option<Rate>,
    /// The receiver acknowledges each segment by itself.
    pub(in crate::cc) ack_each: bool,
    now: Instant,
    rng: Rng,
    free_at: Instant,
    next_send: Instant,
    flight: VecDeque<Segment>,
    acks: VecDeque<(Instant, u64)>,
    half_acked: Option<(Instant, u64)>,
    next_number: u64,
    in_flight: u64,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    lost: u64,
    drops: u64,
    srtt: Duration,
    min_rtt: Duration,
    recovery: Recovery,
    recovery_until: u64,
    app_limited_until: u64,
    timeouts: u32,
}

impl Path {
    /// An idle path; the clock begins at an odd time, so that no algorithm relies on zero.
    pub(in crate::cc) fn new(rate: Rate, rtt: Duration, buffer: Bytes) -> Path {
        let now = Instant(77_000_000_001);
        Path {
            rate,
            rtt,
            buffer,
            loss: 0.0,
            app_rate: None,
            ack_each: false,
            now,
            rng: Rng::new(5, "path"),
            free_at: now,
            next_send: now,
            flight: VecDeque::new(),
            acks: VecDeque::new(),
            half_acked: None,
            next_number: 0,
            in_flight: 0,
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            lost: 0,
            drops: 0,
            srtt: Duration::ZERO,
            min_rtt: Duration::MAX,
            recovery: Recovery::Open,
            recovery_until: 0,
            app_limited_until: 0,
            timeouts: 0,
        }
    }

    /// The bandwidth-delay product, in payload bytes.
    pub(in crate::cc) fn bdp(&self) -> u64 {
        (self.rate * self.rtt).0 * MSS / WIRE
    }

    /// The rate at which payload can arrive.
    pub(in crate::cc) fn goodput(&self) -> f64 {
        self.rate.0 as f64 * MSS as f64 / WIRE as f64
    }

    fn send<C: CongestionControl>(&mut self, cc: &mut C, rng: &mut Rng) {
        let limited = self.app_limited_until > 0;
        cc.on_sent(
            self.now,
            &Sent { bytes: Bytes(MSS), in_flight: Bytes(self.in_flight), app_limited: limited },
            rng,
        );
        if self.in_flight == 0 {
            (self.first_sent, self.delivered_at) = (self.now, self.now);
        }
        self.in_flight += MSS;
        let start = self.free_at.max(self.now);
        let waiting = self.rate * start.since(self.now);
        let full = waiting.0 + WIRE > self.buffer.0;
        let dropped = full || (self.loss > 0.0 && self.rng.chance(self.loss));
        let number = self.next_number;
        self.next_number += 1;
        self.flight.push_back(Segment {
            at: self.now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: self.in_flight,
            lost: self.lost,
            number,
            app_limited: limited,
            dropped,
            acked: false,
        });
        if dropped {
            self.drops += 1;
        } else {
            self.free_at = start + Bytes(WIRE) / self.rate;
            self.receive(self.free_at + self.rtt / 2, number);
        }
        let pace = match (cc.pacing_rate(), self.app_rate) {
            (Some(pace), Some(app_rate)) => Some(pace.min(app_rate)),
            (pace, app_rate) => pace.or(app_rate),
        };
        if let Some(pace) = pace {
            self.next_send = self.next_send.max(self.now) + Bytes(MSS) / pace;
        }
        if self.app_rate.is_some_and(|app_rate| cc.pacing_rate().is_none_or(|pace| app_rate < pace))
        {
            self.app_limited_until = (self.delivered + self.in_flight).max(1);
        }
    }

    fn receive(&mut self, at: Instant, number: u64) {
        let back = self.rtt / 2;
        if self.ack_each {
            self.acks.push_back((at + back, number));
            return;
        }
        match self.half_acked.take() {
            Some((first, before)) if at > first + DELAYED_ACK => {
                self.acks.push_back((first + DELAYED_ACK + back, before));
                self.half_acked = Some((at, number));
            }
            Some(_) => self.acks.push_back((at + back, number)),
            None => self.half_acked = Some((at, number)),
        }
    }

    fn on_ack<C: CongestionControl>(
        &mut self,
        number: u64,
        cc: &mut C,
        rng: &mut Rng,
    ) -> Option<Observation> {
        let prior_in_flight = self.in_flight;
        let mut newest: Option<Segment> = None;
        let mut acked = 0;
        for segment in self.flight.iter_mut().take_while(|s| s.number <= number) {
            if !segment.dropped && !segment.acked {
                segment.acked = true;
                acked += MSS;
                newest = Some(*segment);
            }
        }
        let newest = newest?;
        self.delivered += acked;
        self.delivered_at = self.now;
        self.first_sent = newest.at;
        self.in_flight -= acked;
        let mut lost = 0;
        while let Some(first) = self.flight.front() {
            let beyond =
                self.flight.iter().take_while(|s| s.number <= number).filter(|s| s.acked).count();
            if first.acked {
                self.flight.pop_front();
            } else if first.dropped && beyond >= REORDERING {
                self.flight.pop_front();
                lost += MSS;
            } else {
                break;
            }
        }
        self.in_flight -= lost;
        self.lost += lost;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if lost > 0 && self.recovery == Recovery::Open {
            self.recovery = Recovery::Recovering;
            self.recovery_until = self.next_number;
            cc.on_loss(
                self.now,
                &Loss { lost: Bytes(lost), in_flight: Bytes(prior_in_flight - acked) },
            );
        } else if lost == 0
            && self.recovery != Recovery::Open
            && newest.number >= self.recovery_until
        {
            self.recovery = Recovery::Open;
            cc.on_recovered(self.now);
        }
        let rtt = self.now.since(newest.at);
        self.srtt = if self.srtt == Duration::ZERO { rtt } else { (self.srtt * 7 + rtt) / 8 };
        self.min_rtt = self.min_rtt.min(rtt);
        self.timeouts = 0;
        let interval = newest.at.since(newest.first_sent).max(self.now.since(newest.delivered_at));
        let ack = Ack {
            acked: Bytes(acked),
            delivered: Bytes(self.delivered),
            rtt: Some(rtt),
            srtt: self.srtt,
            min_rtt: self.min_rtt,
            prior_in_flight: Bytes(prior_in_flight),
            in_flight: Bytes(self.in_flight),
            lost: Bytes(lost),
            window_limited: self.in_flight + acked + lost + MSS > cc.window().0,
            recovery: self.recovery,
            rate: RateSample {
                delivered: Bytes(self.delivered - newest.delivered),
                interval,
                prior_delivered: Bytes(newest.delivered),
                in_flight_at_send: Bytes(newest.in_flight),
                lost: Bytes(self.lost - newest.lost),
                app_limited: newest.app_limited,
            },
            ..Ack::default()
        };
        cc.on_ack(self.now, &ack, rng);
        Some(Observation {
            at: self.now,
            in_flight: self.in_flight,
            queue: self.free_at.since(self.now),
            rtt,
            delivered: self.delivered,
            drops: self.drops,
        })
    }

    /// Runs for `span`; calls `observe` at every ACK.
    pub(in crate::cc) fn run<C: CongestionControl>(
        &mut self,
        span: Duration,
        cc: &mut C,
        rng: &mut Rng,
        mut observe: impl FnMut(&C, &Observation),
    ) {
        let end = self.now + span;
        loop {
            let may_send = self.in_flight + MSS <= cc.window().0;
            let send = may_send.then(|| self.next_send.max(self.now));
            if self.acks.is_empty()
                && let Some((first, number)) = self.half_acked
                && send.is_none_or(|at| at > first + DELAYED_ACK)
            {
                self.half_acked = None;
                self.acks.push_back((first + DELAYED_ACK + self.rtt / 2, number));
            }
            let ack = self.acks.front().map(|(at, _)| *at);
            let (at, sends) = match (send, ack) {
                (Some(send), Some(ack)) if send < ack => (send, true),
                (_, Some(ack)) => (ack, false),
                (Some(send), None) => (send, true),
                (None, None) => {
                    self.time_out(cc);
                    continue;
                }
            };
            if at > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(at);
            if sends {
                self.send(cc, rng);
            } else if let Some((_, number)) = self.acks.pop_front()
                && let Some(observation) = self.on_ack(number, cc, rng)
            {
                observe(cc, &observation);
            }
        }
    }

    /// The retransmission timer expires: all of the flight was dropped.
    fn time_out<C: CongestionControl>(&mut self, cc: &mut C) {
        self.now = self.now + Duration::from_millis(200) + self.srtt;
        self.timeouts += 1;
        assert!(self.timeouts < 50, "no segment arrives, or the window is below a segment");
        cc.on_timeout(
            self.now,
            &Timeout { in_flight: Bytes(self.in_flight), count: self.timeouts },
        );
        self.lost += self.in_flight;
        self.in_flight = 0;
        self.flight.clear();
        self.recovery = Recovery::Lost;
        self.recovery_until = self.next_number;
    }
}

/// Delivers one ACK per round trip of 100 ms, with the data that a given rate makes in it.
pub(in crate::cc) struct RoundTrips<C> {
    pub(in crate::cc) cc: C,
    pub(in crate::cc) rng: Rng,
    pub(in crate::cc) now: Instant,
    /// Total payload delivered, bytes.
    pub(in crate::cc) delivered: u64,
}

impl<C: CongestionControl> RoundTrips<C> {
    /// The first ACK comes at 50.1 s.
    pub(in crate::cc) fn new(cc: C) -> RoundTrips<C> {
        RoundTrips { cc, rng: Rng::new(1, "test"), now: Instant(50_000_000_000), delivered: 0 }
    }

    /// The next ACK, after `change` has edited it.
    pub(in crate::cc) fn ack(&mut self, bytes_per_second: u64, change: impl Fn(&mut Ack)) {
        self.now = self.now + Duration::from_millis(100);
        let bytes = bytes_per_second / 10;
        let mut ack = Ack {
            acked: Bytes(bytes),
            delivered: Bytes(self.delivered + bytes),
            rtt: Some(Duration::from_millis(100)),
            srtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(100),
            prior_in_flight: Bytes(2 * bytes),
            in_flight: Bytes(bytes),
            window_limited: true,
            rate: RateSample {
                delivered: Bytes(bytes),
                interval: Duration::from_millis(100),
                prior_delivered: Bytes(self.delivered),
                in_flight_at_send: Bytes(bytes),
                ..RateSample::default()
            },
            ..Ack::default()
        };
        change(&mut ack);
        self.delivered += bytes;
        self.cc.on_ack(self.now, &ack, &mut self.rng);
    }
}

/// The measured part of a connection over a [`Path`].
#[derive(Debug)]
pub(in crate::cc) struct Summary {
    /// Mean payload bytes in flight.
    pub(in crate::cc) in_flight_mean: f64,
    pub(in crate::cc) queue_mean: Duration,
    pub(in crate::cc) queue_max: Duration,
    pub(in crate::cc) rtt_min: Duration,
    /// Payload, bit/s.
    pub(in crate::cc) goodput: f64,
    /// Lost over delivered payload.
    pub(in crate::cc) loss_rate: f64,
    /// The phases of [`super::State`], in order.
    pub(in crate::cc) phases: Vec<&'static str>,
}

/// Runs a connection for `warm_up` seconds, then measures for `seconds`.
pub(in crate::cc) fn measure<C: CongestionControl>(
    path: &mut Path,
    cc: &mut C,
    warm_up: u64,
    seconds: u64,
    mut rng: Rng,
) -> Summary {
    path.run(Duration::from_secs(warm_up), cc, &mut rng, |_, _| {});
    let mut acks: Vec<Observation> = Vec::new();
    let mut phases = Vec::new();
    path.run(Duration::from_secs(seconds), cc, &mut rng, |cc, observation| {
        acks.push(*observation);
        let phase = cc.state().phase;
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    });
    let (first, last) = (acks[0], acks[acks.len() - 1]);
    let count = acks.len() as f64;
    let delivered = (last.delivered - first.delivered) as f64;
    Summary {
        in_flight_mean: acks.iter().map(|a| a.in_flight as f64).sum::<f64>() / count,
        queue_mean: Duration((acks.iter().map(|a| a.queue.0 as f64).sum::<f64>() / count) as u64),
        queue_max: acks.iter().map(|a| a.queue).max().unwrap_or_default(),
        rtt_min: acks.iter().map(|a| a.rtt).min().unwrap_or_default(),
        goodput: delivered * 8.0 / last.at.since(first.at).as_secs_f64(),
        loss_rate: (last.drops - first.drops) as f64 * MSS as f64 / delivered,
        phases,
    }
}
