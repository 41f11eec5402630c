//! Fuzz target: arbitrary bytes for the parser of DMARC reports.

#![no_main]

#[path = "../src/dmarc.rs"]
mod dmarc;

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    dmarc::check(message);
});
