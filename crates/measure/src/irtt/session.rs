//! A session with a server of irtt: what is asked for, what the server grants, and the socket.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::PORT;
use super::packet::{
    AT_BOTH, COUNT, MONOTONIC, Opened, Parameters, VERSION, close, open, shortest,
};
use crate::client::{Failure, JITTER, LOOK, addresses};
use crate::socket::{receive, stamped};

/// As probes of our own: 50 a second.
const GAP: Duration = Duration::from_millis(20);
/// At most 100 a second, whatever a server allows.
const MIN_GAP: Duration = Duration::from_millis(10);
/// A server that wants longer gaps is none for delays of a queue; irtt's own client refuses it, too.
const MAX_GAP: Duration = Duration::from_secs(1);
/// As probes of our own.
const LENGTH: usize = 88;
/// Longer than any datagram that is of use: a server may fill its answers.
pub(super) const BUFFER: usize = 1500;
/// Between two requests; a server wants 0.2 s at least.
const AGAIN: Duration = Duration::from_secs(1);
/// As long as a TCP connection may take.
const REQUESTS: usize = 3;

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Agreed {
    /// Mean time between two probes.
    pub gap: Duration,
    /// Of a probe.
    pub length: usize,
    /// How long the server serves.
    pub duration: Duration,
    /// In the server's words, by which its answers are read.
    pub granted: Parameters,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it speaks version {0} of irtt's protocol, this client version {VERSION}")]
    Version(i64),
    #[error("it opens no session")]
    Closed,
    #[error("it takes a probe each {0:.1} s only")]
    Slow(f64),
}

fn asked(duration: Duration) -> Parameters {
    Parameters {
        version: VERSION,
        duration_ns: duration.as_nanos() as i64,
        // The shortest that jitter makes of a gap.
        interval_ns: GAP.mul_f64(1.0 - JITTER).as_nanos() as i64,
        length: LENGTH as i64,
        counts: COUNT,
        stamps: AT_BOTH,
        clocks: MONOTONIC,
    }
}

/// What the server restricts is kept, what it leaves out is as it was asked for. `shortest`: a probe of no payload.
fn agree(asked: &Parameters, opened: &Opened, shortest: usize) -> Result<Agreed, Refusal> {
    let granted = opened.parameters;
    if granted.version != asked.version {
        return Err(Refusal::Version(granted.version));
    }
    if opened.closed || opened.token == 0 {
        return Err(Refusal::Closed);
    }
    let least = |own: i64, others: i64| if others > 0 { own.min(others) } else { own };
    // No gap is shorter than the server's interval, jitter and all.
    let interval = granted.interval_ns.max(asked.interval_ns) as u64;
    let gap =
        Duration::from_nanos(interval).div_f64(1.0 - JITTER).max(MIN_GAP.div_f64(1.0 - JITTER));
    if gap > MAX_GAP {
        return Err(Refusal::Slow(interval as f64 / 1e9));
    }
    Ok(Agreed {
        gap,
        length: (least(asked.length, granted.length) as usize).max(shortest),
        duration: Duration::from_nanos(least(asked.duration_ns, granted.duration_ns) as u64),
        granted,
    })
}

impl Agreed {
    /// Whether delay and loss are known of each direction.
    pub fn has_directions(&self) -> bool {
        self.granted.counts & COUNT != 0 && self.granted.stamps != 0 && self.granted.clocks != 0
    }

    /// Probes a second.
    pub fn per_s(&self) -> f64 {
        1.0 / self.gap.as_secs_f64()
    }
}

/// An open session.
pub(crate) struct Session {
    pub socket: UdpSocket,
    pub server: SocketAddr,
    pub token: u64,
    pub key: Vec<u8>,
    pub agreed: Agreed,
}

impl Session {
    /// Opens one with the first address that answers. `port`: instead of the one that the host names.
    pub fn open(
        host: &str,
        port: Option<u16>,
        key: &str,
        duration: Duration,
    ) -> Result<Session, Failure> {
        let mut why = Failure::NoServer(format!("{host}: no address"));
        for mut address in addresses(host, PORT)? {
            if let Some(port) = port {
                address.set_port(port);
            }
            match Session::at(address, key.as_bytes(), duration) {
                Ok(session) => return Ok(session),
                Err(Failure::NoServer(text)) => why = Failure::NoServer(format!("{host}: {text}")),
                Err(failure) => return Err(failure),
            }
        }
        Err(why)
    }

    fn at(server: SocketAddr, key: &[u8], duration: Duration) -> Result<Session, Failure> {
        let failed = |e: std::io::Error| {
            Failure::NoServer(format!("no answer from {server} ({})", e.kind()))
        };
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = stamped(any, LOOK).map_err(failed)?;
        socket.connect(server).map_err(failed)?;
        let asked = asked(duration);
        let mut buffer = [0; BUFFER];
        for _ in 0..REQUESTS {
            socket.send(&open(asked, key)).map_err(failed)?;
            let until = Instant::now() + AGAIN;
            while Instant::now() < until {
                let got = match receive(&socket, &mut buffer) {
                    Ok(got) => got,
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                    {
                        continue;
                    }
                    // An ICMP error: the port is closed, or there is no way.
                    Err(e) => return Err(failed(e)),
                };
                let Ok(opened) = Opened::read(&buffer[..got.length], key) else { continue };
                let agreed = agree(&asked, &opened, shortest(key))
                    .map_err(|refusal| Failure::Refused(refusal.to_string()))?;
                return Ok(Session {
                    socket,
                    server,
                    token: opened.token,
                    key: key.to_vec(),
                    agreed,
                });
            }
        }
        let or = if key.is_empty() { "it wants an HMAC key" } else { "its HMAC key is another" };
        Err(Failure::NoServer(format!("no answer from {server}: no server of irtt, or {or}")))
    }

    /// Lets the server forget it. Where this is lost the server does so after a while.
    pub fn close(&self) {
        let _ = self.socket.send(&close(self.token, &self.key));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::packet::server::opened;
    use super::*;

    fn granted(change: impl Fn(&mut Parameters)) -> Result<Agreed, Refusal> {
        let asked = asked(Duration::from_secs(20));
        let mut parameters = asked;
        change(&mut parameters);
        agree(&asked, &Opened { token: 7, closed: false, parameters }, 16)
    }

    #[test]
    fn what_the_server_restricts_is_kept() {
        let all = granted(|_| ()).unwrap();
        assert_eq!((all.gap, all.length), (GAP, LENGTH));
        assert_eq!(all.duration, Duration::from_secs(20));
        assert!(all.has_directions());
        let less = granted(|p| {
            p.interval_ns = 40_000_000;
            p.duration_ns = 5_000_000_000;
            p.length = 60;
            p.stamps = 4;
        })
        .unwrap();
        // With jitter the shortest gap is the server's interval.
        assert_eq!(less.gap, Duration::from_millis(50));
        assert_eq!((less.length, less.duration), (60, Duration::from_secs(5)));
        assert!(less.has_directions(), "one time between the two is enough");
        assert!(!granted(|p| p.stamps = 0).unwrap().has_directions());
        assert!(!granted(|p| p.counts = 0).unwrap().has_directions());
    }

    #[test]
    fn what_the_server_leaves_out_or_raises_is_as_it_was_asked_for() {
        let silent = granted(|p| *p = Parameters { version: VERSION, ..Parameters::default() });
        let silent = silent.unwrap();
        assert_eq!((silent.gap, silent.length), (GAP, LENGTH));
        let lavish = granted(|p| {
            (p.interval_ns, p.length, p.duration_ns) = (1, i64::MAX, i64::MAX);
        });
        let lavish = lavish.unwrap();
        assert_eq!((lavish.gap, lavish.length), (GAP, LENGTH));
        assert_eq!(lavish.duration, Duration::from_secs(20));
        for negative in [i64::MIN, -1] {
            let none = granted(|p| {
                (p.interval_ns, p.length, p.duration_ns) = (negative, negative, negative)
            });
            assert_eq!(none.unwrap().length, LENGTH);
        }
        assert_eq!(granted(|p| p.length = 3).unwrap().length, 16);
    }

    #[test]
    fn a_server_that_cannot_be_used_is_refused() {
        assert_eq!(granted(|p| p.version = 2), Err(Refusal::Version(2)));
        assert_eq!(granted(|p| p.interval_ns = 2_000_000_000), Err(Refusal::Slow(2.0)));
        assert!(matches!(granted(|p| p.interval_ns = i64::MAX), Err(Refusal::Slow(_))));
        let asked = asked(Duration::from_secs(1));
        let opened = |token, closed| Opened { token, closed, parameters: asked };
        for one in [opened(0, false), opened(7, true)] {
            assert_eq!(agree(&asked, &one, 16), Err(Refusal::Closed));
        }
    }

    #[test]
    fn the_second_request_is_answered_where_the_first_was_lost() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = peer.local_addr().unwrap().to_string();
        let answers = thread::spawn(move || {
            let mut buffer = [0; BUFFER];
            peer.recv_from(&mut buffer).unwrap();
            let (_, client) = peer.recv_from(&mut buffer).unwrap();
            let parameters = asked(Duration::from_secs(3));
            // Another server's and one of another key come before.
            peer.send_to(b"hello", client).unwrap();
            peer.send_to(&opened(6, parameters, false, b"other"), client).unwrap();
            peer.send_to(&opened(7, parameters, false, b"key"), client).unwrap();
        });
        let session = Session::open(&at, None, "key", Duration::from_secs(9)).unwrap();
        answers.join().unwrap();
        assert_eq!((session.token, session.agreed.duration), (7, Duration::from_secs(3)));
    }

    #[test]
    fn a_closed_port_and_a_silent_one_are_named() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failed = |at: SocketAddr| {
            let failure = Session::open(&at.to_string(), None, "", Duration::from_secs(1));
            failure.map(|session| session.token).unwrap_err().to_string()
        };
        assert!(failed(closed).contains("refused"));
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(failed(silent.local_addr().unwrap()).contains("or it wants an HMAC key"));
    }
}
