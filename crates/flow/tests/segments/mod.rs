//! Segments without data between two hosts: the sender's 1,000th byte is next, and the receiver's 500th.

use capture::{Addr, TcpOptions, TcpSegment};
use units::Instant;

pub const MSS: u32 = 1_460;

/// Time to live at the host beside the capture, and at the other one, 12 hops away.
const NEAR: u8 = 64;
const FAR: u8 = 52;

/// One, `ms` after the first second. The capture is beside the sender, or beside the receiver.
pub fn segment(from_sender: bool, beside_sender: bool, ms: f64, flag: u16) -> TcpSegment {
    let mut s = TcpSegment { flags: flag, ..TcpSegment::default() };
    let ends = [Addr::v4([192, 0, 2, 1]), Addr::v4([198, 51, 100, 1])];
    let mine = usize::from(!from_sender);
    s.ip.time = Instant((1e9 + ms * 1e6) as u64);
    (s.ip.src, s.ip.dst) = (ends[mine], ends[1 - mine]);
    (s.ip.ttl, s.ip.total_len) = (if from_sender == beside_sender { NEAR } else { FAR }, 40);
    (s.src_port, s.dst_port) = if from_sender { (80, 5_000) } else { (5_000, 80) };
    (s.seq, s.ack) = if from_sender { (1_000, 500) } else { (500, 1_000) };
    s.options = TcpOptions { mss: Some(MSS as u16), ..TcpOptions::default() };
    s
}
