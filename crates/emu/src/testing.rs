//! For tests: a scenario of one link each way, packets with right checksums, and a sum of their
//! words by another way than [`crate::headers::sum`].

use std::sync::Arc;

use algo::Packet;
use algo::port::{Loss, Outcome, QueueRow};
use scenario::{Document, Scenario, TraceText};
use units::Instant;

use crate::link_direction::Sink;

/// The trace of every link that names one, in mahimahi's format: milliseconds of opportunities.
pub const TRACE: &str = "2\n4\n4\n10\n";

/// A scenario of 200 ms with `up` as its first link, whose keys are given.
pub fn scenario(up: &str) -> Scenario {
    let text = format!(
        "name = \"made\"\nduration = \"200 ms\"\nbin = \"50 ms\"\n[link.up]\n{up}\n\
         [link.down]\nrate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n[[flow]]\nfrom = \"client\"\n"
    );
    let read = |_: &str| Ok(TraceText(Arc::from(TRACE)));
    let document = Document::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    document.scenario::<&str, &str>(&[], 1, &read).unwrap_or_else(|e| panic!("{e}")).0
}

/// Milliseconds of the run, which need not be whole.
pub fn ms(n: f64) -> Instant {
    Instant((n * 1e6).round() as u64)
}

/// A packet of so many bytes.
pub fn packet(handle: u32, bytes: u32) -> Packet {
    Packet { handle, bytes, ..Packet::default() }
}

/// The Internet checksum as RFC 1071 defines it, a bit at a time: 16-bit words are added, and each
/// carry is added at the low end at once. 0: a header with its checksum in place is right.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u16::from(*low));
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    u16::MAX - sum
}

/// A UDP packet from node 0 to node 1 with a number in its payload, `length` bytes in all.
pub fn datagram(number: u16, length: usize) -> Vec<u8> {
    let mut p = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0x40, 0, 64, 17, 0, 0];
    p.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let check = checksum(&p);
    p[10..12].copy_from_slice(&check.to_be_bytes());
    p.extend([0x0f, 0xa0, 0x13, 0x89, ((length - 20) >> 8) as u8, (length - 20) as u8, 0, 0]);
    p.extend(number.to_be_bytes());
    p.resize(length, 0x5a);
    p
}

/// What a direction decided: packets that started, with their time of arrival, and those that are
/// gone.
#[derive(Default)]
pub struct Decided {
    pub started: Vec<(Instant, u32, Instant)>,
    pub gone: Vec<(Instant, u32, Loss)>,
    pub bins: Vec<QueueRow>,
    pub last: Instant,
}

impl Sink for Decided {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        assert!(now >= self.last, "time went back from {:?} to {now:?}", self.last);
        self.last = now;
        match outcome {
            Outcome::Started(packet, arrives) => self.started.push((now, packet.handle, *arrives)),
            Outcome::Gone(packet, loss) => self.gone.push((now, packet.handle, *loss)),
            _ => {}
        }
    }

    fn bin(&mut self, row: QueueRow) {
        self.bins.push(row);
    }
}
