//! System under test: the real engine over a new store, with one account and one key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider::base::id::{AccountId, KeyId};
use postrider::base::secret::Secret;
use postrider::domain::account::QuotaLimits;
use postrider::domain::api_key::Scopes;
use postrider::domain::hostname::DomainName;
use postrider::domain::token_key::TokenKeys;
use postrider::engine::accounts::NewKey;
use postrider::engine::alerts::AlertSettings;
use postrider::engine::executor::Executor;
use postrider::engine::ports::{BoxFuture, Clock, LookupFailure, MailHost, Requester, Resolve, RouteFailure};
use postrider::engine::settings::{Egress, Settings};
use postrider::engine::{Caller, Engine};
use postrider::mail::dkim_key;
use postrider::net::clock::SystemClock;
use postrider::net::entropy::OsEntropy;
use postrider::smtp::tlsa::TlsaRecord;
use postrider::store::Store;
use postrider::store::open::StoreEnvironment;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::log::{EVENTS_OF_MESSAGE, Fill, Log, MESSAGES_AT_ONCE};

/// An engine with an account.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) account: AccountId,
    pub(crate) key: String,
    pub(crate) key_id: KeyId,
    runtime: Runtime,
    _directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let wall = Arc::clone(&clock);
        let surroundings = StoreEnvironment { now: Arc::new(move || wall.time()), entropy: Arc::new(OsEntropy) };
        let store = Arc::new(Store::open(directory.path(), surroundings).expect("an empty store"));
        let engine = Engine::new(store, clock, Arc::new(OsEntropy), Arc::new(NoNames), settings());
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let name = "Bench".parse().expect("a name");
        let account = runtime.block_on(engine.create_account(name, None, QuotaLimits::default())).expect("made").id;
        let new = NewKey { name: "bench".to_owned(), stream: None, scopes: Scopes::ALL, expires_at: None };
        let operator = Caller { account, key: None };
        let Ok((key, secret)) = runtime.block_on(engine.create_key(&operator, new)) else {
            panic!("no key was created")
        };
        let key = (key.id, secret.expose().to_owned());
        Self { engine, account, key: key.1, key_id: key.0, runtime, _directory: directory }
    }

    /// Writes a log of `events` events.
    pub(crate) fn fill(&self, events: u64) -> Log {
        let messages = events / EVENTS_OF_MESSAGE as u64;
        let (mut all, account) = (Vec::new(), self.account);
        for from in (0..messages).step_by(usize::try_from(MESSAGES_AT_ONCE).unwrap_or(usize::MAX)) {
            let written = self.runtime.block_on(self.engine.store.commit(Fill { account, from }));
            let Ok(written) = written else { panic!("the log was not written") };
            all.push(written);
        }
        let (message, middle) = all[all.len() / 2];
        Log { message, middle: middle.0, early: all[0].1.0 }
    }
}

fn settings() -> Settings {
    let keys = || TokenKeys::new(Secret::new([1; 32]));
    Settings {
        hostname: "mail.example.com".to_owned(),
        bounce_host: "bounces.example.com".to_owned(),
        receives_mail: false,
        egress: Egress::default(),
        alerts: AlertSettings::silent("alerts@bounces.example.com".parse().expect("an address")),
        direct_relays: Vec::new(),
        mails_invitations: false,
        return_path_keys: keys(),
        feedback_keys: keys(),
        unsubscribe_keys: keys(),
        tls_reports_from: None,
        public_url: Arc::default(),
        smtp: Arc::default(),
        queue_lifetime: Duration::from_secs(48 * 3600),
        requests_per_minute: 600,
        account_requests_per_minute: 600,
        stored_bytes_per_account: 0,
        quota: QuotaLimits::default(),
        max_connections: 8,
        body_kib: 256 * 1024,
        min_free_bytes: 0,
        signing_threads: 1,
        lower_priority: || {},
        executor: Executor::Threads,
        generate_dkim_key: dkim_key::generate,
    }
}

/// Returns the JSON of a 2 KB message, as a client sends it.
pub(crate) fn message() -> String {
    let text = "Your order is on its way, and here is what you need to know of it.\\r\\n".repeat(12);
    let html = "<p>Your order is on its way, and here is what you need to know of it.</p>\\r\\n".repeat(10);
    format!(
        r#"{{"from":"shop@mail.example.com","from_name":"The Shop","to":"someone@recipient.example","subject":"Your order","text":"{text}","html":"{html}","headers":{{"Reply-To":"help@example.com","X-Order":"42"}},"metadata":{{"order":"42"}}}}"#
    )
}

/// A resolver without names.
struct NoNames;

impl Resolve for NoNames {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Err(RouteFailure::NoHost) })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn host_addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}
