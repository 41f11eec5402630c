//! Accepting several messages in one transaction, all of them or none: the recipients of one SMTP transaction, or the
//! different messages of one batch.

use serde::{Deserialize, Serialize};

use super::Op;
use super::accept::{Accept, Accepted};
use super::admission::Refusal;
use crate::store::error::Stop;
use crate::store::tables::Tables;

/// Accepts messages together. Each is checked as [`Accept`] checks it, with those before it counted, so the quota adds
/// up. An idempotency key that is bound to the same body already gives its first answer, and costs nothing.
///
/// One message changes some 15 rows, and 4 more for each of up to 10 webhook endpoints; 100 messages write a record of
/// about half a MiB into the journal.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcceptAll {
    /// The messages, with rising identifiers.
    pub messages: Vec<Accept>,
}

/// Why none of the messages is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneRefused {
    /// The first message that is refused, counted from 0.
    pub place: usize,
    /// Why it is.
    pub refusal: Refusal,
}

impl Op for AcceptAll {
    /// One answer for each message, in their order.
    type Reply = Vec<Accepted>;
    type Refusal = OneRefused;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Vec<Accepted>, Stop<OneRefused>> {
        // A later refusal drops the operation, and with it the rows of the first ones.
        let accept = |(place, message): (usize, &Accept)| {
            message.apply(tables).map_err(|stop| match stop {
                Stop::Refused(refusal) => Stop::Refused(OneRefused { place, refusal }),
                Stop::Failed(error) => Stop::Failed(error),
            })
        };
        self.messages.iter().enumerate().map(accept).collect()
    }
}

#[cfg(test)]
mod tests;
