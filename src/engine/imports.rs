//! Imports of suppression lists, all or nothing (contract 6). A short list is one operation. A long list is written in
//! batches, whose suppressions take effect only with the last operation, see [`crate::store::op::suppression_import`].

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::Engine;
use super::audit::Behalf;
use super::suppressed_messages::Leased;
use super::suppressions::{Imported, SuppressionBatches, failure};
use super::turn_permits::{TurnPermit, TurnPermits};
use crate::base::id::AccountId;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Op;
use crate::store::op::suppression::ImportSuppressions;
use crate::store::op::suppression_count::{self, TooManySuppressions};
use crate::store::op::suppression_import::{BeginImport, EndImport, FinishImport, ImportBatch, UndoImport};
use crate::store::op::waiting::{self, EndWaiting};
use crate::store::read::Read as _;
use crate::store::row::suppression::{ImportStage, SuppressionImportRow};
use crate::store::schema::Table;
use crate::store::timer::Timer;

/// Maximum number of concurrent imports of long lists. Accounts take turns.
const AT_ONCE: usize = 2;
/// Maximum wait for a turn.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Maximum pause between two batches.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Reason why an import does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRefusal {
    /// An import of the account is running, or is being rolled back.
    Running,
    /// Other accounts' long imports took too long.
    Crowded,
    /// The account would have more than the maximum number of suppressions.
    TooMany,
}

/// Accounts with a running import. An import ends with its process, so this is kept in memory.
pub(super) struct Imports {
    running: Arc<RunningImports>,
    permits: TurnPermits,
}

#[derive(Default)]
struct RunningImports {
    accounts: Mutex<HashSet<AccountId>>,
    ended: Notify,
}

/// A running import, until this value is dropped.
struct RunningImport {
    running: Arc<RunningImports>,
    account: AccountId,
    _permit: Option<TurnPermit>,
}

impl Default for Imports {
    fn default() -> Self {
        Self { running: Arc::default(), permits: TurnPermits::new(AT_ONCE) }
    }
}

impl Imports {
    /// Starts an import of `batches` batches. A single batch is little work and needs no permit; others wait for their
    /// turn.
    async fn begin(&self, account: AccountId, batches: usize) -> Result<RunningImport, ImportRefusal> {
        if !self.running.accounts().insert(account) {
            return Err(ImportRefusal::Running);
        }
        let mut turn = RunningImport { running: Arc::clone(&self.running), account, _permit: None };
        if batches > 1 {
            let permit = timeout(TURN_WAIT, self.permits.take(account)).await;
            turn._permit = Some(permit.ok().flatten().ok_or(ImportRefusal::Crowded)?);
        }
        Ok(turn)
    }

    /// Waits until no import of the account is running.
    async fn ended(&self, account: AccountId) {
        loop {
            let ended = self.running.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.running.accounts().contains(&account) {
                return;
            }
            ended.await;
        }
    }
}

impl RunningImports {
    fn accounts(&self) -> std::sync::MutexGuard<'_, HashSet<AccountId>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningImport {
    fn drop(&mut self) {
        self.running.accounts().remove(&self.account);
        self.running.ended.notify_waiters();
    }
}

impl Engine {
    /// Suppresses a whole list, or nothing of it. Continues even if the caller is cancelled.
    ///
    /// # Errors
    /// The refusal; the store's failure.
    pub async fn import_suppressions(
        self: &Arc<Self>,
        on: impl Into<Behalf>,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Imported, OpError<ImportRefusal>> {
        let on = on.into();
        let turn = self.imports.begin(on.account, list.batches()).await.map_err(OpError::Refused)?;
        let engine = Arc::clone(self);
        let imported = tokio::spawn(async move {
            let _turn = turn;
            if list.batches() > 1 { engine.import_long(on, list).await } else { engine.import_short(on, list).await }
        });
        imported.await.unwrap_or(Err(OpError::Failed(StoreError::Panicked)))
    }

    /// Imports a list in one operation, which also ends the waiting messages.
    async fn import_short(
        &self,
        on: Behalf,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Imported, OpError<ImportRefusal>> {
        self.check_space()?;
        let (account, count) = (on.account, list.count());
        let suppressions = list.batch(0);
        let addresses: Vec<_> = suppressions.iter().map(|suppression| suppression.address.clone()).collect();
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, &addresses)?;
        let op = ImportSuppressions { account, suppressions, waiting };
        let imported = self.commit_leased_on(on, op, leases).await.map_err(too_many)?;
        self.end_waiting(account, &addresses).await?;
        Ok(Imported { imported, skipped: count - imported })
    }

    /// Imports a list in batches. One final operation makes all of them effective. If the import ends before, its timer
    /// rolls it back.
    async fn import_long(
        self: &Arc<Self>,
        on: Behalf,
        list: Arc<dyn SuppressionBatches>,
    ) -> Result<Imported, OpError<ImportRefusal>> {
        self.check_space()?;
        let (account, count) = (on.account, list.count());
        // A list that may exceed the limit is counted before any of it is written. Each batch checks the limit again.
        if count as u64 > suppression_count::remaining(&self.store.snapshot()?, account)? {
            self.preview_import(account, Arc::clone(&list)).await?;
        }
        let begun = self.store.commit(BeginImport { account }).await;
        let timer = begun.map_err(|stop| match stop {
            OpError::Refused(_) => OpError::Refused(ImportRefusal::Running),
            OpError::Failed(error) => OpError::Failed(error),
        })?;
        let mut imported = 0;
        for number in 0..list.batches() {
            let read = Arc::clone(&list);
            let suppressions = self.blocking(account, move || read.batch(number)).await?;
            self.check_space()?;
            imported += self.paced(ImportBatch { account, import: timer.id, suppressions }).await.map_err(too_many)?;
        }
        self.commit_on(on, FinishImport { account, import: timer.id, count }).await.map_err(failure)?;
        self.end_import(timer).await?;
        Ok(Imported { imported, skipped: count - imported })
    }

    /// Commits a batch. If submissions wait, it then pauses for the duration of the batch.
    async fn paced<O: Op>(&self, op: O) -> Result<O::Reply, OpError<O::Refusal>> {
        let began = tokio::time::Instant::now();
        let reply = self.store.commit(op).await?;
        if self.waiting_submissions.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(began.elapsed().min(PAUSE_MAX)).await;
        }
        Ok(reply)
    }

    /// Finishes an import after its suppressions have taken effect.
    async fn end_import(&self, timer: Timer) -> Result<(), StoreError> {
        self.end_suppressed(timer.account).await?;
        self.store.commit(EndImport { timer }).await.map_err(failure)
    }

    /// Serves the timer of an import. If the import is no longer running, it is rolled back, or finished if its
    /// suppressions are effective already.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) async fn settle_import(&self, timer: Timer) -> Result<(), StoreError> {
        self.imports.ended(timer.account).await;
        let snapshot = self.store.snapshot()?;
        if !snapshot.has(Table::Timers, &timer.encode())? {
            self.store.timers().forget(&timer);
            return Ok(());
        }
        let row = snapshot.row::<SuppressionImportRow>(timer.account.as_bytes())?;
        drop(snapshot);
        match row.filter(|row| row.id == timer.id).map(|row| row.stage) {
            Some(ImportStage::Unfinished(_)) => {
                let account = timer.account;
                tracing::warn!(%account, "suppression import did not finish; removing its suppressions");
                while !self.paced(UndoImport { timer }).await.map_err(failure)? {}
                Ok(())
            }
            Some(ImportStage::Finished) | None => self.end_import(timer).await,
        }
    }

    /// Ends the account's messages that wait for suppressed addresses. A message in flight ends with its own outcome.
    async fn end_suppressed(&self, account: AccountId) -> Result<(), StoreError> {
        let mut next = Some(account.as_bytes().to_vec());
        while let Some(from) = next {
            let found = self
                .off_thread(account, move |store| waiting::for_suppressed(&store.snapshot()?, account, &from))
                .await?;
            next = found.next;
            let leased = |message| self.leases.take(message).map(|lease| (message, lease));
            let (messages, leases): (Vec<_>, Vec<_>) = found.messages.into_iter().filter_map(leased).unzip();
            if !messages.is_empty() {
                self.commit_leased(EndWaiting { account, messages }, leases).await.map_err(failure)?;
            }
        }
        Ok(())
    }
}

fn too_many(stop: OpError<TooManySuppressions>) -> OpError<ImportRefusal> {
    match stop {
        OpError::Refused(TooManySuppressions) => OpError::Refused(ImportRefusal::TooMany),
        OpError::Failed(error) => OpError::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[tokio::test(start_paused = true)]
    async fn an_account_runs_one_import_and_all_accounts_two_long_ones() {
        let imports = Imports::default();
        let account = |byte| AccountId(Ulid([byte; 16]));
        let begin = |byte, batches| imports.begin(account(byte), batches);
        let turns = [begin(1, 2).await, begin(2, 9).await];
        assert!(turns.iter().all(Result::is_ok));
        assert_eq!(begin(1, 1).await.err(), Some(ImportRefusal::Running));
        assert_eq!(begin(3, 2).await.err(), Some(ImportRefusal::Crowded));
        assert!(begin(3, 1).await.is_ok(), "a short list takes no permit, and the refused import left no trace");
        let third = begin(3, 2);
        tokio::pin!(third);
        assert!(timeout(Duration::ZERO, &mut third).await.is_err());
        let [first, _second] = turns;
        drop(first);
        let again = timeout(Duration::ZERO, begin(1, 2)).await;
        assert!(again.is_err() && third.await.is_ok(), "the third account comes before the first comes again");
    }
}
