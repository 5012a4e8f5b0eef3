#![no_main]

#[path = "../signatures.rs"]
mod signatures;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| signatures::signature(bytes));
