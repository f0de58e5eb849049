//! Probes of a gate that measures delay by itself (cake-autorate's law): pings from the device's
//! node to the far end.
//!
//! The echo request (RFC 792) enters the device's own queue like any packet of the node. The far
//! kernel answers. The worker that hands packets over to the node intercepts the answer, and the
//! gate gets the round trip.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sys::eventfd::EventFd;
use units::{Duration, Instant};

use crate::headers::sum;

/// fping's packet, on the IP layer.
const LENGTH: usize = 84;
/// First bytes of its data, which distinguish an answer from those to other pings.
const MARK: [u8; 8] = *b"unbloat\n";
/// Answers that may wait for the gate; at 20 a second it is never more than one.
const MAX_ANSWERS: usize = 64;
/// Requests without an answer that are remembered; cake-autorate waits for a second.
const MAX_UNANSWERED: usize = 256;

/// Sends requests and matches answers.
pub struct Prober {
    own: [u8; 4],
    far: [u8; 4],
    number: u16,
    next: Instant,
    sent: VecDeque<(u16, Instant)>,
    answers: Receiver<u16>,
    /// Readable when an answer has arrived.
    pub wake: Arc<EventFd>,
}

/// Intercepts answers in the opposite direction.
#[derive(Clone)]
pub struct Listener {
    own: [u8; 4],
    answers: SyncSender<u16>,
    wake: Arc<EventFd>,
}

/// Both ends for a node that probes another.
pub fn pair(own: [u8; 4], far: [u8; 4], wake: EventFd) -> (Prober, Listener) {
    let (sender, answers) = sync_channel(MAX_ANSWERS);
    let wake = Arc::new(wake);
    let listener = Listener { own, answers: sender, wake: wake.clone() };
    let prober =
        Prober { own, far, number: 0, next: Instant::ZERO, sent: VecDeque::new(), answers, wake };
    (prober, listener)
}

impl Prober {
    /// When the next request is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The gate needs no probes now: the next one is not before this time.
    pub fn pause(&mut self, now: Instant) {
        self.next = now;
    }

    /// The next request, and when it was due.
    pub fn next_request(&mut self, every: Duration) -> (Instant, [u8; LENGTH]) {
        let at = self.next;
        self.next = at + every.max(Duration(1));
        self.number = self.number.wrapping_add(1);
        self.sent.push_back((self.number, at));
        if self.sent.len() > MAX_UNANSWERED {
            self.sent.pop_front();
        }
        (at, self.request())
    }

    fn request(&self) -> [u8; LENGTH] {
        let mut p = [0; LENGTH];
        p[..12].copy_from_slice(&[0x45, 0, 0, LENGTH as u8, 0, 0, 0x40, 0, 64, 1, 0, 0]);
        p[12..16].copy_from_slice(&self.own);
        p[16..20].copy_from_slice(&self.far);
        let check = !sum(0, &p[..20]);
        p[10..12].copy_from_slice(&check.to_be_bytes());
        p[20] = 8;
        p[26..28].copy_from_slice(&self.number.to_be_bytes());
        p[28..36].copy_from_slice(&MARK);
        let check = !sum(0, &p[20..]);
        p[22..24].copy_from_slice(&check.to_be_bytes());
        p
    }

    /// The next answer's round trip.
    pub fn next_round_trip(&mut self, now: Instant) -> Option<Duration> {
        // A wake-up too many is harmless.
        let _ = self.wake.read();
        loop {
            let number = self.answers.try_recv().ok()?;
            if let Some(place) = self.sent.iter().position(|(sent, _)| *sent == number) {
                let (_, at) = self.sent.drain(..=place).next_back()?;
                return Some(now.since(at));
            }
        }
    }
}

impl Listener {
    /// Intercepts an answer to a probe; whether it was one.
    pub fn intercepts(&self, packet: &[u8]) -> bool {
        let is_answer = packet.len() == LENGTH
            && packet[0] == 0x45
            && packet[9] == 1
            && packet[16..20] == self.own
            && packet[20] == 0
            && packet[28..36] == MARK;
        if is_answer {
            // Full or gone: the gate has stopped probing.
            let _ = self.answers.try_send(u16::from_be_bytes([packet[26], packet[27]]));
            let _ = self.wake.write(1);
        }
        is_answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_and_becomes_a_round_trip() {
        let wake =
            EventFd::from_flags(nix::sys::eventfd::EfdFlags::EFD_NONBLOCK).expect("an eventfd");
        let (mut prober, listener) = pair([10, 0, 0, 1], [10, 0, 0, 2], wake);
        let (first, _) = prober.next_request(Duration::from_millis(50));
        let (second, request) = prober.next_request(Duration::from_millis(50));
        assert_eq!((first, second), (Instant::ZERO, Instant(50_000_000)));
        assert_eq!((sum(0, &request[..20]), sum(0, &request[20..])), (0xffff, 0xffff));
        assert!(!listener.intercepts(&request), "a request is none");
        let mut answer = request;
        answer.copy_within(12..16, 16);
        answer[12..16].copy_from_slice(&[10, 0, 0, 2]);
        answer[20] = 0;
        assert!(listener.intercepts(&answer));
        assert_eq!(prober.next_round_trip(Instant(120_000_000)), Some(Duration::from_millis(70)));
        assert_eq!(prober.next_round_trip(Instant(120_000_000)), None);
    }
}
