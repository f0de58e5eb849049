//! Detects packets that the capture contains twice. Mirror ports copy both directions of a port, and `-i any`
//! records a forwarded packet on its way in and on its way out.
//!
//! A fingerprint is made of IP identification, sequence and ACK number, flags, length, TSval and SACK. A packet whose
//! fingerprint is among the last sixteen of its side and at most 20 ms old is dropped and counted before anything is
//! measured (`docs/measures.md`, "Connections").
//!
//! Deviations: a duplicate made by the network is dropped as well, because it looks the same. Without an IP
//! identification (0, or IPv6) only data segments with a timestamp count as duplicates, within 1 ms, because two
//! duplicate ACKs may be equal.

use capture::TcpSegment;

/// Longer than a mirror port's buffer delays a copy, shorter than a 16-bit identification takes to come round
/// (65,536 packets in 20 ms would be 39 Gbit/s).
const WITH_ID: u32 = 20_000_000 >> TICK;
/// No timer and no ACK makes a sender repeat a segment within a millisecond on a path worth analysing.
const WITHOUT_ID: u32 = 1_000_000 >> TICK;
/// Times are stored in units of 2^10 ns.
const TICK: u32 = 10;
/// Number of packets that a mirror copy may lag behind.
const DEPTH: usize = 16;

/// Fingerprints of the last packets of one side.
#[derive(Debug, Default)]
pub struct Recent {
    prints: [u32; DEPTH],
    /// In units of 1,024 ns, wrapping after 73 minutes.
    times: [u32; DEPTH],
    next: u8,
}

impl Recent {
    /// Whether `segment` is a copy of one of the last packets. If not, it is added to them.
    #[inline]
    pub fn is_duplicate(&mut self, segment: &TcpSegment) -> bool {
        let id = segment.ip.id.unwrap_or(0);
        let tsval = segment.options.timestamps.map_or(0, |t| t.0);
        let window = match (id, segment.payload, tsval) {
            (1.., _, _) => WITH_ID,
            (0, 1.., 1..) => WITHOUT_ID,
            _ => return false,
        };
        let print = fingerprint(segment, id, tsval);
        let now = (segment.ip.time.as_nanos() >> TICK) as u32;
        // All fingerprints in one go first: nearly every packet is new.
        if self.prints.iter().fold(false, |any, p| any | (*p == print)) {
            // In both directions of time: a mirror may stamp its copy before the original.
            let recent =
                |i: usize| (now.wrapping_sub(self.times[i]) as i32).unsigned_abs() <= window;
            if (0..DEPTH).filter(|i| self.prints[*i] == print).any(recent) {
                return true;
            }
        }
        let slot = usize::from(self.next) % DEPTH;
        self.prints[slot] = print;
        self.times[slot] = now;
        self.next = self.next.wrapping_add(1);
        false
    }
}

#[inline]
fn fingerprint(s: &TcpSegment, id: u16, tsval: u32) -> u32 {
    let mut h = (u64::from(s.seq) << 32 | u64::from(s.ack)) ^ 0x9e37_79b9_7f4a_7c15;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (h >> 29);
    h ^= u64::from(s.payload) << 32 | u64::from(id) << 16 | u64::from(s.flags);
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53) ^ (h >> 31);
    h ^= u64::from(tsval) << 16 | u64::from(s.window);
    if s.options.sack_count > 0 {
        let (l, r) = s.options.sacks[0];
        h = h.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(l) << 32 | u64::from(r));
    }
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    // Zero marks an empty slot.
    ((h >> 32) as u32) | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Ip, TcpOptions};
    use units::Instant;

    fn data(time_us: u64, id: u16, seq: u32) -> TcpSegment {
        TcpSegment {
            ip: Ip { time: Instant(time_us * 1_000), id: Some(id), ..Ip::default() },
            seq,
            payload: 1448,
            options: TcpOptions { timestamps: Some((5, 6)), ..TcpOptions::default() },
            ..TcpSegment::default()
        }
    }

    #[test]
    fn a_copy_a_little_later_is_a_duplicate_and_a_retransmission_is_not() {
        let mut recent = Recent::default();
        assert!(!recent.is_duplicate(&data(1_000_000, 10, 1)));
        assert!(recent.is_duplicate(&data(1_000_400, 10, 1)));
        assert!(
            !recent.is_duplicate(&data(1_000_500, 11, 1)),
            "a retransmission has a new identification"
        );
        assert!(!recent.is_duplicate(&data(1_050_000, 10, 1)), "too late for a mirror");
    }

    #[test]
    fn without_identification_two_equal_acks_are_two_acks() {
        let mut recent = Recent::default();
        let ack = TcpSegment { payload: 0, ..data(1_000_000, 0, 1) };
        assert!(!recent.is_duplicate(&ack));
        assert!(!recent.is_duplicate(&ack));
    }
}
