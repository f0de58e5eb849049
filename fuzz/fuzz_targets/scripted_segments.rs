//! See `unbloat_fuzz::drive::scripted_segments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::scripted_segments(bytes));
