//! Egress routes for notices: the relay for alerts, the transactional relays, then the others, until one accepts the
//! mail. A notice is not queued, and it ignores permits, pauses and throttled sites, because it may be about them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::domain::address::Address;
use crate::domain::stream::Stream;
use crate::engine::Engine;
use crate::engine::ports::{MailHost, Requester, Target, Transmit};
use crate::engine::relay::{Relay, RelayWay, Smarthost};
use crate::engine::tls_policy::TlsPolicies;
use crate::engine::{CaptureRoute, EgressRoutes};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Ending, Envelope, LoopCheck, Outcome, Phase};
use crate::smtp::tls_policy::TlsRequirement;

/// Time limit for one relay.
const PER_RELAY: Duration = Duration::from_secs(120);
/// Maximum number of server addresses that one relay tries.
const SERVERS_MAX: usize = 4;
/// Maximum number of characters kept of an answer.
const ANSWER_CHARACTERS: usize = 300;

/// All routes.
pub(super) struct Egress {
    transmit: Arc<dyn Transmit>,
    /// Relays in the order to try.
    relays: Vec<Relay>,
    port: u16,
    capture: Option<Arc<CaptureRoute>>,
    tls: TlsPolicies,
}

/// An accepted mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptedMail {
    /// The relay.
    pub(super) relay: String,
    /// The server's answer.
    pub(super) answer: String,
}

impl Egress {
    pub(super) fn new(
        transmit: Arc<dyn Transmit>,
        routes: &EgressRoutes,
        first: Option<&str>,
        tls: TlsPolicies,
    ) -> Self {
        let mut relays = routes.relays.clone();
        relays.sort_by_key(|relay| {
            let is_first = first.is_some_and(|name| name == &*relay.name);
            (!is_first, !relay.streams.contains(&Stream::Transactional))
        });
        Self { transmit, relays, port: routes.port, capture: routes.capture.clone(), tls }
    }

    /// Returns the relays in the order to try.
    pub(super) fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Sends a mail over the first route that accepts it.
    ///
    /// # Errors
    /// The reason of each relay.
    pub(super) async fn send(&self, engine: &Engine, to: &Address, mail: &Bytes) -> Result<AcceptedMail, String> {
        let mut failures = Vec::new();
        for relay in &self.relays {
            let tried = timeout(PER_RELAY, self.try_relay(engine, relay, to, mail)).await;
            let tried = tried.unwrap_or_else(|_| Err(format!("no answer within {} s", PER_RELAY.as_secs())));
            match tried {
                Ok(answer) => return Ok(AcceptedMail { relay: relay.name.to_string(), answer }),
                Err(why) => failures.push(format!("{}: {why}", relay.name)),
            }
        }
        Err(failures.join("; "))
    }

    /// Tries a relay's servers until one decides about the mail, and returns its answer.
    async fn try_relay(&self, engine: &Engine, relay: &Relay, to: &Address, mail: &Bytes) -> Result<String, String> {
        let targets = self.targets(engine, relay, to).await?;
        let mut last = "the relay has no source address for this server".to_owned();
        for target in targets.into_iter().take(SERVERS_MAX) {
            match self.try_server(&target, to, mail).await {
                Ok(answer) => return Ok(answer),
                Err((why, phase)) => {
                    last = why;
                    // A server's decision about the mail itself applies to the other servers too.
                    if phase >= Phase::Mail {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    async fn try_server(&self, target: &Target, to: &Address, mail: &Bytes) -> Result<String, (String, Phase)> {
        let failed = |outcome: Outcome| (said(&outcome.ending), outcome.phase);
        let mut session = self.transmit.connect(target).await.map_err(failed)?;
        let envelope = Envelope {
            // A notice has an empty return path, so no bounce can cause another notice.
            mail_from: String::new(),
            rcpt_to: to.to_wire(),
            eight_bit: false,
            smtputf8: !to.local().is_ascii(),
        };
        let outcome = session.send(&envelope, &mut mail.clone()).await;
        drop(tokio::spawn(session.quit()));
        match &outcome.ending {
            Ending::Answered(reply) if outcome.phase == Phase::Dot && (200..300).contains(&reply.code) => {
                Ok(said(&outcome.ending))
            }
            _ => Err(failed(outcome)),
        }
    }

    /// Returns the servers in the order to try.
    async fn targets(&self, engine: &Engine, relay: &Relay, to: &Address) -> Result<Vec<Target>, String> {
        let plain = |host: Arc<str>, address: SocketAddr| Target {
            host,
            address,
            ehlo: Arc::clone(&relay.ehlo),
            source: None,
            deadlines: Deadlines::default(),
            loop_check: LoopCheck::OwnNameIsLoop,
            tls: TlsRequirement::Opportunistic,
            submission: None,
        };
        if let Some(address) = self.capture.as_ref().and_then(|capture| capture(to)) {
            let loop_check = LoopCheck::OwnNameIsExpected;
            return Ok(vec![Target { loop_check, ..plain("localhost".into(), address) }]);
        }
        let from_here = |target: Target| Some(Target { source: source_for(relay, target.address.ip())?, ..target });
        match &relay.way {
            RelayWay::Smarthost(smarthost) => {
                let addresses = addresses_of(engine, smarthost).await?;
                let target = |ip| plain(Arc::clone(&smarthost.host), SocketAddr::new(ip, smarthost.port));
                let targets = addresses.into_iter().map(target).filter_map(from_here);
                let submission = Some(Arc::clone(&smarthost.submission));
                Ok(targets.map(|target| Target { submission: submission.clone(), ..target }).collect())
            }
            RelayWay::Mx => {
                let hosts = engine
                    .resolver
                    .mail_hosts(to.domain(), Requester::SERVICE)
                    .await
                    .map_err(|failure| failure.to_string())?;
                let policy = self.tls.of(to.domain(), Requester::SERVICE).await;
                let mut targets = Vec::new();
                for host in &hosts {
                    let Ok(tls) = self.tls.requirement(&policy, host, Requester::SERVICE).await else { continue };
                    targets.extend(self.of_host(host).map(|address| (host, address, tls.clone())));
                }
                let secured = |(host, address, tls): (&MailHost, SocketAddr, TlsRequirement)| Target {
                    tls,
                    ..plain(host.name.as_str().into(), address)
                };
                Ok(targets.into_iter().map(secured).filter_map(from_here).collect())
            }
        }
    }

    fn of_host<'h>(&self, host: &'h MailHost) -> impl Iterator<Item = SocketAddr> + use<'h> {
        let port = self.port;
        host.addresses.iter().map(move |address| SocketAddr::new(*address, port))
    }
}

/// Returns the source address for `ip`: the relay's first of the same family, or `Some(None)` if the relay has no
/// source addresses.
fn source_for(relay: &Relay, ip: IpAddr) -> Option<Option<IpAddr>> {
    if relay.sources.is_empty() {
        return Some(None);
    }
    relay.sources.iter().find(|source| source.is_ipv4() == ip.is_ipv4()).map(|source| Some(*source))
}

async fn addresses_of(engine: &Engine, smarthost: &Smarthost) -> Result<Vec<IpAddr>, String> {
    match smarthost.host.parse() {
        Ok(address) => Ok(vec![address]),
        Err(_) => {
            let found = engine.resolver.host_addresses(&smarthost.host).await;
            found.map_err(|failure| format!("{} was not found: {failure}", smarthost.host))
        }
    }
}

/// Describes the end of an attempt for the operator.
fn said(ending: &Ending) -> String {
    let words = match ending {
        Ending::Answered(reply) => reply.text(),
        Ending::Unreachable(why)
        | Ending::Unusable(why)
        | Ending::Closed(why)
        | Ending::Unreadable(why)
        | Ending::TlsFailed(why)
        | Ending::PolicyFailed { why, .. } => why.clone(),
        Ending::TimedOut => "no answer in time".to_owned(),
        Ending::TooLarge { .. } => "the mail exceeds the server's size limit".to_owned(),
        Ending::NeedsSmtpUtf8 => "the server does not accept this address (no SMTPUTF8)".to_owned(),
        Ending::Loop => "the server is this service".to_owned(),
    };
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(ANSWER_CHARACTERS).collect()
}
