//! A window law on the ACKs that arrive at the sending side.

mod made;

use algo::Value;
use made::ms;

/// Mean RTT of the last bin of a bulk upload over 2 Mbit/s and 60 ms, with a law (or none) where
/// the data comes from.
fn rtt_ms(lambda: Option<u64>) -> u64 {
    let mut s = made::path(2.0, ms(60), 700, 20);
    s.nodes[made::SENDER].window =
        lambda.map(|l| made::algorithm!(algo::rwnd, "drwa", "lambda" = Value::Count(l)));
    let rows = made::series(&made::run(&s));
    rows.iter().rev().find_map(|row| row.rtt).map_or(0, |(_, middle, _)| middle.0 / 1_000_000)
}

// DRWA section 5: the fixed point of its law is an RTT of λ · RTTmin, here (60 + 6) ms. An ACK of
// two segments echoes the timestamp of the older one, 6 ms before the one from which the sender's
// own RTT counts.
#[test]
fn an_upload_is_held_at_lambda_times_the_smallest_rtt_by_the_window_of_its_acks() {
    assert!(rtt_ms(None) > 1_000);
    for (lambda, expected) in [(32, 126), (48, 192)] {
        let found = rtt_ms(Some(lambda));
        assert!(found.abs_diff(expected) * 100 <= expected * 6, "λ = {lambda}/16: {found} ms");
    }
}
