//! Accepting several messages in one transaction, all or none: the recipients of one SMTP transaction, or the messages
//! of one batch.

use serde::{Deserialize, Serialize};

use super::Op;
use super::accept::{Accept, Accepted};
use super::admission::Refusal;
use crate::store::error::OpError;
use crate::store::tables::Tables;

/// Accepts messages together. Each is checked like a single [`Accept`] after the ones before it, so the quota adds up.
/// An idempotency key that is already bound to the same body returns its first answer and uses no quota.
///
/// One message changes about 15 rows, and 4 more for each of up to 10 webhook endpoints; 100 messages write a journal
/// record of about half a MiB.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcceptAll {
    /// The messages, with ascending identifiers.
    pub messages: Vec<Accept>,
}

/// The first refused message, because of which all are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstRefusal {
    /// Index of the first refused message, from 0.
    pub place: usize,
    /// Reason for the refusal.
    pub refusal: Refusal,
}

impl Op for AcceptAll {
    /// One answer for each message, in order.
    type Reply = Vec<Accepted>;
    type Refusal = FirstRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Vec<Accepted>, OpError<FirstRefusal>> {
        // A later refusal drops the operation with the rows of the earlier messages.
        let accept = |(place, message): (usize, &Accept)| {
            message.apply(tables).map_err(|stop| match stop {
                OpError::Refused(refusal) => OpError::Refused(FirstRefusal { place, refusal }),
                OpError::Failed(error) => OpError::Failed(error),
            })
        };
        self.messages.iter().enumerate().map(accept).collect()
    }
}

#[cfg(test)]
mod tests;
