//! Answers the probes of a session.
//!
//! signal: datagrams at the session's UDP socket · model: one that has the session's key, comes from the session's
//! client, was not there before and is within the rate is a probe · action: one answer of the same length; for everything
//! else none at all.

use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use crate::clock::Clock;
use crate::socket::receive;
use crate::wire::keys::Key;
use crate::wire::probe::{LENGTH, Probe};
use crate::wire::replay::Replay;

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
    replay: Replay,
    had: u32,
    second: Option<Instant>,
    in_second: u32,
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
            replay: Replay::default(),
            had: 0,
            second: None,
            in_second: 0,
        }
    }

    /// Waits for a datagram, for the socket's time at most; whether it was a probe and has been answered.
    pub fn serve(&mut self, socket: &UdpSocket) -> bool {
        // One byte more: a longer datagram is none of ours.
        let mut buffer = [0; LENGTH + 1];
        let Ok(got) = receive(socket, &mut buffer) else { return false };
        let t2 = self.clock.of_stamp(got.stamp);
        let Some(from) = got.from.filter(|from| from.ip() == self.peer) else { return false };
        let Some(probe) = self.judged(&buffer[..got.length]) else { return false };
        let answer = Probe { answer: true, t2, t3: self.clock.now(), had: self.had, ..probe };
        socket.send_to(&answer.write(&self.key), from).is_ok()
    }

    fn judged(&mut self, bytes: &[u8]) -> Option<Probe> {
        let probe = Probe::read(bytes, &self.key).ok()?;
        if probe.answer || probe.session != self.session || !self.replay.is_new(probe.number) {
            return None;
        }
        let now = Instant::now();
        if self.second.is_none_or(|begun| now.duration_since(begun).as_secs() >= 1) {
            (self.second, self.in_second) = (Some(now), 0);
        }
        self.in_second += 1;
        if self.in_second > self.pps {
            return None;
        }
        self.had = self.had.wrapping_add(1);
        Some(probe)
    }
}
