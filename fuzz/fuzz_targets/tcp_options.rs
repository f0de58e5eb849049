//! See `unbloat_fuzz::drive::tcp_options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::tcp_options(bytes));
