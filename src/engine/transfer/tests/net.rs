//! Scripted mail servers and names of the tests.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use crate::domain::event::TlsFacts;
use crate::domain::hostname::DomainName;
use crate::engine::ports::{
    Body, BoxFuture, LookupFailure, MailHost, PolicyHosts, Post, PostError, PostOutcome, Requester, Resolve,
    RouteFailure, Session, Target, Transmit, Unfetched, WebhookRequest,
};
use crate::smtp::outcome::{Ending, Envelope, Outcome, Phase};
use crate::smtp::reply::ReplyParser;
use crate::smtp::tls_policy::TlsFault;
use crate::smtp::tlsa::TlsaRecord;
use crate::smtp::transcript::Transcript;

/// Behaviour of a mail server.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    /// Accepts every message.
    Takes,
    /// Refuses the connection.
    Refuses,
    /// Opens a session and lets its MAIL time out.
    TimesOut,
    /// Gives this answer to every message.
    Says(&'static str),
    /// Fails in this phase, before any message.
    Fails(Phase, Ending),
    /// Holds every message until the test releases it.
    Holds(Arc<Semaphore>),
    /// Reads every message, and answers its final dot when the test releases it.
    HoldsDots(Arc<Semaphore>),
    /// Accepts every message, and answers RSET when the test releases it.
    Resets(Arc<Semaphore>),
    /// Sends its greeting once the semaphore has a permit.
    Greets(Arc<Semaphore>),
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

/// The names and mail servers.
pub(super) struct Net {
    pub(super) mx: Mutex<HashMap<String, Vec<String>>>,
    pub(super) addresses: Mutex<HashMap<String, Vec<IpAddr>>>,
    pub(super) behaviours: Mutex<HashMap<String, Behaviour>>,
    /// Domains and names of TXT records whose name server never answers.
    pub(super) stuck: Mutex<HashSet<String>>,
    /// Domains whose lookup is not possible now, because too many are running.
    pub(super) busy: Mutex<HashSet<String>>,
    /// Domains that were looked up.
    pub(super) asked: Mutex<Vec<String>>,
    pub(super) seen: watch::Sender<Vec<Seen>>,
    /// Number of bodies that servers have read and not answered yet.
    pub(super) bodies: watch::Sender<usize>,
    /// Domains whose name server answers once the semaphore has a permit.
    pub(super) name_gates: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The shares of queries of the webhook requests.
    pub(super) requesters: Mutex<HashSet<Requester>>,
    /// Number of webhook requests.
    pub(super) posted: watch::Sender<usize>,
    /// Number of RSETs that servers have received.
    pub(super) resets: watch::Sender<usize>,
    /// Semaphore that holds the lookups of webhook hosts, if there is one.
    pub(super) post_lookups: Mutex<Option<Arc<Semaphore>>>,
    /// Semaphore that holds webhook requests, if there is one.
    pub(super) post_gate: Mutex<Option<Arc<Semaphore>>>,
    /// Maximum wait of each connection for greeting and EHLO.
    pub(super) max_wait: Mutex<Vec<Duration>>,
    /// Connections that were opened, by host and source.
    pub(super) opened: Mutex<Vec<(String, Option<IpAddr>)>>,
}

impl Net {
    /// Sets `hosts` as the mail servers of `domain`.
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

    /// Waits until the servers have seen this many messages.
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

/// Returns the address of a server, in a network that all servers share. Few servers have the same address.
fn address_of(name: &str) -> IpAddr {
    let hash = name.bytes().fold(0_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte));
    IpAddr::from([192, 0, 2, hash])
}

impl Resolve for Net {
    fn mail_hosts<'a>(
        &'a self,
        domain: &'a DomainName,
        _: Requester,
    ) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        self.asked.lock().unwrap().push(domain.to_string());
        Box::pin(async move {
            if self.stuck.lock().unwrap().contains(domain.as_str()) {
                std::future::pending::<()>().await;
            }
            let gate = self.name_gates.lock().unwrap().get(domain.as_str()).cloned();
            if let Some(gate) = gate {
                drop(gate.acquire().await.unwrap());
            }
            if self.busy.lock().unwrap().contains(domain.as_str()) {
                return Err(RouteFailure::Unasked);
            }
            if domain.as_str().starts_with("gone.") {
                return Err(RouteFailure::NoSuchDomain);
            }
            if domain.as_str().starts_with("servfail.") {
                return Err(RouteFailure::Temporary("SERVFAIL".to_owned()));
            }
            let host = |name: String| {
                let known = self.addresses.lock().unwrap().get(&name).cloned();
                let addresses = known.unwrap_or_else(|| vec![address_of(&name)]);
                MailHost { name, preference: 0, addresses, tlsa_names: Vec::new() }
            };
            Ok(self.hosts(domain.as_str()).into_iter().map(host).collect())
        })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            if self.stuck.lock().unwrap().contains(name) {
                std::future::pending::<()>().await;
            }
            Err(LookupFailure::Absent)
        })
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

pub(super) struct ScriptedTransmit(pub(super) Arc<Net>);

struct ScriptedSession {
    net: Arc<Net>,
    target: Target,
    behaviour: Behaviour,
    is_reusable: bool,
}

fn outcome(phase: Phase, ending: Ending) -> Outcome {
    Outcome { phase, ending, peer: None, tls: None, transcript: Transcript::default() }
}

pub(super) fn answer(text: &str) -> Ending {
    Ending::Answered(ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap())
}

impl Transmit for ScriptedTransmit {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        Box::pin(async move {
            self.0.opened.lock().unwrap().push((target.host.to_string(), target.source));
            self.0.max_wait.lock().unwrap().push(target.deadlines.opening);
            let behaviour = self.0.behaviour(target);
            if let Behaviour::Greets(gate) = &behaviour {
                drop(gate.acquire().await.unwrap());
            }
            match &behaviour {
                Behaviour::Refuses => Err(outcome(Phase::Connect, Ending::Unreachable("refused".to_owned()))),
                Behaviour::Fails(phase, ending) => Err(outcome(*phase, ending.clone())),
                Behaviour::Takes
                | Behaviour::Says(_)
                | Behaviour::Holds(_)
                | Behaviour::HoldsDots(_)
                | Behaviour::Greets(_)
                | Behaviour::Resets(_)
                | Behaviour::TimesOut => {
                    let (net, target) = (Arc::clone(&self.0), target.clone());
                    Ok(Box::new(ScriptedSession { net, target, behaviour, is_reusable: true }) as Box<dyn Session>)
                }
            }
        })
    }
}

impl Session for ScriptedSession {
    fn reset(&mut self) -> Option<BoxFuture<'_, bool>> {
        let Behaviour::Resets(gate) = &self.behaviour else { return None };
        self.net.resets.send_modify(|resets| *resets += 1);
        let answered = async {
            drop(gate.acquire().await.unwrap());
        };
        Some(Box::pin(async { tokio::time::timeout(self.target.deadlines.rset, answered).await.is_ok() }))
    }
    fn send<'a>(&'a mut self, envelope: &'a Envelope, body: &'a mut dyn Body) -> BoxFuture<'a, Outcome> {
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
                Behaviour::TimesOut => {
                    self.is_reusable = false;
                    return outcome(Phase::Mail, Ending::TimedOut);
                }
                Behaviour::Says(text) => {
                    self.is_reusable = !text.starts_with("421");
                    return outcome(Phase::Rcpt, answer(text));
                }
                Behaviour::Takes
                | Behaviour::Greets(_)
                | Behaviour::Resets(_)
                | Behaviour::Refuses
                | Behaviour::Fails(..)
                | Behaviour::HoldsDots(_) => {}
            }
            if body.read().await.is_none() {
                // A server without a body has seen no message.
                let is_own = |seen: &Seen| seen.to == envelope.rcpt_to;
                self.net.seen.send_modify(|all| {
                    all.iter().rposition(is_own).map(|at| all.remove(at));
                });
                self.is_reusable = false;
                return outcome(Phase::Data, Ending::Closed("the message could not be read".to_owned()));
            }
            if let Behaviour::HoldsDots(gate) = &self.behaviour {
                self.net.bodies.send_modify(|bodies| *bodies += 1);
                drop(gate.acquire().await.unwrap());
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

/// Webhook receivers that can't be reached.
pub(super) struct NoPost(pub(super) Arc<Net>);

impl PolicyHosts for NoPost {
    fn sts_policy<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<String, Unfetched>> {
        unreachable!("no domain of these tests announces a policy")
    }
}

impl Post for NoPost {
    fn post<'a>(&'a self, request: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
        self.0.requesters.lock().unwrap().insert(request.requester);
        let lookup = self.0.post_lookups.lock().unwrap().clone();
        let gate = self.0.post_gate.lock().unwrap().clone();
        let outcome = PostOutcome {
            status: None,
            error: Some(PostError::Connect),
            duration: Duration::ZERO,
            peer: None,
            body: None,
        };
        Box::pin(async move {
            if let Some(lookup) = lookup {
                drop(lookup.acquire().await.unwrap());
            }
            begun.store(true, Ordering::Release);
            self.0.posted.send_modify(|posted| *posted += 1);
            if let Some(gate) = gate {
                drop(gate.acquire().await.unwrap());
            }
            outcome
        })
    }
}
