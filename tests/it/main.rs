//! Tests of the real program: `postrider dev` on a temporary directory, used over HTTP like an application would. Time
//! is virtual, and no test sleeps.

#![expect(clippy::unwrap_used, reason = "a test that can't continue has failed")]

mod accepting;
mod crashing;
mod delivering;
mod developing;
mod failing;
mod full_disk;
mod journal;
mod keeping;
mod logging;
mod observing;
mod older;
mod operating;
mod returning;
#[path = "../../fuzz/src/sessions.rs"]
mod session_properties;
mod smtp;
mod submission_sessions;
mod supervised;
mod support;
mod suppressing;
mod telling;
mod time;
mod webhook_snippet;
#[expect(unreachable_pub, reason = "the code is printed in docs/webhooks.md")]
mod webhook_verify;
