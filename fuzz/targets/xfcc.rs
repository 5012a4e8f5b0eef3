#![no_main]

#[path = "../forwarded.rs"]
mod forwarded;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forwarded::xfcc(bytes));
