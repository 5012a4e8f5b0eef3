#![no_main]

#[path = "../hooks.rs"]
mod hooks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hooks::hook(bytes));
