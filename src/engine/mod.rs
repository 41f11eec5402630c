//! Floor 5: the workers between the store and the world, and the ports through which they see it.
//!
//! [`Engine`] is what the API, the panel and the admin socket call; [`pump`] serves the timers. Both change the store
//! through operations alone.

pub mod accounts;
pub mod alerts;
pub mod audit;
mod backlog;
pub mod beside;
pub mod blocking;
pub mod bucket;
pub mod checklist;
mod clock_watch;
pub mod crash;
mod deliver;
pub mod deliveries;
pub mod development;
mod dkim;
pub mod dmarc;
mod dns_facts;
mod domain_records;
pub mod domains;
pub mod endpoints;
pub mod events;
pub mod executor;
pub mod exports;
pub mod follow;
mod hot_keys;
pub mod imports;
pub mod invitations;
pub mod keeping;
pub mod lease;
pub mod listing;
#[cfg(test)]
pub(crate) mod memory_bucket;
mod message_search;
pub mod messages;
pub mod meters;
#[cfg(test)]
pub(crate) mod no_names;
pub mod oidc;
mod passwords;
pub mod pauses;
pub(crate) mod places;
pub mod ports;
pub mod probe;
pub mod providers;
pub mod pump;
pub mod queue;
pub mod quiet;
pub mod rates;
pub mod receive;
pub mod redeliver;
pub mod relay;
pub mod replica;
pub mod reputation;
pub mod reverse_dns;
mod room;
mod seats;
pub mod service_clock;
pub mod settings;
pub mod setup_link;
pub mod sign_in;
pub mod signing;
pub mod smtp_submission;
pub mod store_size;
pub mod submit;
pub mod suppressions;
mod sweep;
mod throttles;
mod tls_policy;
mod tls_reports;
mod transfer;
pub use transfer::Tables;
pub use transfer::way::{InHouse, Ways};
pub mod unsubscribe;
pub mod users;
pub mod views;
pub mod virtual_clock;
pub mod wait;
mod waiting;
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
use beside::Beside;
use blocking::Blocking;
use development::Development;
use dmarc::OwnNetworks;
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
use quiet::QuietAccounts;
use rates::Rates;
use redeliver::Replays;
use reverse_dns::ReverseDns;
use settings::Settings;
use signing::SigningPool;
use smtp_submission::Refusals;
use throttles::Throttles;

/// The caller: an API key of an account, or the operator on the admin socket.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account that the call is about.
    pub account: AccountId,
    /// The key; none for the operator.
    pub key: Option<Arc<ApiKey>>,
}

/// Everything that the interfaces call.
pub struct Engine {
    /// The store.
    pub store: Arc<Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Names.
    pub resolver: Arc<dyn Resolve>,
    /// Settings from the configuration.
    pub settings: Settings,
    /// The request rates of the keys.
    pub rates: Rates,
    /// The last refusals of SMTP submission.
    pub smtp_refusals: Refusals,
    /// Meters for monitoring.
    pub meters: Arc<EngineMeters>,
    /// Leases on messages.
    pub leases: Leases,
    /// Alerts, as far as memory knows them.
    pub alerts: Alerts,
    /// Accounts that nothing is attempted for at present.
    pub quiet: QuietAccounts,
    /// Additions for `dev`.
    pub development: Development,
    /// Hook that deletes further content past its deadline: the captured mail of `dev`. May block.
    pub on_content_destroyed: OnceLock<Box<dyn Fn() -> std::io::Result<()> + Send + Sync>>,
    /// The replication of the store; empty without one.
    pub replication: OnceLock<Arc<replica::Replication>>,
    /// Followers of the event logs.
    pub streams: Streams,
    /// Sign-in by OpenID Connect, where it is configured.
    pub oidc: OnceLock<Oidc>,
    /// A permit for each backup that may be taken at once.
    backups: Arc<Semaphore>,
    signing: SigningPool,
    /// Generates DKIM keys.
    key_generation: Beside,
    /// Reads lists to import.
    list_work: Beside,
    /// Reads messages and events that are exported.
    exports: Exports,
    /// Searches, and what else accounts start that blocks.
    blocking: Blocking,
    /// Reads the bodies of messages that are being sent.
    body_reads: Blocking,
    passwords: Passwords,
    throttles: Throttles,
    hot_keys: HotKeys,
    replays: Replays,
    /// The networks that the names of the relays lead to.
    own_networks: OwnNetworks,
    imports: Imports,
    /// Idempotency keys whose first request is still running: memory alone, so a crash releases them.
    in_progress: Mutex<HashSet<(AccountId, [u8; 32])>>,
    /// Submissions that wait for their answer.
    waiting_submissions: AtomicUsize,
    /// Keys whose use is being written down, so that a burst writes it once.
    being_stamped: Arc<Mutex<HashSet<KeyId>>>,
    /// Changes of the clock that are yet to be recorded. Held by who records them.
    clock_changes: tokio::sync::Mutex<VecDeque<Effect>>,
    /// The reverse names of the addresses that mail leaves from.
    reverse_dns: ReverseDns,
    /// The pump's knowledge of the queue, once there is a pump.
    queue_view: OnceLock<Weak<dyn QueueView>>,
}

impl Engine {
    /// The engine over an open store.
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        resolver: Arc<dyn Resolve>,
        settings: Settings,
    ) -> Self {
        let meters = Arc::new(EngineMeters::default());
        let signing = SigningPool::new(settings.executor, settings.signing_threads, Arc::clone(&meters));
        let list_work = Beside::new(settings.executor, "lists", settings.lower_priority);
        let key_generation = Beside::new(settings.executor, "keygen", settings.lower_priority);
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
            meters,
            leases: Leases::default(),
            alerts: Alerts::default(),
            quiet: QuietAccounts::default(),
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
            throttles: Throttles::default(),
            hot_keys: HotKeys::default(),
            replays: Replays::default(),
            own_networks: OwnNetworks::default(),
            reverse_dns: ReverseDns::default(),
            imports: Imports::default(),
            in_progress: Mutex::default(),
            waiting_submissions: AtomicUsize::new(0),
            being_stamped: Arc::default(),
            clock_changes: tokio::sync::Mutex::default(),
            queue_view: OnceLock::new(),
        }
    }

    /// Does work for an account where it may block. Accounts take turns.
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
