//! See `unbloat_fuzz::located::captures` and `unbloat_fuzz::located::script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::located::any(bytes));
