//! `cargo +nightly fuzz run stream`
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::stream(bytes));
