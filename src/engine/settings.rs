//! Validated settings of the engine.

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

/// Memory for the bodies of messages in flight, in KiB: 256 MiB, even if servers are slow. Accounts that hold little
/// may use an eighth more.
pub const BODY_KIB: u32 = 256 * 1024;

/// User name of SMTP submission in the documentation. Any other name works too.
pub const SMTP_USERNAME: &str = "postrider";

/// Address of SMTP submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpAddress {
    /// The host.
    pub host: String,
    /// Port that starts without TLS; `None` if there is none.
    pub port: Option<u16>,
    /// Whether that port offers STARTTLS. The port of `postrider dev` doesn't.
    pub offers_starttls: bool,
    /// Port with TLS from the first byte; `None` if there is none.
    pub tls_port: Option<u16>,
}

/// Addresses and names that this service sends from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Source addresses of the relays.
    pub addresses: Vec<IpAddr>,
    /// EHLO names of the relays, which resolve to the addresses that the system chooses.
    pub names: Vec<String>,
}

/// Function that generates a DKIM key pair.
pub type GenerateDkimKey = fn(DkimAlgorithm, &dyn Entropy) -> Result<GeneratedKey, GenerationFailed>;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our host name, for EHLO and links.
    pub hostname: String,
    /// Domain of return paths: the bounce host, or the hostname without one.
    pub bounce_host: String,
    /// Whether this service receives mail for that host.
    pub receives_mail: bool,
    /// Addresses and names that this service sends from, as receivers see them.
    pub egress: Egress,
    /// The keys that authenticate return paths.
    pub return_path_keys: TokenKeys,
    /// The keys that authenticate tokens in `Feedback-ID`.
    pub feedback_keys: TokenKeys,
    /// The keys that authenticate hosted unsubscribe links.
    pub unsubscribe_keys: TokenKeys,
    /// Public URL of the API, known once it is served.
    pub public_url: Arc<OnceLock<String>>,
    /// Relays that deliver directly to the recipients' servers, for their reverse DNS names.
    pub direct_relays: Vec<DirectRelay>,
    /// Address of SMTP submission, once it listens.
    pub smtp: Arc<OnceLock<SmtpAddress>>,
    /// Time for which a message is retried (contract 6).
    pub queue_lifetime: Duration,
    /// Sender of TLS reports; `None` sends none.
    pub tls_reports_from: Option<Address>,
    /// Requests per minute and key.
    pub requests_per_minute: u32,
    /// Requests per minute of all keys of an account.
    pub account_requests_per_minute: u32,
    /// Maximum stored message content of an account, in bytes; 0 for no limit.
    pub stored_bytes_per_account: u64,
    /// Alerts.
    pub alerts: AlertSettings,
    /// Whether invitations to the panel are sent by mail. Otherwise the inviting user sees their link.
    pub mails_invitations: bool,
    /// Quota of new accounts.
    pub quota: QuotaLimits,
    /// Maximum number of connections to mail servers.
    pub max_connections: usize,
    /// Memory for the bodies of messages in flight, in KiB.
    pub body_kib: u32,
    /// Minimum free disk space, in bytes. Below it messages are refused, as are changes that need space, except the
    /// operator's.
    pub min_free_bytes: u64,
    /// Threads that compose and sign.
    pub signing_threads: usize,
    /// Function that lowers the priority of the calling thread.
    pub lower_priority: fn(),
    /// Executor for blocking work.
    pub executor: Executor,
    /// Generates DKIM keys.
    pub generate_dkim_key: GenerateDkimKey,
}

impl Settings {
    /// Returns the DMARC record for a domain without one. It only requests reports, and only if they are received here.
    /// It can be weaker than a record that the domain inherits.
    pub fn dmarc_record(&self, domain: &DomainName) -> String {
        let base = "v=DMARC1; p=none";
        if self.receives_mail { format!("{base}; rua=mailto:{}", report_address(domain)) } else { base.to_owned() }
    }
}

#[cfg(test)]
impl Settings {
    /// Returns the default settings for tests.
    pub(crate) fn for_tests() -> Self {
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
