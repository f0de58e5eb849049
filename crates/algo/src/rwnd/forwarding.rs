//! ACK-window rewriting: DRWA for a flow that passes a device between its two ends, as the agent runs
//! it.
//!
//! signal: TCP segments at the device, both ways · model: [`Drwa`] once per direction of data;
//! [`super::path`] for round trips, their minima, and which direction's queue they contain;
//! [`super::opposite`] for the window beside such a queue · action: a smaller window in the segments
//! that carry it. For downloads those are the segments that leave, for uploads those that come in.
//!
//! Invariants: a window is never raised, an advertised right edge never retracted (RFC 9293 section
//! 3.8.6.2.1), so the window that is left is rounded up to the scale. What comes before the start
//! bytes, or again after a pause, passes unchanged: short replies and idle flows need no cure.
//!
//! Source: this project. `bpf/acks.bpf.c` of the agent does the same bit for bit; a test sends the
//! same segments through both. What the agent adds is not here: leases, trials, flows that are signed
//! or of MPTCP, and the table of flows.

use units::{Bytes, Duration, Instant};

use super::decided::MIN_RTT_US;
use super::drwa::{Config as Law, Drwa};
use super::fair::Member;
use super::opposite::{Opposite, growth_ends, growth_window};
use super::path::{Half, Places, Wait};
use super::{Cause, Sample, Setup, WindowControl};

/// Sequence numbers farther ahead than this are invalid: comparison is defined within 2³¹ only (RFC
/// 9293 section 3.4).
const HORIZON: i32 = 1 << 30;
/// Segment size of an end that names none (RFC 9293 section 3.7.1).
const MSS_DEFAULT: u16 = 536;
/// The timestamps option and its padding, in every segment (RFC 7323 section 3.2, appendix A).
const TIMESTAMP_BYTES: u32 = 12;
/// Windows below so many segments are one segment larger. A factor alone leaves a window of two as it
/// is: 2 · 1.75 · RTTmin / RTT is below three as soon as sending them takes a tenth of RTTmin. Larger
/// windows would only get more delay, one segment per flow.
const SMALL_SEGMENTS: u32 = 4;
/// Smaller windows do not end with a pair of segments: two segments of eight are a quarter of the
/// rate.
const PAIRED_SEGMENTS: u32 = 8;
/// Data so far beyond the advertised window still counts.
const TOLERANCE: i32 = 0x10000;
/// What is set for all flows of a device.
#[derive(Clone, Debug)]
pub struct Config {
    /// The law of downloads; `None` leaves them alone.
    pub down: Option<Law>,
    /// The law of uploads.
    pub up: Option<Law>,
    /// Payload bytes of a download before its windows are rewritten, again after every pause.
    pub down_start: Bytes,
    /// The same of uploads.
    pub up_start: Bytes,
    /// A silence longer than this is application idle time.
    pub pause: Duration,
    /// This host's own downloads are left to the law at its receivers.
    pub forwarded_only: bool,
}

/// A TCP segment as the device sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Payload bytes.
    pub payload: u32,
    /// The window field, in units of its sender's scale.
    pub window: u32,
    /// TSval and TSecr.
    pub stamps: Option<(u32, u32)>,
    /// SYN flag.
    pub syn: bool,
    /// FIN flag.
    pub fin: bool,
    /// RST flag.
    pub rst: bool,
    /// ACK flag.
    pub acks: bool,
    /// Window scale option, in a SYN.
    pub scale: Option<u8>,
    /// MSS option, in a SYN.
    pub mss: Option<u16>,
}

/// One direction of data.
#[derive(Clone, Debug, Default)]
struct Direction {
    /// Since the start bytes have passed.
    law: Option<Drwa>,
    /// Payload bytes that came (downloads) or were acknowledged (uploads); and the count at the start
    /// or at the end of the last pause.
    passed: u64,
    started_at: u64,
    last_ns: u64,
    /// Highest sequence number, or acknowledgment number, that came in.
    max_seq: Option<u32>,
    /// The right edge as the sender got to see it.
    edge: Option<u32>,
    opposite: Opposite,
    /// Its place among the other flows of its direction.
    member: Member,
    /// The window that the law wants, bytes.
    target: u32,
    scale: u8,
    /// A queue has stood since the flow began or paused.
    grown: bool,
    /// The edge has moved on to the end of a pair of segments.
    moved_on: bool,
}

/// One TCP connection at the device. "Out" leads to the far end, "in" towards this host, or a host
/// behind it.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    down: Direction,
    up: Direction,
    /// The path beyond the device, and the path on this side of it.
    outer: Half,
    inner: Half,
    /// Highest sequence number sent to outside, to inside; 0: none yet.
    sent_out: u32,
    sent_in: u32,
    mss_out: u16,
    mss_in: u16,
    scale_out: Option<u8>,
    scale_in: Option<u8>,
    syn_out: bool,
    syn_in: bool,
    /// An end of the flow is on this host, so there is no inner half.
    local: bool,
}

impl Flow {
    /// A segment passes. `local`: this host sends it. `address`: of the far end, in `places`. The
    /// window field that it leaves with, if that is another one.
    pub fn on_segment(
        &mut self,
        now: Instant,
        config: &Config,
        places: &mut Places,
        address: u64,
        (out, local): (bool, bool),
        s: &Segment,
    ) -> Option<u32> {
        if s.syn && !s.rst && !s.fin {
            self.on_syn(now, places, address, out, s);
            return None;
        }
        if !self.syn_out || !self.syn_in || self.is_out_of_window(out, s) || !s.acks {
            return None;
        }
        let echo = s.stamps.map(|(_, echo)| echo);
        if out {
            self.local |= local;
            if let Some((stamp, _)) = s.stamps {
                self.inner.clock.tick(now, stamp);
            }
            if let Some(rtt) = self.inner.returned(now, echo, s.ack) {
                self.inner.sample(now, rtt, s.stamps.is_some(), None);
            }
            self.inner.received_ns = now.0;
            self.upload_resumes(now, config.pause, s);
            begin_round_trip(&mut self.outer, &mut self.sent_out, s, now);
            let allowed = config.down.is_some() && !(config.forwarded_only && self.local);
            return self.down.rewrite(now, config.pause, s, allowed, false, 0, 0);
        }
        if let Some((stamp, _)) = s.stamps {
            self.outer.clock.tick(now, stamp);
        }
        let rtt = self.outer.returned(now, echo, s.ack);
        if let Some(rtt) = rtt {
            let known = places.of(address);
            self.outer.sample(now, rtt, s.stamps.is_some(), known.as_ref());
            places.learn(address, &mut self.outer, now, s.stamps.is_some());
        }
        self.outer.received_ns = now.0;
        begin_round_trip(&mut self.inner, &mut self.sent_in, s, now);
        if config.up.is_some() && self.sent_out != 0 {
            self.take(now, config, places, true, s.ack, (rtt.is_some(), s.stamps.is_some()));
        }
        if config.down.is_some() && s.payload > 0 {
            let upto = s.seq.wrapping_add(s.payload);
            self.take(now, config, places, false, upto, (rtt.is_some(), s.stamps.is_some()));
        }
        let unacknowledged = self.sent_out.wrapping_sub(s.ack) as i32 > 0;
        let options = if s.stamps.is_some() { TIMESTAMP_BYTES } else { 0 };
        let payload = self.mss().saturating_sub(options);
        let (allowed, sent) = (config.up.is_some(), self.sent_out);
        self.up.rewrite(now, config.pause, s, allowed, unacknowledged, sent, payload)
    }

    /// The window that the law wants of the sender of a download, or of an upload; `None` before its
    /// first decision.
    pub fn target(&self, up: bool) -> Option<u32> {
        let d = if up { &self.up } else { &self.down };
        d.law.as_ref().filter(|law| law.decided().round_rtt_us > 0).map(|_| d.target)
    }

    /// The certain queueing beyond the device, µs: towards it, away from it.
    pub fn outer_queues_us(&self) -> (u32, u32) {
        (self.outer.towards_us, self.outer.away_us)
    }

    /// New data of an upload leaves after a silence. While older data is unacknowledged the silence is
    /// an outage, and the window stays: one that then passed unchanged would release a burst. At the
    /// ACK that ends the silence the two look alike, since it acknowledges data in both.
    fn upload_resumes(&mut self, now: Instant, pause: Duration, s: &Segment) {
        let new = s.seq.wrapping_add(s.payload).wrapping_sub(self.sent_out) as i32 > 0;
        if s.payload > 0 && self.up.max_seq == Some(self.sent_out) && new {
            self.up.resume(now, pause);
        }
    }

    /// Payload bytes of a full segment with all options.
    fn mss(&self) -> u32 {
        self.mss_out.min(self.mss_in).into()
    }

    fn on_syn(&mut self, now: Instant, places: &mut Places, address: u64, out: bool, s: &Segment) {
        // A SYN-ACK ends the round trip of the SYN.
        if s.acks && out {
            if let Some(rtt) = self.inner.returned(now, None, s.ack) {
                self.inner.sample(now, rtt, false, None);
            }
        } else if s.acks
            && let Some(rtt) = self.outer.returned(now, None, s.ack)
        {
            self.outer.sample(now, rtt, false, None);
            places.learn(address, &mut self.outer, now, false);
        }
        let (seen, half) = match out {
            true => (&mut self.syn_out, &mut self.outer),
            false => (&mut self.syn_in, &mut self.inner),
        };
        if *seen {
            half.begin_again();
            return;
        }
        *seen = true;
        if out && !s.acks {
            let known = places.is_known(address);
            for (d, shares) in [&mut self.down, &mut self.up].into_iter().zip(&places.shares) {
                d.member = shares.open(now, known);
            }
        }
        let first = s.seq.wrapping_add(1);
        half.send(now, first, Wait::Sequence);
        let mss = s.mss.filter(|mss| *mss > 0).unwrap_or(MSS_DEFAULT);
        if out {
            (self.scale_out, self.mss_out, self.sent_out) = (s.scale, mss, first);
        } else {
            (self.scale_in, self.mss_in, self.sent_in) = (s.scale, mss, first);
        }
        // Scales are in force if both SYNs carried the option (RFC 7323 section 2.2).
        if let (Some(of_inside), Some(of_outside)) = (self.scale_out, self.scale_in) {
            // RFC 7323 section 2.3: larger ones count as 14.
            (self.down.scale, self.up.scale) = (of_inside.min(14), of_outside.min(14));
        }
    }

    /// Whether a segment acknowledges data that was never sent, or carries data beyond the advertised
    /// window: its receiver ignores it.
    fn is_out_of_window(&self, out: bool, s: &Segment) -> bool {
        let (sent, own) = if out { (self.sent_in, &self.up) } else { (self.sent_out, &self.down) };
        let end = s.seq.wrapping_add(s.payload);
        sent != 0 && s.ack.wrapping_sub(sent) as i32 > 0
            || s.payload > 0
                && own.edge.is_some_and(|edge| end.wrapping_sub(edge) as i32 > TOLERANCE)
    }

    /// New data of a download, or a new acknowledgment of an upload, has come in up to the sequence
    /// number `upto`: one sample for the law of that direction. `fresh`: a round trip has just ended;
    /// `stamped`: the flow has timestamps.
    fn take(
        &mut self,
        now: Instant,
        config: &Config,
        places: &mut Places,
        up: bool,
        upto: u32,
        (fresh, stamped): (bool, bool),
    ) {
        let Some(law) = (if up { &config.up } else { &config.down }) else { return };
        let mss = self.mss();
        let from_syn = self.syn_out && self.syn_in;
        let (d, queue) = if up {
            (&mut self.up, u64::from(self.outer.towards_us) + u64::from(self.inner.away_us))
        } else {
            (&mut self.down, u64::from(self.outer.away_us) + u64::from(self.inner.towards_us))
        };
        let Some(max_seq) = d.max_seq else {
            d.max_seq = Some(upto);
            return;
        };
        let more = upto.wrapping_sub(max_seq) as i32;
        if more <= 0 || more > HORIZON {
            return;
        }
        d.max_seq = Some(upto);
        d.passed += more as u64;
        // Of an upload, the data that leaves has shown the end of a pause.
        if !up {
            d.resume(now, config.pause);
        }
        d.last_ns = now.0;
        let start = if up { config.up_start } else { config.down_start };
        if d.passed - d.started_at < start.0 {
            return;
        }
        // RTTmin of the path is the sum of both halves, so both must be known.
        let halves = self.outer.rtt_min_us > 0 && (self.inner.rtt_min_us > 0 || self.local);
        let rtt_min = halves.then(|| {
            let sum = u64::from(self.outer.rtt_min_us) + u64::from(self.inner.rtt_min_us);
            sum.max(MIN_RTT_US)
        });
        let mut rtt = None;
        if let Some(rtt_min) = rtt_min
            && fresh
        {
            d.opposite.sample(queue);
            let sum = u64::from(self.outer.rtt_us) + u64::from(self.inner.rtt_us);
            rtt = Some(Duration::from_micros(sum.max(rtt_min)));
        }
        // Without timestamps uploads still have exact RTT samples by sequence number; downloads only
        // have the time that a window takes to be used up.
        let setup = Setup { mss: Bytes(mss.into()), timestamps: up || stamped };
        let begun = d.law.as_ref().map_or(0, Drwa::round_began_ns);
        let law = d.law.get_or_insert_with(|| Drwa::alone(law.clone(), &setup));
        if let Some(rtt_min) = rtt_min {
            law.learn_rtt_min(Duration::from_micros(rtt_min));
        }
        if up && stamped {
            law.set_ack_delay(self.outer.clock.delay());
        }
        let room = d.edge.map_or(0, |edge| edge.wrapping_sub(upto) as i32).max(0);
        law.on_sample(
            now,
            &Sample {
                cause: Cause::Arrived,
                // Forwarded data counts as read as soon as it has passed.
                received: Bytes(d.passed),
                copied: Bytes(d.passed),
                out_of_order: Bytes::ZERO,
                right_edge: Bytes(d.passed + room as u64),
                rtt,
            },
        );
        let ended = begun != law.round_began_ns();
        if ended {
            d.opposite.end_round(&law.decided(), now, d.passed, up);
            law.set_beside(d.opposite.mean_us());
        }
        let law = &law.decided();
        // Until the first round has ended the window passes unchanged.
        if law.round_rtt_us == 0 {
            return;
        }
        let shares = &mut places.shares[usize::from(up)];
        let share = law.fair.then(|| shares.take(now, law, &mut d.member)).flatten();
        let mut target = d.opposite.window_beside(law, share);
        if !from_syn || growth_ends(law, d.member.alone) || share.is_some_and(|share| share.drains)
        {
            d.grown = true;
        }
        if !d.grown {
            target = growth_window(target, law);
        }
        d.target = target as u32;
        if d.target < SMALL_SEGMENTS * mss {
            d.target = (d.target + mss).min(SMALL_SEGMENTS * mss);
        }
    }
}

/// Starts round-trip measurements with a segment that leaves towards the far end of a half.
fn begin_round_trip(half: &mut Half, sent: &mut u32, s: &Segment, now: Instant) {
    // A FIN takes a sequence number, too (RFC 9293 section 3.4).
    let end = s.seq.wrapping_add(s.payload).wrapping_add(s.fin.into());
    let more = end.wrapping_sub(*sent) as i32;
    if end != s.seq && (*sent == 0 || more > 0 && more < HORIZON) {
        *sent = end;
        if s.stamps.is_none() {
            half.send(now, end, Wait::Sequence);
        }
    } else if s.payload > 0 && more <= 0 {
        // A retransmission: ACKs and echoes wait until the hole is filled, so running measurements
        // would measure that.
        half.forget();
    }
    if let Some((stamp, _)) = s.stamps {
        half.send(now, stamp, Wait::Stamp);
    }
}

impl Direction {
    /// New data after a silence longer than `pause`, which was application idle time: the law begins
    /// again, and so do the start bytes, if it had not begun.
    fn resume(&mut self, now: Instant, pause: Duration) {
        let is_pause = |since: u64| now.0.wrapping_sub(since) > pause.0;
        match &self.law {
            None if self.last_ns != 0 && is_pause(self.last_ns) => self.started_at = self.passed,
            Some(law) if is_pause(law.arrived().0) => {
                self.law = None;
                self.opposite = Opposite::default();
                self.started_at = self.passed;
                self.grown = false;
            }
            _ => {}
        }
    }

    /// The window field of a segment on its way to the sender, where the law asks for less; records
    /// the right edge that the sender gets to see. `sent`: the highest sequence number that the
    /// sender has sent, and `mss`: the payload of its segments; 0 where they are not known.
    #[allow(clippy::too_many_arguments)]
    fn rewrite(
        &mut self,
        now: Instant,
        pause: Duration,
        s: &Segment,
        allowed: bool,
        unacknowledged: bool,
        sent: u32,
        mss: u32,
    ) -> Option<u32> {
        let advertised = s.window << self.scale;
        let unit = (1_u32 << self.scale) - 1;
        let acting = self.law.as_ref().is_some_and(|law| {
            law.decided().round_rtt_us > 0
                && (unacknowledged || now.0.wrapping_sub(law.arrived().0) <= pause.0)
        });
        let mut window = advertised;
        if let Some(edge) = self.edge
            && allowed
            && acting
            && advertised > self.target
        {
            // The field counts in units of the scale. Round down, unless that loses more than a
            // quarter: the window would fall below the floor, and ACKs would stop.
            let mut field = self.target >> self.scale;
            if (field << self.scale) < self.target - self.target / 4 {
                field += 1;
            }
            // An advertised right edge stays: round the rest of it up.
            let edge_window = (edge.wrapping_sub(s.ack) as i32).max(0) as u32;
            let edge_limited = edge_window > field << self.scale;
            if edge_limited {
                field = (edge_window + unit) >> self.scale;
            }
            window = field << self.scale;
            if mss > 0 && window >= PAIRED_SEGMENTS * mss {
                window = self.paired(window, edge_window, edge_limited, s.ack, sent, mss);
            }
            window = window >> self.scale << self.scale;
            if window >= advertised {
                window = advertised;
            }
        }
        let reached = s.ack.wrapping_add(window);
        if self.edge.is_none_or(|edge| reached.wrapping_sub(edge) as i32 > 0) {
            self.edge = Some(reached);
        }
        (window < advertised).then_some(window >> self.scale)
    }

    /// The end of a window for a sender that is Linux: it lets through an even number of segments and
    /// less than one more. Linux sends two segments at a time or more (`tcp_tso_autosize`), and where
    /// the window ends inside the second one, it sends a part of it. Nagle's algorithm, as modified
    /// by Minshall, then holds the last part of an upload back until that one is acknowledged, which
    /// is up to one RTT later: 300 KB at 1 Mbit/s and 300 ms took 8 % longer. An end inside the first
    /// one costs nothing: the sender waits until a whole segment fits (`tcp_snd_wnd_test`). Above
    /// some 17 Mbit/s Linux sends more at a time, and this does not help, but a round trip is short
    /// there.
    ///
    /// Where the advertised edge is the limit, ends inside the second segment of a pair, and the
    /// sender is about to reach it, it moves on to the end of the pair: once, until the law is the
    /// limit again. Each time would keep a window from becoming smaller.
    fn paired(
        &mut self,
        window: u32,
        edge_window: u32,
        edge_limited: bool,
        ack: u32,
        sent: u32,
        mss: u32,
    ) -> u32 {
        let unit = (1_u32 << self.scale) - 1;
        let room_of = |window: u32| ack.wrapping_add(window).wrapping_sub(sent) as i32;
        if !edge_limited {
            self.moved_on = false;
        }
        let room = room_of(window);
        if room < mss as i32 || unit >= mss {
            return window;
        }
        let more = room as u32 % (2 * mss);
        if more < mss {
            return window;
        }
        // The end of the pair before, rounded up to the unit.
        let lower = (window.wrapping_sub(more).max(edge_window) + unit) & !unit;
        let room = room_of(lower);
        if room < 0 || room as u32 % (2 * mss) < mss {
            return lower;
        }
        if room >= (2 * mss) as i32 || self.moved_on {
            return window;
        }
        self.moved_on = true;
        (window + 2 * mss - more + unit) & !unit
    }
}
