//! The part of `GET /v1/status` that the engine does not know: the program's start, its certificate and its log.

use std::sync::Arc;

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::net::tls_settings::Presented;

/// The facts that `app` adds to the status.
pub struct StatusSources {
    /// When the service started.
    pub started_at: Timestamp,
    /// The certificate of HTTP, if it speaks TLS.
    pub certificate: Option<Arc<Presented>>,
    /// The latest warnings and errors of the log, newest first.
    pub last_errors: fn() -> Vec<LogLine>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// When it was written.
    #[serde(serialize_with = "iso::serialize")]
    pub at: Timestamp,
    /// `warn` or `error`.
    pub level: &'static str,
    /// The message with its fields.
    pub message: String,
}
