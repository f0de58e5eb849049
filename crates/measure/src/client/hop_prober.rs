//! Sends probes that expire at each hop, over the socket of the other probes, so that they take the same path.
//!
//! First every hop is tried; then only hops that have answered are asked, at the rate of the present part of the test. The
//! server does not answer these probes, and does not count them.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::control::locked;
use crate::clock::Clock;
use crate::expired::{self, Expired};
use crate::hops::HopProbe;
use crate::wire::probe::{LENGTH, expiring, expiring_number};

/// Hops that are tried; few paths in the Internet are longer.
const HOPS: u8 = 24;
/// Rounds in which all are tried.
const ROUNDS: usize = 2;
/// Between two probes of a round, so that a round is no burst.
const GAP: Duration = Duration::from_millis(5);
/// Between two looks at the rate.
const LOOK: Duration = Duration::from_millis(20);
/// An answer that quotes nothing belongs to the only probe of its hop that is so young.
const YOUNG_NS: i64 = 2_000_000_000;

/// What is known of the hops.
#[derive(Default)]
pub struct Hops {
    probes: Mutex<Vec<HopProbe>>,
    /// Rounds a hundred seconds; 0: none.
    rate: AtomicU32,
}

impl Hops {
    /// Rounds a second from now on.
    pub fn pace(&self, per_s: f64) {
        self.rate.store((per_s * 100.0) as u32, Relaxed);
    }

    /// All probes so far.
    pub fn probes(&self) -> Vec<HopProbe> {
        locked(&self.probes).clone()
    }

    /// Sends rounds until `sending` says no.
    pub fn send(
        self: &Arc<Hops>,
        socket: &UdpSocket,
        session: u64,
        clock: Clock,
        sending: impl Fn() -> bool,
    ) {
        let mut rounds = 0;
        let mut last = Instant::now();
        while sending() {
            thread::sleep(LOOK);
            let rate = self.rate.load(Relaxed);
            let due =
                rate > 0 && last.elapsed() >= Duration::from_secs_f64(100.0 / f64::from(rate));
            // Both first rounds are early: the idle phase of a quick test has one second.
            if rounds > 0 && !due {
                continue;
            }
            last = Instant::now();
            rounds += 1;
            for hop in self.wanted(rounds <= ROUNDS) {
                let number = {
                    // In the list before it is on its way, so that its answer finds it.
                    let mut probes = locked(&self.probes);
                    probes.push(HopProbe { hop, t1: clock.now(), answer: None });
                    probes.len() - 1
                };
                let bytes = expiring(session, number as u32);
                // The first error may be that of an earlier probe.
                if expired::send(socket, &bytes, hop).is_err() {
                    let _ = expired::send(socket, &bytes, hop);
                }
                thread::sleep(GAP);
            }
        }
    }

    fn wanted(&self, all: bool) -> Vec<u8> {
        let probes = locked(&self.probes);
        (1..=HOPS)
            .filter(|hop| all || probes.iter().any(|p| p.hop == *hop && p.answer.is_some()))
            .collect()
    }

    /// Takes all answers that wait; whether there was one.
    pub fn take(&self, socket: &UdpSocket, session: u64, clock: Clock) -> bool {
        let mut some = false;
        while let Some(next) = expired::next(socket) {
            some = true;
            if let Some(answer) = next {
                self.answered(&answer, session, clock.of_stamp(answer.stamp));
            }
        }
        some
    }

    fn answered(&self, answer: &Expired, session: u64, t4: i64) {
        let mut probes = locked(&self.probes);
        let number = if answer.quoted.len() >= LENGTH / 4 {
            expiring_number(&answer.quoted, session).map(|number| number as usize)
        } else {
            let hop = probes
                .iter()
                .find_map(|p| p.answer.filter(|(_, from)| *from == answer.from).map(|_| p.hop));
            let young =
                |p: &HopProbe| Some(p.hop) == hop && p.answer.is_none() && t4 - p.t1 < YOUNG_NS;
            let mut waiting = (0..probes.len()).filter(|n| young(&probes[*n]));
            waiting.next().filter(|_| waiting.next().is_none())
        };
        if let Some(probe) = number.and_then(|number| probes.get_mut(number))
            && probe.answer.is_none()
            && t4 >= probe.t1
        {
            probe.answer = Some((t4, answer.from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn answer(from: [u8; 4], quoted: &[u8]) -> Expired {
        Expired { from: from.into(), quoted: quoted.to_vec(), stamp: None }
    }

    #[test]
    fn an_answer_belongs_to_the_probe_that_it_quotes_or_to_the_only_one_that_waits() {
        let hops = Hops::default();
        let probe = |hop, t1| HopProbe { hop, t1, answer: None };
        *locked(&hops.probes) =
            vec![probe(1, 0), probe(2, 0), probe(1, S), probe(2, S), probe(2, 2 * S)];
        let (one, two) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        hops.answered(&answer(one, &expiring(7, 0)), 7, S / 10);
        hops.answered(&answer(two, &expiring(7, 1)), 7, S / 10);
        hops.answered(&answer(one, &expiring(8, 2)), 7, S / 10 + S);
        assert!(hops.probes()[2].answer.is_none(), "another session");
        hops.answered(&answer(one, &[]), 7, S / 10 + S);
        assert_eq!(hops.probes()[2].answer, Some((S / 10 + S, one.into())));
        hops.answered(&answer(two, &[]), 7, S / 10 + 2 * S);
        let waiting = hops.probes()[3..].iter().filter(|p| p.answer.is_none()).count();
        assert_eq!(waiting, 2, "either could be meant");
        hops.answered(&answer([10, 0, 0, 3], &[]), 7, 2 * S);
        assert_eq!(hops.probes().iter().filter(|p| p.answer.is_some()).count(), 3);
    }
}
