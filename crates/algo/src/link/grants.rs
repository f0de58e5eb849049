//! A scheduled uplink: the modem sends only what the base station has granted, and the base station grants
//! only what the modem has reported.
//!
//! signal: the backlog of the firmware buffer · model: buffer status report → base station → grant →
//! transport block, one transmission time interval (TTI, 1 ms) after another · action: a packet leaves
//! with the block that contains its last byte. With a shallow buffer, reports and grants are small, and
//! the radio is idle until the next report reaches the base station: too shallow a buffer costs
//! throughput (QCUT section 4, figure 15).
//!
//! Sources: 3GPP TS 36.321 sections 5.4.3–5.4.5 and 6.1.3.1 (scheduling request, reports, their 64
//! levels), 36.213 section 8 (a grant is for the fourth TTI after it), QCUT sections 4 and 6 (a report
//! every 5 ms; the figures that the free parameters are fitted to).
//!
//! Calibration: the rate of each signal is the mean throughput of figure 15's uploads with at least 50 KB
//! below the queue. `report_delay` and `ahead` are fitted to the seven pairs of RTT and throughput at −98
//! dBm alone (root mean square error 3.8 %), behind a modem that hands its reports over each 100 ms. The
//! other signals change only the rate. That span is part of the fit: between 90 and 150 ms it matters
//! little. With 80 ms, or with each report handed over alone after 100 ms, QCUT-B of 10 KB loses a fifth and
//! more of the throughput that figure 15 has. QCUT-D is not part of the fit.
//!
//! Deviations: one logical channel. The modem sends a scheduling request whenever the buffer contains
//! data unknown to the base station (a real modem: for new data in an empty buffer, and after a timer).
//! Block errors and their retransmission are a layer of the link, not of its medium. Rates and grants are
//! bytes of the IP layer; the granted bytes that the modem reports include the headers of each block.
//!
//! The backlog counts whole packets, the one at the head until it has left. Packets that end in the same
//! block leave at the same time. There is no wake-up while the buffer is empty: the next call processes
//! the time that has passed, and skips it if nothing was under way.

use alloc::collections::VecDeque;

use units::{Bytes, Duration, Instant, Rate};

use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "grants";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a scheduled LTE uplink: reports, grants, padding";
/// Where it is specified.
pub const SOURCE: &str =
    "3GPP TS 36.321 sections 5.4 and 6.1.3.1; QCUT sections 4 and 6, figure 15";

choice! {
    /// Signal strength at the phone, with the rates of QCUT figure 15.
    pub enum Signal {
        /// −85 dBm, good: 11.7 Mbit/s.
        Good = "-85 dBm",
        /// −98 dBm, fair: 5.67 Mbit/s; the model is fitted to it.
        Fair = "-98 dBm",
        /// −110 dBm, weak: 0.757 Mbit/s.
        Weak = "-110 dBm",
    }
}

impl Signal {
    /// The cell's rate for this user: the mean of figure 15's throughputs with 50 KB, 100 KB and no
    /// limit.
    pub const fn rate(self) -> Rate {
        match self {
            Signal::Good => Rate(11_670_000),
            Signal::Fair => Rate(5_670_000),
            Signal::Weak => Rate(757_000),
        }
    }
}

config! {
    /// The cell and the modem's timers.
    pub struct Config {
        /// Signal strength, which sets the rate if `rate` is not set.
        signal: Signal = Signal::Fair;
        /// The cell's share for this user, on the IP layer.
        rate: Option<Rate> = None, Some(Rate(1_000)), Some(Rate(10_000_000_000));
        /// Shortest time between two reports while there are grants (periodicBSR-Timer; QCUT section 6).
        report_every: Duration = Duration::from_millis(5), Duration::from_millis(1), Duration::from_millis(2_560);
        /// From a report's block to the first grant that considers it: four TTIs of decoding, the rest of the scheduler
        /// (fitted; 11 to 14 ms fit to 4.5 %, 8 ms to 7 %).
        report_delay: Duration = Duration::from_millis(12), Duration::from_millis(1), Duration::from_millis(60);
        /// From grant to block: four TTIs (36.213 section 8).
        grant_delay: Duration = Duration::from_millis(4), Duration::from_millis(1), Duration::from_millis(15);
        /// Time between two opportunities to request a first grant (36.213 section 10.1 allows 5 to 80 ms; no effect on
        /// the fit).
        request_every: Duration = Duration::from_millis(10), Duration::from_millis(1), Duration::from_millis(80);
        /// Bytes of the grant after a request: the report, and little more.
        first_grant: Bytes = Bytes(100), Bytes(4), Bytes(10_000);
        /// Bytes per TTI granted without a report to a user that has just sent data (fitted). In figure 15 they keep
        /// a buffer of one packet at 2 Mbit/s and more, and cause much of the padding.
        ahead: Bytes = Bytes(330), Bytes(0), Bytes(10_000);
        /// Time after the last data for which grants without a report continue: a round trip of figure 15.
        keep: Duration = Duration::from_millis(100), Duration::from_millis(1), Duration::from_secs(10);
        /// Time between two turns of this user, with other users in between: 1 ms is a cell without other users (QCUT
        /// section 2.1 measured at off-peak hours).
        turn: Duration = Duration::from_millis(1), Duration::from_millis(1), Duration::from_millis(40);
    }
}

/// 36.321 section 6.1.3.1: one TTI.
const TTI_NS: u64 = 1_000_000;
/// Upper bound of a grant: no sum of grants overflows.
const MAX_GRANT: u64 = 1 << 32;
/// Bytes that the modem counts in a block besides data and padding: PDCP 2 bytes (36.323 section 6.2.3), RLC 2 and a length
/// indicator of 1.5 (36.322 section 6.2.1.4), MAC subheader 2 to 3 (36.321 section 6.1.2).
const HEADERS: u64 = 8;
/// Slots for grants under way: more than the longest `grant_delay`.
const SLOTS: usize = 16;

/// Upper edges of the 64 buffer size levels (36.321 table 6.1.3.1-1): a geometric series of ratio 1.1707
/// from 10 to 150,000 bytes. The last level has no edge.
pub const LEVELS: [u32; 63] = [
    0, 10, 12, 14, 17, 19, 22, 26, 31, 36, 42, 49, 57, 67, 78, 91, 107, 125, 146, 171, 200, 234,
    274, 321, 376, 440, 515, 603, 706, 826, 967, 1_132, 1_326, 1_552, 1_817, 2_127, 2_490, 2_915,
    3_413, 3_995, 4_677, 5_476, 6_411, 7_505, 8_787, 10_287, 12_043, 14_099, 16_507, 19_325,
    22_624, 26_487, 31_009, 36_304, 42_502, 49_759, 58_255, 68_201, 79_846, 93_479, 109_439,
    128_125, 150_000,
];

/// The value of a report of `backlog` at the base station: the upper edge of its level, at most 150 KB.
pub fn reported(backlog: Bytes) -> Bytes {
    let level = LEVELS.partition_point(|edge| u64::from(*edge) < backlog.0);
    Bytes(LEVELS.get(level).or(LEVELS.last()).map_or(0, |edge| u64::from(*edge)))
}

choice! {
    /// The number of bytes that the kernel reads from a level, which names an interval.
    pub enum Level {
        /// Its upper edge: never less than is there, 8 % more on average.
        Upper = "upper",
        /// Its middle: neither more nor less on average.
        Middle = "middle",
    }
}

impl Level {
    /// What the kernel reads from the report of `backlog`.
    pub fn read(self, backlog: Bytes) -> Bytes {
        let level = LEVELS.partition_point(|edge| u64::from(*edge) < backlog.0);
        match (self, level.checked_sub(1).and_then(|below| LEVELS.get(below)), LEVELS.get(level)) {
            (Level::Middle, Some(below), Some(edge)) => {
                Bytes(u64::from(*below).midpoint(u64::from(*edge)))
            }
            _ => reported(backlog),
        }
    }
}

/// A buffer status report under way to the scheduler.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// TTI from which the scheduler considers it.
    effective: u64,
    /// Bytes in the buffer.
    bytes: u64,
    /// Total bytes granted for blocks up to its own.
    used: u64,
}

/// An uplink whose base station grants transmissions.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Rate of the cell for this user, bit/s.
    rate: u64,
    report_every: u64,
    report_delay: u64,
    grant_delay: u64,
    request_every: u64,
    first_grant: u64,
    turn: u64,
    ahead: u64,
    keep: u64,

    /// First TTI that is not processed yet.
    next: u64,
    /// Grants under way, by the TTI of their block.
    slots: [u64; SLOTS],
    /// TTI of the block that a scheduling request will get.
    first: Option<u64>,
    reports: VecDeque<Report>,
    /// TTI of the last buffer status report.
    last_report: Option<u64>,
    /// Grants without a report end with this TTI.
    ahead_until: u64,
    /// Bytes that are reported and not yet granted.
    ungranted: u64,
    /// Total bytes granted, and those of blocks already sent.
    issued: u64,
    used: u64,
    /// Remainder of the last division of the rate.
    carried: u64,

    /// Bytes in the buffer, in whole packets.
    backlog: u64,
    /// Bytes of packets at the head of the buffer that are sent already.
    sent: u64,
    taken: Grants,
}

impl Scheduled {
    /// The state of an idle uplink.
    pub fn new(config: Config, _setup: &Setup) -> Scheduled {
        let ttis = |span: Duration| span.0.div_ceil(TTI_NS).max(1);
        let report_delay = ttis(config.report_delay);
        Scheduled {
            rate: config.rate.unwrap_or(config.signal.rate()).0.max(1),
            report_every: ttis(config.report_every),
            report_delay,
            grant_delay: ttis(config.grant_delay).min(SLOTS as u64 - 1),
            request_every: ttis(config.request_every),
            first_grant: config.first_grant.0.clamp(1, MAX_GRANT),
            turn: ttis(config.turn),
            ahead: config.ahead.0.saturating_mul(ttis(config.turn)).min(MAX_GRANT),
            keep: ttis(config.keep),
            ahead_until: 0,
            next: 0,
            slots: [0; SLOTS],
            first: None,
            // At most one report per TTI.
            reports: VecDeque::with_capacity(
                usize::try_from(report_delay).unwrap_or(0).min(64) + 1,
            ),
            last_report: None,
            ungranted: 0,
            issued: 0,
            used: 0,
            carried: 0,
            backlog: 0,
            sent: 0,
            taken: Grants::default(),
        }
    }

    /// A new rate for all grants from now on (a change of the signal or of the cell's load).
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.advance(now);
        self.rate = rate.0.max(1);
        self.carried = 0;
    }

    /// Bytes in the buffer that are not yet in a block.
    fn waiting(&self) -> u64 {
        self.backlog.saturating_sub(self.sent)
    }

    /// Whether nothing is under way between modem and base station.
    fn asleep(&self) -> bool {
        self.ungranted == 0
            && self.issued == self.used
            && self.reports.is_empty()
            && self.first.is_none()
            && self.ahead_until <= self.next
    }

    /// Processes every TTI up to `now`.
    fn advance(&mut self, now: Instant) {
        let until = now.0 / TTI_NS;
        while self.next <= until {
            if self.asleep() {
                self.next = until + 1;
                return;
            }
            if let Some(first) = self.first
                && self.ungranted == 0
                && self.issued == self.used
                && self.reports.is_empty()
                && self.ahead_until <= self.next
            {
                // Only the grant after the request is under way.
                self.next = first.max(self.next);
                if self.next > until {
                    return;
                }
            }
            self.tti(self.next);
            self.next += 1;
        }
    }

    fn tti(&mut self, t: u64) {
        let slot = (t % SLOTS as u64) as usize;
        let mut block = core::mem::take(&mut self.slots[slot]);
        let mut may_report = false;
        if self.first == Some(t) {
            self.first = None;
            block += self.first_grant;
            self.issued += self.first_grant;
            // 36.321 section 5.4.5: a regular report, independent of the timer.
            may_report = true;
        }
        if block > 0 {
            self.send(t, block, may_report);
        }
        while let Some(report) =
            self.reports.front().copied().filter(|report| report.effective <= t)
        {
            self.reports.pop_front();
            // The scheduler subtracts the grants that the report does not include yet.
            self.ungranted = report.bytes.saturating_sub(self.issued.saturating_sub(report.used));
        }
        if t.is_multiple_of(self.turn) {
            self.grant(t);
        }
        self.request(t);
    }

    /// The block of TTI `t`: data first, then a report if one is due or fits, then padding.
    fn send(&mut self, t: u64, block: u64, regular: bool) {
        self.used += block;
        let data = block.min(self.waiting());
        self.sent += data;
        if data > 0 && self.ahead > 0 {
            self.ahead_until = t.saturating_add(self.keep);
        }
        // A block without data is all padding.
        self.taken.granted += Bytes(block + HEADERS);
        self.taken.padding += Bytes(if data > 0 { block - data } else { block + HEADERS });
        // 36.321 section 5.4.5: a report when its timer has expired, or in place of padding. It
        // contains the bytes that remain after the block is built.
        let due = self.last_report.is_none_or(|last| t >= last.saturating_add(self.report_every));
        if due || regular || block > data {
            self.last_report = Some(t);
            let bytes = reported(Bytes(self.waiting())).0;
            self.reports.push_back(Report {
                effective: t + self.report_delay,
                bytes,
                used: self.used,
            });
        }
    }

    /// The scheduler in TTI `t`: a grant for the block `grant_delay` later.
    fn grant(&mut self, t: u64) {
        let bits = u128::from(self.rate) * u128::from(self.turn) + u128::from(self.carried);
        let capacity = u64::try_from(bits / 8_000).unwrap_or(MAX_GRANT).min(MAX_GRANT);
        let ahead = if t < self.ahead_until { self.ahead } else { 0 };
        let grant = capacity.min(self.ungranted.max(ahead));
        if grant == 0 {
            return;
        }
        // The remainder of a full grant carries over; unused capacity is lost.
        self.carried = if grant == capacity { (bits % 8_000) as u64 } else { 0 };
        self.slots[((t + self.grant_delay) % SLOTS as u64) as usize] += grant;
        self.ungranted = self.ungranted.saturating_sub(grant);
        self.issued += grant;
    }

    /// 36.321 section 5.4.4: a scheduling request, if there is data without a grant or a report under
    /// way.
    fn request(&mut self, t: u64) {
        if self.first.is_none()
            && self.waiting() > 0
            && self.ungranted == 0
            && self.issued == self.used
            && self.reports.iter().all(|report| report.bytes == 0)
        {
            let opportunity = (t + 1).next_multiple_of(self.request_every);
            self.first = Some(opportunity + self.report_delay + self.grant_delay);
        }
    }

    fn set_backlog(&mut self, now: Instant, backlog: u64) {
        self.advance(now);
        self.backlog = backlog;
        self.request(now.0 / TTI_NS);
    }

    /// A TTI in which `missing` more bytes may have been sent, to try again.
    fn retry_at(&self, missing: u64) -> u64 {
        let mut missing = missing;
        for t in self.next..self.next + self.grant_delay {
            let block = self.slots[(t % SLOTS as u64) as usize];
            let first = if self.first == Some(t) { self.first_grant } else { 0 };
            if block + first >= missing {
                return t;
            }
            missing -= block + first;
        }
        if let Some(first) = self.first
            && self.ungranted == 0
            && self.ahead_until <= self.next
            && self.reports.iter().all(|report| report.bytes == 0)
        {
            // No data leaves before the grant after the request.
            return first.max(self.next);
        }
        // The scheduler is no faster than its rate.
        let capacity = (self.rate.saturating_mul(self.turn) / 8_000).saturating_add(1);
        let turns = missing.div_ceil(capacity).min(1_000);
        self.next + self.grant_delay + turns.saturating_sub(1).saturating_mul(self.turn)
    }
}

impl Medium for Scheduled {
    fn offer(&mut self, now: Instant, head: &Head, _rng: &mut Rng) -> Slot {
        self.set_backlog(now, head.backlog.0.max(head.bytes.0));
        if self.sent >= head.bytes.0 {
            self.sent -= head.bytes.0;
            self.backlog -= head.bytes.0;
            return Slot::Leaves(now);
        }
        Slot::WaitUntil(Instant(self.retry_at(head.bytes.0 - self.sent).saturating_mul(TTI_NS)))
    }

    fn on_backlog(&mut self, now: Instant, backlog: Bytes) {
        self.set_backlog(now, backlog.0);
    }

    fn take_grants(&mut self, now: Instant) -> Grants {
        self.advance(now);
        let waiting = Some(Bytes(self.waiting()));
        Grants { waiting, ..core::mem::take(&mut self.taken) }
    }

    fn state(&self, _now: Instant) -> State {
        State { rate: Some(Rate(self.rate)), state: None }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const PACKET: u64 = 1_500;

    fn link(config: Config) -> Scheduled {
        Scheduled::new(config, &Setup::default())
    }

    /// Times at which `packets` leave that lie in the buffer from `now` on, and how often the link was asked.
    fn drain(link: &mut Scheduled, mut now: Instant, packets: u64) -> (Vec<Instant>, u64) {
        let mut rng = Rng::new(1, "test");
        let mut left = Vec::new();
        let mut asked = 0;
        link.on_backlog(now, Bytes(packets * PACKET));
        while (left.len() as u64) < packets {
            let backlog = Bytes((packets - left.len() as u64) * PACKET);
            asked += 1;
            match link.offer(now, &Head { bytes: Bytes(PACKET), backlog }, &mut rng) {
                Slot::Leaves(at) => left.push(at),
                Slot::WaitUntil(at) => {
                    assert!(at > now, "waiting must end later");
                    now = at;
                }
            }
        }
        link.on_backlog(now, Bytes::ZERO);
        (left, asked)
    }

    #[test]
    fn reports_have_the_upper_edge_of_one_of_64_levels() {
        // 36.321 table 6.1.3.1-1: index 0 is an empty buffer, 1 up to 10 bytes, 62 up to 150,000, 63 above.
        assert_eq!(reported(Bytes::ZERO), Bytes::ZERO);
        assert_eq!(reported(Bytes(1)), Bytes(10));
        assert_eq!(reported(Bytes(11)), Bytes(12));
        assert_eq!(reported(Bytes(1_500)), Bytes(1_552));
        assert_eq!(reported(Bytes(150_000)), Bytes(150_000));
        assert_eq!(reported(Bytes(300_000)), Bytes(150_000));
        // The levels are a geometric row from 10 to 150,000 in 61 steps, to the nearest few bytes.
        for (k, edge) in LEVELS.iter().enumerate().skip(1) {
            let exact = 10.0 * libm::pow(15_000.0, (k as f64 - 1.0) / 61.0);
            assert!(
                (f64::from(*edge) - exact).abs() <= 1.0 + exact * 1e-3,
                "level {k}: {edge}, {exact}"
            );
        }
    }

    #[test]
    fn the_first_packet_waits_for_request_grant_report_and_grant() {
        // 36.321 sections 5.4.4 and 5.4.5: the opportunity (at 10 ms), the request heeded (12 ms), its grant (4 ms)
        // with the report, that heeded (12 ms), the grant for the rest (4 ms), three TTIs of 708 bytes.
        let mut link = link(Config { ahead: Bytes::ZERO, ..Config::default() });
        let (left, asked) = drain(&mut link, Instant(500_000), 1);
        assert_eq!(left, [Instant(43_000_000)]);
        assert!(asked <= 5, "{asked}");
    }

    #[test]
    fn grants_ahead_spare_the_second_packet_the_request() {
        let mut link = link(Config::default());
        let (first, _) = drain(&mut link, Instant(500_000), 1);
        let later = first[0] + Duration::from_millis(50);
        let (second, _) = drain(&mut link, later, 1);
        // 1,500 bytes at 330 bytes per TTI
        assert_eq!(second[0].since(later), Duration::from_millis(5));
    }

    #[test]
    fn a_full_buffer_gets_the_rate_to_the_byte_and_two_questions_per_packet() {
        let rate = Rate(5_670_000);
        let mut link = link(Config { rate: Some(rate), ..Config::default() });
        let (left, asked) = drain(&mut link, Instant::ZERO, 1_000);
        let span = left[999].since(left[499]);
        let expected = Bytes(500 * PACKET) / rate;
        assert!(span.0.abs_diff(expected.0) <= 2 * TTI_NS, "{span} {expected}");
        assert!(asked < 2_050, "{asked}");
    }

    #[test]
    fn what_is_granted_is_data_headers_or_padding() {
        let mut link = link(Config::default());
        let (left, _) = drain(&mut link, Instant::ZERO, 20);
        // Long after the last data, when grants ahead have ended and every grant has been used.
        let after = left[19] + Duration::from_secs(1);
        let grants = link.take_grants(after);
        let sent = grants.granted - grants.padding;
        // 30,000 bytes of data, in blocks of 330 bytes or more
        assert!(
            sent > Bytes(20 * PACKET) && sent < Bytes(20 * PACKET) + Bytes(91 * HEADERS),
            "{sent}"
        );
        assert!(grants.padding > Bytes::ZERO);
        let silent = Grants { waiting: Some(Bytes::ZERO), ..Grants::default() };
        assert_eq!(link.take_grants(after + Duration::from_secs(3_600)), silent);
        assert!(link.asleep());
    }

    #[test]
    fn what_waits_is_what_no_block_has_yet() {
        let mut link = link(Config::default());
        let (left, _) = drain(&mut link, Instant::ZERO, 20);
        let now = left[19] + Duration::from_millis(50);
        link.on_backlog(now, Bytes(PACKET));
        let waiting =
            |link: &mut Scheduled, ms| link.take_grants(now + Duration::from_millis(ms)).waiting;
        assert_eq!(waiting(&mut link, 0), Some(Bytes(PACKET)));
        // Two blocks of 330 bytes: a part of the packet is sent, and does not count.
        assert_eq!(waiting(&mut link, 2), Some(Bytes(PACKET - 660)));
    }

    #[test]
    fn a_level_is_read_as_its_upper_edge_or_its_middle() {
        assert_eq!(Level::Upper.read(Bytes(1_500)), Bytes(1_552));
        assert_eq!(Level::Middle.read(Bytes(1_500)), Bytes(1_439));
        for level in [Level::Upper, Level::Middle] {
            assert_eq!(level.read(Bytes::ZERO), Bytes::ZERO);
            assert_eq!(level.read(Bytes(300_000)), Bytes(150_000));
        }
    }

    #[test]
    fn a_change_of_signal_changes_the_rate_of_what_is_granted_from_then_on() {
        let mut link = link(Config::default());
        let (left, _) = drain(&mut link, Instant::ZERO, 500);
        link.set_rate(left[499], Signal::Weak.rate());
        let (left, _) = drain(&mut link, left[499], 100);
        let rate = Bytes(50 * PACKET).over(left[99].since(left[49]));
        assert!(rate.is_some_and(|r| r.0.abs_diff(757_000) < 8_000), "{rate:?}");
    }

    #[test]
    fn another_user_in_the_cell_halves_the_turns_not_the_rate() {
        let config = Config { turn: Duration::from_millis(2), ..Config::default() };
        let (left, _) = drain(&mut link(config), Instant::ZERO, 1_000);
        let rate = Bytes(500 * PACKET).over(left[999].since(left[499]));
        assert!(rate.is_some_and(|r| r.0.abs_diff(5_670_000) < 30_000), "{rate:?}");
    }
}
