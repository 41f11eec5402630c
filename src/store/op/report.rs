//! Recording what a report that came back says of its messages: status, timeline, event, suppression and the end of
//! further attempts, in one transaction (contract 6).
//!
//! Whoever makes the operation has authenticated the report and read it; what it says is believed here. Each kind of
//! news counts once for a message, so a report that comes again changes nothing.

use serde::{Deserialize, Serialize};

use super::event::{self, Happening, Subject};
use super::suppression::{self, Suppression};
use super::{Never, Op, waiting};
use crate::base::id::{AccountId, MessageId};
use crate::domain::event::{AttemptFacts, Bounce, Complaint, EventType};
use crate::machine::transfer::{Effect, Input, Wire};
use crate::store::error::{Stop, StoreError};
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema;
use crate::store::tables::Tables;

/// Meaning of a report for a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// A server that had taken it gave up.
    Bounced {
        /// The answer that it reports.
        facts: AttemptFacts,
        /// The failure.
        bounce: Bounce,
    },
    /// A server that has taken it could not pass it on yet.
    Delayed {
        /// The answer that it reports.
        facts: AttemptFacts,
        /// The reason for the delay.
        bounce: Bounce,
    },
    /// The recipient complained.
    Complained(Complaint),
}

/// A message that a report is about, and what it says of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageNews {
    /// The message's account.
    pub account: AccountId,
    /// The message.
    pub message: MessageId,
    /// Whether somebody else held the message's lease: then its attempt ends by its own outcome.
    pub wire: Wire,
    /// Meaning of the report.
    pub news: News,
    /// Further messages to the same address, whose leases the caller holds: they end where this suppresses it.
    pub others: Vec<MessageId>,
}

/// Records one report.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordReport {
    /// The messages that it is about; as many as one mail transaction has recipients.
    pub messages: Vec<MessageNews>,
}

impl Op for RecordReport {
    /// Number of messages for which the report was new.
    type Reply = usize;
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<usize, Stop<Never>> {
        let mut heard = 0;
        for message in &self.messages {
            heard += usize::from(message.record(tables)?);
        }
        Ok(heard)
    }
}

impl News {
    const fn input(&self) -> Input {
        match self {
            Self::Bounced { .. } => Input::ReportedBounced,
            Self::Delayed { .. } => Input::ReportedDelayed,
            Self::Complained(_) => Input::ReportedComplaint,
        }
    }

    fn happening(&self) -> Happening<'_> {
        match self {
            Self::Bounced { facts, bounce } | Self::Delayed { facts, bounce } => {
                Happening { facts: facts.clone(), bounce: Some(bounce), ..Happening::default() }
            }
            Self::Complained(complaint) => Happening { complaint: Some(complaint), ..Happening::default() },
        }
    }

    /// Whether the recipient's address is suppressed for it.
    pub const fn suppresses(&self) -> bool {
        match self {
            Self::Bounced { bounce, .. } => bounce.suppressed,
            Self::Delayed { .. } => false,
            Self::Complained(_) => true,
        }
    }

    /// Why the recipient's address is suppressed, where it is.
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

impl MessageNews {
    /// Whether this was news.
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
                // A report never brings an attempt about or answers a cancel; whom it suppresses, it says itself.
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

    /// The message's record shows the answer that its status comes from. The way out was the last attempt's.
    fn explain_status(&self, transfer: &mut TransferRow) {
        match &self.news {
            News::Bounced { facts, .. } => {
                let last = &transfer.last;
                transfer.last = AttemptFacts { attempt: last.attempt, relay: last.relay.clone(), ..facts.clone() };
            }
            News::Delayed { .. } | News::Complained(_) => {}
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
        let happening = Happening { transfer: Some(transfer), ..self.news.happening() };
        event::record(tables, &subject, kind, &happening).map(drop)
    }

    /// An attempt that is on the wire keeps its timer: its outcome takes it, and is not lost.
    fn stop_attempts(&self, tables: &mut Tables<'_>, row: &MessageRow, transfer: &mut TransferRow) {
        match self.wire {
            Wire::Busy => {}
            Wire::Idle => waiting::end(tables, self.account, self.message, &row.to, transfer),
        }
    }
}

#[cfg(test)]
mod tests;
