//! See `unbloat_fuzz::agent::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| unbloat_fuzz::agent::config(text));
