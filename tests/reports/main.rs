//! Tests of returned mail through the public API: messages as real systems write them, malformed ones, and arbitrary
//! bytes. The fuzz target of `fuzz/` checks the same invariants for longer.

#![expect(clippy::unwrap_used, reason = "a test that can't continue has failed")]

#[path = "../../fuzz/src/reports.rs"]
mod laws;

mod corpus;
mod malformed;
mod mutations;
