//! See `unbloat_fuzz::agent::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::agent::http(bytes));
