//! See `unbloat_fuzz::drive::file_readers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::drive::file_readers(bytes));
