//! Answers the probes of a session.
//!
//! signal: datagrams at the session's UDP socket · model: one that has the session's key, comes from the session's
//! client, was not there before and is within the rate is a probe · action: one answer, never longer: of the same length, or to a
//! QUIC probe the versions of QUIC that this server has; for everything else none at all.

use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use crate::clock::Clock;
use crate::socket::receive;
use crate::wire::keys::Key;
use crate::wire::probe::Probe;
use crate::wire::quic_probe::{LENGTH, QuicProbe};
use crate::wire::replay::Replay;

/// QUIC probes that are answered in a second: twice the most that a client sends.
pub const MAX_QUIC_PER_S: u32 = 10;

/// Who may be answered, and how often.
pub struct Answerer {
    /// The session's number.
    pub session: u64,
    /// The session's key.
    pub key: Key,
    /// The session's client.
    pub peer: IpAddr,
    /// Answers a second.
    pub pps: u32,
    /// The clock of the times.
    pub clock: Clock,
    probes: Allowed,
    had: u32,
    quic: Allowed,
}

/// What is answered: once each, and so many in a second.
#[derive(Default)]
struct Allowed {
    replay: Replay,
    second: Option<Instant>,
    in_second: u32,
}

impl Allowed {
    /// Whether a probe of this number is answered now.
    fn takes(&mut self, number: u32, per_s: u32) -> bool {
        if !self.replay.is_new(number) {
            return false;
        }
        let now = Instant::now();
        if self.second.is_none_or(|begun| now.duration_since(begun).as_secs() >= 1) {
            (self.second, self.in_second) = (Some(now), 0);
        }
        self.in_second += 1;
        self.in_second <= per_s
    }
}

impl Answerer {
    /// For one session.
    pub fn new(session: u64, key: Key, peer: IpAddr, pps: u32, clock: Clock) -> Answerer {
        Answerer {
            session,
            key,
            peer,
            pps,
            clock,
            probes: Allowed::default(),
            had: 0,
            quic: Allowed::default(),
        }
    }

    /// Waits for a datagram, for the socket's time at most; whether it was a probe and has been answered.
    pub fn serve(&mut self, socket: &UdpSocket) -> bool {
        // Longer than a probe of the other kind, which then is none.
        let mut buffer = [0; LENGTH];
        let Ok(got) = receive(socket, &mut buffer) else { return false };
        let t2 = self.clock.of_stamp(got.stamp);
        let Some(from) = got.from.filter(|from| from.ip() == self.peer) else { return false };
        let bytes = &buffer[..got.length];
        if let Some(probe) = QuicProbe::read(bytes, &self.key) {
            return self.quic.takes(probe.number, MAX_QUIC_PER_S)
                && socket.send_to(&probe.answer(), from).is_ok();
        }
        let Some(probe) = self.judged(bytes) else { return false };
        let answer = Probe { answer: true, t2, t3: self.clock.now(), had: self.had, ..probe };
        socket.send_to(&answer.write(&self.key), from).is_ok()
    }

    fn judged(&mut self, bytes: &[u8]) -> Option<Probe> {
        let probe = Probe::read(bytes, &self.key).ok()?;
        let ours = !probe.answer && probe.session == self.session;
        if !ours || !self.probes.takes(probe.number, self.pps) {
            return None;
        }
        self.had = self.had.wrapping_add(1);
        Some(probe)
    }
}
