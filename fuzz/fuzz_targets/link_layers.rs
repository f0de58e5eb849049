//! See `unbloat_fuzz::drive::link_layers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::link_layers(bytes));
