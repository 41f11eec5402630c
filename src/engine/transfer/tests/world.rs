//! The world of the tests: the engine and its dispatcher with scripted names and mail servers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::net::{Behaviour, Net, NoPost, ScriptedTransmit};
use crate::base::entropy::SeededEntropy;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::domain::stream::Stream;
use crate::domain::submission::{Content, Parts, Submission};
use crate::engine::alerts::AlertSettings;
use crate::engine::dispatcher::Dispatcher;
use crate::engine::messages::MessageRecord;
use crate::engine::ports::Clock;
use crate::engine::queue::SiteQueue;
use crate::engine::relay::{Relay, RelayWay};
use crate::engine::settings::Settings;
use crate::engine::virtual_clock::VirtualClock;
use crate::engine::{Caller, EgressRoutes, Engine, Tables};
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;
use crate::store::Store;
use crate::store::op::cancel::CancelMessage;
use crate::store::open::StoreEnvironment;

/// Start of every test: an hour before a UTC midnight.
pub(super) const START: Timestamp = Timestamp::from_millis(1_700_089_200_000);

/// Number of the 64 connections that may go to unproven sites.
const NEW_SITES_MAX: usize = 48;

/// An engine with a running dispatcher.
pub(super) struct World {
    pub(super) engine: Arc<Engine>,
    pub(super) net: Arc<Net>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) account: AccountId,
    stop: watch::Sender<bool>,
    dispatcher: tokio::task::JoinHandle<()>,
    tables: Tables,
    directory: tempfile::TempDir,
}

/// Returns a relay that uses MX records, for both streams.
pub(super) fn mx(name: &str, sources: &[&str]) -> Relay {
    let sources = sources.iter().map(|source| source.parse().unwrap()).collect();
    Relay { sources, ..relay(name, RelayWay::Mx, &Stream::ALL) }
}

pub(super) fn relay(name: &str, way: RelayWay, streams: &[Stream]) -> Relay {
    let ehlo = format!("{name}.sender.example").into();
    Relay { name: name.into(), ehlo, way, sources: Vec::new(), streams: streams.to_vec(), warm_up: None }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(vec![mx("direct", &[])]).await
    }

    pub(super) async fn with(relays: Vec<Relay>) -> Self {
        let shaping = Arc::new(Shaping::built_in().clone());
        Self::shaped(relays, Tables { rules: Arc::new(Rules::built_in().clone()), shaping }).await
    }

    /// Creates a world with a clock that the test sets.
    pub(super) async fn on_clock(clock: Arc<dyn Clock>) -> Self {
        let shaping = Arc::new(Shaping::built_in().clone());
        let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping };
        Self::furnished(vec![mx("direct", &[])], tables, Some(clock)).await
    }

    pub(super) async fn shaped(relays: Vec<Relay>, tables: Tables) -> Self {
        Self::furnished(relays, tables, None).await
    }

    /// Creates a world with these alerts.
    pub(super) async fn alerting(relays: Vec<Relay>, alerts: AlertSettings) -> Self {
        let shaping = Arc::new(Shaping::built_in().clone());
        let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping };
        Self::furnished_with(relays, tables, None, alerts).await
    }

    async fn furnished(relays: Vec<Relay>, tables: Tables, scripted: Option<Arc<dyn Clock>>) -> Self {
        Self::furnished_with(relays, tables, scripted, Settings::for_tests().alerts).await
    }

    async fn furnished_with(
        relays: Vec<Relay>,
        tables: Tables,
        scripted: Option<Arc<dyn Clock>>,
        alerts: AlertSettings,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let net = Arc::new(Net {
            mx: Mutex::default(),
            addresses: Mutex::default(),
            behaviours: Mutex::default(),
            stuck: Mutex::default(),
            busy: Mutex::default(),
            asked: Mutex::default(),
            seen: watch::Sender::new(Vec::new()),
            bodies: watch::Sender::new(0),
            name_gates: Mutex::default(),
            posted: watch::Sender::new(0),
            requesters: Mutex::default(),
            resets: watch::Sender::new(0),
            post_lookups: Mutex::default(),
            post_gate: Mutex::default(),
            opened: Mutex::default(),
            max_wait: Mutex::default(),
        });
        let mut world = Self::on(directory, net, relays, tables, scripted, alerts);
        let quota = QuotaLimits { per_hour: 1_000_000, per_day: 1_000_000 };
        world.account = world.engine.create_account("Acme".parse().unwrap(), None, quota).await.unwrap().id;
        for (name, stream) in [("example.test", Stream::Transactional), ("news.example.test", Stream::Marketing)] {
            world.engine.create_verified_domain(world.account, name.parse().unwrap(), stream).await.unwrap();
        }
        world
    }

    fn on(
        directory: tempfile::TempDir,
        net: Arc<Net>,
        relays: Vec<Relay>,
        tables: Tables,
        scripted: Option<Arc<dyn Clock>>,
        alerts: AlertSettings,
    ) -> Self {
        let clock = Arc::new(VirtualClock::open(directory.path(), START).unwrap());
        let entropy = Arc::new(SeededEntropy::new(clock.now().as_millis()));
        let time = scripted.unwrap_or_else(|| clock.clone());
        let wall = Arc::clone(&time);
        let surroundings = StoreEnvironment { now: Arc::new(move || wall.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        time.start(store.clock_past().unwrap());
        let settings = Settings {
            hostname: "mail.sender.example".to_owned(),
            bounce_host: "bounces.sender.example".to_owned(),
            max_connections: 64,
            body_kib: 64,
            signing_threads: 2,
            alerts,
            ..Settings::for_tests()
        };
        let engine = Arc::new(Engine::new(store, time, entropy, net.clone(), settings));
        let transmit = Arc::new(ScriptedTransmit(Arc::clone(&net)));
        let routes = EgressRoutes { relays, port: 25, capture: None };
        let post = Arc::new(NoPost(Arc::clone(&net)));
        let dispatcher = Dispatcher::new(Arc::clone(&engine), transmit, post.clone(), post, routes, tables.clone());
        let (stop, stopped) = watch::channel(false);
        let dispatcher = tokio::spawn(async move { dispatcher.run(stopped).await.unwrap() });
        Self { engine, net, clock, account: AccountId::default(), stop, dispatcher, tables, directory }
    }

    /// Waits until a worker holds a message for `site`.
    pub(super) async fn is_in_hand(&self, site: &str) {
        while self.queue(site).await.is_none_or(|queue| queue.in_flight == 0) {
            tokio::task::yield_now().await;
        }
    }

    /// Sends two messages to a site. Returns the second one, whose kept connection is being reset until the semaphore
    /// has a permit.
    pub(super) async fn waits_for_reset(&self) -> (MessageId, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        self.net.behave("mx.slow.test", Behaviour::Resets(Arc::clone(&gate)));
        self.send("first@slow.test").await;
        self.pass(0).await;
        let id = self.send("second@slow.test").await;
        self.net.resets.subscribe().wait_for(|resets| *resets > 0).await.unwrap();
        (id, gate)
    }

    /// Begins to stop the service, and waits until every worker could notice it.
    pub(super) async fn begin_to_stop(&self) {
        self.stop.send_replace(true);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Stops the service, and waits until its outcomes are committed.
    pub(super) async fn stopped(mut self) -> Self {
        self.stop.send_replace(true);
        (&mut self.dispatcher).await.unwrap();
        self.dispatcher = tokio::spawn(async {});
        self.engine.store.commit(CancelMessage { account: self.account, message: MessageId::default() }).await.ok();
        self
    }

    /// Ends the process, and starts another one on the same directory.
    pub(super) async fn restarted(self, relays: Vec<Relay>) -> Self {
        self.restarted_on(relays, None).await
    }

    /// Restarts the process with a clock that the test sets.
    pub(super) async fn restarted_on(self, relays: Vec<Relay>, clock: Option<Arc<dyn Clock>>) -> Self {
        self.stop.send_replace(true);
        self.dispatcher.await.unwrap();
        self.engine.store.close();
        let store = Arc::downgrade(&self.engine.store);
        let alerts = self.engine.settings.alerts.clone();
        drop(self.engine);
        // A task that has not ended yet holds the store, and with it the lock.
        while store.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        let world = Self::on(self.directory, self.net, relays, self.tables, clock, alerts);
        Self { account: self.account, ..world }
    }

    /// Makes another account the sender, from `us@other.test`.
    pub(super) async fn become_another_account(&mut self) {
        let quota = self.engine.settings.quota;
        self.account = self.engine.create_account("Other".parse().unwrap(), None, quota).await.unwrap().id;
        let name = "other.test".parse().unwrap();
        self.engine.create_verified_domain(self.account, name, Stream::Transactional).await.unwrap();
    }

    /// Waits until the message is delivered, regardless of other work.
    pub(super) async fn is_delivered(&self, id: MessageId) {
        while self.progress(id).0 != "delivered" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Submits a transactional message.
    pub(super) async fn send(&self, to: &str) -> MessageId {
        self.send_from("shop@example.test", to).await
    }

    pub(super) async fn send_from(&self, from: &str, to: &str) -> MessageId {
        self.submit(self.submission(from, to)).await
    }

    /// Sends a message that uses nearly all memory for bodies.
    pub(super) async fn send_large(&self, to: &str) -> MessageId {
        let text = "Thank you very much, indeed.\n".repeat(2_000);
        let content = Content::Composed(Parts { text: Some(text), ..Parts::default() });
        self.submit(Submission { content, ..self.submission("shop@example.test", to) }).await
    }

    async fn submit(&self, submission: Submission) -> MessageId {
        let caller = Caller { account: self.account, key: None };
        match self.engine.submit(&caller, submission, None).await {
            Ok(accepted) => {
                let answer: serde_json::Value = serde_json::from_slice(&accepted.answer).unwrap();
                answer["id"].as_str().unwrap().parse().unwrap()
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(super) fn submission(&self, from: &str, to: &str) -> Submission {
        let parts = Parts { text: Some("Thank you.".to_owned()), ..Parts::default() };
        Submission {
            to_name: None,
            list_unsubscribe: None,
            from: from.parse().unwrap(),
            from_name: None,
            to: to.parse().unwrap(),
            content: Content::Composed(parts),
            unsubscribe_url: Some("https://example.test/u".parse().unwrap()),
            metadata: Default::default(),
            expires_at: None,
        }
    }

    pub(super) async fn cancel(&self, id: MessageId) {
        assert!(self.engine.cancel(self.account, id).await.is_ok());
    }

    /// Damages every body on the disk.
    pub(super) fn damage_bodies(&self) {
        for bucket in std::fs::read_dir(self.directory.path().join("content")).unwrap() {
            let Ok(segments) = std::fs::read_dir(bucket.unwrap().path()) else { continue };
            for segment in segments {
                let path = segment.unwrap().path();
                let damaged = std::fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
                std::fs::write(path, damaged).unwrap();
            }
        }
    }

    /// Copies the content to a store that was set aside, and returns its directory.
    pub(super) fn content_set_aside(&self) -> PathBuf {
        let (content, aside) = (self.directory.path().join("content"), self.directory.path().join("deposed-1/content"));
        std::fs::create_dir_all(&aside).unwrap();
        for entry in std::fs::read_dir(content).unwrap().map(Result::unwrap) {
            let copy = aside.join(entry.file_name());
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy).unwrap();
                continue;
            }
            std::fs::create_dir(&copy).unwrap();
            for segment in std::fs::read_dir(entry.path()).unwrap().map(Result::unwrap) {
                std::fs::copy(segment.path(), copy.join(segment.file_name())).unwrap();
            }
        }
        aside
    }

    /// Advances time, and waits until the due work is done.
    pub(super) async fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds), &self.engine.store).await.unwrap();
    }

    pub(super) fn message(&self, id: MessageId) -> MessageRecord {
        self.engine.message(self.account, id).unwrap().unwrap()
    }

    /// Returns status and number of attempts.
    pub(super) fn progress(&self, id: MessageId) -> (&'static str, u32) {
        let transfer = self.message(id).transfer;
        (transfer.state.status().as_str(), transfer.attempts)
    }

    pub(super) fn attempts(&self, ids: &[MessageId]) -> u32 {
        ids.iter().map(|id| self.progress(*id).1).sum()
    }

    /// Returns the relay of a message's last attempt.
    pub(super) fn relay_of(&self, id: MessageId) -> String {
        self.message(id).transfer.last.relay.unwrap()
    }

    /// Returns the queue's row for `site`.
    pub(super) async fn queue(&self, site: &str) -> Option<SiteQueue> {
        self.engine.queue(None).await.unwrap().sites.into_iter().find(|queue| queue.site == site)
    }
}

/// Lets unproven servers hold a message with each permit, until the semaphore has permits.
pub(super) async fn fill_places(world: &World) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    let before = world.net.seen().len();
    for n in 0..NEW_SITES_MAX {
        world.net.behave(&format!("mx.holds{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@holds{n}.test")).await;
    }
    world.net.has_seen(before + NEW_SITES_MAX).await;
    gate
}
