//! The keys and domains that accounts of `dev` got when they were made. A reset keeps them (contract 12.2).
//!
//! The rows are those of the moment at which it was given, so whatever a test changes or removes comes back. Which
//! accounts there are beside the first is kept in a file of the data directory.

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

/// The accounts, and what each begins again with.
pub struct GivenAccounts {
    file: PathBuf,
    first: OnceLock<AccountId>,
    accounts: Mutex<HashMap<AccountId, Given>>,
    /// Accounts are made, reset and removed one at a time.
    pub(super) turn: Turn<()>,
}

/// The keys and domains of one account.
#[derive(Debug, Clone)]
struct Given {
    ids: GivenIds,
    rows: Vec<RawRow>,
}

impl GivenAccounts {
    /// Those of a data directory. None are known before [`Self::begin`].
    pub fn of(data_dir: &std::path::Path) -> Self {
        let (file, accounts) = (data_dir.join(FILE), Mutex::default());
        Self { file, first: OnceLock::new(), accounts, turn: Turn::default() }
    }

    /// Takes note of what the first account was given, and of the accounts that an earlier process made.
    ///
    /// # Errors
    /// Those of the file system and of the store.
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

    /// Takes note of what an account was given.
    pub(super) fn note(&self, engine: &Engine, account: AccountId, ids: GivenIds) -> Result<(), StoreError> {
        let rows = engine.rows_of(account, &ids)?;
        self.accounts().insert(account, Given { ids, rows });
        self.write();
        Ok(())
    }

    /// Forgets an account that is gone.
    pub(super) fn forget(&self, account: AccountId) {
        self.accounts().remove(&account);
        self.write();
    }

    /// The first account.
    pub(super) fn first(&self) -> Option<AccountId> {
        self.first.get().copied()
    }

    /// The rows that an account begins again with; of an account that was not given anything, its own row alone.
    pub(super) fn rows(&self, engine: &Engine, account: AccountId) -> Result<Vec<RawRow>, StoreError> {
        if let Some(given) = self.accounts().get(&account) {
            return Ok(given.rows.clone());
        }
        engine.rows_of(account, &GivenIds::default())
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountId, Given>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes which accounts there are beside the first.
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
