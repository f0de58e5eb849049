//! A sender, a link and a receiver, just enough to show what a window law does: one flow, no congestion control but slow
//! start, an endless queue, an ACK for every segment. A segment that does not fit the receive buffer is dropped, and the
//! sender learns of it half an RTT later, as by SACK.

use std::collections::{BTreeMap, BTreeSet};

use algo::rwnd::afc::{Sender, SenderAck};
use algo::rwnd::{Cause, Rwnd, Sample, WindowControl};
use units::{Bytes, Duration, Instant, Rate};

pub const MSS: u64 = 1448;
/// Headers of IP and TCP with timestamps.
const WIRE: Bytes = Bytes(MSS + 52);

/// How the application reads.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// Everything, as it arrives.
    AtOnce,
    /// By rates in Mbit/s, each for `slot`, with a timer of `tick`.
    Profile { rates: [u64; 3], slot: Duration, tick: Duration },
}

/// What was to be seen at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub at: Instant,
    /// Window that the law wants.
    pub window: Bytes,
    /// Window field of the last ACK.
    pub advertised: Bytes,
    /// Last RTT that the receiver measured.
    pub rtt: Duration,
    pub received: Bytes,
    pub copied: Bytes,
    pub option: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Data { seq: u64, echo: Option<Instant>, sent: Instant },
    Ack { una: u64, window: u64, option: Option<u8>, stamp: Instant, data_sent: Option<Instant> },
    Lost { seq: u64 },
    Send,
    Read,
    Timer,
    Look,
}

pub struct Path {
    rate: Rate,
    half_rtt: Duration,
    reader: Reader,
    pub law: Rwnd,
    afc: Option<Sender>,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    pub rows: Vec<Row>,
    // sender
    una: u64,
    next: u64,
    window: u64,
    edge: u64,
    cwnd: u64,
    retransmit: BTreeSet<u64>,
    echo: Option<Instant>,
    srtt: Duration,
    last_sent: Instant,
    send_planned: bool,
    link_free: Instant,
    /// Segments that the full buffer dropped, and how many of them AFC's sender hides.
    pub lost: u64,
    pub hidden: u64,
    // receiver
    received: u64,
    copied: u64,
    beyond: BTreeSet<u64>,
    right_edge: u64,
    advertised: u64,
    pub zero_windows: u64,
    rtt: Duration,
    credit: u64,
    timer: Option<Instant>,
}

impl Path {
    pub fn new(rate: Rate, rtt: Duration, law: Rwnd, reader: Reader, afc: Option<Sender>) -> Path {
        let first = law.window().0.min(law.buffer().0);
        let mut path = Path {
            rate,
            half_rtt: rtt / 2,
            reader,
            law,
            afc,
            now: Instant::ZERO,
            events: BTreeMap::new(),
            serial: 0,
            rows: Vec::new(),
            una: 0,
            next: 0,
            window: first,
            edge: first,
            cwnd: 10 * MSS,
            retransmit: BTreeSet::new(),
            echo: None,
            srtt: Duration::ZERO,
            last_sent: Instant::ZERO,
            send_planned: false,
            link_free: Instant::ZERO,
            lost: 0,
            hidden: 0,
            received: 0,
            copied: 0,
            beyond: BTreeSet::new(),
            right_edge: first,
            advertised: first,
            zero_windows: 0,
            rtt: Duration::ZERO,
            credit: 0,
            timer: None,
        };
        if let Reader::Profile { tick, .. } = reader {
            path.plan(tick, Event::Read);
        }
        path.plan(Duration::ZERO, Event::Send);
        path.plan(Duration::from_millis(100), Event::Look);
        path
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.serial += 1;
        self.events.insert((self.now + after, self.serial), event);
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            match event {
                Event::Data { seq, echo, sent } => self.on_data(seq, echo, sent),
                Event::Ack { una, window, option, stamp, data_sent } => {
                    self.on_ack(una, window, option, stamp, data_sent);
                }
                Event::Lost { seq } => {
                    self.lost += 1;
                    self.hidden += u64::from(self.afc.as_ref().is_some_and(Sender::hides_loss));
                    self.retransmit.insert(seq);
                    self.send();
                }
                Event::Send => {
                    self.send_planned = false;
                    self.send();
                }
                Event::Read => self.on_read_timer(),
                Event::Timer => {
                    if self.timer.is_some_and(|due| due <= at) {
                        self.timer = None;
                        self.sample(Cause::Timer, None);
                        self.acknowledge_if_needed();
                    }
                }
                Event::Look => self.look(),
            }
        }
        self.now = end;
    }

    fn look(&mut self) {
        self.rows.push(Row {
            at: self.now,
            window: self.law.window(),
            advertised: Bytes(self.advertised),
            rtt: self.rtt,
            received: Bytes(self.received),
            copied: Bytes(self.copied),
            option: self.law.rate_option(),
        });
        self.plan(Duration::from_millis(100), Event::Look);
    }

    fn send(&mut self) {
        loop {
            let allowed = match &self.afc {
                Some(afc) => self.una + afc.window().0.max(self.window),
                None => self.edge,
            };
            let limit = allowed.min(self.una + self.cwnd);
            let again = self.retransmit.first().copied();
            let seq = again.unwrap_or(self.next);
            // What is acknowledged next may always be sent again: it probes a closed window (RFC 9293 section 3.8.6.1).
            if seq + MSS > limit && !(again.is_some() && seq == self.una) {
                return;
            }
            if let Some(afc) = &self.afc {
                let due = afc.next_send(self.last_sent, WIRE);
                if due > self.now {
                    if !self.send_planned {
                        self.send_planned = true;
                        self.plan(due.since(self.now), Event::Send);
                    }
                    return;
                }
            }
            if again.is_some() {
                self.retransmit.pop_first();
            } else {
                self.next += MSS;
            }
            self.last_sent = self.now;
            self.link_free = self.link_free.max(self.now) + WIRE / self.rate;
            let arrives = self.link_free + self.half_rtt;
            self.plan(
                arrives.since(self.now),
                Event::Data { seq, echo: self.echo, sent: self.now },
            );
        }
    }

    fn on_ack(
        &mut self,
        una: u64,
        window: u64,
        option: Option<u8>,
        stamp: Instant,
        data_sent: Option<Instant>,
    ) {
        self.cwnd += una.saturating_sub(self.una);
        self.una = self.una.max(una);
        self.window = window;
        self.edge = self.edge.max(una + window);
        self.echo = Some(stamp);
        if let Some(sent) = data_sent {
            let rtt = self.now.since(sent);
            self.srtt = if self.srtt == Duration::ZERO {
                rtt
            } else {
                Duration((self.srtt.0 * 7 + rtt.0) / 8)
            };
        }
        let ack = SenderAck {
            acknowledged: Bytes(una),
            sent: Bytes(self.next),
            window: Bytes(window),
            rate_option: option,
            rtt: self.srtt,
        };
        if let Some(afc) = &mut self.afc {
            afc.on_ack(self.now, &ack);
        }
        self.send();
    }

    fn on_data(&mut self, seq: u64, echo: Option<Instant>, sent: Instant) {
        if seq + MSS > self.copied + self.law.buffer().0 {
            self.plan(self.half_rtt, Event::Lost { seq });
        } else if seq >= self.received {
            self.beyond.insert(seq);
            while self.beyond.remove(&self.received) {
                self.received += MSS;
            }
        }
        let rtt = echo.map(|stamp| self.now.since(stamp));
        self.rtt = rtt.unwrap_or(self.rtt);
        self.sample(Cause::Arrived, rtt);
        if matches!(self.reader, Reader::AtOnce) && self.received > self.copied {
            self.copied = self.received;
            self.sample(Cause::Copied, None);
        }
        self.acknowledge(Some(sent));
    }

    fn on_read_timer(&mut self) {
        let Reader::Profile { rates, slot, tick } = self.reader else { return };
        let rate = rates[(self.now.0 / slot.0 % 3) as usize];
        // What could have been read and was not there is lost, but for one timer's worth.
        let per_tick = (Rate(rate * 1_000_000) * tick).0;
        self.credit = per_tick;
        let bytes = self.credit.min(self.received - self.copied);
        if bytes > 0 {
            self.copied += bytes;
            self.sample(Cause::Copied, None);
            self.acknowledge_if_needed();
        }
        self.plan(tick, Event::Read);
    }

    fn sample(&mut self, cause: Cause, rtt: Option<Duration>) {
        let highest = self.beyond.last().map_or(self.received, |seq| seq + MSS);
        let sample = Sample {
            cause,
            received: Bytes(self.received),
            copied: Bytes(self.copied),
            out_of_order: Bytes(highest - self.received),
            right_edge: Bytes(self.right_edge),
            rtt,
        };
        self.law.on_sample(self.now, &sample);
        let due = self.law.next_wakeup();
        if due != self.timer {
            self.timer = due;
            if let Some(due) = due {
                self.plan(due.since(self.now), Event::Timer);
            }
        }
    }

    /// The right edge that is to be right_edge: never less than before, and in steps of a segment (RFC 9293 section
    /// 3.8.6.2.2).
    fn next_edge(&self) -> u64 {
        let held = self.received - self.copied + self.beyond.len() as u64 * MSS;
        let window = self.law.window().0.min(self.law.buffer().0.saturating_sub(held));
        let edge = self.received + window;
        if edge >= self.right_edge + MSS { edge } else { self.right_edge.max(self.received) }
    }

    fn acknowledge_if_needed(&mut self) {
        if self.law.wants_ack() || self.next_edge() >= self.right_edge + 2 * MSS {
            self.acknowledge(None);
        }
    }

    fn acknowledge(&mut self, data_sent: Option<Instant>) {
        self.right_edge = self.next_edge();
        let window = self.right_edge - self.received;
        let window = if window < MSS { 0 } else { window };
        self.zero_windows += u64::from(window == 0 && self.advertised > 0);
        self.advertised = window;
        let option = self.law.rate_option();
        let ack = Event::Ack { una: self.received, window, option, stamp: self.now, data_sent };
        self.plan(self.half_rtt, ack);
        self.law.on_ack_sent(self.now);
    }

    /// Payload bits per second that the application got between two moments, in seconds.
    pub fn goodput(&self, from: u64, to: u64) -> u64 {
        let at = |second: u64| self.rows[(second * 10 - 1) as usize].copied.0;
        (at(to) - at(from)) * 8 / (to - from)
    }
}
