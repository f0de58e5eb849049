//! The receiving half of a TCP endpoint.
//!
//! signal: data segments, the application's reading · model: reassembly, SACK with DSACK (RFC 2018,
//! RFC 2883), delayed ACKs (RFC 9293 section 3.8.6.3, with Linux's quick ACKs at the start and while
//! the window grows), a window law of `algo::rwnd`, silly-window avoidance (RFC 9293 section 3.8.6.2.2) · action: when
//! an ACK is due, and its contents.

use std::cell::RefCell;
use std::rc::Rc;

use algo::rwnd::decided::MIN_RTT_US;
use algo::rwnd::path::Places;
use algo::rwnd::receiving::Measured;
use algo::rwnd::{Arrival, Cause, Rwnd, Sample, WindowControl};
use scenario::{Read, WindowUpdate};
use units::{Bytes, Duration, Instant};

use super::processor::{CHUNK, Processor};
use crate::frame::{Frame, SACK_BLOCKS, flags};
use crate::ranges::Ranges;

/// ACKs that go at once when a connection is young: Linux `TCP_MAX_QUICKACKS`.
const QUICK: u32 = 16;
/// Linux `tcp_event_data_recv`: smaller segments are no bulk data and do not open the window.
const SMALL_SEGMENT: u64 = 128;

/// Fixed properties of a receiver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Payload of the peer's full segments.
    pub mss: u64,
    /// An ACK after so much data …
    pub ack_bytes: u64,
    /// … or after so much time.
    pub ack_delay: Duration,
    /// How the application reads.
    pub read: Read,
    /// How the window is counted and when it is advertised.
    pub window_update: WindowUpdate,
    /// SACK was agreed on.
    pub sack: bool,
    /// Window scale: the window is advertised in units of `1 << scale` bytes.
    pub scale: u8,
}

/// Totals of a receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Segments that carried nothing new.
    pub duplicates: u64,
    /// Transitions of the advertised window to zero.
    pub zero_windows: u64,
    /// Time with a zero window.
    pub zero_ns: u64,
    /// Segments that arrived beyond a hole.
    pub beyond_hole: u64,
    /// Segments that the full buffer refused.
    pub overflowed: u64,
    /// Segments with a CE mark.
    pub marked: u64,
}

/// The receiving half of an endpoint.
pub struct Receiver {
    /// The law that computes the advertised window.
    pub law: Rwnd,
    settings: Settings,
    /// RCV.NXT: the next byte expected.
    pub nxt: u64,
    /// Read by the application.
    pub copied: u64,
    /// End of the stream, once the FIN was seen.
    pub fin: Option<u64>,
    beyond_hole: Ranges,
    /// Starts of the segments that arrived max recently beyond a hole, newest first.
    recent: [Option<u64>; SACK_BLOCKS + 1],
    dsack: Option<(u64, u64)>,
    /// What the window may be, in bytes: Linux `rcv_ssthresh`.
    opened: u64,
    /// Right edge of the advertised window, which is never retracted.
    edge: u64,
    /// Window in the last ACK.
    advertised: u64,
    zero_since: Option<Instant>,
    unacked: u64,
    quick: u32,
    ack_at: Option<Instant>,
    now_due: bool,
    read_at: Option<Instant>,
    /// Of a reader that it limits, once the connection is open.
    processor: Option<Processor>,
    slot_started: Instant,
    /// Fractions of a byte that the reading rate has earned, × 8·10⁹.
    credit: u64,
    /// TS.Recent: the timestamp to echo.
    pub ts_recent: u32,
    last_ack: u64,
    ece: bool,
    last_echo: u32,
    pub counters: Counters,
    /// What all receivers of this host know of the paths to their senders, and the sender's address
    /// there.
    pub places: Option<(Rc<RefCell<Places>>, u64)>,
    /// Where the data's sender is a host that runs the agent: the path, as its acknowledgments show it.
    pub measured: Option<Box<Measured>>,
    /// Smallest and largest window advertised.
    pub window_range: (u64, u64),
}

impl Receiver {
    /// A receiver that expects byte 0.
    pub fn new(law: Rwnd, settings: Settings) -> Receiver {
        let first = law.window().0.min(65_535);
        Receiver {
            law,
            settings,
            nxt: 0,
            copied: 0,
            fin: None,
            beyond_hole: Ranges::default(),
            recent: [None; SACK_BLOCKS + 1],
            dsack: None,
            opened: first,
            edge: first,
            advertised: first,
            zero_since: None,
            unacked: 0,
            quick: QUICK,
            ack_at: None,
            now_due: false,
            read_at: None,
            processor: None,
            slot_started: Instant::ZERO,
            credit: 0,
            ts_recent: 0,
            last_ack: 0,
            ece: false,
            last_echo: 0,
            counters: Counters::default(),
            places: None,
            measured: None,
            window_range: (u64::MAX, 0),
        }
    }

    /// The round trip of the handshake: in most cases the path is empty then.
    pub fn learn_handshake(&mut self, rtt: Option<Duration>) {
        if let (Some((places, address)), Some(rtt)) = (&self.places, rtt) {
            places.borrow_mut().minimum(*address, (rtt.0 / 1_000).max(MIN_RTT_US));
        }
    }

    /// The connection is open: the application begins to read.
    pub fn open(&mut self, now: Instant) {
        self.slot_started = now;
        match &self.settings.read {
            Read::AtOnce => {}
            Read::Profile { tick, .. } => self.read_at = Some(now + *tick),
            Read::Processor { work_per_kb, cpu, background } => {
                self.processor = Some(Processor::new(*work_per_kb, *cpu, *background, now));
                self.wake(now);
            }
        }
    }

    /// Unread bytes in the buffer.
    #[inline]
    pub fn unread(&self) -> u64 {
        self.nxt - self.copied
    }

    /// Any frame carries a timestamp; what is echoed is that of the oldest segment not yet
    /// acknowledged (RFC 7323 section 4.3).
    #[inline]
    pub fn take_timestamp(&mut self, f: &Frame) {
        if f.seq <= self.last_ack {
            self.ts_recent = f.ts_val;
        }
    }

    /// Data (or a FIN) arrived; the bytes that are new to the application.
    pub fn on_data(&mut self, now: Instant, f: &Frame, now_ticks: u32) -> u64 {
        let fin = f.flags & flags::FIN != 0;
        let (from, to) = (f.seq, f.seq + u64::from(f.len));
        if fin {
            self.fin = Some(to);
        }
        if f.ecn == algo::Ecn::Marked {
            self.counters.marked += 1;
            self.ece = true;
        }
        if f.flags & flags::CWR != 0 && f.ecn != algo::Ecn::Marked {
            self.ece = false;
        }
        let before = self.nxt;
        if to <= self.nxt && !(fin && to == self.nxt) {
            // RFC 2883: a duplicate is reported at once.
            self.counters.duplicates += 1;
            self.now_due = true;
            if f.len > 0 {
                self.dsack = Some((from, to));
            }
            return 0;
        }
        if to > self.edge.max(self.copied + self.law.buffer().0) {
            // Beyond the buffer: a sender that counts on the reading rate (AFC) may send so much.
            self.counters.overflowed += 1;
            self.now_due = true;
            return 0;
        }
        if from > self.nxt {
            let mut new = 0;
            self.beyond_hole.insert(from, to, |a, b| new += b - a);
            if new == 0 {
                self.counters.duplicates += 1;
                self.dsack = Some((from, to));
            }
            self.counters.beyond_hole += 1;
            self.remember(from);
            self.now_due = true;
        } else {
            self.nxt = to;
            if !self.beyond_hole.is_empty() {
                self.beyond_hole.remove_below(self.nxt);
                if let Some((start, end)) = self.beyond_hole.as_slice().first().copied()
                    && start <= self.nxt
                {
                    self.nxt = self.nxt.max(end);
                    self.beyond_hole.remove_below(self.nxt);
                }
                // RFC 5681 section 4.2: a segment that fills a hole is acknowledged at once.
                self.now_due = true;
            }
            self.unacked += self.nxt - before;
        }
        let rtt = if f.len > 0 { self.echo(f, now_ticks) } else { None };
        self.on_arrival(now, f, rtt);
        self.sample(now, Cause::Arrived, rtt);
        self.grow(f.len);
        if self.settings.read == Read::AtOnce {
            self.copied = self.nxt;
            self.sample(now, Cause::Copied, None);
        }
        self.wake(now);
        if self.quick > 0 {
            self.quick -= 1;
            self.now_due = true;
        }
        if fin || self.unacked >= self.settings.ack_bytes {
            self.now_due = true;
        } else if self.unacked > 0 && self.ack_at.is_none() && !self.now_due {
            self.ack_at = Some(now + self.settings.ack_delay);
        }
        self.nxt - before
    }

    /// An acknowledgment without data arrived: of the handshake, or of what this end sends. Where one meets no queue,
    /// its timestamp shows later in which direction a queue stands; data that comes beside a standing one cannot.
    pub fn on_ack(&mut self, now: Instant, f: &Frame, now_ticks: u32) {
        let rtt = self.echo(f, now_ticks);
        self.on_arrival(now, f, rtt);
    }

    fn on_arrival(&mut self, now: Instant, f: &Frame, rtt: Option<Duration>) {
        if let Some((places, address)) = &self.places {
            let stamp = (f.ts_val != 0).then_some(f.ts_val);
            let arrival = Arrival { address: *address, stamp, rtt };
            let places = &mut places.borrow_mut();
            match &mut self.measured {
                Some(path) => path.on_arrival(now, &arrival, places),
                None => self.law.on_arrival(now, &arrival, places),
            }
        }
    }

    /// The round trip that a timestamp echo shows, in the clock's ticks of 1 ms; each echo counts
    /// once.
    fn echo(&mut self, f: &Frame, now_ticks: u32) -> Option<Duration> {
        if f.ts_ecr == 0 || f.ts_ecr == self.last_echo {
            return None;
        }
        self.last_echo = f.ts_ecr;
        // Linux takes a difference of 0 as one tick.
        Some(Duration::from_millis(u64::from(now_ticks.wrapping_sub(f.ts_ecr)).max(1)))
    }

    fn sample(&mut self, now: Instant, cause: Cause, rtt: Option<Duration>) {
        let sample = Sample {
            cause,
            received: Bytes(self.nxt),
            copied: Bytes(self.copied),
            out_of_order: Bytes(
                self.beyond_hole.end().map_or(0, |end| end.saturating_sub(self.nxt)),
            ),
            right_edge: Bytes(self.edge),
            rtt,
        };
        self.law.on_sample(now, &sample);
    }

    /// Linux `tcp_grow_window`: the window opens to the law's by two segments per segment. Each of these is acknowledged:
    /// at 10 Mbit/s that makes the train of ACKs by which HyStart ends slow start.
    fn grow(&mut self, len: u32) {
        let target = self.law.window().0;
        if self.settings.window_update == WindowUpdate::Segment {
            self.opened = target;
            return;
        }
        // `tcp_set_window_clamp`: a smaller one counts at once, and what was advertised is never less than open.
        self.opened = self.opened.max(self.advertised).min(target);
        if target > self.opened && u64::from(len) >= SMALL_SEGMENT {
            let step = 2 * self.settings.mss.max(u64::from(len));
            self.opened = target.min(self.opened + step);
            self.quick |= 1;
        }
    }

    fn remember(&mut self, from: u64) {
        let keep =
            self.recent.iter().position(|r| *r == Some(from)).unwrap_or(self.recent.len() - 1);
        self.recent.copy_within(0..keep, 1);
        self.recent[0] = Some(from);
    }

    // ------------------------------------------------------------------------------------------------
    //   window

    /// The window for the next ACK, counted from the next byte expected.
    fn window(&self) -> u64 {
        let buffer = self.law.buffer().0;
        let free = buffer.saturating_sub(self.unread() + self.beyond_hole.total());
        let unit = 1_u64 << self.settings.scale;
        let target = self.law.window().0.min(self.opened).min(free);
        let current = self.edge.saturating_sub(self.nxt);
        if self.settings.window_update == WindowUpdate::Segment {
            // AFC's simulations: whole segments; the one that ends a zero window is advertised
            // alone.
            let mss = self.settings.mss.max(1);
            let whole = if self.advertised == 0 { target.min(mss) } else { target } / mss * mss;
            // Rounded down: an edge that crept up with every ACK would keep the window from ever
            // being zero.
            return whole.max(current) / unit * unit;
        }
        // RFC 9293 section 3.8.6.2.2: the edge moves by at least a segment or half the buffer, or
        // not at all.
        let step = self.settings.mss.min(buffer / 2);
        let edge = target / unit * unit;
        if edge < current + if free < buffer { step } else { 1 } {
            // Rounded up to what the field can say: down would retract an advertised edge (Linux
            // tcp_select_window).
            current.next_multiple_of(unit)
        } else {
            edge
        }
    }

    /// Whether reading has opened the window by so much that an update is due (Linux
    /// `tcp_cleanup_rbuf`: when it has at least doubled).
    fn should_update_window(&self) -> bool {
        let current = self.edge.saturating_sub(self.nxt);
        let target = self.window();
        if self.settings.window_update == WindowUpdate::Segment {
            return self.advertised == 0 && target > 0;
        }
        target >= 2 * current.max(1) && target >= self.settings.mss.min(self.law.buffer().0 / 2)
    }

    // ------------------------------------------------------------------------------------------------
    //   ACKs

    /// Whether an ACK has to go now.
    #[inline]
    pub fn ack_due(&self) -> bool {
        self.now_due || self.law.wants_ack()
    }

    /// Asks for an ACK now (window probes, ECN).
    pub fn ack_now(&mut self) {
        self.now_due = true;
    }

    /// Fills in the fields of a frame that belong to this half, and counts it as an ACK sent.
    pub fn write(&mut self, now: Instant, f: &mut Frame, pure: bool) {
        // The window of a SYN is not scaled (RFC 7323 section 2.2).
        let max = if f.flags & flags::SYN != 0 { 65_535 } else { u64::MAX };
        let window = self.window().min(max);
        self.edge = self.edge.max(self.nxt + window);
        f.ack = self.nxt;
        f.window = window;
        f.ts_ecr = self.ts_recent;
        f.rate_option = self.law.rate_option();
        f.flags |= flags::ACK | if self.ece { flags::ECE } else { 0 };
        if pure && self.settings.sack && (self.dsack.is_some() || !self.beyond_hole.is_empty()) {
            self.write_sacks(f);
        }
        if window == 0 && self.advertised > 0 {
            self.counters.zero_windows += 1;
            self.zero_since = Some(now);
        } else if window > 0
            && let Some(since) = self.zero_since.take()
        {
            self.counters.zero_ns += now.since(since).0;
        }
        self.advertised = window;
        self.window_range = (self.window_range.0.min(window), self.window_range.1.max(window));
        self.last_ack = self.nxt;
        self.unacked = 0;
        self.ack_at = None;
        self.now_due = false;
        self.law.on_ack_sent(now);
    }

    fn write_sacks(&mut self, f: &mut Frame) {
        let mut count = 0;
        if let Some(block) = self.dsack.take() {
            f.sack[0] = block;
            f.dsack = true;
            count = 1;
        }
        for start in self.recent.iter().flatten() {
            if count == SACK_BLOCKS {
                break;
            }
            if let Some(range) = self.beyond_hole.around(*start)
                && !f.sack[usize::from(f.dsack)..count].contains(&range)
            {
                f.sack[count] = range;
                count += 1;
            }
        }
        f.sacks = count as u8;
    }

    // ------------------------------------------------------------------------------------------------
    //   time

    /// The next time at which [`Receiver::on_timer`] has something to do.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        super::sooner(super::sooner(self.ack_at, self.read_at), self.law.next_wakeup())
    }

    /// Time has passed; the bytes that the application read.
    pub fn on_timer(&mut self, now: Instant) -> u64 {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.now_due = true;
        }
        if self.law.next_wakeup().is_some_and(|at| at <= now) {
            self.sample(now, Cause::Timer, None);
        }
        let before = self.copied;
        if self.read_at.is_some_and(|at| at <= now) {
            self.read(now);
            self.now_due |= self.should_update_window();
        }
        self.copied - before
    }

    /// A reader that sleeps is woken where there is something to read.
    fn wake(&mut self, now: Instant) {
        if self.read_at.is_none()
            && self.nxt > self.copied
            && let Some(processor) = &mut self.processor
        {
            self.read_at = Some(processor.wakes(now));
        }
    }

    fn read(&mut self, now: Instant) {
        if let Some(processor) = &mut self.processor {
            let read = CHUNK.min(self.nxt - self.copied);
            // Without data the application sleeps in its call.
            self.read_at = (read > 0).then(|| processor.works(read));
            self.copied += read;
            if read > 0 {
                self.sample(now, Cause::Copied, None);
            }
            return;
        }
        let Read::Profile { rates, slot, tick } = &self.settings.read else { return };
        self.read_at = Some(now + *tick);
        // The rate of the slot in which the tick that now ends began.
        let began = now.since(self.slot_started).saturating_sub(*tick);
        let slots = rates.len().max(1) as u64;
        let rate = rates.get((began.0 / slot.0.max(1) % slots) as usize).map_or(0, |r| r.0);
        let earned = u128::from(rate) * u128::from(tick.0) + u128::from(self.credit);
        let bytes = (earned / 8_000_000_000) as u64;
        let read = bytes.min(self.unread());
        // What could not be read is not saved up: the application was there and found nothing.
        self.credit = if read < bytes { 0 } else { (earned % 8_000_000_000) as u64 };
        self.copied += read;
        if read > 0 {
            self.sample(now, Cause::Copied, None);
        }
    }

    /// Replaces the window law on the live connection.
    pub fn switch(&mut self, law: Rwnd) {
        self.law = law;
    }

    /// Ends the count of a zero window that still stands.
    pub fn finish(&mut self, now: Instant) {
        if let Some(since) = self.zero_since.take() {
            self.counters.zero_ns += now.since(since).0;
        }
    }
}
