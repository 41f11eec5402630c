//! The configuration of the process, in one TOML file (contract 8). Accounts, keys, domains and webhooks are only in
//! the store.
//!
//! It is read at start and at a reload. All values of a [`Config`] are checked. Every error is reported at once, with
//! its line and column or its environment variable.

mod alerts;
mod changes;
mod delivery;
mod error;
mod files;
mod http;
mod oidc;
mod process;
mod relay;
mod replica;
mod section;
mod submission;
#[cfg(test)]
mod tests;
mod tree;
mod warnings;

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use url::Url;

pub use self::alerts::{AlertWebhook, Alerts, WebhookSecret};
pub(super) use self::changes::LOG_LEVEL;
pub use self::delivery::{Bounces, Delivery, Dns};
pub use self::error::{ConfigError, KeyError};
pub use self::http::{Acme, Compat, Http, Tls};
pub use self::oidc::Oidc;
pub use self::process::{Limits, Log, LogFormat, Metrics, Networks, Webhooks};
pub use self::relay::{Login, Relay, RelayKind, SecretFile, Smarthost, SmarthostTls, WarmUp};
pub use self::replica::Replica;
pub use self::submission::Submission;
pub use self::tree::Place;

use self::changes::Source;
use self::section::{Notes, Section, parsed, path};
use super::cli_error::CliError;
use super::environment::Environment;
use super::exit::Exit;
use crate::domain::account::QuotaLimits;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;

/// The commented configuration that `config example` prints: every key, with its default if it has one.
pub const EXAMPLE: &str = include_str!("../../../data/postrider.toml");
/// Host name if none is configured; `serve` refuses to send mail with it.
const NO_HOSTNAME: &str = "localhost.localdomain";
/// Rate limits of keys and accounts in `dev`, unless configured: a test suite must not wait.
const DEV_REQUESTS_PER_MINUTE: u32 = 1_000_000;
const DEV_QUOTA: u64 = 10_000_000;
/// Default port of `dev`.
const DEV_PORT: u16 = 8025;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// EHLO name of the default relay, and host of links.
    pub hostname: DomainName,
    /// The data directory.
    pub data_dir: PathBuf,
    /// `[http]`.
    pub http: Http,
    /// `[compat]`.
    pub compat: Compat,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// `[dns]`.
    pub dns: Dns,
    /// `[delivery]`.
    pub delivery: Delivery,
    /// `[bounces]`, if configured.
    pub bounces: Option<Bounces>,
    /// `[submission]`.
    pub submission: Submission,
    /// `[oidc]`, if configured.
    pub oidc: Option<Oidc>,
    /// `[[relay]]`: at least one, and one for each stream.
    pub relays: Vec<Relay>,
    /// `[replica]`.
    pub replica: Replica,
    /// `[webhooks]`.
    pub webhooks: Webhooks,
    /// `[alerts]`.
    pub alerts: Alerts,
    /// `[network]`.
    pub network: Networks,
    /// `[limits]`.
    pub limits: Limits,
    /// `[quota]`.
    pub quota: QuotaLimits,
    /// `[log]`.
    pub log: Log,
    /// Dotted keys that a file or a variable has set.
    set: BTreeSet<String>,
    /// Source for reading the configuration again.
    source: Option<Source>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hostname: no_hostname(),
            data_dir: PathBuf::from("/var/lib/postrider"),
            http: Http::default(),
            compat: Compat::default(),
            metrics: Metrics::default(),
            dns: Dns::default(),
            delivery: Delivery::default(),
            bounces: None,
            submission: Submission::default(),
            oidc: None,
            relays: vec![Relay::direct()],
            replica: Replica::default(),
            webhooks: Webhooks::default(),
            alerts: Alerts::default(),
            network: Networks::default(),
            limits: Limits::default(),
            quota: QuotaLimits::default(),
            log: Log::default(),
            set: BTreeSet::new(),
            source: None,
        }
    }
}

impl Config {
    /// Returns the defaults of `dev`: plain HTTP on loopback, no metrics, and very high limits.
    pub fn for_dev() -> Self {
        let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEV_PORT))];
        let http = Http { listen, tls: Tls::Off, ..Http::default() };
        let limits = Limits::per_minute(DEV_REQUESTS_PER_MINUTE);
        let quota = QuotaLimits { per_hour: DEV_QUOTA, per_day: DEV_QUOTA };
        let compat = Compat { root: true };
        let (metrics, alerts) = (Metrics { listen: None }, Alerts::for_dev());
        Self { http, compat, limits, quota, metrics, alerts, ..Self::default() }
    }

    /// Reads the configuration in the file at `path`, overridden by the variables of `environment`.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors.
    pub fn load(path: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let source = Source { file: path.to_owned(), environment: environment.clone() };
        Self { source: Some(source), ..Self::default() }.with_file(path, environment)
    }

    /// Returns the defaults, overridden by the variables of `environment`, without a file.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn of_environment(environment: &Environment) -> Result<Self, ConfigError> {
        Self::default().with_text("", "of the environment", environment)
    }

    /// Reads the configuration in `text`; `origin` names it in errors.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn parse(text: &str, origin: &str, environment: &Environment) -> Result<Self, ConfigError> {
        Self::default().with_text(text, origin, environment)
    }

    /// Returns this configuration, overridden by the file at `path`.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn with_file(self, path: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => self.with_text(&text, &origin, environment),
            Err(why) => Err(ConfigError::Unreadable(origin, why.to_string())),
        }
    }

    /// Returns this configuration, overridden by `text`.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn with_text(self, text: &str, origin: &str, environment: &Environment) -> Result<Self, ConfigError> {
        let mut notes = Notes::default();
        let root = tree::read(text, environment, &mut notes.faults);
        let config = root.map(|root| self.read(Section::root(root, &mut notes), environment));
        notes.faults.sort();
        match config {
            Some(config) if notes.faults.is_empty() => Ok(Self { set: notes.set, ..config }),
            Some(_) | None => Err(ConfigError::Faulty(origin.to_owned(), notes.faults)),
        }
    }

    fn read(self, mut root: Section<'_>, environment: &Environment) -> Self {
        let credentials = environment.credentials();
        let hostname = root.value("hostname", self.hostname, parsed);
        let has_bounces = root.has("bounces");
        let relays = root.repeated("relay", |section| Relay::read(section, credentials.as_deref()));
        if let Some(relays) = &relays {
            check_relays(relays, &mut root);
        }
        let bounces = Bounces::read(root.section("bounces"), &hostname);
        let oidc = root.has("oidc").then(|| Oidc::read(root.section("oidc"), credentials.as_deref()));
        let bounce_host = if has_bounces { bounces.host.clone() } else { hostname.clone() };
        let known = relays.as_deref().unwrap_or(&self.relays);
        let section = root.section("alerts");
        let alerts = Alerts::read(section, self.alerts, known, &bounce_host, credentials.as_deref());
        let http = Http::read(root.section("http"), self.http);
        let network = Networks::read(root.section("network"), self.network);
        let config = Self {
            data_dir: root.value("data_dir", self.data_dir, path),
            submission: Submission::read(root.section("submission"), self.submission, &http.tls),
            http,
            oidc: oidc.or(self.oidc),
            compat: Compat::read(root.section("compat"), self.compat),
            metrics: Metrics::read(root.section("metrics"), self.metrics),
            dns: Dns::read(root.section("dns"), self.dns),
            delivery: Delivery::read(root.section("delivery"), self.delivery),
            bounces: if has_bounces { Some(bounces) } else { self.bounces },
            relays: relays.unwrap_or(self.relays),
            replica: Replica::read(root.section("replica"), self.replica, &network, environment),
            webhooks: Webhooks::read(root.section("webhooks"), self.webhooks),
            network,
            alerts,
            limits: Limits::read(root.section("limits"), self.limits),
            quota: process::quota(root.section("quota"), self.quota),
            log: Log::read(root.section("log"), self.log),
            set: self.set,
            source: self.source,
            hostname,
        };
        root.finish();
        config
    }

    /// Returns whether a file or a variable has set this dotted key.
    pub fn is_set(&self, key: &str) -> bool {
        self.set.contains(key)
    }

    /// Returns the domain of return paths (contract 6).
    pub fn bounce_host(&self) -> &DomainName {
        self.bounces.as_ref().map_or(&self.hostname, |bounces| &bounces.host)
    }

    /// Returns the sender of alerts.
    pub fn alerts_from(&self) -> Address {
        let text = format!("alerts@{}", self.bounce_host());
        let derived = || text.parse().unwrap_or_else(|_| unreachable!("a domain name is part of an address"));
        self.alerts.from.clone().unwrap_or_else(derived)
    }

    /// Returns the public URL of the service.
    pub fn public_url(&self) -> Url {
        let derived = || Url::parse(&format!("https://{}", self.hostname));
        self.http
            .public_url
            .clone()
            .map_or_else(derived, Ok)
            .unwrap_or_else(|_| unreachable!("a domain name is a host"))
    }

    /// Checks that `hostname` is set, which `serve` needs and `dev` does not.
    ///
    /// # Errors
    /// `hostname` is not set.
    pub fn fit_to_mail(&self) -> Result<(), CliError> {
        if self.hostname != no_hostname() {
            return Ok(());
        }
        Err(CliError::new(
            Exit::Failed,
            "cannot serve with this configuration",
            "hostname is not set, and receivers refuse mail from a server without a name",
            "Set hostname to this server's name in DNS, such as mail.example.com.",
        ))
    }
}

fn no_hostname() -> DomainName {
    NO_HOSTNAME.parse().unwrap_or_else(|_| unreachable!("the constant is a domain name"))
}

/// Checks that names are unique, because events contain the relay's name, and that every stream has a relay.
fn check_relays(relays: &[Relay], root: &mut Section<'_>) {
    let mut names = BTreeSet::new();
    for relay in relays {
        if !relay.name.is_empty() && !names.insert(&relay.name) {
            root.missing("relay", format!("two relays are named {}", relay.name));
        }
    }
    for stream in Stream::ALL {
        if !relays.iter().any(|relay| relay.streams.contains(&stream)) {
            root.missing("relay", format!("no relay carries the {stream} stream; add it to the streams of one"));
        }
    }
}
