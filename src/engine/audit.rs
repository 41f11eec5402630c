//! Author of a change: a user of the panel, a program with an API key, or the operator. Every change has a line in the
//! audit log, written in the same transaction.

use super::lease::Lease;
use super::listing::{self, Page, PageRequest};
use super::{Caller, Engine};
use crate::base::id::{AccountId, ChangeId};
use crate::domain::audit::{Actor, Change};
use crate::domain::stream::Stream;
use crate::store::error::{OpError, StoreError};
use crate::store::op::audit::{Auditable, Audited, NoteChange};
use crate::store::row::audit::AuditRow;

/// Maximum number of lines that are read for the changes of one object.
const LOOKED_AT: usize = 5_000;

/// Account and author of a change.
#[derive(Clone, Debug)]
pub struct Behalf {
    /// The account.
    pub account: AccountId,
    /// The author.
    pub actor: Actor,
    /// The only stream whose domains may be changed; `None` for any.
    pub stream: Option<Stream>,
}

impl Behalf {
    /// Returns a change by `actor`, without a limit to one stream.
    pub const fn new(account: AccountId, actor: Actor) -> Self {
        Self { account, actor, stream: None }
    }

    /// Returns a change by the operator.
    pub const fn operator(account: AccountId) -> Self {
        Self::new(account, Actor::Operator)
    }
}

impl From<&Caller> for Behalf {
    fn from(caller: &Caller) -> Self {
        match &caller.key {
            Some(key) => Self { account: caller.account, actor: Actor::Key(key.id), stream: key.stream },
            None => Self::operator(caller.account),
        }
    }
}

/// Tests make changes as the operator. Other code must name the author.
#[cfg(test)]
impl From<AccountId> for Behalf {
    fn from(account: AccountId) -> Self {
        Self::operator(account)
    }
}

impl Engine {
    /// Commits `op` with its line in the audit log.
    pub(super) async fn commit_on<O: Auditable>(&self, on: Behalf, op: O) -> Result<O::Reply, OpError<O::Refusal>> {
        self.check_space_for(&on, op.needs_space())?;
        self.store.commit(Audited { account: on.account, actor: on.actor, op }).await
    }

    /// Commits `op` with its line in the audit log, while `leases` are held.
    pub(super) async fn commit_leased_on<O: Auditable>(
        &self,
        on: Behalf,
        op: O,
        leases: Vec<Lease>,
    ) -> Result<O::Reply, OpError<O::Refusal>> {
        self.check_space_for(&on, op.needs_space())?;
        self.commit_leased(Audited { account: on.account, actor: on.actor, op }, leases).await
    }

    /// Writes the line of a change that consists of several operations (before the first of them) or changes no row.
    pub(super) async fn note(&self, on: &Behalf, change: Change) -> Result<ChangeId, StoreError> {
        self.check_space_for(on, true)?;
        let op = NoteChange { account: on.account, actor: on.actor.clone(), change };
        self.store.commit(op).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }

    /// Refuses a change that needs disk space while less space is free than the operator reserves. Changes of the
    /// operator and of the service itself are never refused.
    fn check_space_for(&self, on: &Behalf, needs_space: bool) -> Result<(), StoreError> {
        match on.actor {
            Actor::Operator | Actor::Service => Ok(()),
            Actor::Person(_) | Actor::Key(_) | Actor::SetupLink { .. } if !needs_space => Ok(()),
            Actor::Person(_) | Actor::Key(_) | Actor::SetupLink { .. } => self.check_space(),
        }
    }

    /// Returns [`StoreError::Full`] while less disk space is free than the operator reserves.
    pub(super) fn check_space(&self) -> Result<(), StoreError> {
        if self.store.free_bytes()? < self.settings.min_free_bytes { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Returns a page of the account's audit log.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn audit_log(&self, account: AccountId, page: PageRequest) -> Result<Page<(ChangeId, AuditRow)>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(id, row)| (ChangeId(id), row)).collect(), next })
    }

    /// Returns a page of the changes of one object. It reads at most [`LOOKED_AT`] lines, so a page can have fewer rows
    /// than asked for although another page follows.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn audit_log_of(
        &self,
        account: AccountId,
        object: &str,
        page: PageRequest,
    ) -> Result<Page<(ChangeId, AuditRow)>, StoreError> {
        let request = PageRequest { limit: LOOKED_AT, ..page };
        let Page { rows, next } = self.audit_log(account, request)?;
        let mut found: Vec<_> = rows.into_iter().filter(|(_, row)| row.change.object == object).collect();
        let is_cut = found.len() > page.limit;
        found.truncate(page.limit);
        let last = found.last().filter(|_| is_cut).map(|(id, _)| id.0);
        Ok(Page { rows: found, next: last.or(next) })
    }
}
