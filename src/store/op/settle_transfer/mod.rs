//! Settling an attempt: status, timeline, event, suppression, next timer and webhook deliveries, in one transaction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{self, EventDetails, Subject};
use super::suppression::{self, Suppression};
use super::{Infallible, Op, waiting};
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::{AttemptFacts, Bounce, EventType};
use crate::machine::retry;
use crate::machine::service_clock::ServiceTime;
use crate::machine::transfer::{self, Effect, Input};
use crate::smtp::finding;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Read, sound};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of crashed attempts after which the message is set aside.
const CRASHES_MAX: u8 = 3;
/// Delay before a message with unreadable content is tried again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60);
/// Time for which a message's content may be unreadable before the message fails.
const UNREADABLE_MAX: Duration = Duration::from_secs(3600);

/// Result of an attempt, or of the wait for one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TransferEnd {
    /// A server accepted the message.
    Delivered,
    /// A transient failure.
    Deferred {
        /// The failure.
        bounce: Option<Bounce>,
        /// Earliest next attempt, if the server or its site set one.
        not_before: Option<Timestamp>,
    },
    /// A permanent refusal.
    Bounced(Bounce),
    /// The message's retry time is over.
    GaveUp(Bounce),
    /// The recipient's address is suppressed.
    Suppressed,
    /// The site is throttled: nothing was attempted, try again later.
    Postponed {
        /// Time of the next try.
        until: Timestamp,
    },
    /// A report ended the message while it was waiting or in flight: no further attempt.
    Over,
    /// The attempt crashed: a defect of Postrider.
    Crashed,
    /// The message's content can't be read from the disk, and nothing was attempted.
    Unreadable,
}

/// Records the result of a transfer's timer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleTransfer {
    /// The message's account.
    pub account: AccountId,
    /// The message.
    pub message: MessageId,
    /// The timer that was served.
    pub due: Timestamp,
    /// Result of the attempt.
    pub end: TransferEnd,
    /// Facts of the attempt. Its number is filled in here.
    pub facts: AttemptFacts,
    /// Provider of the server that was contacted: a known provider's name, or [`super::outcomes::OTHER`]. `None` if
    /// there was none.
    pub provider: Option<String>,
    /// Random bytes for the next delay's jitter.
    pub random: [u8; 4],
    /// Transcript of a failed attempt, shown in the timeline for as long as the event log keeps its event.
    pub transcript: Option<String>,
    /// Other messages to the same address, whose leases the caller holds. They end if this outcome suppresses the
    /// address.
    pub others: Vec<MessageId>,
}

/// Result of settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// The outcome is recorded.
    Recorded,
    /// The timer was stale and was only removed.
    Stale,
}

impl Op for SettleTransfer {
    type Reply = SettleOutcome;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<SettleOutcome, OpError<Infallible>> {
        let key = schema::message(self.account, self.message);
        tables.disarm(self.timer(self.due));
        let (Some(message), Some(mut transfer)) = (tables.row::<MessageRow>(&key)?, tables.row::<TransferRow>(&key)?)
        else {
            return Ok(SettleOutcome::Stale);
        };
        match transfer.due {
            Some(due) if due == self.due => {}
            // The timer was brought forward during the attempt, because the clock was set back. Without this outcome
            // the message would be sent again.
            Some(due) if due < self.due && self.counts_as_attempt() => tables.disarm(self.timer(due)),
            Some(_) | None => return Ok(SettleOutcome::Stale),
        }
        let now = tables.now();
        let input = match &self.end {
            TransferEnd::Postponed { until } => {
                let end = tables.time().deadline(message.give_up_at);
                self.rearm(tables, &mut transfer, (*until).min(end));
                tables.put(&key, &transfer);
                return Ok(SettleOutcome::Recorded);
            }
            TransferEnd::Over => {
                waiting::end(tables, self.account, self.message, &message.to, &mut transfer);
                tables.put(&key, &transfer);
                return Ok(SettleOutcome::Recorded);
            }
            TransferEnd::Delivered => Input::Delivered,
            TransferEnd::Bounced(_) => Input::AttemptBounced,
            TransferEnd::GaveUp(_) => Input::GaveUp,
            TransferEnd::Suppressed => Input::RecipientSuppressed(transfer::AttemptProgress::Idle),
            TransferEnd::Deferred { .. } => Input::AttemptDeferred,
            TransferEnd::Crashed => {
                transfer.crashes = transfer.crashes.saturating_add(1);
                if transfer.crashes >= CRASHES_MAX { Input::GaveUp } else { Input::AttemptDeferred }
            }
            TransferEnd::Unreadable => match transfer.unreadable_since {
                Some(since) if now < since + UNREADABLE_MAX => {
                    self.rearm(tables, &mut transfer, (now + UNREADABLE_AGAIN).min(message.give_up_at));
                    tables.put(&key, &transfer);
                    return Ok(SettleOutcome::Recorded);
                }
                Some(_) => Input::GaveUp,
                None => Input::AttemptDeferred,
            },
        };
        self.count(&mut transfer, now);
        let next = transfer.state.step(input);
        if next.state.status() != transfer.state.status() {
            transfer.status_at = now;
        }
        transfer.state = next.state;
        transfer.due = None;
        if matches!(self.end, TransferEnd::Delivered) {
            transfer.delivered_at = Some(now);
        }
        self.perform(tables, &message, &mut transfer, &next.effects)?;
        if transfer.due.is_none() {
            waiting::end(tables, self.account, self.message, &message.to, &mut transfer);
        }
        tables.put(&key, &transfer);
        self.end_where_suppressed_meanwhile(tables, &message, transfer)?;
        Ok(SettleOutcome::Recorded)
    }
}

impl SettleTransfer {
    /// Records the attempt in the transfer's facts.
    fn count(&self, transfer: &mut TransferRow, now: Timestamp) {
        let is_unreadable = matches!(self.end, TransferEnd::Unreadable);
        transfer.unreadable_since = is_unreadable.then(|| transfer.unreadable_since.unwrap_or(now));
        if self.counts_as_attempt() {
            transfer.attempts += 1;
            // If a report ended the message, the report's facts still explain the status.
            if transfer.state.status().is_waiting() {
                transfer.last = AttemptFacts { attempt: Some(transfer.attempts), ..self.facts.clone() };
            }
        }
        if self.provider.is_some() {
            transfer.provider.clone_from(&self.provider);
        }
    }

    fn timer(&self, due: Timestamp) -> Timer {
        Timer::new(due, TimerKind::Transfer, self.account, self.message.0)
    }

    fn rearm(&self, tables: &mut Tables<'_>, transfer: &mut TransferRow, due: Timestamp) {
        transfer.due = Some(due);
        tables.arm(self.timer(due));
    }

    const fn counts_as_attempt(&self) -> bool {
        match self.end {
            TransferEnd::Delivered | TransferEnd::Deferred { .. } | TransferEnd::Bounced(_) | TransferEnd::Crashed => {
                true
            }
            TransferEnd::GaveUp(_)
            | TransferEnd::Suppressed
            | TransferEnd::Postponed { .. }
            | TransferEnd::Over
            | TransferEnd::Unreadable => false,
        }
    }

    fn perform(
        &self,
        tables: &mut Tables<'_>,
        message: &MessageRow,
        transfer: &mut TransferRow,
        effects: &[Effect],
    ) -> Result<(), StoreError> {
        if effects.contains(&Effect::ScheduleAttempt) {
            let due = self.next_due(&tables.time(), message, transfer);
            self.rearm(tables, transfer, due);
        }
        for effect in effects {
            match effect {
                Effect::Record(kind) => self.record(tables, message, transfer, *kind)?,
                // The served timer is already removed, and a settled transfer is never withdrawn here.
                Effect::ScheduleAttempt | Effect::StopAttempts | Effect::RefuseCancel => {}
                Effect::SuppressRecipient => self.suppress(tables, message)?,
            }
        }
        if let TransferEnd::Bounced(bounce) = &self.end
            && bounce.suppressed
        {
            self.suppress(tables, message)?;
        }
        Ok(())
    }

    /// Ends a message whose address was suppressed during its attempt. The attempt's outcome counts, but there is no
    /// further attempt.
    fn end_where_suppressed_meanwhile(
        &self,
        tables: &mut Tables<'_>,
        row: &MessageRow,
        transfer: TransferRow,
    ) -> Result<(), StoreError> {
        // The outcome counts even if the suppression is damaged: the next attempt checks it again.
        let is_suppressed = || sound(suppression::is_suppressed(tables, self.account, &row.to));
        if transfer.due.is_none() || is_suppressed()? != Some(true) {
            return Ok(());
        }
        let subject = Subject { account: self.account, id: self.message, row };
        waiting::withdraw(tables, &subject, transfer, Input::RecipientSuppressed(transfer::AttemptProgress::Idle))
    }

    /// Returns the due time of the next attempt, or the message's expiry if there is none.
    fn next_due(&self, time: &ServiceTime, message: &MessageRow, transfer: &TransferRow) -> Timestamp {
        let end = time.deadline(message.give_up_at);
        if matches!(self.end, TransferEnd::Unreadable) {
            return (time.now + UNREADABLE_AGAIN).min(end);
        }
        let due = retry::next_attempt(transfer.attempts, time.now, end, retry::jitter(self.random));
        let not_before = match &self.end {
            TransferEnd::Deferred { not_before, .. } => *not_before,
            _ => None,
        };
        // If no further attempt fits before the expiry, a later time from the server does not add one.
        due.map(|due| Some(due).max(not_before).unwrap_or(due).min(end)).unwrap_or(end)
    }

    fn record(
        &self,
        tables: &mut Tables<'_>,
        message: &MessageRow,
        transfer: &TransferRow,
        kind: EventType,
    ) -> Result<(), StoreError> {
        let unreadable =
            || if kind == EventType::Failed { finding::content_lost() } else { finding::content_unreadable() };
        let bounce = match &self.end {
            TransferEnd::Deferred { bounce, .. } => bounce.clone(),
            TransferEnd::Bounced(bounce) | TransferEnd::GaveUp(bounce) => Some(bounce.clone()),
            TransferEnd::Unreadable => Some(unreadable()),
            TransferEnd::Delivered
            | TransferEnd::Suppressed
            | TransferEnd::Postponed { .. }
            | TransferEnd::Over
            | TransferEnd::Crashed => None,
        };
        let attempt = self.counts_as_attempt().then_some(transfer.attempts);
        let details = EventDetails {
            facts: AttemptFacts { attempt, ..self.facts.clone() },
            // A timer that is due at the deadline is not an attempt.
            next_attempt_at: transfer.due.filter(|due| *due < tables.time().deadline(message.give_up_at)),
            bounce: bounce.as_ref(),
            complaint: None,
            transfer: Some(transfer),
        };
        let subject = Subject { account: self.account, id: self.message, row: message };
        let event = event::record(tables, &subject, kind, &details)?;
        if let (Some(said), EventType::Deferred | EventType::Bounced | EventType::Failed) = (&self.transcript, kind) {
            let key = schema::timeline(self.account, self.message, event);
            tables.put_bytes(Table::Transcripts, &key, said.clone().into_bytes());
        }
        Ok(())
    }

    fn suppress(&self, tables: &mut Tables<'_>, message: &MessageRow) -> Result<(), StoreError> {
        let new = Suppression {
            message: Some(self.message),
            smtp_code: self.facts.smtp_code,
            smtp_response: self.facts.smtp_response.clone(),
            ..Suppression::of(message.to.clone(), SuppressionReason::Bounce)
        };
        suppression::add(tables, self.account, &new)?;
        waiting::suppress(tables, self.account, &self.others)
    }
}

#[cfg(test)]
mod tests;
