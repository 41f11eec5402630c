//! The status of the service as JSON.

use serde::Serialize;

use super::clock::ClockView;
use crate::base::time::{Timestamp, iso};

/// The whole status.
#[derive(Serialize)]
pub(in crate::http) struct StatusView<'a> {
    pub(in crate::http) version: &'static str,
    pub(in crate::http) state: &'static str,
    #[serde(serialize_with = "iso::serialize")]
    pub(in crate::http) started_at: Timestamp,
    pub(in crate::http) uptime_seconds: u64,
    pub(in crate::http) url: Option<&'a str>,
    pub(in crate::http) queue: QueueView,
    pub(in crate::http) last_errors: Vec<LogLineView>,
    pub(in crate::http) certificate: Option<CertificateView>,
    pub(in crate::http) disk: DiskView,
    pub(in crate::http) backup: BackupView,
    pub(in crate::http) alerts: AlertsView,
    pub(in crate::http) clock: ClockView,
}

/// A line of the log.
#[derive(Serialize)]
pub(in crate::http) struct LogLineView {
    #[serde(serialize_with = "iso::serialize")]
    pub(in crate::http) at: Timestamp,
    /// `warn` or `error`.
    pub(in crate::http) level: &'static str,
    /// The message with its fields.
    pub(in crate::http) message: String,
}

/// Alerts.
#[derive(Serialize)]
pub(in crate::http) struct AlertsView {
    /// Number of open alerts.
    pub(in crate::http) open: u64,
    /// Whether mails of the service are signed.
    pub(in crate::http) signed: bool,
}

/// The queue.
#[derive(Serialize)]
pub(in crate::http) struct QueueView {
    pub(in crate::http) messages: u64,
    pub(in crate::http) webhook_deliveries: u64,
    pub(in crate::http) due_messages: u64,
    pub(in crate::http) oldest_due_seconds: u64,
    pub(in crate::http) on_hold: bool,
}

/// The certificate; without a time if it is self-signed.
#[derive(Serialize)]
pub(in crate::http) struct CertificateView {
    #[serde(serialize_with = "iso::option::serialize")]
    pub(in crate::http) expires_at: Option<Timestamp>,
}

/// Free space on the disk.
#[derive(Serialize)]
pub(in crate::http) struct DiskView {
    pub(in crate::http) free_bytes: u64,
    pub(in crate::http) database_bytes: u64,
    pub(in crate::http) content_bytes: u64,
}

/// The last backup.
#[derive(Serialize)]
pub(in crate::http) struct BackupView {
    #[serde(serialize_with = "iso::option::serialize")]
    pub(in crate::http) last_at: Option<Timestamp>,
}
