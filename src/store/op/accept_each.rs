//! Accepting several messages in one transaction, each independently: a refusal leaves the others unaffected.

use serde::{Deserialize, Serialize};

use super::accept::{Accept, Accepted};
use super::admission::Refusal;
use super::{Infallible, Op};
use crate::store::error::OpError;
use crate::store::tables::Tables;

/// Accepts or refuses each message like one [`Accept`] after another: the quota adds up, and a key bound by an earlier
/// message is bound for the later ones. A refused message leaves no rows, because [`Accept`] checks everything before
/// it writes.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcceptEach {
    /// The messages, with ascending identifiers.
    pub messages: Vec<Accept>,
}

impl Op for AcceptEach {
    /// One outcome for each message, in order.
    type Reply = Vec<Result<Accepted, Refusal>>;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Self::Reply, OpError<Infallible>> {
        let accept = |message: &Accept| match message.apply(tables) {
            Ok(accepted) => Ok(Ok(accepted)),
            Err(OpError::Refused(refusal)) => Ok(Err(refusal)),
            Err(OpError::Failed(error)) => Err(OpError::Failed(error)),
        };
        self.messages.iter().map(accept).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::store::op::admission::IdempotencyClaim;
    use crate::store::op::suppression::{Suppress, Suppression};
    use crate::store::row::suppression::SuppressionReason;
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;

    /// For each message, whether it is a replay, or the reason for its refusal.
    type Outcomes = Vec<Result<bool, Refusal>>;

    /// Creates a store and messages to it: recipients by number, and the idempotency keys of some.
    fn given(messages: &[(u8, Option<u8>)], per_hour: u64) -> (TestStore, Vec<Accept>) {
        let test = TestStore::new();
        let sender = test.sender_with(QuotaLimits { per_hour, per_day: 100 });
        test.endpoint(sender.account, None);
        let suppression = Suppression::of("n0@example.net".parse().unwrap(), SuppressionReason::Manual);
        test.done(Suppress { account: sender.account, suppression, waiting: Vec::new() });
        let message = |&(to, key): &(u8, Option<u8>)| {
            let idempotency = key.map(|key| IdempotencyClaim { key_hash: [key; 32], body_hash: [to; 32] });
            Accept { idempotency, ..sender.message(&format!("n{to}@example.net")) }
        };
        let accepts = messages.iter().map(message).collect();
        (test, accepts)
    }

    fn together(test: &TestStore, messages: Vec<Accept>) -> Outcomes {
        let outcomes = test.done(AcceptEach { messages });
        outcomes.into_iter().map(|outcome| outcome.map(|accepted| accepted.is_replay)).collect()
    }

    fn one_by_one(test: &TestStore, messages: Vec<Accept>) -> Outcomes {
        messages.into_iter().map(|message| test.answer_of(message).map(|accepted| accepted.is_replay)).collect()
    }

    /// Returns the number of rows of each table.
    fn counts(test: &TestStore) -> Vec<(&'static str, usize)> {
        Table::ALL.iter().map(|table| (table.name(), test.count(*table, &[]))).collect()
    }

    #[test]
    fn a_refused_message_does_not_affect_the_others() {
        let (test, messages) = given(&[(1, None), (0, None), (2, None), (3, None)], 2);
        let outcomes = together(&test, messages);
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        assert_eq!(outcomes[1], Err(Refusal::RecipientSuppressed));
        assert!(matches!(outcomes[3], Err(Refusal::QuotaExhausted(_))), "{outcomes:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_list_has_the_same_effect_as_its_messages_one_by_one(
            messages in proptest::collection::vec((0_u8..4, proptest::option::of(0_u8..3)), 0..8),
            per_hour in 0_u64..8,
        ) {
            let (list, accepts) = given(&messages, per_hour);
            let (single, same) = given(&messages, per_hour);
            prop_assert_eq!(together(&list, accepts), one_by_one(&single, same));
            prop_assert_eq!(counts(&list), counts(&single));
        }
    }
}
