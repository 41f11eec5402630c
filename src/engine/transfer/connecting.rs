//! Connection of an attempt: its permits, and a session over a new connection or a kept one.

use tokio::time::Instant;

use super::attempt::{AttemptError, RunningAttempt};
use super::before_mail::NotSentReason;
use super::candidates::{Candidate, sources_for};
use super::failed_attempt::{nowhere, unasked};
use super::permit_classes::ClassPermits;
use super::pool::PooledConnection;
use super::servers::ServerPermits;
use super::tls_requirements::WithheldReason;
use crate::base::id::AccountId;
use crate::domain::event::AttemptFacts;
use crate::engine::fair_semaphore::FairPermit;
use crate::engine::lease::Step;
use crate::engine::ports::{Session, Target};
use crate::machine::budget::{Claim, Network};
use crate::machine::destination::{Input, Trust};
use crate::smtp::outcome::{Ending, Outcome};
use crate::smtp::verdict::Verdict;

/// Result of opening a session.
pub(super) enum OpenedSession {
    /// The session is open. Its permits for unproven sites must be held until the message's outcome is known.
    Session(Box<PooledConnection>, ClassPermits),
    /// The server, or the route to it, failed.
    Failed(Outcome),
    /// No command was sent to the server.
    Decided(Verdict),
}

impl RunningAttempt<'_> {
    /// Returns the kept connection, if it meets the needs of this message's domain and stream. A reset of the previous
    /// message ends here, so that MAIL directly follows the last check.
    pub(super) async fn renewed(&self, mut kept: PooledConnection) -> Option<PooledConnection> {
        let tls = kept.session.tls().ok().cloned();
        let renewed = self.held.renewed(&kept.target, tls, kept.agreed.clone()).await;
        let Some(agreed) =
            renewed.filter(|_| self.shared.connections.all.lend(&mut kept.place, self.claim(&kept.target)))
        else {
            kept.leave();
            return None;
        };
        kept.agreed = agreed;
        kept.servers.lend(self.unsettled.queued.place.account);
        let began = Instant::now();
        let is_reset = match kept.session.reset() {
            Some(reset) => reset.await,
            None => true,
        };
        if !is_reset {
            if began.elapsed() >= kept.target.deadlines.rset {
                self.shared.note_silent_reset(&kept.target);
                self.queue.handle(self.shared, Input::ServerSilent(None));
            }
            kept.leave();
            return None;
        }
        Some(kept)
    }

    /// Waits for permits, and opens a session.
    pub(super) async fn open(
        &mut self,
        Candidate { mut target, host }: Candidate,
    ) -> Result<OpenedSession, AttemptError> {
        let (relay, mx_host) = (self.facts.relay.take(), Some(target.host.to_string()));
        self.facts = AttemptFacts { relay, mx_host, ..AttemptFacts::default() };
        self.unusable = None;
        self.reservation.begins(Step::Lookup);
        target.tls = match self.held.requirement(host.as_deref()).await {
            Ok(required) => required,
            Err(WithheldReason::LeftOut(verdict)) => return Ok(OpenedSession::Decided(verdict)),
            Err(WithheldReason::Unasked) => return Err(AttemptError::Ended(unasked(self.shared.now()))),
        };
        self.facts.mx_ip = Some(target.address.ip().to_string());
        self.reservation.begins(Step::Pace);
        // A connection is counted only when it may be opened: the message may be canceled during the wait.
        loop {
            let wait = self.queue.connection_wait(self.shared);
            if wait.is_zero() {
                break;
            }
            tokio::time::sleep(wait).await;
        }
        self.reservation.begins(Step::Permit);
        let (servers, class, place) = self.places(&mut target).await?;
        let Some(place) = place else { return Ok(OpenedSession::Decided(nowhere())) };
        self.reservation.begins(Step::Connecting);
        let agreed = self.held.agreement(target.tls.clone());
        let (target, connected) = self.connect(target).await;
        self.held.count(&target, &connected);
        let opened = Instant::now();
        Ok(match connected {
            Ok(session) => {
                let kept = PooledConnection {
                    target,
                    session,
                    agreed,
                    place,
                    servers,
                    messages: 0,
                    opened,
                    idle_since: opened,
                };
                OpenedSession::Session(Box::new(kept), class)
            }
            Err(outcome) => OpenedSession::Failed(outcome),
        })
    }

    /// Waits for permits. Another account's message for the same site goes first: its account may have free permits.
    async fn places(
        &self,
        target: &mut Target,
    ) -> Result<(ServerPermits, ClassPermits, Option<FairPermit>), NotSentReason> {
        let claim = self.claim(target);
        let places = async {
            let class = self.class(target, claim).await;
            // A connection kept for other servers of the site may hold the permits.
            self.queue.handle(self.shared, Input::Connecting(self.slot));
            let servers = match claim.site {
                Some(_) => self.servers(target, claim.account).await?,
                None => ServerPermits::default(),
            };
            self.reservation.begins(Step::Permit);
            Ok((servers, class, self.shared.connections.all.take(claim).await))
        };
        tokio::select! {
            biased;
            places = places => places,
            () = self.queue.is_wanted_by_others(claim.account, self.shared) => Err(NotSentReason::LetsPass),
            () = self.shared.expired(&self.unsettled.queued) => {
                let rows = self.shared.look(&self.unsettled.queued, Some(&self.queue.site));
                Err(rows.map_or_else(NotSentReason::Unreadable, NotSentReason::Rows))
            }
        }
    }

    /// Waits for the server's permits, unless other messages need this one's permits.
    async fn servers(&self, target: &Target, account: AccountId) -> Result<ServerPermits, NotSentReason> {
        self.reservation.begins(Step::Server);
        tokio::select! {
            biased;
            permits = self.shared.server_permits(self.queue.relay, target, account) => Ok(permits),
            () = self.shared.is_crowded() => Err(NotSentReason::LetsPass),
        }
    }

    /// The message's request for a connection to `target`.
    pub(super) fn claim(&self, target: &Target) -> Claim {
        let site = self.queue.site_in_budgets();
        let is_unproven = site.is_some() && matches!(self.queue.trust(self.shared), Trust::New | Trust::Silent);
        Claim {
            stream: self.row.stream,
            account: self.unsettled.queued.place.account,
            site,
            network: is_unproven.then(|| Network::of(target.address.ip())),
            units: 1,
        }
    }

    /// Waits for the permits of the site's class. A first attempt at a site is brief. A site that was silent gets its
    /// full time, with one of few permits.
    async fn class(&self, target: &mut Target, claim: Claim) -> ClassPermits {
        let trust = self.queue.trust(self.shared);
        // Every server gets the brief deadlines of a first attempt, even if an earlier server was silent.
        if self.is_first && claim.site.is_some() && matches!(trust, Trust::New | Trust::Silent) {
            target.deadlines = target.deadlines.of_first_attempt();
        }
        self.shared.connections.class(claim, trust, self.is_first).await
    }

    /// Connects from the message's own address, or from another of the relay's if this machine lacks the first.
    async fn connect(&self, mut target: Target) -> (Target, Result<Box<dyn Session>, Outcome>) {
        let others = sources_for(&self.shared.relays.relay(self.queue.relay).sources, target.address.ip(), self.id);
        let mut connected = self.shared.transmit.connect(&target).await;
        for other in others.into_iter().skip(1) {
            let Err(Outcome { ending: Ending::Unusable(why), .. }) = &connected else { break };
            tracing::error!(why, "could not send from an address of the relay; using another one");
            target.source = other;
            connected = self.shared.transmit.connect(&target).await;
        }
        (target, connected)
    }
}
