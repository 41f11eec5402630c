//! Recording a report about messages: status, timeline, event, suppression and the end of further attempts, in one
//! transaction (contract 6).
//!
//! The creator of the operation has authenticated and parsed the report, so it is trusted here. Each kind of news
//! counts once for a message, so a repeated report changes nothing.

use serde::{Deserialize, Serialize};

use super::event::{self, EventDetails, Subject};
use super::suppression::{self, Suppression};
use super::{Infallible, Op, waiting};
use crate::base::id::{AccountId, MessageId};
use crate::domain::event::{AttemptFacts, Bounce, Complaint, EventType};
use crate::machine::transfer::{AttemptProgress, Effect, Input};
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema;
use crate::store::tables::Tables;

/// Meaning of a report for a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportMeaning {
    /// A server that had accepted the message gave up.
    Bounced {
        /// The reply in the report.
        facts: AttemptFacts,
        /// The failure.
        bounce: Bounce,
    },
    /// A server that accepted the message has not delivered it yet.
    Delayed {
        /// The reply in the report.
        facts: AttemptFacts,
        /// The reason for the delay.
        bounce: Bounce,
    },
    /// The recipient complained.
    Complained(Complaint),
}

/// A message that a report is about, and the news about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReportedMessage {
    /// The message's account.
    pub account: AccountId,
    /// The message.
    pub message: MessageId,
    /// Whether another task held the message's lease: then its attempt ends by its own outcome.
    pub wire: AttemptProgress,
    /// Meaning of the report.
    pub news: ReportMeaning,
    /// Other messages to the same address, with leases held by the caller. They end if this report suppresses the
    /// address.
    pub others: Vec<MessageId>,
}

/// Records one report.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordReport {
    /// The messages of the report; at most as many as one mail transaction has recipients.
    pub messages: Vec<ReportedMessage>,
}

impl Op for RecordReport {
    /// Number of messages for which the report was new.
    type Reply = usize;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<usize, OpError<Infallible>> {
        let mut recorded = 0;
        for message in &self.messages {
            recorded += usize::from(message.record(tables)?);
        }
        Ok(recorded)
    }
}

impl ReportMeaning {
    const fn input(&self) -> Input {
        match self {
            Self::Bounced { .. } => Input::ReportedBounced,
            Self::Delayed { .. } => Input::ReportedDelayed,
            Self::Complained(_) => Input::ReportedComplaint,
        }
    }

    fn details(&self) -> EventDetails<'_> {
        match self {
            Self::Bounced { facts, bounce } | Self::Delayed { facts, bounce } => {
                EventDetails { facts: facts.clone(), bounce: Some(bounce), ..EventDetails::default() }
            }
            Self::Complained(complaint) => EventDetails { complaint: Some(complaint), ..EventDetails::default() },
        }
    }

    /// Returns whether the report suppresses the recipient's address.
    pub const fn suppresses(&self) -> bool {
        match self {
            Self::Bounced { bounce, .. } => bounce.suppressed,
            Self::Delayed { .. } => false,
            Self::Complained(_) => true,
        }
    }

    /// Returns the suppression of the recipient's address, if the report causes one.
    fn suppression(&self, message: &MessageRow) -> Option<Suppression> {
        let (reason, facts) = match self {
            Self::Bounced { facts, .. } | Self::Delayed { facts, .. } => (SuppressionReason::Bounce, Some(facts)),
            Self::Complained(_) => (SuppressionReason::Complaint, None),
        };
        self.suppresses().then(|| Suppression {
            smtp_code: facts.and_then(|facts| facts.smtp_code),
            smtp_response: facts.and_then(|facts| facts.smtp_response.clone()),
            ..Suppression::of(message.to.clone(), reason)
        })
    }
}

impl ReportedMessage {
    /// Records the report, and returns whether it was news.
    fn record(&self, tables: &mut Tables<'_>) -> Result<bool, StoreError> {
        let key = schema::message(self.account, self.message);
        let (Some(message), Some(mut transfer)) = (tables.row::<MessageRow>(&key)?, tables.row::<TransferRow>(&key)?)
        else {
            return Ok(false);
        };
        let next = transfer.state.step(self.news.input());
        if next.effects.is_empty() {
            return Ok(false);
        }
        if next.state.status() != transfer.state.status() {
            transfer.status_at = tables.now();
            self.explain_status(&mut transfer);
        }
        transfer.state = next.state;
        for effect in &next.effects {
            match effect {
                Effect::Record(kind) => self.append(tables, &message, &transfer, *kind)?,
                Effect::StopAttempts => self.stop_attempts(tables, &message, &mut transfer),
                // A report never schedules an attempt or answers a cancel, and its suppression comes from the report
                // itself.
                Effect::ScheduleAttempt | Effect::RefuseCancel | Effect::SuppressRecipient => {}
            }
        }
        tables.put(&key, &transfer);
        if let Some(suppression) = self.news.suppression(&message) {
            suppression::add(tables, self.account, &Suppression { message: Some(self.message), ..suppression })?;
            waiting::suppress(tables, self.account, &self.others)?;
        }
        Ok(true)
    }

    /// Copies the reply that explains the status into the message's record. The relay stays that of the last attempt.
    fn explain_status(&self, transfer: &mut TransferRow) {
        match &self.news {
            ReportMeaning::Bounced { facts, .. } => {
                let last = &transfer.last;
                transfer.last = AttemptFacts { attempt: last.attempt, relay: last.relay.clone(), ..facts.clone() };
            }
            ReportMeaning::Delayed { .. } | ReportMeaning::Complained(_) => {}
        }
    }

    fn append(
        &self,
        tables: &mut Tables<'_>,
        row: &MessageRow,
        transfer: &TransferRow,
        kind: EventType,
    ) -> Result<(), StoreError> {
        let subject = Subject { account: self.account, id: self.message, row };
        let details = EventDetails { transfer: Some(transfer), ..self.news.details() };
        event::record(tables, &subject, kind, &details).map(drop)
    }

    /// Stops further attempts. An attempt in flight keeps its timer, so that its outcome is recorded.
    fn stop_attempts(&self, tables: &mut Tables<'_>, row: &MessageRow, transfer: &mut TransferRow) {
        match self.wire {
            AttemptProgress::Busy => {}
            AttemptProgress::Idle => waiting::end(tables, self.account, self.message, &row.to, transfer),
        }
    }
}

#[cfg(test)]
mod tests;
