//! See `unbloat_fuzz::drive::ip_fragments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::ip_fragments(bytes));
