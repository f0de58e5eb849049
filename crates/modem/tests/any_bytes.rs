//! Any bytes as a log, with the conditions of the fuzz target.

#[path = "../../../fuzz/src/modem.rs"]
mod driven;

use modem::hdlc::frame;
use modem::layout::LAYOUTS;
use modem::time::ModemTime;
use modem::written;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        driven::diag(&bytes);
    }

    #[test]
    fn any_answer_about_the_log_mask_is_read_or_refused(
        mut message in vec(any::<u8>(), 4..600),
        operation in 3..5_u8,
        items in 0..5_000_u32,
    ) {
        let fields = [u32::from(operation), 0, 0xb, items].map(u32::to_le_bytes).concat();
        message.splice(..4, [0x73, 0, 0, 0].into_iter().chain(fields));
        driven::diag(&[&[0], &frame(&message)[..]].concat());
        // As a request.
        message.drain(8..12);
        driven::diag(&[&[0], &frame(&message)[..]].concat());
    }

    #[test]
    fn any_payload_of_a_known_code_is_read_or_refused(
        row in 0..LAYOUTS.len(),
        mut payload in vec(any::<u8>(), 8..400),
        counts in 0..20_u8,
    ) {
        let (code, version) = (LAYOUTS[row].code, LAYOUTS[row].version);
        // Versions where each record has its own.
        let head = match code {
            0xb064 | 0xb066 => [1, 1 + counts % 3, 0, 0, 8, version as u8, 200, 0],
            0xb139 => [version as u8, 1, counts << 1, 0, 0, 0, 0, 0],
            _ => [version as u8, 0, (version >> 16) as u8, 0, counts & 15, 0, 0, 0],
        };
        payload[..8].copy_from_slice(&head);
        let message = written::message(code, ModemTime(1), &payload);
        driven::diag(&[&[0], &frame(&message)[..]].concat());
        driven::diag(&[&[1], &written::file_record(code, ModemTime(1), &payload)[..]].concat());
    }
}
