//! Opens TCP connections to the server while the test runs, and closes each at once: handshakes beside the probes.
//!
//! Some threads take turns, so that a queue of half a second leaves the rate as it is. The server closes a connection that
//! says nothing; the kernel answers its SYN.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use algo::Rng;

use super::control::locked;
use super::jittered;
use crate::clock::Clock;
use crate::load::LOOK;
use crate::socket::{info, prepare};
use crate::treatment::RoundTrip;

/// Handshakes under way at a time beside probes of our own.
pub const BESIDE_PROBES: u32 = 6;
/// Between two of one thread: twelve a second in all, and seven where each takes 0.3 s. So the two measured seconds of a quick
/// test have fifteen. The packets of each, some 240 bytes, are 12 kbit/s in either direction.
const GAP: Duration = Duration::from_millis(500);
/// Then it is lost. Linux sends a SYN again after one second, and such a handshake counts as lost anyway.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Handshakes on their way.
pub struct Connector {
    made: Arc<Mutex<Vec<RoundTrip>>>,
    stop: Arc<AtomicBool>,
}

impl Connector {
    /// Opens connections from now on, so many at a time at most.
    pub fn begin(server: SocketAddr, threads: u32, clock: Clock, seed: u64) -> Connector {
        let made: Arc<Mutex<Vec<RoundTrip>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        for number in 0..threads {
            let (made, stop) = (Arc::clone(&made), Arc::clone(&stop));
            let mut rng = Rng::new(seed, &format!("handshakes {number}"));
            // Without a thread there are fewer.
            let _ = thread::Builder::new().spawn(move || {
                thread::sleep(GAP * number / threads);
                while !stop.load(Relaxed) {
                    if let Some(handshake) = shake_hands(server, clock) {
                        locked(&made).push(handshake);
                    }
                    thread::sleep(jittered(GAP, &mut rng));
                }
            });
        }
        Connector { made, stop }
    }

    /// Opens no more; the handshakes so far, in the order of time. One under way ends by itself and is not waited for.
    pub fn end(self) -> Vec<RoundTrip> {
        self.stop.store(true, Relaxed);
        let mut made = std::mem::take(&mut *locked(&self.made));
        made.sort_by_key(|handshake| handshake.t1);
        made
    }
}

/// `None`: the other side or this host refuses, which says nothing of the path.
fn shake_hands(server: SocketAddr, clock: Clock) -> Option<RoundTrip> {
    let t1 = clock.now();
    match TcpStream::connect_timeout(&server, TIMEOUT) {
        Ok(socket) => {
            // Its end is a reset, so that no port of this host stays in TIME-WAIT.
            let _ = prepare(&socket, None, LOOK);
            let said = info(&socket);
            // With a SYN that was sent again the kernel's RTT is another one's.
            let rtt_ms = (said.retrans == 0).then(|| f64::from(said.rtt_us) / 1e3);
            Some(RoundTrip { t1, rtt_ms })
        }
        Err(e) if e.kind() == ErrorKind::TimedOut => Some(RoundTrip { t1, rtt_ms: None }),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_handshake_has_the_kernels_round_trip_and_a_refused_one_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = Clock::default().now();
        let made = shake_hands(address, Clock::default()).unwrap();
        assert!(made.t1 >= before);
        assert!(made.rtt_ms.is_some_and(|ms| ms > 0.0 && ms < 1_000.0), "{made:?}");
        drop(listener);
        assert_eq!(shake_hands(address, Clock::default()), None);
    }
}
