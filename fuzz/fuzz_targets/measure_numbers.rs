//! See `unbloat_fuzz::measure::numbers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::measure::numbers(bytes));
