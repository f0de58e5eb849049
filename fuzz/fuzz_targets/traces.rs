//! See `unbloat_fuzz::trace_text::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| unbloat_fuzz::trace_text::trace(text));
