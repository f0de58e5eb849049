//! See `unbloat_fuzz::measure::ndt7`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::measure::ndt7(bytes));
