//! `[metrics]`, `[webhooks]`, `[network]`, `[limits]`, `[quota]` and `[log]`: the small sections.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tracing::Level;

use super::section::{Section, number, parsed, path, socket, unless_empty, word};
use crate::domain::account::QuotaLimits;
use crate::domain::network::Network;

/// Maximum size of one request, 256 MiB: the limit of all bodies in flight together (contract 1).
const BODY_BYTES_MAX: i64 = 256 << 20;

/// `[metrics]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Address of `/metrics`; `None` if the key is `""`.
    pub listen: Option<SocketAddr>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9025))) }
    }
}

impl Metrics {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let metrics = Self { listen: section.value("listen", base.listen, unless_empty(socket)) };
        section.finish();
        metrics
    }
}

/// `[webhooks]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Webhooks {
    /// Additional root certificates for webhook receivers.
    pub extra_roots: Option<PathBuf>,
}

impl Webhooks {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let webhooks = Self { extra_roots: section.value("extra_roots", base.extra_roots, unless_empty(path)) };
        section.finish();
        webhooks
    }
}

/// `[network]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    /// Networks that are not global and may still be reached.
    pub allow: Vec<Network>,
}

impl Networks {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let networks = Self { allow: section.list("allow", base.allow, parsed) };
        section.finish();
        networks
    }
}

/// `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests of one key per minute.
    pub requests_per_minute: u32,
    /// Maximum number of requests of all keys of an account per minute.
    pub account_requests_per_minute: u32,
    /// Maximum number of bytes of an account's stored message content; 0 for no limit.
    pub stored_bytes_per_account: u64,
    /// Maximum size of a request's body in bytes.
    pub body_bytes: usize,
    /// Minimum free bytes on the disk for accepting messages.
    pub min_free_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_minute: 600,
            account_requests_per_minute: 600 * ACCOUNT_RATE_FACTOR,
            stored_bytes_per_account: 0,
            body_bytes: 25 << 20,
            min_free_bytes: 64 << 20,
        }
    }
}

/// Maximum request rate that can be counted; in practice no limit.
const RATE_MAX: i64 = u32::MAX as i64;
/// Request rate of an account as a multiple of that of one key, if not configured.
const ACCOUNT_RATE_FACTOR: u32 = 5;

impl Limits {
    /// Returns the defaults with this request rate of a key, and the rate of an account derived from it.
    pub(super) fn per_minute(requests: u32) -> Self {
        let of_account = requests.saturating_mul(ACCOUNT_RATE_FACTOR);
        Self { requests_per_minute: requests, account_requests_per_minute: of_account, ..Self::default() }
    }

    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let rate = |section: &mut Section<'_>, name, base| section.value(name, base, number(1..=RATE_MAX));
        let requests_per_minute = rate(&mut section, "requests_per_minute", base.requests_per_minute);
        let of_account = requests_per_minute.saturating_mul(ACCOUNT_RATE_FACTOR);
        let limits = Self {
            requests_per_minute,
            account_requests_per_minute: rate(&mut section, "account_requests_per_minute", of_account),
            stored_bytes_per_account: section.value(
                "stored_bytes_per_account",
                base.stored_bytes_per_account,
                number(0..=i64::MAX),
            ),
            body_bytes: section.value("body_bytes", base.body_bytes, number(1..=BODY_BYTES_MAX)),
            min_free_bytes: section.value("min_free_bytes", base.min_free_bytes, number(0..=i64::MAX)),
        };
        section.finish();
        limits
    }
}

/// Reads `[quota]`: the quota of a new account.
pub(super) fn quota(mut section: Section<'_>, base: QuotaLimits) -> QuotaLimits {
    let quota = QuotaLimits {
        per_hour: section.value("per_hour", base.per_hour, number(0..=i64::MAX)),
        per_day: section.value("per_day", base.per_day, number(0..=i64::MAX)),
    };
    section.finish();
    quota
}

/// `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Format of the lines.
    pub format: LogFormat,
    /// Minimum level of logged lines.
    pub level: Level,
}

/// Format of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object for each line.
    Json,
    /// Entries of systemd's journal with structured fields.
    Journald,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: Level::INFO }
    }
}

impl Log {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json), ("journald", LogFormat::Journald)];
        let levels = [
            ("error", Level::ERROR),
            ("warn", Level::WARN),
            ("info", Level::INFO),
            ("debug", Level::DEBUG),
            ("trace", Level::TRACE),
        ];
        let log = Self {
            format: section.value("format", base.format, word(formats)),
            level: section.value("level", base.level, word(levels)),
        };
        section.finish();
        log
    }
}
