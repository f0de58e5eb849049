//! See `unbloat_fuzz::drive::whole_capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::whole_capture(bytes));
