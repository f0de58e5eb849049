//! Sends probes at a steady rate from a thread of its own, and receives their answers in another.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;

use super::control::{Control, FromServer, locked};
use super::hop_prober::Hops;
use super::jittered;
use crate::clock::Clock;
use crate::delay::Times;
use crate::expired;
use crate::hops::HopProbe;
use crate::seen::Record;
use crate::socket::{receive, stamped};
use crate::wire::keys::Key;
use crate::wire::probe::{LENGTH, Probe};

/// A probe that left later says something about this host.
pub(crate) const LATE: Duration = Duration::from_millis(5);
/// How long the receiver waits before it looks whether it shall end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Probes on their way.
pub struct Prober {
    records: Arc<Mutex<Vec<Record>>>,
    hops: Arc<Hops>,
    stop: Arc<AtomicBool>,
    sending: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Prober {
    /// Sends `per_s` probes a second from now on.
    pub fn begin(control: &Control, per_s: f64, clock: Clock, mut rng: Rng) -> io::Result<Prober> {
        let mut local = control.local;
        local.set_port(0);
        let socket = Arc::new(stamped(local, LOOK)?);
        socket.connect(control.server)?;
        // Where the kernel cannot, no router is known, and all else is measured.
        let _ = expired::listen(&socket);
        let hops: Arc<Hops> = Arc::default();
        let records: Arc<Mutex<Vec<Record>>> = Arc::default();
        let (stop, sending) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (session, key) = (control.session, control.key.clone());
        let sender = {
            let (socket, records, sending, key) =
                (Arc::clone(&socket), Arc::clone(&records), Arc::clone(&sending), key.clone());
            move || {
                let (mut due, gap) = (Instant::now(), Duration::from_secs_f64(1.0 / per_s));
                let mut number = 0;
                while sending.load(Relaxed) {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let late = due.elapsed() > LATE;
                    let t1 = {
                        // In the list before it is on its way, so that its answer finds it.
                        let mut records = locked(&records);
                        let t1 = clock.now();
                        records.push(Record { t1, late, answer: None });
                        t1
                    };
                    let probe = Probe { answer: false, session, number, t1, t2: 0, t3: 0, had: 0 };
                    let bytes = probe.write(&key);
                    // The first error may be that of a probe that expired. What the kernel then does not take is lost.
                    if socket.send(&bytes).is_err() {
                        let _ = socket.send(&bytes);
                    }
                    number += 1;
                    // After a stop of this host there is no burst to catch up.
                    due = (due + jittered(gap, &mut rng)).max(Instant::now());
                }
            }
        };
        let of_hops = {
            let (socket, hops, sending) =
                (Arc::clone(&socket), Arc::clone(&hops), Arc::clone(&sending));
            move || hops.send(&socket, session, clock, || sending.load(Relaxed))
        };
        let receiver = {
            let (records, hops, stop, from_server) = (
                Arc::clone(&records),
                Arc::clone(&hops),
                Arc::clone(&stop),
                Arc::clone(&control.from_server),
            );
            move || {
                while !stop.load(Relaxed) {
                    let came = take_answer(&socket, session, &key, clock, &records, &from_server);
                    if !hops.take(&socket, session, clock) && !came {
                        // The server's port may be closed, and stays so for a moment.
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        };
        Ok(Prober {
            records,
            hops,
            stop,
            sending,
            threads: vec![thread::spawn(sender), thread::spawn(of_hops), thread::spawn(receiver)],
        })
    }

    /// All probes so far.
    pub fn records(&self) -> Vec<Record> {
        locked(&self.records).clone()
    }

    /// Asks each router so many times a second from now on.
    pub fn pace_hops(&self, per_s: f64) {
        self.hops.pace(per_s);
    }

    /// All probes so far that expire on the way.
    pub fn hop_probes(&self) -> Vec<HopProbe> {
        self.hops.probes()
    }

    /// Sends no more; answers still come.
    pub fn pause(&self) {
        self.sending.store(false, Relaxed);
    }

    /// Ends, with all probes.
    pub fn end(self) -> Vec<Record> {
        self.pause();
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            // A thread that panicked has sent or received nothing more.
            let _ = thread.join();
        }
        std::mem::take(&mut locked(&self.records))
    }
}

/// Waits for a datagram, for the socket's time at most; whether one came.
pub(super) fn take_answer(
    socket: &UdpSocket,
    session: u64,
    key: &Key,
    clock: Clock,
    records: &Mutex<Vec<Record>>,
    from_server: &FromServer,
) -> bool {
    let mut buffer = [0; LENGTH + 1];
    let Ok(got) = receive(socket, &mut buffer) else { return false };
    let t4 = clock.of_stamp(got.stamp);
    let Ok(probe) = Probe::read(&buffer[..got.length], key) else { return true };
    if !probe.answer || probe.session != session {
        return true;
    }
    let mut records = locked(records);
    let Some(record) = records.get_mut(probe.number as usize) else { return true };
    // A copy that the network made, or an answer to another probe of this number, changes nothing.
    if record.answer.is_none() && record.t1 == probe.t1 {
        let times = Times { t1: record.t1, t2: probe.t2, t3: probe.t3, t4 };
        if times.is_plausible() {
            record.answer = Some((times, probe.had));
            from_server.alive();
        }
    }
    true
}
