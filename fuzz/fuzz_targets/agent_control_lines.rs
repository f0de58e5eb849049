//! See `unbloat_fuzz::agent::control_lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::agent::control_lines(bytes));
