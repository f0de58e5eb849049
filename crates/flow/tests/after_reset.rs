//! What a packet generator repeats after the receiver has reset the connection.

use capture::{Decoded, flags};
use flow::series::rows::Limit;
use flow::{Analyzer, Options};
use units::Duration;

mod segments;

use segments::segment;

#[test]
fn copies_that_go_on_after_a_reset_are_no_timeouts() {
    // A packet generator repeats a segment each 500 ms, as no sender that was reset does.
    let copies = |reset: bool| {
        let mut packets = vec![];
        for n in 0..40_u32 {
            let at = f64::from(n) * 500.0;
            let mut data = segment(true, false, at, flags::ACK);
            data.payload = 26;
            packets.push(data);
            if reset {
                packets.push(segment(false, false, at + 0.1, flags::RST | flags::ACK));
            }
        }
        let mut analyzer = Analyzer::new(Options::default());
        for s in &packets {
            analyzer.push(s.ip.time, s.payload + 52, &Decoded::Tcp(*s));
        }
        analyzer.finish(None).flows.into_iter().max_by_key(|f| f.payload_bytes).expect("flows")
    };
    let (reset, silent) = (copies(true), copies(false));
    assert_eq!((reset.timeouts, reset.limit_time[Limit::Timeout as usize]), (0, Duration::ZERO));
    assert!(silent.timeouts > 0, "{}", silent.timeouts);
    assert_eq!((reset.retransmissions, silent.retransmissions), (39, 39));
}
