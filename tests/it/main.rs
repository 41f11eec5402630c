//! Tests of the real program: `postrider dev` on a temporary directory, used over HTTP like an application would. Time
//! is virtual, and no test sleeps.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]
#![expect(clippy::unwrap_used, reason = "a test that can't continue has failed")]

mod backup;
mod commands;
mod crashes;
mod delivery;
mod dev_mode;
mod event_log;
mod full_disk;
mod journal_damage;
mod message_api;
mod metrics;
mod returned_mail;
#[path = "../../fuzz/src/sessions.rs"]
mod session_properties;
mod smtp;
mod store_failure;
mod store_formats;
mod submission_sessions;
mod supervisor;
mod support;
mod suppressions;
mod virtual_clock;
mod webhook_snippet;
#[expect(unreachable_pub, reason = "the code is printed in docs/webhooks.md")]
mod webhook_verify;
mod webhooks;
