//! See `unbloat_fuzz::agent::kernel_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::agent::kernel_messages(bytes));
