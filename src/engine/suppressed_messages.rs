//! Messages that wait for an address which is being suppressed (contract 6). Their leases are taken first, so that none
//! of them is in flight when the transaction ends them. Messages in flight end with their own outcome.

use std::sync::Arc;

use super::Engine;
use super::lease::Lease;
use crate::base::id::{AccountId, MessageId};
use crate::domain::address::Address;
use crate::store::error::{OpError, StoreError};
use crate::store::op::waiting::{self, ENDED_MAX, EndWaiting};
use crate::store::op::{Op, stored_content};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::schema::Table;

/// Waiting messages with their leases.
#[derive(Default)]
pub(super) struct Leased {
    /// The messages.
    pub(super) messages: Vec<MessageId>,
    /// Leases, held until the operation is committed.
    pub(super) leases: Vec<Lease>,
    /// Whether there may be more messages than one operation can end.
    pub(super) is_full: bool,
}

impl Engine {
    /// Counts the account's messages that wait or are in flight, up to `most`.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn waiting_count(&self, account: AccountId, most: usize) -> Result<usize, StoreError> {
        let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
        Ok(self.store.snapshot()?.keys(Table::Waiting, from, &to, Order::Ascending, most)?.len())
    }

    /// Returns the size of the account's stored message content, in bytes.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn stored_bytes(&self, account: AccountId) -> Result<u64, StoreError> {
        stored_content::used(&self.store.snapshot()?, account)
    }

    /// Leases the messages to `addresses` that wait and are not in flight.
    pub(super) fn lease_waiting<'a>(
        &self,
        account: AccountId,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) -> Result<Leased, StoreError> {
        let snapshot = self.store.snapshot()?;
        let mut leased = Leased::default();
        for address in addresses {
            // Messages in flight are skipped. Others may follow them.
            let mut after = None;
            while leased.messages.len() < ENDED_MAX {
                let room = ENDED_MAX - leased.messages.len();
                let waiting = waiting::to_address(&snapshot, account, address, after, room)?;
                let Some(last) = waiting.last() else { break };
                after = Some(*last);
                for message in waiting {
                    if let Some(lease) = self.leases.take(message) {
                        leased.messages.push(message);
                        leased.leases.push(lease);
                    }
                }
            }
        }
        leased.is_full = leased.messages.len() == ENDED_MAX;
        Ok(leased)
    }

    /// Ends messages that wait for suppressed addresses, in as many operations as needed.
    pub(super) async fn end_waiting(&self, account: AccountId, addresses: &[Address]) -> Result<(), StoreError> {
        let mut before = Vec::new();
        loop {
            let Leased { messages, leases, .. } = self.lease_waiting(account, addresses)?;
            // If the same messages return, they can't be ended.
            if messages.is_empty() || messages == before {
                return Ok(());
            }
            before.clone_from(&messages);
            match self.commit_leased(EndWaiting { account, messages }, leases).await {
                Ok(()) => {}
                Err(OpError::Failed(error)) => return Err(error),
                Err(OpError::Refused(never)) => match never {},
            }
        }
    }

    /// Commits `op` while `leases` are held. If the caller is cancelled, the leases stay held until the commit.
    /// Otherwise a worker could send meanwhile.
    pub(super) async fn commit_leased<O: Op>(
        &self,
        op: O,
        leases: Vec<Lease>,
    ) -> Result<O::Reply, OpError<O::Refusal>> {
        let store = Arc::clone(&self.store);
        let committed = tokio::spawn(async move {
            let answer = store.commit(op).await;
            drop(leases);
            answer
        });
        committed.await.unwrap_or(Err(OpError::Failed(StoreError::Panicked)))
    }
}
