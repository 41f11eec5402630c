//! Floor 5: the workers between the store and the outside world, and the ports (traits) that they use to reach it.
//!
//! [`Engine`] is the entry point for the API, the panel and the admin socket. [`dispatcher`] dispatches due timers.
//! Both change the store only through operations.

pub mod accounts;
pub mod alerts;
pub mod audit;
pub mod background_thread;
mod backlog;
pub mod backup;
pub mod blocked_accounts;
pub mod blocking;
pub mod bucket;
pub mod caught_panic;
pub mod checklist;
mod clock_watch;
mod deliver;
pub mod deliveries;
pub mod development;
pub mod dispatcher;
mod dkim;
pub mod dmarc;
mod dns_facts;
mod domain_records;
mod domain_verifications;
pub mod domains;
#[cfg(test)]
pub(crate) mod empty_resolver;
pub mod endpoints;
pub mod events;
pub mod executor;
pub mod exports;
mod fair_semaphore;
pub mod follow;
mod hot_keys;
pub mod imports;
pub mod invitations;
pub mod lease;
pub mod listing;
#[cfg(test)]
pub(crate) mod memory_bucket;
mod message_search;
pub mod messages;
pub mod meters;
pub mod oidc;
mod passwords;
pub mod pauses;
pub mod ports;
pub mod probe;
pub mod providers;
pub(crate) mod query_places;
pub mod queue;
pub mod rates;
pub mod receive;
pub mod redeliver;
pub mod relay;
pub mod replica;
pub mod reputation;
pub mod reverse_dns;
pub mod saved_searches;
pub mod service_clock;
pub mod settings;
pub mod setup_link;
pub mod sign_in;
pub mod signing;
pub mod smtp_submission;
mod spf;
mod stop_signal;
pub mod store_size;
mod stores_aside;
pub mod submit;
pub mod suppressions;
mod sweep;
mod throttles;
mod tls_policy;
mod tls_reports;
mod transfer;
mod turn_permits;
mod work_slots;
pub use transfer::Tables;
pub use transfer::egress_routes::{CaptureRoute, EgressRoutes};
pub mod operator_views;
mod suppressed_messages;
pub mod unsubscribe;
mod until_stopped;
pub mod users;
pub mod virtual_clock;
pub mod wait_reason;
pub mod webhook;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Semaphore;

use crate::base::entropy::Entropy;
use crate::base::id::{AccountId, KeyId};
use crate::domain::api_key::ApiKey;
use crate::machine::service_clock::Effect;
use crate::store::Store;
use crate::store::error::StoreError;
use alerts::Alerts;
use background_thread::BackgroundThread;
use blocked_accounts::BlockedAccounts;
use blocking::Blocking;
use development::Development;
use dmarc::{DmarcSums, OwnNetworks};
use domain_verifications::DomainVerifications;
use exports::Exports;
use follow::Streams;
use hot_keys::HotKeys;
use imports::Imports;
use lease::Leases;
use meters::EngineMeters;
use oidc::Oidc;
use passwords::Passwords;
use ports::{Clock, Resolve};
use queue::QueueView;
use rates::Rates;
use redeliver::Replays;
use reverse_dns::ReverseDns;
use settings::Settings;
use signing::SigningPool;
use smtp_submission::Refusals;
use throttles::Throttles;
use tls_reports::ReportLimits;

/// The caller: an API key of an account, or the operator on the admin socket.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Account that the call acts on.
    pub account: AccountId,
    /// API key; `None` for the operator.
    pub key: Option<Arc<ApiKey>>,
}

/// Entry point for all interfaces: API, panel, SMTP submission and admin socket.
pub struct Engine {
    /// The store.
    pub store: Arc<Store>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// DNS resolver.
    pub resolver: Arc<dyn Resolve>,
    /// Settings from the configuration.
    pub settings: Settings,
    /// Request rate limits of the keys.
    pub rates: Rates,
    /// Recent refusals of SMTP submission.
    pub smtp_refusals: Refusals,
    /// Limits of TLS reports for each receiver.
    report_limits: ReportLimits,
    /// Meters for monitoring.
    pub meters: Arc<EngineMeters>,
    /// Leases on messages in flight.
    pub leases: Leases,
    /// In-memory state of the alerts.
    pub alerts: Alerts,
    /// Accounts whose attempts are currently blocked.
    pub blocked_accounts: BlockedAccounts,
    /// Additions for `dev`.
    pub development: Development,
    /// Hook that also deletes other copies of content past its deadline, such as the captured mail of `dev`. May block.
    pub on_content_destroyed: OnceLock<Box<dyn Fn() -> std::io::Result<()> + Send + Sync>>,
    /// Replication of the store; empty when it is not configured.
    pub replication: OnceLock<Arc<replica::Replication>>,
    /// Followers of the accounts' event logs.
    pub streams: Streams,
    /// Sign-in by OpenID Connect; empty when it is not configured.
    pub oidc: OnceLock<Oidc>,
    /// Limits concurrent backups.
    backups: Arc<Semaphore>,
    signing: SigningPool,
    /// Generates DKIM keys.
    key_generation: BackgroundThread,
    /// Parses lists to import.
    list_work: BackgroundThread,
    /// Reads messages and events for exports.
    exports: Exports,
    /// Runs searches and other blocking work of accounts.
    blocking: Blocking,
    /// Reads the bodies of messages in flight.
    body_reads: Blocking,
    passwords: Passwords,
    throttles: Arc<Throttles>,
    /// Counters of sign-ins at an identity provider, which need no password: they must not displace the others.
    oidc_throttles: Arc<Throttles>,
    hot_keys: HotKeys,
    replays: Replays,
    /// Networks that the relays' host names resolve to.
    own_networks: OwnNetworks,
    dmarc_sums: DmarcSums,
    imports: Imports,
    domain_verifications: DomainVerifications,
    /// Idempotency keys whose first request is still running. In memory only, so a crash releases them.
    in_progress: Mutex<HashSet<(AccountId, [u8; 32])>>,
    /// Number of submissions without an answer yet.
    waiting_submissions: AtomicUsize,
    /// Keys whose last use is being recorded, so that a burst of requests writes it once.
    being_stamped: Arc<Mutex<HashSet<KeyId>>>,
    /// Changes of the clock that are not recorded yet. The task that records them holds the lock.
    clock_changes: tokio::sync::Mutex<VecDeque<Effect>>,
    /// Reverse DNS names of the addresses that mail is sent from.
    reverse_dns: ReverseDns,
    /// The dispatcher's view of the queue, once a dispatcher runs.
    queue_view: OnceLock<Weak<dyn QueueView>>,
}

impl Engine {
    /// Creates the engine over an open store.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        resolver: Arc<dyn Resolve>,
        settings: Settings,
    ) -> Self {
        let meters = Arc::new(EngineMeters::default());
        let signing = SigningPool::new(settings.executor, settings.signing_threads, Arc::clone(&meters));
        let list_work = BackgroundThread::new(settings.executor, "lists", settings.lower_priority);
        let key_generation = BackgroundThread::new(settings.executor, "keygen", settings.lower_priority);
        let exports = Exports::new(settings.executor, settings.lower_priority);
        let executor = settings.executor;
        Self {
            store,
            clock,
            entropy,
            resolver,
            settings,
            rates: Rates::default(),
            smtp_refusals: Refusals::default(),
            report_limits: ReportLimits::default(),
            meters,
            leases: Leases::default(),
            alerts: Alerts::default(),
            blocked_accounts: BlockedAccounts::default(),
            development: Development::default(),
            on_content_destroyed: OnceLock::new(),
            replication: OnceLock::new(),
            streams: Streams::default(),
            oidc: OnceLock::new(),
            backups: Arc::new(Semaphore::new(1)),
            signing,
            key_generation,
            list_work,
            exports,
            blocking: Blocking::new(executor, blocking::WORK_AT_ONCE),
            body_reads: Blocking::new(executor, blocking::BODIES_AT_ONCE),
            passwords: Passwords::new(executor),
            throttles: Arc::default(),
            oidc_throttles: Arc::default(),
            hot_keys: HotKeys::default(),
            replays: Replays::default(),
            own_networks: OwnNetworks::default(),
            dmarc_sums: DmarcSums::default(),
            reverse_dns: ReverseDns::default(),
            imports: Imports::default(),
            domain_verifications: DomainVerifications::default(),
            in_progress: Mutex::default(),
            waiting_submissions: AtomicUsize::new(0),
            being_stamped: Arc::default(),
            clock_changes: tokio::sync::Mutex::default(),
            queue_view: OnceLock::new(),
        }
    }

    /// Runs work of an account on a thread where it may block. Accounts take turns.
    ///
    /// # Errors
    /// The work panicked.
    pub async fn blocking<T: Send + 'static>(
        &self,
        account: AccountId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.blocking.run(account, work).await
    }
}
