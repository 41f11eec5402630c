//! Accounts and their API keys: creating and listing them, and authenticating a key.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};

use subtle::ConstantTimeEq as _;

use super::audit::Behalf;
use super::hot_keys::HotKey;
use super::listing::{self, Page, PageRequest};
use super::{Caller, Engine};
use crate::base::id::{AccountId, KeyId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::{Account, AccountName, QuotaLimits, SuspensionReason, TimeZoneName};
use crate::domain::api_key::{ApiKey, KeySecret, Scope, Scopes};
use crate::domain::audit::Actor;
use crate::domain::return_path::AccountHint;
use crate::domain::stream::Stream;
use crate::machine::quota::{Quota, QuotaView};
use crate::store::error::{OpError, StoreError};
use crate::store::op::NotFound;
pub use crate::store::op::account::AccountChange;
use crate::store::op::account::{
    CreateAccount, CreateKey, CreateKeyRefusal, RenameKey, RevokeKey, TouchKey, UpdateAccount, key_by_hash,
};
use crate::store::op::suspension::{ResumeAccount, SuspendAccount, suspension};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::suspension::SuspensionRow;
use crate::store::schema::{self, Table};

/// Properties of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Name of the key.
    pub name: String,
    /// The only stream that the key may send on; `None` for both.
    pub stream: Option<Stream>,
    /// Permissions of the key.
    pub scopes: Scopes,
    /// Expiry time.
    pub expires_at: Option<Timestamp>,
}

/// Reason why a key is not created.
#[derive(Debug)]
pub enum NewKeyRefusal {
    /// The caller's key lacks this scope.
    Scope(Scope),
    /// The caller's key is limited to this stream.
    Stream(Stream),
    /// There is no such account.
    NoSuchAccount,
    /// The account has the maximum number of active keys.
    TooMany,
}

impl Engine {
    /// Creates an account with the configured quota and default settings.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn create_account(
        &self,
        name: AccountName,
        time_zone: Option<TimeZoneName>,
        quota: QuotaLimits,
    ) -> Result<Account, StoreError> {
        self.create_account_by(None, name, time_zone, quota).await
    }

    /// Creates an account. The first line of its audit log names the creator.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn create_account_by(
        &self,
        by: Option<Actor>,
        name: AccountName,
        time_zone: Option<TimeZoneName>,
        quota: QuotaLimits,
    ) -> Result<Account, StoreError> {
        let mut account = Account::new(AccountId::default(), name, quota, self.clock.now());
        account.time_zone = time_zone.unwrap_or(account.time_zone);
        self.store.commit(CreateAccount { account, by }).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }

    /// Returns an account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        self.store.snapshot()?.row(id.as_bytes())
    }

    /// Returns a page of all accounts.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn accounts(&self, page: PageRequest) -> Result<Page<Account>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, &[], page)?;
        Ok(Page { rows: rows.into_iter().map(|(_, account)| account).collect(), next })
    }

    /// Changes an account's settings or quota.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn change_account(
        &self,
        on: impl Into<Behalf>,
        change: AccountChange,
    ) -> Result<Account, OpError<NotFound>> {
        let on = on.into();
        let op = UpdateAccount { account: on.account, change };
        self.commit_on(on, op).await
    }

    /// Returns the account's quota and its use.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn quota(&self, account: &Account) -> Result<QuotaView, StoreError> {
        let quota: Option<Quota> = self.store.snapshot()?.row(account.id.as_bytes())?;
        Ok(quota.unwrap_or_default().view(account.quota, self.clock.now()))
    }

    /// Creates a key that has no more permissions than the key of `caller` (contract 2). The secret is returned only
    /// once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_key(
        &self,
        caller: &Caller,
        new: NewKey,
    ) -> Result<(ApiKey, KeySecret), OpError<NewKeyRefusal>> {
        if let Some(own) = &caller.key {
            check_not_more(own, &new).map_err(OpError::Refused)?;
        }
        self.make_key(caller, new).await
    }

    /// Creates a key without comparing its permissions with the caller's. The secret is returned only once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn make_key(
        &self,
        on: impl Into<Behalf>,
        new: NewKey,
    ) -> Result<(ApiKey, KeySecret), OpError<NewKeyRefusal>> {
        let secret = KeySecret::generate(&*self.entropy);
        Ok((self.make_key_of(on, new, &secret).await?, secret))
    }

    /// Creates the key with this secret.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub(super) async fn make_key_of(
        &self,
        on: impl Into<Behalf>,
        new: NewKey,
        secret: &KeySecret,
    ) -> Result<ApiKey, OpError<NewKeyRefusal>> {
        let on = on.into();
        let key = ApiKey {
            id: KeyId::default(),
            name: new.name,
            prefix: secret.prefix(),
            hash: secret.hash(),
            stream: new.stream,
            scopes: new.scopes,
            created_at: self.clock.now(),
            last_used_at: None,
            expires_at: new.expires_at,
            revoked_at: None,
        };
        let op = CreateKey { account: on.account, key };
        match self.commit_on(on, op).await {
            Ok(key) => Ok(key),
            Err(OpError::Refused(CreateKeyRefusal::NoSuchAccount)) => {
                Err(OpError::Refused(NewKeyRefusal::NoSuchAccount))
            }
            Err(OpError::Refused(CreateKeyRefusal::TooMany)) => Err(OpError::Refused(NewKeyRefusal::TooMany)),
            Err(OpError::Failed(error)) => Err(OpError::Failed(error)),
        }
    }

    /// Returns a key of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.store.snapshot()?.row(&schema::api_key(account, id))
    }

    /// Returns a page of the account's keys, including revoked ones.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn keys(&self, account: AccountId, page: PageRequest) -> Result<Page<ApiKey>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(_, key)| key).collect(), next })
    }

    /// Renames a key of the account, if a name is given.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn rename_key(
        &self,
        on: impl Into<Behalf>,
        key: KeyId,
        name: Option<String>,
    ) -> Result<ApiKey, OpError<NotFound>> {
        let on = on.into();
        let op = RenameKey { account: on.account, key, name };
        self.commit_on(on, op).await
    }

    /// Revokes a key of the account, immediately and permanently.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn revoke_key(&self, on: impl Into<Behalf>, key: KeyId) -> Result<(), OpError<NotFound>> {
        let on = on.into();
        let op = RevokeKey { account: on.account, key };
        self.commit_on(on, op).await.map(drop)
    }

    /// Parses the text of a key, or of a key chosen for `dev`.
    pub(super) fn secret_of(&self, text: &str) -> Option<KeySecret> {
        text.parse().ok().or_else(|| self.development.chosen_key(text))
    }

    /// Returns the caller with this key. `None` if the key is unknown, revoked or expired.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn authenticate(&self, text: &str) -> Result<Option<Caller>, StoreError> {
        let Some(secret) = self.secret_of(text) else { return Ok(None) };
        let owner = self.key_owner(&secret.hash())?;
        let owner = owner.filter(|caller| caller.key.as_ref().is_some_and(|key| key.is_live(self.clock.now())));
        if let Some(caller) = &owner {
            self.stamp_key(caller);
        }
        Ok(owner)
    }

    /// Returns the key with this hash and its account, even if the key is revoked or expired.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) fn key_owner(&self, hash: &[u8; 32]) -> Result<Option<Caller>, StoreError> {
        let known = self.hot_keys.get(hash, self.store.key_changes());
        let Some(HotKey { account, key, .. }) = known.map_or_else(|| self.read_key(hash), |hot| Ok(Some(hot)))? else {
            return Ok(None);
        };
        // Lookups by hash don't take constant time, so the result is compared again in constant time.
        Ok(bool::from(key.hash.ct_eq(hash)).then_some(Caller { account, key: Some(key) }))
    }

    /// Returns the suspension of a caller's account. The operator is never suspended.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn suspension_of(&self, caller: &Caller) -> Result<Option<Arc<SuspensionRow>>, StoreError> {
        let Some(key) = &caller.key else { return Ok(None) };
        match self.hot_keys.get(&key.hash, self.store.key_changes()) {
            Some(hot) => Ok(hot.suspension),
            None => Ok(self.suspension(caller.account)?.map(Arc::new)),
        }
    }

    /// Returns the suspension of an account, or `None` if it is not suspended.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn suspension(&self, account: AccountId) -> Result<Option<SuspensionRow>, StoreError> {
        suspension(&self.store.snapshot()?, account)
    }

    /// Suspends an account: its keys and users may read, but can't change or send anything, and its queue is on hold. A
    /// transfer past MAIL ends with its normal outcome. Suspending it again changes the reason.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn suspend_account(
        &self,
        on: Behalf,
        reason: SuspensionReason,
    ) -> Result<SuspensionRow, OpError<NotFound>> {
        let op = SuspendAccount { account: on.account, reason };
        self.commit_on(on, op).await
    }

    /// Resumes a suspended account: its queue and its webhooks continue. Idempotent.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn resume_account(&self, on: Behalf) -> Result<(), OpError<NotFound>> {
        let account = on.account;
        self.commit_on(on, ResumeAccount { account }).await?;
        if let Some(view) = self.queue_view() {
            view.wake(account);
        }
        Ok(())
    }

    /// Records the use of a caller's key, if the last recorded use is a minute old.
    pub(super) fn stamp_key(&self, caller: &Caller) {
        let now = self.clock.now();
        if let Some(key) = &caller.key
            && key.needs_use_stamp(now)
        {
            self.stamp_use(caller.account, key.id, now);
        }
    }

    /// Reads the key with this hash from the store, and caches it.
    fn read_key(&self, hash: &[u8; 32]) -> Result<Option<HotKey>, StoreError> {
        // A hash always belongs to the same key. The key's state is read after its stamp is taken.
        let Some((account, found)) = key_by_hash(&self.store.snapshot()?, hash)? else { return Ok(None) };
        let stamp = self.store.key_changes().stamp(account, found.id);
        let snapshot = self.store.snapshot()?;
        let Some(key) = snapshot.row::<ApiKey>(&schema::api_key(account, found.id))? else { return Ok(None) };
        let suspension = suspension(&snapshot, account)?.map(Arc::new);
        let hot = HotKey { account, key: Arc::new(key), suspension, stamp };
        self.hot_keys.put(hot.clone());
        Ok(Some(hot))
    }

    /// Records the key's use without waiting, so that no answer is delayed.
    fn stamp_use(&self, account: AccountId, key: KeyId, at: Timestamp) {
        if !self.being_stamped.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return;
        }
        let being_stamped = Arc::clone(&self.being_stamped);
        self.store.post(TouchKey { account, key, at }, move |_written| {
            // If the write fails, the next use tries again.
            being_stamped.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
    }
}

/// Checks that a new key has no more permissions than the caller's key.
fn check_not_more(own: &ApiKey, new: &NewKey) -> Result<(), NewKeyRefusal> {
    if let Some(lacking) = new.scopes.as_list().into_iter().find(|scope| !own.scopes.contains(*scope)) {
        return Err(NewKeyRefusal::Scope(lacking));
    }
    match own.stream {
        Some(stream) if new.stream != Some(stream) => Err(NewKeyRefusal::Stream(stream)),
        Some(_) | None => Ok(()),
    }
}

/// Returns the accounts that match a token's hint.
pub(super) fn accounts_of_hint(read: &impl Read, hint: AccountHint) -> Result<Vec<AccountId>, StoreError> {
    let (from, to) = (hint.0, after_prefix(&hint.0));
    let mut accounts = Vec::new();
    read.scan(Table::AccountsByHint, &from, &to, Order::Ascending, &mut |key, _| {
        accounts.extend(key.last_chunk::<16>().map(|account| AccountId(Ulid(*account))));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(accounts)
}
