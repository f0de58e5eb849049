//! See `unbloat_fuzz::measure::wifi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::measure::wifi(bytes));
