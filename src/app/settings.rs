//! Settings for each floor, from the configuration: those of the engine, and the limits of the HTTP service and its
//! listeners.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::cli_error::CliError;
use super::config::{Config, Relay, RelayKind, WebhookSecret};
use super::exit::Exit;
use crate::domain::token_key::TokenKeys;
use crate::engine::alerts::{AlertSettings, AlertWebhook};
use crate::engine::executor::Executor;
use crate::engine::reverse_dns::DirectRelay;
use crate::engine::settings::{BODY_KIB, Egress, Settings};
use crate::http::body::BodyLimits;
use crate::http::body_budget::{BodyBudgets, BudgetSizes};
use crate::http::service::ServiceLimits;
use crate::mail::dkim_key;
use crate::net::http_listener::HttpLimits;
use crate::net::network_guard::Guard;
use crate::net::source_address;
use crate::store::Store;

/// Returns the settings of the engine over `store`.
///
/// # Errors
/// The file of a secret can't be read.
pub(super) fn engine(config: &Config, store: &Store, mode: Mode) -> Result<Settings, CliError> {
    let keys = |name: &[u8]| TokenKeys::new(store.master_key().derive(name));
    Ok(Settings {
        hostname: config.hostname.to_string(),
        bounce_host: config.bounce_host().to_string(),
        receives_mail: config.bounces.is_some(),
        egress: egress(config),
        return_path_keys: keys(b"return path keys"),
        feedback_keys: keys(b"feedback id keys"),
        unsubscribe_keys: keys(b"unsubscribe keys"),
        public_url: Arc::default(),
        direct_relays: direct_relays(config),
        smtp: Arc::default(),
        queue_lifetime: config.delivery.lifetime,
        tls_reports_from: config.delivery.tls_reports_from.clone(),
        requests_per_minute: config.limits.requests_per_minute,
        account_requests_per_minute: config.limits.account_requests_per_minute,
        stored_bytes_per_account: config.limits.stored_bytes_per_account,
        alerts: alerts(config, mode)?,
        mails_invitations: mode == Mode::Serve,
        quota: config.quota,
        max_connections: config.delivery.max_connections,
        body_kib: BODY_KIB,
        min_free_bytes: config.limits.min_free_bytes,
        signing_threads: std::thread::available_parallelism().map_or(2, usize::from),
        lower_priority: mode.lower_priority(),
        executor: Executor::Threads,
        generate_dkim_key: dkim_key::generate,
    })
}

/// Whether real mail is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// `serve`.
    Serve,
    /// `dev`, and commands without a service: no timed checks run, and links are shown.
    Dev,
}

impl Mode {
    /// Returns the way in which background work lowers its priority. In `dev`, tests wait for the keys of new domains,
    /// and other mail does not wait for them.
    fn lower_priority(self) -> fn() {
        match self {
            Self::Serve => super::runtime::lower_priority,
            Self::Dev => || {},
        }
    }
}

fn alerts(config: &Config, mode: Mode) -> Result<AlertSettings, CliError> {
    let webhook = config.alerts.webhook.as_ref().map(|webhook| {
        let secret = match &webhook.secret {
            WebhookSecret::Text(secret) => secret.clone(),
            WebhookSecret::File(file) => file.read().map_err(|error| {
                let what = format!("cannot use alerts.webhook_secret_file {}", file.path().display());
                CliError::new(Exit::Failed, what, error.to_string(), "Correct the file, or the key that names it.")
            })?,
        };
        Ok::<_, CliError>(AlertWebhook { url: webhook.url.clone(), secret })
    });
    Ok(AlertSettings {
        email: config.alerts.email.clone(),
        from: config.alerts_from(),
        tells_owners: config.alerts.owners,
        relay: config.alerts.relay.clone(),
        webhook: webhook.transpose()?,
        block_lists: config.alerts.blocklists.clone(),
        backup_age_max: config.alerts.backup_age_max,
        runs_checks: mode == Mode::Serve,
    })
}

/// Returns the source addresses of the relays.
fn egress(config: &Config) -> Egress {
    let addresses: BTreeSet<IpAddr> = config.relays.iter().flat_map(|relay| relay.source.iter().copied()).collect();
    let names = config.relays.iter().map(|relay| relay.ehlo.as_ref().unwrap_or(&config.hostname).to_string());
    let names: BTreeSet<String> = names.collect();
    Egress { addresses: addresses.into_iter().collect(), names: names.into_iter().collect() }
}

/// Returns the relays that deliver directly to receivers' servers.
fn direct_relays(config: &Config) -> Vec<DirectRelay> {
    let guard = Arc::new(Guard::new(config.network.allow.clone()));
    let direct = config.relays.iter().filter(|relay| relay.kind == RelayKind::Mx);
    let made = |relay: &Relay| {
        let sources = if relay.source.is_empty() { source_address::sources() } else { relay.source.clone() };
        let ehlo = relay.ehlo.as_ref().unwrap_or(&config.hostname).to_string();
        let guard = Arc::clone(&guard);
        DirectRelay::new(ehlo, sources, move |address| guard.permits(address))
    };
    direct.map(made).collect()
}

/// Returns the limits of the HTTP service.
pub(super) fn service_limits(config: &Config) -> ServiceLimits {
    let body = BodyLimits { message_bytes: config.limits.body_bytes, ..BodyLimits::default() };
    let requests_per_minute = u64::from(config.limits.requests_per_minute);
    let budgets = Arc::new(BodyBudgets::new(&BudgetSizes::for_messages_of(config.limits.body_bytes)));
    ServiceLimits { body, budgets, requests_per_minute, ..ServiceLimits::default() }
}

/// Returns the limits of the HTTP listeners.
pub(super) fn http_limits(config: &Config) -> HttpLimits {
    HttpLimits { proxies: config.http.trusted_proxies.clone().into(), ..HttpLimits::default() }
}
