//! Choosing the blocks of the message index that a search reads.

use super::{MessageFilter, Via, after};
use crate::base::id::AccountId;
use crate::store::error::StoreError;
use crate::store::op::message_index::last_before_version;
use crate::store::row::message_index::{IndexedBlock, METADATA_SINCE, Term, VALUES_SINCE};
use crate::store::schema;
use crate::store::snapshot::Snapshot;

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

impl MessageFilter {
    /// Returns the terms that a block must contain for its messages to be read, except those of statuses.
    pub(super) fn terms(&self) -> Vec<Term> {
        let of_words = self.subject_words.iter().map(|word| Term::word(word));
        let others = [
            self.to.as_ref().map(Term::to),
            self.from.as_ref().map(Term::from),
            self.stream.map(Term::stream),
            self.via.and_then(Via::term),
        ];
        let of_metadata = self.metadata.iter().map(|(name, value)| Term::metadata(name, value));
        let of_metadata = of_metadata.chain(self.metadata_value.as_deref().map(Term::metadata_value));
        others.into_iter().flatten().chain(of_words).chain(of_metadata).collect()
    }

    /// Returns the version from which a block can have the terms of metadata; 1 if there are none.
    pub(super) const fn block_version(&self) -> u8 {
        if self.metadata_value.is_some() {
            VALUES_SINCE
        } else if self.metadata.is_empty() {
            1
        } else {
            METADATA_SINCE
        }
    }

    /// Returns the terms of statuses, of which a block must contain one.
    fn status_terms(&self) -> Vec<Term> {
        self.statuses.iter().copied().map(Term::status).collect()
    }
}

/// Returns the key of the first message that is in a block of `version` or later, or in none.
pub(super) fn first_of_version(snapshot: &Snapshot, account: AccountId, version: u8) -> Result<Vec<u8>, StoreError> {
    let last = last_before_version(snapshot, account, version)?;
    Ok(last.map_or_else(|| account.as_bytes().to_vec(), |last| after(&schema::message(account, last))))
}
