//! Probes to a server of irtt at a steady rate, sent by one thread, and their answers, received by another.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;

use super::packet::{Reply, probe};
use super::session::{Agreed, BUFFER, Session};
use crate::client::{LATE, jittered, locked};
use crate::clock::Clock;
use crate::delay::Times;
use crate::seen::Record;
use crate::socket::receive;

/// Without an answer for so long, the path or the server is gone.
const DEAD: Duration = Duration::from_secs(3);

/// Notes the answer to a probe; a copy, or one that no server may have written, changes nothing. Whether it was noted.
fn note(records: &mut [Record], reply: &Reply, t4: i64) -> bool {
    let Some(record) = records.get_mut(reply.number as usize) else { return false };
    let t1 = record.t1;
    // Without the server's times all of the round trip is taken for the way back.
    let (t2, t3) = reply.times.unwrap_or((t1, t1));
    let times = Times { t1, t2, t3, t4 };
    if record.answer.is_some() || !times.is_plausible() {
        return false;
    }
    record.answer = Some((times, reply.had.unwrap_or(0)));
    true
}

struct Shared {
    session: Session,
    clock: Clock,
    records: Mutex<Vec<Record>>,
    /// When the last answer came, client's clock.
    alive: AtomicI64,
    closed: AtomicBool,
    sending: AtomicBool,
    stop: AtomicBool,
}

/// Probes on their way.
pub(crate) struct Probes {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Probes {
    /// Sends probes from now on.
    pub fn begin(session: Session, clock: Clock, rng: Rng) -> Probes {
        let shared = Arc::new(Shared {
            session,
            clock,
            records: Mutex::default(),
            alive: AtomicI64::new(clock.now()),
            closed: AtomicBool::new(false),
            sending: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        });
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads =
            vec![thread::spawn(move || one.send(rng)), thread::spawn(move || other.receive())];
        Probes { shared, threads }
    }

    /// What both ends agreed on.
    pub fn agreed(&self) -> Agreed {
        self.shared.session.agreed
    }

    /// How many were sent.
    pub fn sent(&self) -> usize {
        locked(&self.shared.records).len()
    }

    /// Why no more answers come.
    pub fn over(&self) -> Option<String> {
        if self.shared.closed.load(Relaxed) {
            return Some("the server of irtt closed the session".to_owned());
        }
        let silent = self.shared.clock.now() - self.shared.alive.load(Relaxed);
        (silent > DEAD.as_nanos() as i64)
            .then(|| format!("the server of irtt answered nothing for {} s", DEAD.as_secs()))
    }

    /// Sends no more; answers still come.
    pub fn pause(&self) {
        self.shared.sending.store(false, Relaxed);
    }

    /// Ends the session, with all probes.
    pub fn end(self) -> Vec<Record> {
        self.pause();
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads {
            // A thread that panicked has sent or received nothing more.
            let _ = thread.join();
        }
        self.shared.session.close();
        std::mem::take(&mut locked(&self.shared.records))
    }
}

impl Shared {
    fn send(&self, mut rng: Rng) {
        let Session { socket, token, key, agreed, .. } = &self.session;
        let mut due = Instant::now();
        for number in 0.. {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if !self.sending.load(Relaxed) {
                return;
            }
            let bytes = probe(*token, number, agreed.length, key);
            let late = due.elapsed() > LATE;
            {
                // In the list before it is on its way, so that its answer finds it.
                let mut records = locked(&self.records);
                records.push(Record { t1: self.clock.now(), late, answer: None });
            }
            // The first error may be of an ICMP message that came before. What the kernel then does not take is lost.
            if socket.send(&bytes).is_err() {
                let _ = socket.send(&bytes);
            }
            // After a stop of this host there is no burst to catch up.
            due = (due + jittered(agreed.gap, &mut rng)).max(Instant::now());
        }
    }

    fn receive(&self) {
        let Session { socket, token, key, agreed, .. } = &self.session;
        let mut buffer = [0; BUFFER];
        while !self.stop.load(Relaxed) {
            let Ok(got) = receive(socket, &mut buffer) else {
                // The server's port may be closed, and stays so for a moment.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let t4 = self.clock.of_stamp(got.stamp);
            let Ok(reply) = Reply::read(&buffer[..got.length], key, &agreed.granted) else {
                continue;
            };
            if reply.token != *token {
                continue;
            }
            if note(&mut locked(&self.records), &reply, t4) {
                self.alive.store(t4, Relaxed);
            }
            if reply.closed {
                self.closed.store(true, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::packet::server::reply;
    use super::super::packet::{AT_BOTH, COUNT, MONOTONIC, Parameters};
    use super::*;
    use crate::losses::{Fate, fates};

    const MS: i64 = 1_000_000;

    fn records(count: usize) -> Vec<Record> {
        (0..count as i64).map(|n| Record { t1: n * 20 * MS, late: false, answer: None }).collect()
    }

    fn read(bytes: &[u8]) -> Reply {
        let granted = Parameters {
            counts: COUNT,
            stamps: AT_BOTH,
            clocks: MONOTONIC,
            ..Parameters::default()
        };
        Reply::read(bytes, b"", &granted).unwrap()
    }

    /// A server that gets the probes in the order of their arrival, and answers those whose answer is not lost. What the
    /// client knows then.
    fn played(ways: &[(bool, bool)], delays_ms: &[i64]) -> Vec<Record> {
        let mut records = records(ways.len());
        let mut arrivals: Vec<(i64, usize)> = (0..ways.len())
            .filter(|n| ways[*n].0)
            .map(|n| (records[n].t1 + delays_ms[n % delays_ms.len()] * MS, n))
            .collect();
        arrivals.sort();
        for (had, (at, n)) in arrivals.iter().enumerate() {
            let times = (at + 5_000 * MS, at + 5_002 * MS);
            let bytes = reply((7, *n as u32), had as u32 + 1, times, 0, b"");
            if ways[*n].1 {
                assert!(note(&mut records, &read(&bytes), at + 12 * MS));
                assert!(!note(&mut records, &read(&bytes), at + 900 * MS), "a copy");
            }
        }
        records
    }

    #[test]
    fn answers_without_times_still_have_a_round_trip() {
        let mut records = records(2);
        let bare = Reply { token: 7, number: 1, closed: false, had: None, times: None };
        assert!(note(&mut records, &bare, 45 * MS));
        let (times, _) = records[1].answer.unwrap();
        assert_eq!(times.rtt_ns(), 25 * MS);
    }

    #[test]
    fn numbers_and_times_of_no_server_change_nothing() {
        let mut records = records(2);
        for (number, times) in
            [(2, (1, 2)), (u32::MAX, (1, 2)), (1, (2, 1)), (1, (i64::MIN, i64::MAX))]
        {
            let bytes = reply((7, number), 1, times, 0, b"");
            assert!(!note(&mut records, &read(&bytes), 45 * MS));
        }
        assert!(records.iter().all(|record| record.answer.is_none()));
    }

    proptest! {
        #[test]
        fn losses_are_counted_in_their_direction(
            ways in prop::collection::vec((prop::bool::weighted(0.9), prop::bool::weighted(0.9)), 1..200),
        ) {
            let records = played(&ways, &[8]);
            let counts: Vec<_> = records.iter().map(|r| r.answer.map(|(_, had)| had)).collect();
            let known = counts.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            let fates = fates(&counts);
            let count = |fate| fates.iter().filter(|one| **one == fate).count();
            prop_assert_eq!(count(Fate::LostUp), ways[..known].iter().filter(|(up, _)| !up).count());
            let down = ways[..known].iter().filter(|(up, down)| *up && !down).count();
            prop_assert_eq!(count(Fate::LostDown), down);
        }

        #[test]
        fn reordered_packets_keep_their_times(
            delays in prop::collection::vec(1_i64..60, 1..9),
        ) {
            let records = played(&[(true, true); 100], &delays);
            for (n, record) in records.iter().enumerate() {
                let (times, _) = record.answer.unwrap();
                // 2 ms at the server are no part of the round trip.
                prop_assert_eq!(times.rtt_ns(), (delays[n % delays.len()] + 10) * MS);
            }
            let counts: Vec<_> = records.iter().map(|r| r.answer.map(|(_, had)| had)).collect();
            prop_assert!(fates(&counts).iter().all(|fate| *fate == Fate::Answered));
        }
    }
}
