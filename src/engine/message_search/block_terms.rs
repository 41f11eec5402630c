//! Choosing the blocks of the message index that a search reads.

use super::MessageFilter;
use crate::store::row::message_index::{IndexedBlock, Term};

/// Terms that select blocks of the index.
pub(super) struct BlockTerms {
    all_of: Vec<Term>,
    one_of: Vec<Term>,
}

impl BlockTerms {
    pub(super) fn new(filter: &MessageFilter) -> Self {
        Self { all_of: filter.terms(), one_of: filter.status_terms() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all_of.is_empty() && self.one_of.is_empty()
    }

    pub(super) fn may_be_in(&self, block: &IndexedBlock<'_>) -> bool {
        self.all_of.iter().all(|term| block.may_have(*term))
            && (self.one_of.is_empty() || self.one_of.iter().any(|term| block.may_have(*term)))
    }
}
