//! Binding an idempotency key to an answer without accepting a message in the same transaction: the key of a list whose
//! messages were accepted each by itself.

use serde::{Deserialize, Serialize};

use super::Op;
use super::accept::bind_idempotency_key;
use super::admission::{IdempotencyClaim, Refusal, replay};
use crate::base::id::AccountId;
use crate::store::error::Stop;
use crate::store::tables::Tables;

/// Binds a key to an answer. A key that is bound to the same body already keeps its first answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindAnswer {
    /// The account whose key it is.
    pub account: AccountId,
    /// The key, and the body that it came with.
    pub claim: IdempotencyClaim,
    /// The bytes that a repetition is answered.
    pub answer: Vec<u8>,
}

impl Op for BindAnswer {
    type Reply = ();
    type Refusal = Refusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), Stop<Refusal>> {
        let time = tables.time();
        if replay(tables, self.account, &self.claim, &time)?.is_none() {
            bind_idempotency_key(tables, self.account, &self.claim, &self.answer);
        }
        Ok(())
    }
}
