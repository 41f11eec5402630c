//! The facts of `GET /v1/status` that the engine lacks: the program's start, its certificate and its log.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::meters::RequestMeters;
use crate::base::time::Timestamp;
use crate::engine::ports::BoxFuture;
use crate::net::tls_settings::PresentedCertificate;

/// The facts that `app` adds to the status.
pub struct StatusSources {
    /// Start time of the service.
    pub started_at: Timestamp,
    /// The certificate of HTTP, if it speaks TLS.
    pub certificate: Option<Arc<PresentedCertificate>>,
    /// The latest warnings and errors of the log, newest first.
    pub last_errors: fn() -> Vec<LogLine>,
    /// The counters of requests.
    pub requests: Arc<RequestMeters>,
    /// The checks of `postrider doctor`.
    pub doctor: Arc<dyn Doctor>,
}

/// The checks of `postrider doctor` from within the service.
pub trait Doctor: Send + Sync {
    /// Returns the last result, if there is one. Reads only memory.
    fn last(&self) -> Option<Arc<Examination>>;

    /// Runs every check, and stores the result. `None` while another run is in progress. Takes up to some seconds.
    fn examine(&self) -> BoxFuture<'_, Option<Arc<Examination>>>;
}

/// The result of a run of all checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// The end of the run.
    pub at: Timestamp,
    /// The checks, in order.
    pub checks: Vec<Finding>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the check.
    pub name: String,
    /// `OK`, `WARN` or `FAIL`.
    pub verdict: String,
    /// The observed facts.
    pub seen: String,
    /// The remedy; empty if there is nothing to do.
    pub remedy: String,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time of the line.
    pub at: Timestamp,
    /// `warn` or `error`.
    pub level: &'static str,
    /// The message without its fields.
    pub message: String,
    /// Names and values of the fields, in order. Texts are quoted.
    pub fields: Vec<(&'static str, String)>,
}

impl LogLine {
    /// Returns the message with its fields, as in the log.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}
