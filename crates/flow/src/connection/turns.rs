//! Requests and answers without numbers: UDP flows in which the two sides take turns.
//!
//! signal: the direction and time of each datagram of a flow · model: one request, one answer, then the next request;
//! answers follow requests, so they come at the same interval after them however irregular these are · action: the time of
//! each exchange, if the whole flow is like that; else none
//!
//! A wrong RTT is worse than none. So one answer too many ends the search in its flow. Two timers that happen to alternate
//! (voice, keep-alives of both sides) differ by the spread: there an answer comes as irregularly after a request as
//! the requests come themselves. QUIC is left out: its acknowledgements wait by a rule of their own (RFC 9000 section 13.2.1).

use units::Instant;

use crate::connection::exchange::{Figures, MAX_AGE, Times};

/// Ports from which clients ask: Linux takes them from here on, others from higher ones (RFC 6335 section 6). The
/// answering side has a port below.
const CLIENT_PORTS: u16 = 32_768;
/// Ports of QUIC.
const QUIC: [u16; 2] = [80, 443];
/// Exchanges before a spread says anything.
const MIN_EXCHANGES: u64 = 8;
/// Of the requests, one in so many may have no answer; a stream that now and then gets a report has more of them.
const LOST_ONE_IN: u64 = 10;
/// The answers' standard deviation is at most this part of the requests': of two timers it is at least as large.
const SPREAD: f64 = 0.5;

/// Mean and variance as they come (Welford 1962).
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }
}

/// The turns of one UDP flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// The last request, and the bytes of the capture up to it; `None` once it is answered.
    open: Option<(Instant, u64)>,
    asked: Option<Instant>,
    requests: u64,
    intervals: Spread,
    answers: Spread,
    times: Times,
}

/// Who may ask on these ports: the index of the side with a client's port.
pub(crate) fn asker(ports: [u16; 2]) -> Option<usize> {
    let asker = usize::from(ports[0] < CLIENT_PORTS);
    let server = ports[1 - asker];
    let apart = ports[asker] >= CLIENT_PORTS && server < CLIENT_PORTS && !QUIC.contains(&server);
    apart.then_some(asker)
}

impl Turns {
    /// A datagram of the side that asks, or of the other one; `bytes` of the whole capture up to it, itself included for a
    /// request. False: these are no turns.
    pub fn take(&mut self, asks: bool, at: Instant, bytes: u64) -> bool {
        if asks {
            if let Some(before) = self.asked {
                self.intervals.add(at.since(before).as_secs_f64());
            }
            self.asked = Some(at);
            self.open = Some((at, bytes));
            self.requests += 1;
            return true;
        }
        let Some((sent, before)) = self.open.take() else { return false };
        if at < sent || at.since(sent) > MAX_AGE {
            return false;
        }
        let took = at.since(sent);
        self.answers.add(took.as_secs_f64());
        self.times.record(took, bytes.saturating_sub(before));
        true
    }

    /// The figures, if the flow has shown that answers follow requests.
    pub fn figures(&self) -> Option<Figures> {
        let lost = self.requests - self.answers.count;
        let judged = self.answers.count >= MIN_EXCHANGES && lost * LOST_ONE_IN <= self.requests;
        let follow = self.answers.deviation() <= SPREAD * self.intervals.deviation();
        // The share of those without an answer is not known: the last one may still have one.
        (judged && follow).then(|| self.times.figures(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Instant {
        Instant(1_000_000_000_000 + (s * 1e9) as u64)
    }

    /// Requests at these times, each answered after as many seconds.
    fn turns(exchanges: &[(f64, Option<f64>)]) -> Turns {
        let mut turns = Turns::default();
        for (sent, took) in exchanges {
            assert!(turns.take(true, at(*sent), 0));
            if let Some(took) = took {
                assert!(turns.take(false, at(sent + took), 0));
            }
        }
        turns
    }

    /// Numbers between 0 and 1 that are not regular.
    fn irregular(i: u32) -> f64 {
        f64::from(i * i * 37 % 101) / 101.0
    }

    #[test]
    fn irregular_requests_with_prompt_answers_are_exchanges() {
        let all: Vec<_> = (0..20)
            .map(|i| (f64::from(i) + 0.5 * irregular(i), Some(0.04 + 0.01 * irregular(i + 7))))
            .collect();
        let time = turns(&all).figures().and_then(|f| f.time_ms).expect("exchanges");
        assert_eq!(time.count, 20);
        assert!(time.min >= 40.0 && time.max < 50.0, "{time:?}");
        assert!(turns(&all[..7]).figures().is_none(), "too few");
    }

    #[test]
    fn two_timers_that_alternate_are_none() {
        // Voice: a datagram every 20 ms each way, with jitter.
        let voice: Vec<_> = (0..200)
            .map(|i| {
                let sent = f64::from(i) * 0.02 + 0.002 * irregular(i);
                let back = f64::from(i) * 0.02 + 0.01 + 0.002 * irregular(i + 50);
                (sent, Some(back - sent))
            })
            .collect();
        assert!(turns(&voice).figures().is_none());
    }

    #[test]
    fn a_stream_that_now_and_then_gets_a_report_is_none() {
        let stream: Vec<_> = (0..400)
            .map(|i| (f64::from(i) * 0.02 + 0.01 * irregular(i), (i % 40 == 7).then_some(0.003)))
            .collect();
        assert!(turns(&stream).figures().is_none());
    }

    #[test]
    fn a_second_answer_and_one_before_any_request_end_the_search() {
        let mut one = turns(&[(0.0, Some(0.04))]);
        assert!(!one.take(false, at(0.05), 0));
        assert!(!Turns::default().take(false, at(0.0), 0));
    }

    #[test]
    fn the_side_with_the_port_of_a_client_asks() {
        assert_eq!([asker([40_000, 161]), asker([5_060, 50_000])], [Some(0), Some(1)]);
        let none = [[40_000, 50_000], [161, 162], [40_000, 443], [443, 40_000]];
        assert_eq!(none.map(asker), [None; 4]);
    }
}
