//! Fuzz target: arbitrary bytes for a submission session. The first byte is the size of the pieces in which they
//! arrive.

#![no_main]

#[path = "../src/sessions.rs"]
mod sessions;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((piece, input)) = input.split_first() {
        sessions::check(input, usize::from(*piece));
    }
});
