//! Stories of what comes back by mail, read through the public door: messages as real systems write them, malformed
//! ones, and whatever bytes. The fuzz target of `fuzz/` checks the same laws for longer.

#![expect(clippy::unwrap_used, reason = "a story that can't go on has failed")]

#[path = "../../fuzz/src/reports.rs"]
mod laws;

mod corpus;
mod malformed;
mod mutations;
