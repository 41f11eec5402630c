//! Settings of the engine, already validated.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::alerts::AlertSettings;
use super::dmarc::report_address;
use super::executor::Executor;
use super::reverse_dns::DirectRelay;
use crate::base::entropy::Entropy;
use crate::domain::account::QuotaLimits;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::domain::token_key::TokenKeys;
use crate::mail::dkim_key::{GeneratedKey, GenerationFailed};

/// Memory for the bodies of the messages that are being sent, in KiB: 256 MiB, however slow the servers are. Accounts
/// that hold little may have an eighth more.
pub const BODY_KIB: u32 = 256 * 1024;

/// The user name of SMTP submission that the documentation names. Any other one does as well.
pub const SMTP_USERNAME: &str = "postrider";

/// Where programs find SMTP submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpAddress {
    /// The host.
    pub host: String,
    /// The port that begins in the clear; none where nothing listens.
    pub port: Option<u16>,
    /// The port that speaks TLS from the first byte; none where nothing listens.
    pub tls_port: Option<u16>,
}

/// Where this service sends from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// The addresses that the relays name.
    pub addresses: Vec<IpAddr>,
    /// The names that the relays greet with, which lead to the addresses that the system chooses.
    pub names: Vec<String>,
}

/// Makes a DKIM key pair.
pub type GenerateDkimKey = fn(DkimAlgorithm, &dyn Entropy) -> Result<GeneratedKey, GenerationFailed>;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name we greet with, and the host of links.
    pub hostname: String,
    /// Where return paths stand: the bounce host, or the hostname where there is none.
    pub bounce_host: String,
    /// Whether mail for that host is received here.
    pub receives_mail: bool,
    /// Where this service sends from, as receivers see it.
    pub egress: Egress,
    /// The keys that authenticate return paths.
    pub return_path_keys: TokenKeys,
    /// The keys that authenticate tokens in `Feedback-ID`.
    pub feedback_keys: TokenKeys,
    /// The keys that authenticate hosted unsubscribe links.
    pub unsubscribe_keys: TokenKeys,
    /// The public address of the API, known once it is served.
    pub public_url: Arc<OnceLock<String>>,
    /// The relays that go straight to receivers' servers, for the reverse names of their addresses.
    pub direct_relays: Vec<DirectRelay>,
    /// Where SMTP submission listens, once it does.
    pub smtp: Arc<OnceLock<SmtpAddress>>,
    /// Time for which a message is retried (contract 6).
    pub queue_lifetime: Duration,
    /// Sender of TLS reports; without it none are sent.
    pub tls_reports_from: Option<Address>,
    /// Requests a minute and key.
    pub requests_per_minute: u32,
    /// Requests a minute of all keys of an account.
    pub account_requests_per_minute: u32,
    /// Bytes of stored message content of an account; 0 for no limit.
    pub stored_bytes_per_account: u64,
    /// Alerts.
    pub alerts: AlertSettings,
    /// Whether invitations to the panel go by mail; else their link is shown to who invites.
    pub mails_invitations: bool,
    /// The quota of new accounts.
    pub quota: QuotaLimits,
    /// Connections to mail servers at once.
    pub max_connections: usize,
    /// Memory for the bodies of the messages that are being sent, in KiB.
    pub body_kib: u32,
    /// Below this many free bytes no message is accepted, and no change that takes room but the operator's.
    pub min_free_bytes: u64,
    /// Threads that compose and sign.
    pub signing_threads: usize,
    /// Lowers the priority of the thread that calls it.
    pub lower_priority: fn(),
    /// Where blocking work runs.
    pub executor: Executor,
    /// Generates DKIM keys.
    pub generate_dkim_key: GenerateDkimKey,
}

impl Settings {
    /// The DMARC record for a domain without one: it asks for nothing but reports, where they are received here.
    pub fn dmarc_record(&self, domain: &DomainName) -> String {
        let base = "v=DMARC1; p=none";
        if self.receives_mail { format!("{base}; rua=mailto:{}", report_address(domain)) } else { base.to_owned() }
    }
}

#[cfg(test)]
impl Settings {
    /// The settings that tests begin with.
    pub(crate) fn of_a_story() -> Self {
        use crate::base::secret::Secret;

        let keys = |byte| TokenKeys::new(Secret::new([byte; 32]));
        Self {
            hostname: "mail.example.com".to_owned(),
            bounce_host: "bounces.example.com".to_owned(),
            receives_mail: true,
            egress: Egress { addresses: vec![std::net::Ipv4Addr::new(203, 0, 113, 5).into()], names: Vec::new() },
            return_path_keys: keys(1),
            feedback_keys: keys(3),
            unsubscribe_keys: keys(2),
            public_url: Arc::new("https://mail.example.com".to_owned().into()),
            direct_relays: Vec::new(),
            smtp: Arc::default(),
            queue_lifetime: Duration::from_secs(48 * 3600),
            tls_reports_from: None,
            requests_per_minute: 600,
            account_requests_per_minute: 3000,
            stored_bytes_per_account: 0,
            alerts: AlertSettings::silent("alerts@bounces.example.com".parse().unwrap()),
            mails_invitations: false,
            quota: QuotaLimits::default(),
            max_connections: 8,
            body_kib: BODY_KIB,
            min_free_bytes: 0,
            signing_threads: 1,
            lower_priority: || {},
            executor: Executor::Threads,
            generate_dkim_key: crate::mail::dkim_key::generate,
        }
    }
}
