//! Requests and their answers: what each took, and which had none.
//!
//! signal: requests and answers with their numbers; the bytes of the whole capture in between · model: an answer has the
//! number of its request (pings, DNS, probes) · action: the time of each exchange, the share of requests without an
//! answer, and the time under load, for the row of the requesting direction
//!
//! An exchange is under load if at least four full segments of other packets passed the capture while it was under way: the
//! same number as for RTTs of TCP. A request that repeats a number within [`COPY`] is a copy, made by the capture or by the
//! network. One that repeats it later was sent again: which of the two was answered is not known, so the answer has no time
//! (Karn's rule). After [`FORGOTTEN`] the numbers begin again. Requests of the last moments may still get an answer, and are
//! not counted as lost: the capture ended first.

use std::collections::VecDeque;

use units::{Duration, Histogram, Instant, Quantiles};

use crate::tcp::ack::LOADED_SEGMENTS;
use crate::tcp::stream::TYPICAL_MSS;

/// Longer than a mirror port's buffer delays a copy (as in `identity/dedup.rs`), shorter than any timer that sends again.
const COPY: Duration = Duration::from_millis(20);
/// A request with a number seen this long before is a new one: ping waits ten seconds for a reply at most.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// No answer comes later: a queue of 30 s each way is more than any known buffer holds.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(60);
/// Requests under way that are kept for one direction of a flow; beyond, the oldest is given up. A hundred probes a second on
/// a path of ten seconds have as many, and a search through them takes about a microsecond.
const MAX_OPEN: usize = 1_024;
/// Bytes of other packets while an exchange is under way, from which it is under load, as for an RTT of TCP.
const LOADED: u64 = LOADED_SEGMENTS * TYPICAL_MSS as u64;

#[derive(Clone, Copy, Debug)]
struct Request {
    number: u32,
    sent: Instant,
    /// Bytes of the capture up to it, itself included.
    bytes: u64,
    /// It was sent again.
    again: bool,
    /// It came right after the answer to its number: a copy, unless it is answered, too.
    late_copy: bool,
    /// Time without a packet of the asking host before it, if no exchange was under way.
    pause: Option<Duration>,
}

/// A request with its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub sent: Instant,
    pub took: Duration,
    /// Time without a packet of the asking host before it; `None`: under load, or another one was under way.
    pub pause: Option<Duration>,
}

/// The exchanges that one direction of a flow asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchanges {
    /// In the order of time.
    open: VecDeque<Request>,
    /// The last request that was answered: a copy of it may follow its answer.
    answered: Option<(u32, Instant)>,
    requests: u64,
    answers: u64,
    times: Times,
}

/// What exchanges took, and of them those under load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    all: Histogram,
    loaded: Histogram,
}

impl Times {
    /// An exchange, and the bytes that passed the capture while it was under way. True: it was under load.
    pub fn record(&mut self, took: Duration, bytes: u64) -> bool {
        let loaded = bytes >= LOADED;
        self.all.record(took.as_nanos());
        if loaded {
            self.loaded.record(took.as_nanos());
        }
        loaded
    }

    /// The figures, with the share of requests that had no answer.
    pub fn figures(&self, lost: Option<f64>) -> Figures {
        const MS: f64 = 1e-6;
        Figures { time_ms: self.all.quantiles(MS), loaded_ms: self.loaded.quantiles(MS), lost }
    }
}

/// What the row states of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub time_ms: Option<Quantiles>,
    pub loaded_ms: Option<Quantiles>,
    /// Share of requests without an answer.
    pub lost: Option<f64>,
}

impl Exchanges {
    /// A request; `bytes` of the whole capture up to it, and the pause of the asking host before it.
    pub fn request(&mut self, number: u32, at: Instant, bytes: u64, pause: Option<Duration>) {
        self.give_up(at);
        let late_copy =
            self.answered.is_some_and(|(of, sent)| of == number && at.since(sent) < COPY);
        if let Some(index) = self.open.iter().position(|r| r.number == number) {
            let before = &mut self.open[index];
            if at.since(before.sent) < FORGOTTEN {
                before.again |= at.since(before.sent) >= COPY;
                return;
            }
            self.open.remove(index);
        }
        if self.open.len() >= MAX_OPEN {
            self.open.pop_front();
        }
        let under_way = self.open.back().is_some_and(|r| at.since(r.sent) < FORGOTTEN);
        let pause = pause.filter(|_| !under_way);
        self.open.push_back(Request { number, sent: at, bytes, again: false, late_copy, pause });
        self.requests += u64::from(!late_copy);
    }

    /// The first answer to a request; `bytes` of the whole capture before it. Returns the exchange, if what it took is known.
    pub fn answer(&mut self, number: u32, at: Instant, bytes: u64) -> Option<Exchange> {
        self.give_up(at);
        let index = self.open.iter().position(|r| r.number == number)?;
        let request = self.open.remove(index)?;
        self.answers += 1;
        self.requests += u64::from(request.late_copy);
        self.answered = Some((number, request.sent));
        // Without a time where the clock of the capture was set back in between.
        if request.again || at < request.sent {
            return None;
        }
        let took = at.since(request.sent);
        let loaded = self.times.record(took, bytes.saturating_sub(request.bytes));
        Some(Exchange { sent: request.sent, took, pause: request.pause.filter(|_| !loaded) })
    }

    fn give_up(&mut self, at: Instant) {
        while self.open.front().is_some_and(|r| at.since(r.sent) > MAX_AGE) {
            self.open.pop_front();
        }
    }

    /// The figures; the capture of these hosts ended at `end`.
    pub fn figures(&self, end: Instant) -> Figures {
        let figures = self.times.figures(None);
        let longest = figures.time_ms.map_or(FORGOTTEN, |q| Duration((q.max * 1e6) as u64));
        let waits = |r: &&Request| !r.late_copy && end.since(r.sent) <= longest;
        let open = self.open.iter().filter(waits).count() as u64;
        let judged = self.requests - open;
        let lost = (judged > 0).then(|| (judged - self.answers) as f64 / judged as f64);
        Figures { lost, ..figures }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn each_answer_is_that_of_its_request_whatever_their_order() {
        let mut exchanges = Exchanges::default();
        for i in 0..10_u32 {
            exchanges.request(i, at(u64::from(i) * 100), 0, None);
        }
        for i in (0..10_u32).rev() {
            let took =
                exchanges.answer(i, at(u64::from(i) * 100 + 950 + u64::from(i)), 0).map(|e| e.took);
            assert_eq!(took, Some(Duration::from_millis(950 + u64::from(i))));
            assert_eq!(exchanges.answer(i, at(5_000), 0), None, "the second answer is a copy");
        }
        let figures = exchanges.figures(at(9_000));
        let time = figures.time_ms.expect("answers");
        assert_eq!((time.count, time.min, time.max), (10, 950.0, 959.0));
        assert_eq!((figures.lost, figures.loaded_ms), (Some(0.0), None));
    }

    #[test]
    fn what_is_not_answered_is_lost_unless_the_capture_ended_first() {
        let mut exchanges = Exchanges::default();
        for i in 0..10_u32 {
            exchanges.request(i, at(u64::from(i) * 1_000), 0, None);
            if i != 3 && i != 9 {
                exchanges.answer(i, at(u64::from(i) * 1_000 + 40), 0);
            }
        }
        assert_eq!(
            exchanges.figures(at(9_030)).lost,
            Some(1.0 / 9.0),
            "the last may still be answered"
        );
        assert_eq!(exchanges.figures(at(9_100)).lost, Some(0.2));
    }

    #[test]
    fn copies_are_no_requests_and_numbers_that_begin_again_are() {
        let mut exchanges = Exchanges::default();
        exchanges.request(1, at(0), 0, None);
        exchanges.request(1, at(1), 0, None);
        exchanges.answer(1, at(10), 0);
        exchanges.request(1, at(12), 0, None);
        exchanges.request(2, at(100), 0, None);
        exchanges.request(2, at(20_100), 0, None);
        exchanges.answer(2, at(20_130), 0);
        let figures = exchanges.figures(at(60_000));
        assert_eq!(figures.time_ms.map(|q| (q.count, q.min, q.max)), Some((2, 10.0, 30.0)));
        assert_eq!(figures.lost, Some(1.0 / 3.0));
    }

    #[test]
    fn an_answer_to_one_of_two_requests_has_no_time_and_the_next_exchange_has() {
        let mut exchanges = Exchanges::default();
        exchanges.request(1, at(0), 0, None);
        exchanges.request(1, at(5_000), 0, None);
        assert_eq!(exchanges.answer(1, at(5_030), 0), None);
        // The number is used again once the exchange is over.
        exchanges.request(1, at(6_000), 0, None);
        assert_eq!(
            exchanges.answer(1, at(6_040), 0).map(|e| e.took),
            Some(Duration::from_millis(40))
        );
        let figures = exchanges.figures(at(60_000));
        assert_eq!((figures.time_ms.map(|q| q.count), figures.lost), (Some(1), Some(0.0)));
    }

    #[test]
    fn an_answer_before_its_request_or_a_minute_after_it_has_no_time() {
        let mut exchanges = Exchanges::default();
        exchanges.request(1, at(1_000), 0, None);
        assert_eq!(exchanges.answer(1, at(900), 0), None);
        exchanges.request(2, at(2_000), 0, None);
        assert_eq!(exchanges.answer(2, at(62_001), 0), None);
        assert_eq!(exchanges.figures(at(100_000)).time_ms, None);
    }

    #[test]
    fn an_exchange_beside_four_segments_is_under_load() {
        let mut exchanges = Exchanges::default();
        exchanges.request(1, at(0), 1_000, None);
        exchanges.answer(1, at(20), 1_000 + LOADED - 1);
        assert!(exchanges.figures(at(60_000)).loaded_ms.is_none());
        exchanges.request(2, at(100), 50_000, None);
        exchanges.answer(2, at(180), 50_000 + LOADED);
        let loaded = exchanges.figures(at(60_000)).loaded_ms.expect("loaded");
        assert_eq!((loaded.count, loaded.min), (1, 80.0));
    }

    #[test]
    fn a_pause_counts_where_nothing_else_was_under_way_and_without_load() {
        let mut exchanges = Exchanges::default();
        let second = Some(Duration::from_secs(1));
        exchanges.request(1, at(0), 0, second);
        exchanges.request(2, at(200), 0, second);
        let pause = |e: Option<Exchange>| e.and_then(|e| e.pause);
        assert_eq!(pause(exchanges.answer(1, at(500), 0)), second);
        assert_eq!(pause(exchanges.answer(2, at(501), 0)), None, "sent while the first waited");
        exchanges.request(3, at(2_000), 0, second);
        assert_eq!(pause(exchanges.answer(3, at(2_500), LOADED)), None, "under load");
    }

    proptest! {
        #[test]
        fn any_order_is_bounded_and_counts_fit_together(
            packets in prop::collection::vec((any::<bool>(), 0..3_000_u32, 0..50_u64), 0..4_000),
        ) {
            let mut exchanges = Exchanges::default();
            let mut now = 0;
            for (answer, number, later_ms) in packets {
                now += later_ms;
                if answer {
                    if let Some(exchange) = exchanges.answer(number, at(now), 0) {
                        prop_assert!(exchange.took <= MAX_AGE);
                    }
                } else {
                    exchanges.request(number, at(now), 0, None);
                }
                prop_assert!(exchanges.open.len() <= MAX_OPEN);
                let open = exchanges.open.iter().filter(|r| !r.late_copy).count() as u64;
                prop_assert!(open + exchanges.answers <= exchanges.requests);
            }
            let lost = exchanges.figures(at(now)).lost;
            prop_assert!(lost.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
