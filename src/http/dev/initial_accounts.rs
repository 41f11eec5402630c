//! The initial keys and domains of `dev`'s accounts, which a reset restores (contract 12.2).
//!
//! The rows are copies from the time of creation, so everything that a test changes or removes is restored. A file in
//! the data directory keeps them for later processes. Only webhooks are copied again at each start, whose options may
//! change their secret.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex as Turn;

use crate::base::id::AccountId;
use crate::engine::Engine;
use crate::engine::development::GivenIds;
use crate::store::error::StoreError;
use crate::store::op::erase::RawRow;
use crate::store::private_file;
use crate::store::schema::{FORMAT, Table};

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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct FixedAccount {
    #[serde(flatten)]
    ids: GivenIds,
    /// Missing in files of earlier versions.
    #[serde(default)]
    rows: Vec<RawRow>,
    /// Format of the rows. Rows of another format are not restored.
    #[serde(default)]
    format: u32,
}

impl FixedAccount {
    /// Creates the record of rows in the current format.
    const fn new(ids: GivenIds, rows: Vec<RawRow>) -> Self {
        Self { ids, rows, format: FORMAT }
    }

    /// Returns the rows that still belong to the account's objects `ids`, without webhooks. If some objects were
    /// deleted and created again, the earlier rows would contradict them.
    fn rows_for(self, ids: &GivenIds) -> Vec<RawRow> {
        let is_same = (&self.ids.keys, &self.ids.domains, &self.ids.users) == (&ids.keys, &ids.domains, &ids.users);
        let is_kept = |row: &RawRow| is_same && self.format == FORMAT && !row.is_of(Table::Endpoints);
        self.rows.into_iter().filter(is_kept).collect()
    }
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
        let mut kept: HashMap<AccountId, FixedAccount> = match fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice::<Vec<_>>(&bytes)?.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error),
        };
        let known = kept.remove(&first).unwrap_or_default();
        let others = kept.into_iter().map(|(account, kept)| (account, kept.ids.clone(), kept));
        for (account, ids, kept) in others.chain([(first, ids, known)]) {
            let mut rows = kept.rows_for(&ids);
            let current = engine.rows_of(account, &ids).map_err(io::Error::other)?;
            let added: Vec<_> = current.into_iter().filter(|row| rows.iter().all(|known| !known.is_at(row))).collect();
            rows.extend(added);
            self.accounts().insert(account, FixedAccount::new(ids, rows));
        }
        self.write();
        Ok(())
    }

    /// Returns whether the first account has all its objects.
    pub(in crate::http) fn have_begun(&self) -> bool {
        self.first().is_some_and(|first| self.accounts().contains_key(&first))
    }

    /// Records the initial rows of an account.
    pub(super) fn note(&self, engine: &Engine, account: AccountId, ids: GivenIds) -> Result<(), StoreError> {
        let rows = engine.rows_of(account, &ids)?;
        self.accounts().insert(account, FixedAccount::new(ids, rows));
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

    fn write(&self) {
        let accounts: Vec<_> = self.accounts().iter().map(|(id, given)| (*id, given.clone())).collect();
        let json = serde_json::to_vec(&accounts).map_err(io::Error::from);
        if let Err(error) = json.and_then(|json| private_file::replace(&self.file, &json)) {
            tracing::warn!(%error, "could not record the accounts of dev; a reset after a restart empties them");
        }
    }
}
