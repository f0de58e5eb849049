//! See `unbloat_fuzz::emulator::bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unbloat_fuzz::emulator::bytes(bytes));
