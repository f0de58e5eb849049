//! Round trips of pings: ICMP and ICMPv6 echo requests, and their replies.
//!
//! signal: echo requests and replies with their sequence numbers; the bytes of the whole capture in between · model: a reply
//! has the identifier and the sequence number of its request (RFC 792, RFC 4443 section 4) · action: the RTT, the share of
//! requests without a reply, and the RTT under load, for the row of the requesting direction
//!
//! A ping is under load if at least four full segments of other packets passed the capture while it was under way: the same
//! number as for RTTs of TCP. A request that repeats a sequence number shortly after is a copy, made by the capture or by the
//! network. After [`FORGOTTEN`] the numbers begin again. Requests of the last moments may still get a reply, and are not
//! counted as lost: the capture ended first.

use std::collections::BTreeMap;

use capture::Echo;
use units::{Duration, Histogram, Instant, Quantiles};

use crate::tcp::ack::LOADED_SEGMENTS;
use crate::tcp::stream::TYPICAL_MSS;

/// A request with a sequence number seen this long before is a new one: ping waits ten seconds for a reply at most.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// Requests without a reply that are kept: half of the sequence numbers. Beyond, nothing answers.
const MAX_OPEN: usize = 32_768;
/// Bytes of other packets while a ping is under way, from which it is under load, as for an RTT of TCP.
const LOADED: u64 = LOADED_SEGMENTS * TYPICAL_MSS as u64;

#[derive(Clone, Copy, Debug)]
struct Request {
    sent: Instant,
    /// Bytes of the capture up to it, itself included.
    bytes: u64,
}

/// The pings of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pings {
    open: BTreeMap<u16, Request>,
    requests: u64,
    replies: u64,
    rtt: Histogram,
    loaded: Histogram,
}

/// What the row states of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingFigures {
    pub rtt_ms: Option<Quantiles>,
    pub loaded_rtt_ms: Option<Quantiles>,
    /// Share of requests without a reply.
    pub lost: Option<f64>,
}

impl Pings {
    /// A request; `bytes` of the whole capture up to it.
    pub fn request(&mut self, echo: Echo, at: Instant, bytes: u64) {
        let request = Request { sent: at, bytes };
        match self.open.get(&echo.sequence) {
            Some(before) if at.since(before.sent) < FORGOTTEN => return,
            None if self.open.len() >= MAX_OPEN => {}
            _ => {
                self.open.insert(echo.sequence, request);
            }
        }
        self.requests += 1;
    }

    /// The first reply to a request; `bytes` of the whole capture before it.
    pub fn reply(&mut self, echo: Echo, at: Instant, bytes: u64) {
        let Some(request) = self.open.remove(&echo.sequence) else { return };
        let ns = at.since(request.sent).as_nanos();
        self.replies += 1;
        self.rtt.record(ns);
        if bytes.saturating_sub(request.bytes) >= LOADED {
            self.loaded.record(ns);
        }
    }

    /// The figures; the capture of these hosts ended at `end`.
    pub fn figures(&self, end: Instant) -> PingFigures {
        const MS: f64 = 1e-6;
        let rtt_ms = self.rtt.quantiles(MS);
        let longest = rtt_ms.map_or(FORGOTTEN, |q| Duration((q.max * 1e6) as u64));
        let open = self.open.values().filter(|r| end.since(r.sent) <= longest).count() as u64;
        let judged = self.requests - open.min(self.requests - self.replies);
        PingFigures {
            rtt_ms,
            loaded_rtt_ms: self.loaded.quantiles(MS),
            lost: (judged > 0).then(|| (judged - self.replies) as f64 / judged as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000_000 + ms * 1_000_000)
    }

    fn echo(sequence: u16) -> Echo {
        Echo { reply: false, sequence }
    }

    #[test]
    fn each_reply_is_that_of_its_request_whatever_their_order() {
        let mut pings = Pings::default();
        for i in 0..10_u16 {
            pings.request(echo(i), at(u64::from(i) * 100), 0);
        }
        for i in (0..10_u16).rev() {
            pings.reply(echo(i), at(u64::from(i) * 100 + 50 + u64::from(i)), 0);
            pings.reply(echo(i), at(5_000), 0);
        }
        let figures = pings.figures(at(9_000));
        let rtt = figures.rtt_ms.expect("replies");
        assert_eq!((rtt.count, rtt.min, rtt.max), (10, 50.0, 59.0));
        assert_eq!((figures.lost, figures.loaded_rtt_ms), (Some(0.0), None));
    }

    #[test]
    fn what_is_not_answered_is_lost_unless_the_capture_ended_first() {
        let mut pings = Pings::default();
        for i in 0..10_u16 {
            pings.request(echo(i), at(u64::from(i) * 1_000), 0);
            if i != 3 && i != 9 {
                pings.reply(echo(i), at(u64::from(i) * 1_000 + 40), 0);
            }
        }
        assert_eq!(
            pings.figures(at(9_030)).lost,
            Some(1.0 / 9.0),
            "the last may still be answered"
        );
        assert_eq!(pings.figures(at(9_100)).lost, Some(0.2));
    }

    #[test]
    fn copies_are_no_requests_and_numbers_that_begin_again_are() {
        let mut pings = Pings::default();
        pings.request(echo(1), at(0), 0);
        pings.request(echo(1), at(1), 0);
        pings.reply(echo(1), at(20), 0);
        pings.request(echo(2), at(100), 0);
        pings.request(echo(2), at(20_100), 0);
        pings.reply(echo(2), at(20_130), 0);
        let figures = pings.figures(at(60_000));
        assert_eq!(figures.rtt_ms.map(|q| (q.count, q.min, q.max)), Some((2, 20.0, 30.0)));
        assert_eq!(figures.lost, Some(1.0 / 3.0));
    }

    #[test]
    fn a_ping_beside_four_segments_is_under_load() {
        let mut pings = Pings::default();
        pings.request(echo(1), at(0), 1_000);
        pings.reply(echo(1), at(20), 1_000 + LOADED - 1);
        assert!(pings.figures(at(60_000)).loaded_rtt_ms.is_none());
        pings.request(echo(2), at(100), 50_000);
        pings.reply(echo(2), at(180), 50_000 + LOADED);
        let loaded = pings.figures(at(60_000)).loaded_rtt_ms.expect("loaded");
        assert_eq!((loaded.count, loaded.min), (1, 80.0));
    }
}
