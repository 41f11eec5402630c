//! Who asks for a change: the account by one of its keys, the operator, or somebody of its panel. What the last ones
//! change stands in the audit log, in the transaction of the change.

use super::Engine;
use super::lease::Lease;
use super::listing::{self, Page, PageRequest};
use crate::base::id::{AccountId, ChangeId};
use crate::domain::audit::{Change, Person};
use crate::store::error::{Stop, StoreError};
use crate::store::op::audit::{Audited, NoteChange, Told};
use crate::store::row::audit::AuditRow;

/// For whom something is done. What takes one takes an account's identifier too, where no person asks.
#[derive(Clone, Debug)]
pub struct Behalf {
    /// The account.
    pub account: AccountId,
    /// Who of its panel asks; nobody where a key or the operator does.
    pub person: Option<Person>,
}

impl From<AccountId> for Behalf {
    fn from(account: AccountId) -> Self {
        Self { account, person: None }
    }
}

impl Engine {
    /// Commits `op`, with its line in the audit log where a person asks for it.
    pub(super) async fn commit_on<O: Told>(&self, on: Behalf, op: O) -> Result<O::Reply, Stop<O::Refusal>> {
        match on.person {
            Some(person) => self.store.commit(Audited { account: on.account, person, op }).await,
            None => self.store.commit(op).await,
        }
    }

    /// The same while `leases` are held.
    pub(super) async fn commit_leased_on<O: Told>(
        &self,
        on: Behalf,
        op: O,
        leases: Vec<Lease>,
    ) -> Result<O::Reply, Stop<O::Refusal>> {
        match on.person {
            Some(person) => self.commit_leased(Audited { account: on.account, person, op }, leases).await,
            None => self.commit_leased(op, leases).await,
        }
    }

    /// Writes the line of a change that takes many operations, before the first of them, where a person asks for it.
    pub(super) async fn note(&self, on: &Behalf, change: Change) -> Result<(), StoreError> {
        let Some(person) = on.person.clone() else { return Ok(()) };
        self.store.commit(NoteChange { account: on.account, person, change }).await.map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::Refused(never) => match never {},
        })
    }

    /// A page of the account's audit log.
    ///
    /// # Errors
    /// Those of the store.
    pub fn audit_log(&self, account: AccountId, page: PageRequest) -> Result<Page<(ChangeId, AuditRow)>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(id, row)| (ChangeId(id), row)).collect(), next })
    }
}
