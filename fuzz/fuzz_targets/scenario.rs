//! See `unbloat_fuzz::scenario_text::scenario`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| unbloat_fuzz::scenario_text::scenario(text));
