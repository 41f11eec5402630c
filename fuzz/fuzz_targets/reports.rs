//! Fuzz target: arbitrary bytes for the parser of returned mail.

#![no_main]

#[path = "../src/reports.rs"]
mod reports;

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    reports::check(message);
});
