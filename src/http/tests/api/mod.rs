//! Tests of the real table, handlers, engine and store, in a temporary directory, with a clock and DNS names set by the
//! test.

mod account;
mod alerting;
mod auditing;
mod checklist;
mod compat_lists;
mod compat_postmark;
mod compat_resend;
mod compat_routes;
mod damaged;
mod described;
mod dmarc;
mod domains;
mod explaining;
mod exporting;
mod idempotency;
mod limits;
mod lists;
mod matrix;
mod order;
mod providers;
mod records;
mod redelivering;
mod reputation;
mod rotation;
mod sending;
mod settings;
mod smtp_submission;
mod streaming;
mod suppressions;
mod suspending;
mod unsubscribing;
mod webhooks;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::*;
use crate::base::id::{AccountId, MessageId};
use crate::domain::account::QuotaLimits;
use crate::domain::api_key::Scopes;
use crate::domain::event::{AttemptFacts, Bounce, BounceKind, BounceSource};
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::engine::accounts::NewKey;
use crate::engine::follow::Streams;
use crate::engine::ports::{BoxFuture, LookupFailure, MailHost, Requester, Resolve, RouteFailure};
use crate::engine::settings::Settings;
use crate::engine::{Caller, Engine};
use crate::http::api::routes;
use crate::http::compat;
use crate::http::pages;
use crate::http::state::Api;
use crate::smtp::tlsa::TlsaRecord;
use crate::store::Store;
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::open::StoreEnvironment;

/// 2023-11-14T22:13:20Z.
const START_MS: u64 = 1_700_000_000_000;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A clock that a test sets.
#[derive(Clone)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Relaxed))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
    /// Polls the clock, because setting it sends no notification.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.now() < at {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }
}

/// DNS names that a test publishes. `None` is a failed lookup. If the flag is set, name servers don't answer lookups of
/// texts.
#[derive(Default)]
struct Names(Mutex<HashMap<String, Option<Vec<String>>>>, AtomicBool);

impl Names {
    fn publish(&self, name: &str, value: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), Some(vec![value.to_owned()]));
    }

    fn fail(&self, name: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), None);
    }

    fn look(&self, name: &str) -> Result<Vec<String>, LookupFailure> {
        match self.0.lock().unwrap().get(name) {
            Some(Some(values)) => Ok(values.clone()),
            Some(None) => Err(LookupFailure::Temporary("SERVFAIL".to_owned())),
            None => Err(LookupFailure::Absent),
        }
    }
}

impl Resolve for Names {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Err(RouteFailure::NoHost) })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.txt_now(name)
    }
    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move {
            self.look(&format!("A {host}")).map(|found| found.iter().map(|text| text.parse().unwrap()).collect())
        })
    }
    fn mx_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move { self.look(&format!("MX {name}")) })
    }
    fn ptr_now(&self, address: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move { self.look(&format!("PTR {address}")) })
    }
    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            if self.1.load(Relaxed) {
                std::future::pending::<()>().await;
            }
            self.look(name)
        })
    }
    fn cname_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async move { self.look(name).map(|values| values[0].clone()) })
    }
}

/// A service with one account, its key, and a verified domain of each stream.
struct World {
    address: SocketAddr,
    client: Client<TcpStream>,
    engine: Arc<Engine>,
    clock: SetClock,
    names: Arc<Names>,
    account: AccountId,
    key: String,
    api: Arc<Api>,
    _server: HttpServer<HttpService<Api>>,
    directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(QuotaLimits::default(), 600).await
    }

    async fn with(quota: QuotaLimits, requests_per_minute: u32) -> Self {
        Self::serving(quota, requests_per_minute, HttpLimits::default(), Streams::default()).await
    }

    async fn serving(quota: QuotaLimits, requests_per_minute: u32, http: HttpLimits, streams: Streams) -> Self {
        let settings = Settings {
            requests_per_minute,
            account_requests_per_minute: requests_per_minute.saturating_mul(5),
            quota,
            ..Settings::for_tests()
        };
        Self::set(settings, http, streams).await
    }

    async fn set(settings: Settings, http: HttpLimits, streams: Streams) -> Self {
        let requests_per_minute = settings.requests_per_minute;
        let directory = tempfile::tempdir().unwrap();
        let clock = SetClock(Arc::new(AtomicU64::new(START_MS)));
        let entropy = Arc::new(SeededEntropy::new(7));
        let wall = clock.clone();
        let surroundings = StoreEnvironment { now: Arc::new(move || wall.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let names = Arc::new(Names::default());
        let mut engine = Engine::new(store, Arc::new(clock.clone()), entropy.clone(), names.clone(), settings);
        engine.streams = streams;
        let engine = Arc::new(engine);
        let limits = ServiceLimits { requests_per_minute: requests_per_minute.into(), ..ServiceLimits::default() };
        let budgets = Arc::clone(&limits.budgets);
        let api = Arc::new(Api::new(Arc::clone(&engine), Arc::default(), 26_214_400, budgets, None));
        let mut table = routes();
        table.extend(pages::routes());
        table.extend(compat::routes(true));
        let router = Router::new(table).unwrap();
        let service = HttpService::new(Arc::clone(&api), router, Arc::new(clock.clone()), entropy, limits);
        let mut server = HttpServer::new(Arc::new(service), http);
        let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
        server.listen_unix(&directory.path().join("admin.sock")).unwrap();
        let client = Client::open(address).await;
        let account = engine.create_account("Acme".parse().unwrap(), None, engine.settings.quota).await.unwrap().id;
        let key = String::new();
        let mut world = Self { address, client, engine, clock, names, account, key, api, _server: server, directory };
        world.key = world.new_key(account, None, Scopes::ALL).await;
        for (name, stream) in [("example.test", Stream::Transactional), ("news.example.test", Stream::Marketing)] {
            world.engine.create_verified_domain(account, name.parse().unwrap(), stream).await.unwrap();
        }
        world
    }

    async fn new_key(&self, account: AccountId, stream: Option<Stream>, scopes: Scopes) -> String {
        let new = NewKey { name: "test".to_owned(), stream, scopes, expires_at: None };
        let operator = Caller { account, key: None };
        self.engine.create_key(&operator, new).await.unwrap().1.expose().to_owned()
    }

    /// Creates a second account, and returns it with its key.
    async fn stranger(&self) -> (AccountId, String) {
        let account =
            self.engine.create_account("Other".parse().unwrap(), None, self.engine.settings.quota).await.unwrap().id;
        (account, self.new_key(account, None, Scopes::ALL).await)
    }

    fn advance(&self, by: Duration) {
        self.clock.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Relaxed);
    }

    /// Sends a request. Every answer must match the description.
    async fn ask_as(&mut self, key: &str, line: &str, headers: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.client.ask(line, key, headers, &body).await;
        described::check(line, &reply);
        reply
    }

    async fn get(&mut self, path: &str) -> Reply {
        let key = self.key.clone();
        self.ask_as(&key, &format!("GET {path}"), "", &Value::Null).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Reply {
        let key = self.key.clone();
        self.ask_as(&key, &format!("POST {path}"), "", &body).await
    }

    async fn patch(&mut self, path: &str, body: Value) -> Reply {
        let key = self.key.clone();
        self.ask_as(&key, &format!("PATCH {path}"), "", &body).await
    }

    async fn delete(&mut self, path: &str) -> Reply {
        let key = self.key.clone();
        self.ask_as(&key, &format!("DELETE {path}"), "", &Value::Null).await
    }

    /// Sends `message` with these additional header lines.
    async fn send_with(&mut self, headers: &str, message: &Value) -> Reply {
        let key = self.key.clone();
        self.ask_as(&key, "POST /v1/messages", headers, message).await
    }

    async fn send(&mut self, message: Value) -> Reply {
        self.send_with("", &message).await
    }

    /// Sends a message to this address, and returns its identifier.
    async fn sent_to(&mut self, to: &str) -> MessageId {
        let reply = self.send(letter(to)).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        reply.json()["id"].as_str().unwrap().parse().unwrap()
    }

    /// Records the end of a message's attempt.
    async fn settle(&self, message: MessageId, end: TransferEnd, facts: AttemptFacts) {
        let due = self.engine.message(self.account, message).unwrap().unwrap().transfer.due.unwrap();
        let op = SettleTransfer {
            account: self.account,
            message,
            due,
            end,
            facts,
            provider: None,
            random: [0; 4],
            others: vec![],
            transcript: None,
        };
        self.engine.store.commit(op).await.unwrap();
    }
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn fails_with(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.body);
    }

    /// Returns the fields in a 422.
    fn faults(&self) -> Vec<String> {
        self.json()["errors"].as_object().unwrap().keys().cloned().collect()
    }
}

fn letter(to: &str) -> Value {
    serde_json::json!({ "from": "shop@example.test", "to": to, "subject": "Your order", "text": "Thank you." })
}

fn hard_bounce() -> TransferEnd {
    TransferEnd::Bounced(Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".to_owned(),
        status: Some("5.1.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "enhanced-5.1.1".to_owned(),
        advice: "Remove the address.".to_owned(),
        suppressed: true,
    })
}

/// Returns the member names of a JSON object, in order.
fn members(json: &str) -> Vec<String> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut names = Vec::new();
            while let Some((name, IgnoredAny)) = map.next_entry()? {
                names.push(name);
            }
            Ok(names)
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_str(json), Names).unwrap()
}

/// Returns the raw text of the first object of a page.
fn first_of_page(json: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        data: Vec<&'a serde_json::value::RawValue>,
    }
    let page: Page<'_> = serde_json::from_str(json).unwrap();
    page.data[0].get().to_owned()
}
