//! Binding an idempotency key to an answer without accepting a message in the same transaction. Used for a list whose
//! messages were accepted independently.

use serde::{Deserialize, Serialize};

use super::Op;
use super::accept::bind_idempotency_key;
use super::admission::{IdempotencyClaim, Refusal, replay};
use crate::base::id::AccountId;
use crate::store::error::OpError;
use crate::store::tables::Tables;

/// Binds a key to an answer. A key that is already bound to the same body keeps its first answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindAnswer {
    /// Account of the key.
    pub account: AccountId,
    /// The key with the hash of its request body.
    pub claim: IdempotencyClaim,
    /// Bytes of the answer to a repeated request.
    pub answer: Vec<u8>,
}

impl Op for BindAnswer {
    type Reply = ();
    type Refusal = Refusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Refusal>> {
        let time = tables.time();
        if replay(tables, self.account, &self.claim, &time)?.is_none() {
            bind_idempotency_key(tables, self.account, &self.claim, &self.answer);
        }
        Ok(())
    }
}
