//! One attempt: the servers of the site one after the other, until one answers for the message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Shared;
use super::lane::Lane;
use super::way::Place;
use crate::domain::event::{AttemptFacts, Bounce};
use crate::engine::ports::{RouteFailure, Session, Target};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::finding;
use crate::smtp::outcome::{Ending, Envelope, Outcome};
use crate::smtp::verdict::{Deferral, LastWord, Scope, Verdict, judge};
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::row::message::MessageRow;

/// Servers tried in one attempt at most.
const TRIES: usize = 10;
/// How long one attempt goes on to further servers.
const PATIENCE: Duration = Duration::from_secs(600);

/// A connection kept for the next message.
pub(super) struct Kept {
    pub(super) target: Target,
    pub(super) session: Box<dyn Session>,
}

/// An attempt that has ended.
pub(super) struct Attempt {
    pub(super) kept: Option<Kept>,
    pub(super) end: TransferEnd,
    pub(super) facts: AttemptFacts,
}

/// Tries to hand `message` to the site of `lane`.
pub(super) async fn attempt(
    shared: &Shared,
    lane: &Lane,
    row: &MessageRow,
    message: Vec<u8>,
    kept: Option<Kept>,
) -> Attempt {
    let began = Instant::now();
    let mut trial = Trial {
        shared,
        envelope: envelope(row),
        message: Bytes::from(message),
        facts: AttemptFacts { relay: Some(shared.ways.relay.to_string()), ..AttemptFacts::default() },
        kept,
    };
    let end = trial.run(lane, began).await;
    if let TransferEnd::Deferred { .. } = &end {
        tracing::debug!(place = ?lane.place, "deferred");
    }
    trial.facts.duration_ms = Some(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    Attempt { kept: trial.kept, end, facts: trial.facts }
}

fn envelope(row: &MessageRow) -> Envelope {
    Envelope {
        mail_from: row.return_path.clone(),
        rcpt_to: row.to.to_wire(),
        eight_bit: row.eight_bit,
        smtputf8: row.smtputf8,
    }
}

struct Trial<'a> {
    shared: &'a Shared,
    envelope: Envelope,
    message: Bytes,
    facts: AttemptFacts,
    kept: Option<Kept>,
}

impl Trial<'_> {
    async fn run(&mut self, lane: &Lane, began: Instant) -> TransferEnd {
        if let Some(verdict) = self.over_kept_connection().await {
            return self.end(lane, verdict);
        }
        let targets = match targets(self.shared, &lane.place).await {
            Ok(targets) => targets,
            Err(failure) => return route_failed(&failure),
        };
        let mut last = None;
        for target in targets.into_iter().take(TRIES) {
            let verdict = self.over_new_connection(target).await;
            let Verdict::NextServer(word) = verdict else { return self.end(lane, verdict) };
            last = Some(match last {
                Some(before) => LastWord::and_then(before, word),
                None => word,
            });
            if began.elapsed() >= PATIENCE {
                break;
            }
        }
        let verdict = last.map_or_else(nowhere, Verdict::from);
        self.end(lane, verdict)
    }

    /// What the last connection makes of the message; none where it is of no more use.
    async fn over_kept_connection(&mut self) -> Option<Verdict> {
        let Kept { target, session } = self.kept.take()?;
        if !session.is_reusable() {
            session.quit().await;
            return None;
        }
        match self.send(target, session).await {
            // Nothing counts as tried: a new connection tells more.
            Verdict::Reconnect | Verdict::NextServer(_) => None,
            verdict => Some(verdict),
        }
    }

    async fn over_new_connection(&mut self, target: Target) -> Verdict {
        self.facts.mx_host = Some(target.host.to_string());
        self.facts.mx_ip = Some(target.address.ip().to_string());
        match self.shared.transmit.connect(&target).await {
            Ok(session) => match self.send(target, session).await {
                // A fresh connection that is lost before MAIL is a server that can't serve us now.
                Verdict::Reconnect => nowhere(),
                verdict => verdict,
            },
            Err(outcome) => {
                self.note(&outcome);
                judge(&outcome, &target.host, &self.shared.rules)
            }
        }
    }

    async fn send(&mut self, target: Target, mut session: Box<dyn Session>) -> Verdict {
        self.facts.mx_host = Some(target.host.to_string());
        self.facts.mx_ip = Some(target.address.ip().to_string());
        let outcome = session.send(&self.envelope, self.message.clone()).await;
        self.note(&outcome);
        let verdict = judge(&outcome, &target.host, &self.shared.rules);
        if session.is_reusable() {
            self.kept = Some(Kept { target, session });
        } else {
            // QUIT is a courtesy that no message waits for.
            tokio::spawn(session.quit());
        }
        verdict
    }

    fn note(&mut self, outcome: &Outcome) {
        self.facts.tls = outcome.tls.clone();
        if let Some(peer) = outcome.peer {
            self.facts.mx_ip = Some(peer.to_string());
        }
        let reply = match &outcome.ending {
            Ending::Answered(reply) => Some(reply),
            _ => None,
        };
        self.facts.smtp_code = reply.map(|reply| reply.code);
        self.facts.smtp_enhanced_code = reply.and_then(|reply| reply.enhanced()).map(|code| code.to_string());
        self.facts.smtp_response = reply.map(|reply| reply.text());
    }

    fn end(&self, lane: &Lane, verdict: Verdict) -> TransferEnd {
        match verdict {
            Verdict::Delivered => TransferEnd::Delivered,
            Verdict::Bounced(bounce) | Verdict::NextServer(LastWord::Bounced(bounce)) => TransferEnd::Bounced(bounce),
            Verdict::Deferred(deferral) | Verdict::NextServer(LastWord::Deferred(deferral)) => {
                if deferral.scope == Scope::Site {
                    lane.pushed_back(self.shared.engine.clock.now());
                }
                deferred(deferral.why)
            }
            Verdict::Reconnect => deferred(finding::closed("")),
        }
    }
}

/// The servers of a place, in the order to try.
async fn targets(shared: &Shared, place: &Place) -> Result<Vec<Target>, RouteFailure> {
    let ways = &shared.ways;
    let target = |host: Arc<str>, address: SocketAddr| Target {
        host,
        address,
        ehlo: Arc::clone(&ways.ehlo),
        source: None,
        deadlines: Deadlines::default(),
        loop_check: place.loop_check(),
    };
    match place {
        Place::Fixed(address) => Ok(vec![target("localhost".into(), *address)]),
        Place::Domain(domain) => {
            let hosts = shared.engine.resolver.mail_hosts(domain).await?;
            let targets = hosts.into_iter().flat_map(|host| {
                let name: Arc<str> = host.name.into();
                host.addresses.into_iter().map(move |ip| (Arc::clone(&name), SocketAddr::new(ip, ways.port)))
            });
            Ok(targets.map(|(name, address)| target(name, address)).collect())
        }
    }
}

const fn deferred(why: Bounce) -> TransferEnd {
    TransferEnd::Deferred { bounce: Some(why), not_before: None }
}

fn nowhere() -> Verdict {
    let deferral =
        Deferral { scope: Scope::Site, why: finding::closed("no server could be used"), is_outcome_unknown: false };
    Verdict::Deferred(deferral)
}

/// What the DNS alone says (contract 6).
fn route_failed(failure: &RouteFailure) -> TransferEnd {
    match failure {
        RouteFailure::NoSuchDomain => TransferEnd::Bounced(finding::no_such_domain()),
        RouteFailure::NullMx => TransferEnd::Bounced(finding::null_mx()),
        RouteFailure::NoHost => TransferEnd::Bounced(finding::no_host()),
        RouteFailure::BlockedDestination => TransferEnd::Bounced(finding::blocked_destination()),
        RouteFailure::Loop => TransferEnd::Bounced(finding::loops_back()),
        RouteFailure::Temporary(_) => deferred(finding::lookup_failed()),
    }
}
