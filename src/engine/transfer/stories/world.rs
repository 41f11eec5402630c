//! The world of the stories: names that resolve as told, and mail servers that behave as told.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};

use crate::base::entropy::SeededEntropy;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::domain::event::TlsFacts;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::domain::submission::{Content, Parts, Submission};
use crate::engine::messages::MessageRecord;
use crate::engine::ports::{
    BoxFuture, Clock, LookupFailure, MailHost, PolicyHosts, Post, PostError, PostOutcome, Resolve, RouteFailure,
    Session, Target, Transmit, Unfetched, WebhookRequest,
};
use crate::engine::pump::Pump;
use crate::engine::queue::SiteQueue;
use crate::engine::relay::{Relay, RelayWay};
use crate::engine::settings::Settings;
use crate::engine::virtual_clock::VirtualClock;
use crate::engine::{Caller, Engine, Tables, Ways};
use crate::smtp::outcome::{Ending, Envelope, Outcome, Phase};
use crate::smtp::reply::ReplyParser;
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;
use crate::smtp::tls_policy::TlsFault;
use crate::smtp::tlsa::TlsaRecord;
use crate::smtp::transcript::Transcript;
use crate::store::Store;
use crate::store::open::Surroundings;

/// When every story begins: an hour before a UTC midnight.
pub(super) const START: Timestamp = Timestamp::from_millis(1_700_089_200_000);

/// What a mail server does.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    /// Takes every message.
    Takes,
    /// Refuses the connection.
    Refuses,
    /// Answers every message so.
    Says(&'static str),
    /// Fails in this phase, before any message.
    Fails(Phase, Ending),
    /// Holds every message until it is let go.
    Holds(Arc<Semaphore>),
}

/// One message that a server has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) to: String,
    pub(super) host: String,
    pub(super) ehlo: String,
    pub(super) source: Option<IpAddr>,
    pub(super) at: Instant,
}

/// Names and mail servers.
pub(super) struct Net {
    mx: Mutex<HashMap<String, Vec<String>>>,
    addresses: Mutex<HashMap<String, Vec<IpAddr>>>,
    behaviours: Mutex<HashMap<String, Behaviour>>,
    /// Domains whose name server never answers.
    pub(super) stuck: Mutex<HashSet<String>>,
    /// Domains that nobody can be asked for, so much else is asked.
    pub(super) busy: Mutex<HashSet<String>>,
    /// Domains that were asked for.
    pub(super) asked: Mutex<Vec<String>>,
    seen: watch::Sender<Vec<Seen>>,
    /// Connections that were opened, by host and source.
    pub(super) opened: Mutex<Vec<(String, Option<IpAddr>)>>,
}

impl Net {
    /// Has the mail of `domain` go to `hosts`.
    pub(super) fn serve(&self, domain: &str, hosts: &[&str]) {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        self.mx.lock().unwrap().insert(domain.to_owned(), hosts);
    }

    pub(super) fn behave(&self, host: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(host.to_owned(), behaviour);
    }

    pub(super) fn address(&self, host: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.addresses.lock().unwrap().insert(host.to_owned(), addresses);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits until the servers have seen so many messages.
    pub(super) async fn has_seen(&self, count: usize) {
        self.seen.subscribe().wait_for(|seen| seen.len() >= count).await.unwrap();
    }

    fn behaviour(&self, target: &Target) -> Behaviour {
        let behaviours = self.behaviours.lock().unwrap();
        let by_source = target.source.and_then(|source| behaviours.get(&source.to_string()));
        by_source.or_else(|| behaviours.get(&*target.host)).cloned().unwrap_or(Behaviour::Takes)
    }

    fn hosts(&self, domain: &str) -> Vec<String> {
        self.mx.lock().unwrap().get(domain).cloned().unwrap_or_else(|| vec![format!("mx.{domain}")])
    }
}

impl Resolve for Net {
    fn mail_hosts<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        self.asked.lock().unwrap().push(domain.to_string());
        Box::pin(async move {
            if self.stuck.lock().unwrap().contains(domain.as_str()) {
                std::future::pending::<()>().await;
            }
            if self.busy.lock().unwrap().contains(domain.as_str()) {
                return Err(RouteFailure::Unasked);
            }
            if domain.as_str().starts_with("gone.") {
                return Err(RouteFailure::NoSuchDomain);
            }
            let host = |name: String| {
                let known = self.addresses.lock().unwrap().get(&name).cloned();
                let addresses = known.unwrap_or_else(|| vec!["192.0.2.1".parse().unwrap()]);
                MailHost { name, preference: 0, addresses, tlsa_names: Vec::new() }
            };
            Ok(self.hosts(domain.as_str()).into_iter().map(host).collect())
        })
    }
    fn tlsa<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async move { self.addresses.lock().unwrap().get(host).cloned().ok_or(LookupFailure::Absent) })
    }
    fn txt_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}

struct ScriptedTransmit(Arc<Net>);

struct ScriptedSession {
    net: Arc<Net>,
    target: Target,
    behaviour: Behaviour,
    is_reusable: bool,
}

fn outcome(phase: Phase, ending: Ending) -> Outcome {
    Outcome { phase, ending, peer: None, tls: None, transcript: Transcript::default() }
}

fn answer(text: &str) -> Ending {
    Ending::Answered(ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap())
}

impl Transmit for ScriptedTransmit {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        Box::pin(async move {
            self.0.opened.lock().unwrap().push((target.host.to_string(), target.source));
            let behaviour = self.0.behaviour(target);
            match &behaviour {
                Behaviour::Refuses => Err(outcome(Phase::Connect, Ending::Unreachable("refused".to_owned()))),
                Behaviour::Fails(phase, ending) => Err(outcome(*phase, ending.clone())),
                Behaviour::Takes | Behaviour::Says(_) | Behaviour::Holds(_) => {
                    let (net, target) = (Arc::clone(&self.0), target.clone());
                    Ok(Box::new(ScriptedSession { net, target, behaviour, is_reusable: true }) as Box<dyn Session>)
                }
            }
        })
    }
}

impl Session for ScriptedSession {
    fn send<'a>(&'a mut self, envelope: &'a Envelope, _: Bytes) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let seen = Seen {
                to: envelope.rcpt_to.clone(),
                host: self.target.host.to_string(),
                ehlo: self.target.ehlo.to_string(),
                source: self.target.source,
                at: Instant::now(),
            };
            self.net.seen.send_modify(|all| all.push(seen));
            match &self.behaviour {
                Behaviour::Holds(gate) => drop(gate.acquire().await.unwrap()),
                Behaviour::Says(text) => {
                    self.is_reusable = !text.starts_with("421");
                    return outcome(Phase::Rcpt, answer(text));
                }
                Behaviour::Takes | Behaviour::Refuses | Behaviour::Fails(..) => {}
            }
            outcome(Phase::Dot, answer("250 2.0.0 taken"))
        })
    }
    fn tls(&self) -> Result<&TlsFacts, TlsFault> {
        Err(TlsFault::StartTlsNotSupported)
    }
    fn is_reusable(&self) -> bool {
        self.is_reusable
    }
    fn quit(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

struct NoPost;

impl PolicyHosts for NoPost {
    fn sts_policy<'a>(&'a self, _: &'a DomainName) -> BoxFuture<'a, Result<String, Unfetched>> {
        unreachable!("no domain of these stories announces a policy")
    }
}

impl Post for NoPost {
    fn post(&self, _: WebhookRequest) -> BoxFuture<'_, PostOutcome> {
        let outcome = PostOutcome {
            status: None,
            error: Some(PostError::Connect),
            duration: Duration::ZERO,
            peer: None,
            body: None,
        };
        Box::pin(async { outcome })
    }
}

/// An engine with its pump running.
pub(super) struct World {
    pub(super) engine: Arc<Engine>,
    pub(super) net: Arc<Net>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) account: AccountId,
    stop: watch::Sender<bool>,
    pump: tokio::task::JoinHandle<()>,
    tables: Tables,
    directory: tempfile::TempDir,
}

/// A relay that goes by MX, for both streams.
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

    pub(super) async fn shaped(relays: Vec<Relay>, tables: Tables) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let net = Arc::new(Net {
            mx: Mutex::default(),
            addresses: Mutex::default(),
            behaviours: Mutex::default(),
            stuck: Mutex::default(),
            busy: Mutex::default(),
            asked: Mutex::default(),
            seen: watch::Sender::new(Vec::new()),
            opened: Mutex::default(),
        });
        let mut world = Self::on(directory, net, relays, tables);
        let quota = QuotaLimits { per_hour: 1_000_000, per_day: 1_000_000 };
        world.account = world.engine.create_account("Acme".parse().unwrap(), None, quota).await.unwrap().id;
        for (name, stream) in [("example.test", Stream::Transactional), ("news.example.test", Stream::Marketing)] {
            world.engine.create_verified_domain(world.account, name.parse().unwrap(), stream).await.unwrap();
        }
        world
    }

    fn on(directory: tempfile::TempDir, net: Arc<Net>, relays: Vec<Relay>, tables: Tables) -> Self {
        let clock = Arc::new(VirtualClock::open(directory.path(), START).unwrap());
        let entropy = Arc::new(SeededEntropy::new(clock.now().as_millis()));
        let wall = Arc::clone(&clock);
        let surroundings = Surroundings { now: Arc::new(move || wall.now()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let settings = Settings {
            hostname: "mail.sender.example".to_owned(),
            bounce_host: "bounces.sender.example".to_owned(),
            max_connections: 64,
            signing_threads: 2,
            ..Settings::of_a_story()
        };
        let engine = Arc::new(Engine::new(store, clock.clone(), entropy, net.clone(), settings));
        let transmit = Arc::new(ScriptedTransmit(Arc::clone(&net)));
        let ways = Ways { relays, port: 25, in_house: None };
        let pump = Pump::new(Arc::clone(&engine), transmit, Arc::new(NoPost), Arc::new(NoPost), ways, tables.clone());
        let (stop, stopped) = watch::channel(false);
        let pump = tokio::spawn(async move { pump.run(stopped).await.unwrap() });
        Self { engine, net, clock, account: AccountId::default(), stop, pump, tables, directory }
    }

    /// Ends the process, and begins another on the same directory.
    pub(super) async fn restarted(self, relays: Vec<Relay>) -> Self {
        self.stop.send_replace(true);
        self.pump.await.unwrap();
        self.engine.store.close();
        let store = Arc::downgrade(&self.engine.store);
        drop(self.engine);
        // Whoever is still about to end holds it, and with it the lock.
        while store.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        let world = Self::on(self.directory, self.net, relays, self.tables);
        Self { account: self.account, ..world }
    }

    /// Accepts a transactional message.
    pub(super) async fn send(&self, to: &str) -> MessageId {
        self.send_from("shop@example.test", to).await
    }

    pub(super) async fn send_from(&self, from: &str, to: &str) -> MessageId {
        let parts = Parts { text: Some("Thank you.".to_owned()), ..Parts::default() };
        let submission = Submission {
            from: from.parse().unwrap(),
            from_name: None,
            to: to.parse().unwrap(),
            content: Content::Composed(parts),
            unsubscribe_url: Some("https://example.test/u".parse().unwrap()),
            metadata: Default::default(),
            expires_at: None,
        };
        let caller = Caller { account: self.account, key: None };
        match self.engine.submit(&caller, submission, None).await {
            Ok(accepted) => {
                let answer: serde_json::Value = serde_json::from_slice(&accepted.answer).unwrap();
                answer["id"].as_str().unwrap().parse().unwrap()
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(super) async fn cancel(&self, id: MessageId) {
        assert!(self.engine.cancel(self.account, id).await.is_ok());
    }

    /// Moves time, and waits until what came due is settled.
    pub(super) async fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds), &self.engine.store).await.unwrap();
    }

    pub(super) fn message(&self, id: MessageId) -> MessageRecord {
        self.engine.message(self.account, id).unwrap().unwrap()
    }

    /// Status and attempts.
    pub(super) fn standing(&self, id: MessageId) -> (&'static str, u32) {
        let transfer = self.message(id).transfer;
        (transfer.state.status().as_str(), transfer.attempts)
    }

    pub(super) fn attempts(&self, ids: &[MessageId]) -> u32 {
        ids.iter().map(|id| self.standing(*id).1).sum()
    }

    /// The relay of a message's last attempt.
    pub(super) fn relay_of(&self, id: MessageId) -> String {
        self.message(id).transfer.last.relay.unwrap()
    }

    /// The row of the queue for `site`.
    pub(super) async fn queue(&self, site: &str) -> Option<SiteQueue> {
        self.engine.queue().await.unwrap().into_iter().find(|queue| queue.site == site)
    }
}
