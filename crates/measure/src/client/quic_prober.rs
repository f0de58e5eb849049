//! Sends QUIC probes to the server's port while the test runs, and receives their answers: round trips beside the probes.
//!
//! One thread does both: the kernel stamps an answer, so it may wait until it is read.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;

use super::control::{Control, locked};
use super::jittered;
use crate::clock::Clock;
use crate::socket::{receive, stamped};
use crate::treatment::RoundTrip;
use crate::wire::keys::{Key, random};
use crate::wire::quic_probe::{Ids, LENGTH, QuicProbe, answered};

/// Between two looks at the rate, and the most by which a probe leaves late.
const LOOK: Duration = Duration::from_millis(10);
/// Then it is lost, as a handshake.
const TIMEOUT_NS: i64 = 3_000_000_000;
/// Longest answer that is read: a server of others may have some hundred versions.
const MAX_ANSWER: usize = 1500;
/// Bits of a probe on its way, with the headers of UDP and IPv4.
const BITS: f64 = (LENGTH + 28) as f64 * 8.0;
/// Of an upload's rate, probes take less than this: at 2.5 Mbit/s and more that is all of them.
const MAX_SHARE: f64 = 0.02;

/// Probes on their way.
pub struct QuicProber {
    sent: Arc<Mutex<Vec<RoundTrip>>>,
    /// Probes in a thousand seconds; 0: none.
    rate: Arc<AtomicU32>,
    most: u32,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl QuicProber {
    /// Sends at the rate of `pace` from now on; none to a server that does not answer them.
    pub fn begin(control: &Control, clock: Clock, mut rng: Rng) -> io::Result<QuicProber> {
        let sent: Arc<Mutex<Vec<RoundTrip>>> = Arc::default();
        let (rate, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let most = control.quic_probes;
        let mut prober = QuicProber { sent, rate, most, stop, thread: None };
        if most == 0 {
            return Ok(prober);
        }
        let mut local = control.local;
        local.set_port(0);
        let socket = stamped(local, LOOK)?;
        socket.connect(control.server)?;
        let filler = random::<LENGTH>()?;
        let (sent, rate, stop) =
            (Arc::clone(&prober.sent), Arc::clone(&prober.rate), Arc::clone(&prober.stop));
        let key = control.key.clone();
        prober.thread = Some(thread::Builder::new().spawn(move || {
            let mut waiting: HashMap<Ids, usize> = HashMap::new();
            let mut due = Instant::now();
            while !stop.load(Relaxed) {
                let now = Instant::now();
                let rate = rate.load(Relaxed);
                if rate == 0 {
                    due = now;
                } else if now >= due {
                    if let Some((ids, number)) = send(&socket, &sent, &key, &filler, clock) {
                        waiting.insert(ids, number);
                    }
                    due = now + jittered(Duration::from_secs(1000) / rate, &mut rng);
                }
                take_answer(&socket, &mut waiting, &sent, clock);
            }
        })?);
        Ok(prober)
    }

    /// Sends so many a second from now on, fewer beside an upload that they would be a part of.
    pub fn pace(&self, per_s: f64, upload_bps: Option<f64>) {
        let share = upload_bps.map_or(f64::INFINITY, |bps| MAX_SHARE * bps / BITS);
        let per_s = per_s.min(share).min(f64::from(self.most));
        self.rate.store((per_s * 1e3) as u32, Relaxed);
    }

    /// Ends, with all probes in the order of time.
    pub fn end(self) -> Vec<RoundTrip> {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread {
            // A thread that panicked has sent or received nothing more.
            let _ = thread.join();
        }
        std::mem::take(&mut locked(&self.sent))
    }
}

/// A new probe: its connection IDs, and its place in the list. `None`: this host does not send it, which says nothing of the path.
fn send(
    socket: &UdpSocket,
    sent: &Mutex<Vec<RoundTrip>>,
    key: &Key,
    filler: &[u8; LENGTH],
    clock: Clock,
) -> Option<(Ids, usize)> {
    let number = locked(sent).len();
    let probe = QuicProbe::new(number as u32, random().ok()?);
    let bytes = probe.write(key, filler);
    let t1 = clock.now();
    // The first error may be the answer to an earlier probe: a port that is closed.
    socket.send(&bytes).or_else(|_| socket.send(&bytes)).ok()?;
    locked(sent).push(RoundTrip { t1, rtt_ms: None });
    Some((probe.ids, number))
}

/// Waits for a datagram, for the socket's time at most.
fn take_answer(
    socket: &UdpSocket,
    waiting: &mut HashMap<Ids, usize>,
    sent: &Mutex<Vec<RoundTrip>>,
    clock: Clock,
) {
    let mut buffer = [0; MAX_ANSWER];
    let got = match receive(socket, &mut buffer) {
        Ok(got) => got,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
        // The server's port may be closed, and stays so for a moment.
        Err(_) => return thread::sleep(LOOK),
    };
    let t4 = clock.of_stamp(got.stamp);
    let Some(ids) = answered(&buffer[..got.length]) else { return };
    // A copy that the network made finds none that waits.
    let Some(number) = waiting.remove(&ids) else { return };
    if let Some(trip) = locked(sent).get_mut(number)
        && (0..TIMEOUT_NS).contains(&(t4 - trip.t1))
    {
        trip.rtt_ms = Some((t4 - trip.t1) as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_its_own_probe_once_and_in_time() {
        let clock = Clock::default();
        let key = Key::derived("token", &[1; 32]);
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = stamped("127.0.0.1:0".parse().unwrap(), Duration::from_secs(5)).unwrap();
        socket.connect(server.local_addr().unwrap()).unwrap();
        let (sent, mut waiting) = (Mutex::default(), HashMap::new());
        let mut answers = Vec::new();
        for number in 0..3 {
            let (ids, at) = send(&socket, &sent, &key, &[7; LENGTH], clock).unwrap();
            assert_eq!(at, number);
            waiting.insert(ids, at);
            let mut buffer = [0; 2 * LENGTH];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(length, LENGTH);
            let probe = QuicProbe::read(&buffer[..length], &key).unwrap();
            assert_eq!((probe.number, probe.ids), (number as u32, ids));
            answers.push((probe.answer(), from));
        }
        // The last one is too late, and one is no answer at all.
        locked(&sent)[2].t1 -= TIMEOUT_NS;
        let none = (QuicProbe::new(0, [9; _]).answer(), answers[0].1);
        for (answer, to) in [answers[1], answers[1], none, answers[2]] {
            server.send_to(&answer, to).unwrap();
            take_answer(&socket, &mut waiting, &sent, clock);
        }
        let list = locked(&sent).clone();
        assert!(list[1].rtt_ms.is_some_and(|ms| ms > 0.0 && ms < 3_000.0), "{list:?}");
        assert_eq!((list[0].rtt_ms, list[2].rtt_ms, waiting.len()), (None, None, 1));
    }
}
