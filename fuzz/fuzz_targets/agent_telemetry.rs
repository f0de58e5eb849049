//! See `unbloat_fuzz::agent::telemetry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::agent::telemetry(bytes));
