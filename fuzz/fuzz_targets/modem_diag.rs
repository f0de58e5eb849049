//! See `unbloat_fuzz::modem::diag`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::modem::diag(bytes));
