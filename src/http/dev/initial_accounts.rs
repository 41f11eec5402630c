//! The initial keys and domains of `dev`'s accounts, which a reset restores (contract 12.2).
//!
//! The rows are copies from the time of creation, so everything that a test changes or removes is restored. A file in
//! the data directory lists the accounts other than the first.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use tokio::sync::Mutex as Turn;

use crate::base::id::AccountId;
use crate::engine::Engine;
use crate::engine::development::GivenIds;
use crate::store::error::StoreError;
use crate::store::op::erase::RawRow;

const FILE: &str = "dev-accounts.json";

/// The accounts with their initial rows.
pub struct InitialAccounts {
    file: PathBuf,
    first: OnceLock<AccountId>,
    accounts: Mutex<HashMap<AccountId, FixedAccount>>,
    /// Serialises creating, resetting and removing accounts.
    pub(super) turn: Turn<()>,
}

/// The initial keys and domains of one account.
#[derive(Debug, Clone)]
struct FixedAccount {
    ids: GivenIds,
    rows: Vec<RawRow>,
}

impl InitialAccounts {
    /// Creates the set for a data directory. It is empty until [`Self::begin`].
    pub fn of(data_dir: &std::path::Path) -> Self {
        let (file, accounts) = (data_dir.join(FILE), Mutex::default());
        Self { file, first: OnceLock::new(), accounts, turn: Turn::default() }
    }

    /// Records the initial rows of the first account, and of the accounts that an earlier process created.
    ///
    /// # Errors
    /// File system errors and store errors.
    pub fn begin(&self, engine: &Engine, first: AccountId, ids: GivenIds) -> io::Result<()> {
        self.first.get_or_init(|| first);
        let kept: Vec<(AccountId, GivenIds)> = match fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        for (account, ids) in kept.into_iter().chain([(first, ids)]) {
            self.note(engine, account, ids).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Records the initial rows of an account.
    pub(super) fn note(&self, engine: &Engine, account: AccountId, ids: GivenIds) -> Result<(), StoreError> {
        let rows = engine.rows_of(account, &ids)?;
        self.accounts().insert(account, FixedAccount { ids, rows });
        self.write();
        Ok(())
    }

    /// Removes a deleted account.
    pub(super) fn forget(&self, account: AccountId) {
        self.accounts().remove(&account);
        self.write();
    }

    /// Returns the first account.
    pub(super) fn first(&self) -> Option<AccountId> {
        self.first.get().copied()
    }

    /// Returns the initial rows of an account; only its own row if none were recorded.
    pub(super) fn rows(&self, engine: &Engine, account: AccountId) -> Result<Vec<RawRow>, StoreError> {
        if let Some(given) = self.accounts().get(&account) {
            return Ok(given.rows.clone());
        }
        engine.rows_of(account, &GivenIds::default())
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountId, FixedAccount>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the list of accounts other than the first.
    fn write(&self) {
        let first = self.first();
        let accounts = self.accounts();
        let others: Vec<_> = accounts.iter().filter(|(id, _)| Some(**id) != first).collect();
        let others: Vec<(AccountId, &GivenIds)> = others.into_iter().map(|(id, given)| (*id, &given.ids)).collect();
        if others.is_empty() && !self.file.exists() {
            return;
        }
        let written = serde_json::to_vec(&others).map_err(io::Error::from).and_then(|json| fs::write(&self.file, json));
        if let Err(error) = written {
            tracing::warn!(%error, "could not record the accounts of dev; a reset after a restart empties them");
        }
    }
}
