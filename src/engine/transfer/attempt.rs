//! One attempt: it tries the servers of the site one after the other until one answers for the message.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::before_mail::NotSentReason;
use super::body::StoredBody;
use super::candidates::{Candidate, Question};
use super::connecting::OpenedSession;
use super::destination_queue::DestinationQueue;
use super::failed_attempt::{RelayFault, deferred, no_server, nowhere, relay_fault};
use super::pool::PooledConnection;
use super::settle::Unsettled;
use super::site::Site;
use super::tls_requirements::RecipientPolicy;
use super::worker::RunningMessage;
use crate::base::id::{AccountId, MessageId};
use crate::domain::event::{AttemptFacts, BounceSource};
use crate::engine::lease::{Lease, Reservation, Step};
use crate::engine::ports::{MAIL_HOSTS_MAX, Requester, Target};
use crate::engine::relay::RelayWay;
use crate::machine::destination::{Input, Signal, Slot, Trust};
use crate::machine::relay_table::{FailureCause, RefusedMessage};
use crate::smtp::category::Category;
use crate::smtp::finding;
use crate::smtp::outcome::{Ending, Envelope, Outcome, Phase};
use crate::smtp::transcript::Transcript;
use crate::smtp::verdict::{Deferral, FinalResult, Scope, Verdict, judge};
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::row::message::MessageRow;

/// Maximum number of servers that one attempt tries.
const TRIES: usize = MAIL_HOSTS_MAX;
/// Time after which an attempt tries no further server.
const PATIENCE: Duration = Duration::from_secs(600);

/// An ended attempt.
pub(super) struct Attempt {
    pub(super) ended: AttemptEnd,
    pub(super) facts: AttemptFacts,
    /// Transcript of the sessions with all servers.
    pub(super) transcript: Transcript,
    pub(super) signal: Signal,
}

/// End of an attempt.
pub(super) enum AttemptEnd {
    /// The message has this outcome.
    With(TransferEnd),
    /// The relay failed. There was no attempt, and the message is not charged.
    RelayFault(RelayFault),
    /// The attempt ended before its MAIL, so there is no attempt to record.
    NotBegun(NotSentReason),
}

impl Attempt {
    fn not_begun(why: NotSentReason) -> Self {
        let (facts, transcript) = (AttemptFacts::default(), Transcript::default());
        Self { ended: AttemptEnd::NotBegun(why), facts, transcript, signal: Signal::Silent }
    }
}

/// Tries to hand the message of `row` to the site of its destination.
pub(super) async fn attempt(
    running: &RunningMessage<'_>,
    reservation: &Reservation,
    unsettled: &mut Unsettled,
    row: &MessageRow,
) -> Attempt {
    let RunningMessage { shared, queue, slot, .. } = *running;
    match shared.before_mail(reservation, shared.engine.wait_to_send()).await {
        Ok(true) => {}
        // The message's timer fires again on the machine that continues the replica's log.
        Ok(false) => return Attempt::not_begun(NotSentReason::Stopping),
        Err(why) => return Attempt::not_begun(why),
    }
    let began = Instant::now();
    let requester = Requester { account: unsettled.queued.place.account, stream: row.stream };
    let held = match shared.before_mail(reservation, RecipientPolicy::new(shared, &queue.site, row, requester)).await {
        Ok(held) => held,
        Err(why) => return Attempt::not_begun(why),
    };
    let relay = shared.relays.relay(queue.relay);
    let mut trial = RunningAttempt {
        shared,
        queue,
        slot,
        row,
        held,
        reservation,
        id: unsettled.queued.place.id,
        unsettled,
        envelope: envelope(row),
        facts: AttemptFacts { relay: Some(relay.name.to_string()), ..AttemptFacts::default() },
        transcript: Transcript::default(),
        unusable: None,
        timed_out: false,
        has_tried: false,
        is_limited: false,
        is_first: queue.trust(shared) == Trust::New,
        refused_in: None,
    };
    let (ended, signal) = match trial.run(began).await {
        Ok(verdict) => trial.end(verdict),
        Err(AttemptError::Ended(end)) => (AttemptEnd::With(end), Signal::Silent),
        Err(AttemptError::RelayFault(why)) => (AttemptEnd::RelayFault(why), Signal::Silent),
        Err(AttemptError::NotBegun(why)) => (AttemptEnd::NotBegun(why), Signal::Silent),
    };
    if let AttemptEnd::With(TransferEnd::Deferred { .. }) = &ended {
        tracing::debug!(site = ?queue.site, ?signal, "deferred");
    }
    trial.facts.duration_ms = Some(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    Attempt { ended, facts: trial.facts, transcript: trial.transcript, signal }
}

fn envelope(row: &MessageRow) -> Envelope {
    Envelope {
        mail_from: row.return_path.clone(),
        rcpt_to: row.to.to_wire(),
        eight_bit: row.eight_bit,
        smtputf8: row.smtputf8,
    }
}

/// A running attempt.
pub(super) struct RunningAttempt<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) queue: &'a Arc<DestinationQueue>,
    pub(super) slot: Slot,
    pub(super) row: &'a MessageRow,
    pub(super) held: RecipientPolicy<'a>,
    pub(super) reservation: &'a Reservation,
    pub(super) unsettled: &'a mut Unsettled,
    pub(super) id: MessageId,
    envelope: Envelope,
    pub(super) facts: AttemptFacts,
    transcript: Transcript,
    /// Reason why none of the relay's addresses could be used so far.
    pub(super) unusable: Option<String>,
    /// Whether a server did not answer in time.
    timed_out: bool,
    /// Whether a server was tried.
    has_tried: bool,
    /// Whether an answer requested a limit for the site. If so, the end of the attempt does not count as further
    /// evidence.
    is_limited: bool,
    /// Whether the site was never tried before this attempt.
    pub(super) is_first: bool,
    /// The phase in which the last server refused or closed an open connection.
    refused_in: Option<Phase>,
}

/// Reason why no server's answer decides.
pub(super) enum AttemptError {
    /// The DNS decides.
    Ended(TransferEnd),
    /// The relay can't be used.
    RelayFault(RelayFault),
    /// MAIL must not be written.
    NotBegun(NotSentReason),
}

impl From<NotSentReason> for AttemptError {
    fn from(why: NotSentReason) -> Self {
        Self::NotBegun(why)
    }
}

impl RunningAttempt<'_> {
    async fn run(&mut self, began: Instant) -> Result<Verdict, AttemptError> {
        let Self { shared, queue, row, id, reservation, .. } = *self;
        let question = Question { shared, queue, row, id, requester: self.held.requester };
        let candidates = shared.before_mail(reservation, question.candidates()).await??;
        let targets = candidates.iter().map(|candidate| &candidate.target);
        if let Some(kept) = self.queue.take_kept(self.shared, self.slot, targets)
            && let Some(verdict) = self.over_kept_connection(kept).await?
        {
            return Ok(verdict);
        }
        let mut last: Option<(FinalResult, AttemptFacts)> = None;
        let mut was_usable = false;
        let tries = u32::try_from(candidates.len().min(TRIES)).unwrap_or(u32::MAX);
        for (left, Candidate { target, host }) in (1..=tries).rev().zip(candidates) {
            // Each server gets its part of the time, so that a prompt one behind silent ones is tried.
            let deadlines = target.deadlines.opened_within(PATIENCE.saturating_sub(began.elapsed()) / left);
            let target = Target { deadlines, ..target };
            let verdict = self.over_new_connection(Candidate { target, host }).await?;
            let Verdict::NextServer(word) = verdict else { return Ok(verdict) };
            was_usable |= self.unusable.is_none();
            last = Some(match last.take() {
                Some((before, facts)) => self.weigh(before, facts, word),
                None => (word, self.facts.clone()),
            });
            if began.elapsed() >= PATIENCE {
                break;
            }
        }
        if let (Some(why), false) = (self.unusable.take(), was_usable) {
            return Err(AttemptError::RelayFault(RelayFault { needs_operator: true, ..RelayFault::passing(why) }));
        }
        let Some((word, facts)) = last else { return Ok(nowhere()) };
        // The reported facts are those of the server whose answer decided.
        self.facts = facts;
        Ok(Verdict::from(word))
    }

    /// The deciding one of two servers' answers, with the facts of that server.
    fn weigh(&self, before: FinalResult, facts: AttemptFacts, word: FinalResult) -> (FinalResult, AttemptFacts) {
        let holds = FinalResult::and_then(before, word.clone());
        let facts = if holds == word { self.facts.clone() } else { facts };
        (holds, facts)
    }

    /// Sends the message over a kept connection; `None` if the connection can't be used any more.
    async fn over_kept_connection(&mut self, kept: PooledConnection) -> Result<Option<Verdict>, AttemptError> {
        let (shared, reservation) = (self.shared, self.reservation);
        reservation.begins(Step::Connecting);
        let Some(kept) = shared.before_mail(reservation, self.renewed(kept)).await? else { return Ok(None) };
        match self.send(kept).await? {
            // The server does not count as tried, because a new connection gives a better answer.
            Verdict::Reconnect | Verdict::NextServer(_) => Ok(None),
            verdict => Ok(Some(verdict)),
        }
    }

    async fn over_new_connection(&mut self, candidate: Candidate) -> Result<Verdict, AttemptError> {
        let (shared, reservation) = (self.shared, self.reservation);
        // The permit of the class is held until the message's outcome is known.
        let _class;
        let kept = match shared.before_mail(reservation, self.open(candidate)).await?? {
            OpenedSession::Session(kept, class) => {
                _class = class;
                *kept
            }
            OpenedSession::Failed(outcome) => return self.judge(&outcome),
            OpenedSession::Decided(verdict) => return Ok(verdict),
        };
        match self.send(kept).await? {
            // If a new connection is lost before MAIL, the server can't serve us now.
            Verdict::Reconnect => Ok(Verdict::NextServer(FinalResult::Deferred(no_server()))),
            verdict => Ok(verdict),
        }
    }

    async fn send(&mut self, mut kept: PooledConnection) -> Result<Verdict, AttemptError> {
        self.facts.mx_host = Some(kept.target.host.to_string());
        self.facts.mx_ip = Some(kept.target.address.ip().to_string());
        if let Err(why) = self.shared.begin(self.reservation, self.unsettled, &self.queue.site).await {
            self.queue.keep(self.shared, self.slot, kept);
            return Err(why.into());
        }
        self.reservation.begins(Step::Sending);
        let claim = self.claim(&kept.target);
        let mut body = StoredBody::new((self.shared, self.queue, self.reservation), self.row, self.id, claim);
        let mut outcome = kept.session.send(&self.envelope, &mut body).await;
        if let Some(failure) = body.failure.take() {
            // The session ended without the final dot, because the server must not accept an incomplete message.
            kept.leave();
            return Err(failure.into());
        }
        if let Some(tls) = &mut outcome.tls {
            // The connection may have been opened under another domain's policy.
            tls.policy = kept.agreed.required.policy();
        }
        if outcome.phase == Phase::Rset && outcome.ending == Ending::TimedOut {
            self.shared.note_silent_reset(&kept.target);
        }
        kept.messages += 1;
        kept.idle_since = Instant::now();
        if kept.session.is_reusable() {
            self.queue.keep(self.shared, self.slot, kept);
        } else {
            // QUIT is a courtesy; no message waits for it.
            kept.leave();
        }
        let verdict = self.judge(&outcome)?;
        if matches!(verdict, Verdict::NextServer(_) | Verdict::Reconnect) {
            // The message waits for another connection. Until MAIL is written on that one, it can be canceled.
            self.unsettled.lease.iter().for_each(Lease::step_back);
        }
        Ok(verdict)
    }

    fn judge(&mut self, outcome: &Outcome) -> Result<Verdict, AttemptError> {
        self.facts.tls = outcome.tls.clone();
        if let Some(peer) = outcome.peer {
            self.facts.mx_ip = Some(peer.to_string());
            let host = self.facts.mx_host.as_deref().unwrap_or_default();
            self.transcript.happened_once(&format!("{host} [{peer}]"));
        }
        self.transcript.append(&outcome.transcript);
        let reply = match &outcome.ending {
            Ending::Answered(reply) => Some(reply),
            _ => None,
        };
        self.facts.smtp_code = reply.map(|reply| reply.code);
        self.facts.smtp_enhanced_code = reply.and_then(|reply| reply.enhanced()).map(|code| code.to_string());
        self.facts.smtp_response = reply.map(|reply| reply.text());
        if outcome.ending == Ending::TimedOut && !matches!(self.queue.site, Site::Captured(_)) {
            self.timed_out = true;
            let account = self.answered_account(outcome);
            self.queue.handle(self.shared, Input::ServerSilent(account));
        }
        self.has_tried = true;
        let is_refused = outcome.phase > Phase::Connect && outcome.ending != Ending::TimedOut;
        self.refused_in = is_refused.then_some(outcome.phase);
        if let Ending::Unusable(why) = &outcome.ending {
            self.unusable = Some(why.clone());
        }
        if let Some(fault) = relay_fault(&self.queue.site, outcome) {
            // From MAIL on, the same answer may be about this message, or its account, alone.
            let cause = if outcome.phase <= Phase::Auth { FailureCause::Relay } else { self.cause_of_refusal() };
            let account = self.unsettled.queued.place.account;
            match cause {
                FailureCause::Relay => return Err(AttemptError::RelayFault(fault)),
                FailureCause::RelayOrAccount => {
                    return Err(AttemptError::RelayFault(RelayFault { only: Some(account), ..fault }));
                }
                FailureCause::Message => {}
            }
            let why = finding::unreachable(&fault.why);
            return Ok(Verdict::Deferred(Deferral { scope: Scope::Message, why, is_outcome_unknown: false }));
        }
        if let Some(reply) = reply {
            let actions = self.shared.shaping.actions(self.queue.site.provider(), reply);
            self.queue.shape(self.shared, actions, self.answered_account(outcome));
            self.is_limited |= !actions.is_empty();
        }
        let host = self.facts.mx_host.as_deref().unwrap_or_default();
        Ok(judge(outcome, host, &self.shared.rules))
    }

    /// Returns the message's account, if the server met the message.
    fn answered_account(&self, outcome: &Outcome) -> Option<AccountId> {
        (outcome.phase >= Phase::Mail).then_some(self.unsettled.queued.place.account)
    }

    fn cause_of_refusal(&self) -> FailureCause {
        let (account, now) = (self.unsettled.queued.place.account, self.shared.now());
        let has_login = match &self.shared.relays.relay(self.queue.relay).way {
            RelayWay::Smarthost(smarthost) => smarthost.submission.login.is_some(),
            RelayWay::Mx => false,
        };
        let refused = RefusedMessage { id: self.id, account, has_login };
        self.shared.destinations().relays.cause_of(self.queue.relay, refused, now)
    }

    fn end(&self, verdict: Verdict) -> (AttemptEnd, Signal) {
        let (end, signal) = match verdict {
            Verdict::Delivered => (TransferEnd::Delivered, Signal::Took),
            Verdict::Bounced(bounce) | Verdict::NextServer(FinalResult::Bounced(bounce)) => {
                let is_theirs = bounce.source == BounceSource::Smtp;
                (TransferEnd::Bounced(bounce), if is_theirs { Signal::Answered } else { Signal::Silent })
            }
            Verdict::Deferred(deferral) | Verdict::NextServer(FinalResult::Deferred(deferral)) => {
                let signal = self.signal_of(&deferral);
                (deferred(deferral.why), signal)
            }
            Verdict::Reconnect => (deferred(finding::closed("")), Signal::Silent),
        };
        let shows_nothing = self.is_limited && matches!(signal, Signal::Answered | Signal::Slowed);
        let signal = if shows_nothing { Signal::Silent } else { signal };
        let last = self.facts.smtp_response.clone().or_else(|| match &end {
            TransferEnd::Deferred { bounce: Some(why), .. } => Some(why.advice.clone()),
            _ => None,
        });
        last.into_iter().for_each(|last| self.queue.set_last_answer(self.shared, last));
        (AttemptEnd::With(end), signal)
    }

    fn signal_of(&self, deferral: &Deferral) -> Signal {
        // Greylisting rejects the message, not the rate.
        let is_policy = self.facts.smtp_enhanced_code.as_ref().is_some_and(|code| code.starts_with("4.7."));
        let is_greylisted = deferral.why.category == Category::Greylisted.as_str();
        match deferral.scope {
            Scope::Site => match self.refused_in {
                Some(phase) if phase >= Phase::Mail => Signal::RefusedAccount,
                Some(_) => Signal::TurnedAway,
                None => Signal::PushedBack,
            },
            Scope::Message if !self.has_tried => Signal::Silent,
            Scope::Message if self.timed_out => Signal::TimedOut,
            Scope::Message if is_policy && !is_greylisted => Signal::Slowed,
            Scope::Message => Signal::Answered,
        }
    }
}
