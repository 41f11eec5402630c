//! Accounts and their API keys: making and listing them, and who it is that shows a key.

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
use crate::store::error::{Stop, StoreError};
use crate::store::op::NotThere;
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
    /// Its name.
    pub name: String,
    /// The only stream that it may send on; both where absent.
    pub stream: Option<Stream>,
    /// Permissions of the key.
    pub scopes: Scopes,
    /// When it ceases to be valid.
    pub expires_at: Option<Timestamp>,
}

/// Why a key is not made.
#[derive(Debug)]
pub enum NewKeyRefusal {
    /// The key that asks lacks this scope.
    Scope(Scope),
    /// The key that asks is limited to this stream.
    Stream(Stream),
    /// There is no such account.
    NoSuchAccount,
    /// The account has as many active keys as it may have.
    TooMany,
}

impl Engine {
    /// Makes an account with the configuration's quota and the contract's default settings.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn create_account(
        &self,
        name: AccountName,
        time_zone: Option<TimeZoneName>,
        quota: QuotaLimits,
    ) -> Result<Account, StoreError> {
        self.create_account_by(None, name, time_zone, quota).await
    }

    /// Makes an account whose audit log begins with who made it.
    ///
    /// # Errors
    /// Those of the store.
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
            Stop::Failed(error) => error,
            Stop::Refused(never) => match never {},
        })
    }

    /// An account.
    ///
    /// # Errors
    /// Those of the store.
    pub fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        self.store.snapshot()?.row(id.as_bytes())
    }

    /// A page of all accounts.
    ///
    /// # Errors
    /// Those of the store.
    pub fn accounts(&self, page: PageRequest) -> Result<Page<Account>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, &[], page)?;
        Ok(Page { rows: rows.into_iter().map(|(_, account)| account).collect(), next })
    }

    /// Changes an account's settings or quota.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn change_account(
        &self,
        on: impl Into<Behalf>,
        change: AccountChange,
    ) -> Result<Account, Stop<NotThere>> {
        let on = on.into();
        let op = UpdateAccount { account: on.account, change };
        self.commit_on(on, op).await
    }

    /// Returns the used part of the account's quota.
    ///
    /// # Errors
    /// Those of the store.
    pub fn quota(&self, account: &Account) -> Result<QuotaView, StoreError> {
        let quota: Option<Quota> = self.store.snapshot()?.row(account.id.as_bytes())?;
        Ok(quota.unwrap_or_default().view(account.quota, self.clock.now()))
    }

    /// Makes a key that may do no more than the one of `caller` (contract 2). The secret is given out this once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_key(&self, caller: &Caller, new: NewKey) -> Result<(ApiKey, KeySecret), Stop<NewKeyRefusal>> {
        if let Some(own) = &caller.key {
            check_not_more(own, &new).map_err(Stop::Refused)?;
        }
        self.make_key(caller, new).await
    }

    /// Makes a key that may do what it is made for. The secret is given out this once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn make_key(
        &self,
        on: impl Into<Behalf>,
        new: NewKey,
    ) -> Result<(ApiKey, KeySecret), Stop<NewKeyRefusal>> {
        let secret = KeySecret::generate(&*self.entropy);
        Ok((self.make_key_of(on, new, &secret).await?, secret))
    }

    /// Makes the key with this secret.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub(super) async fn make_key_of(
        &self,
        on: impl Into<Behalf>,
        new: NewKey,
        secret: &KeySecret,
    ) -> Result<ApiKey, Stop<NewKeyRefusal>> {
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
            Err(Stop::Refused(CreateKeyRefusal::NoSuchAccount)) => Err(Stop::Refused(NewKeyRefusal::NoSuchAccount)),
            Err(Stop::Refused(CreateKeyRefusal::TooMany)) => Err(Stop::Refused(NewKeyRefusal::TooMany)),
            Err(Stop::Failed(error)) => Err(Stop::Failed(error)),
        }
    }

    /// A key of the account.
    ///
    /// # Errors
    /// Those of the store.
    pub fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.store.snapshot()?.row(&schema::api_key(account, id))
    }

    /// A page of the account's keys, revoked ones too.
    ///
    /// # Errors
    /// Those of the store.
    pub fn keys(&self, account: AccountId, page: PageRequest) -> Result<Page<ApiKey>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(_, key)| key).collect(), next })
    }

    /// Gives a key of the account another name, where one is given.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn rename_key(
        &self,
        on: impl Into<Behalf>,
        key: KeyId,
        name: Option<String>,
    ) -> Result<ApiKey, Stop<NotThere>> {
        let on = on.into();
        let op = RenameKey { account: on.account, key, name };
        self.commit_on(on, op).await
    }

    /// Revokes a key of the account, at once and for good.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn revoke_key(&self, on: impl Into<Behalf>, key: KeyId) -> Result<(), Stop<NotThere>> {
        let on = on.into();
        let op = RevokeKey { account: on.account, key };
        self.commit_on(on, op).await.map(drop)
    }

    /// The secret that this text is: of a key's form, or chosen for `dev`.
    pub(super) fn secret_of(&self, text: &str) -> Option<KeySecret> {
        text.parse().ok().or_else(|| self.development.chosen_key(text))
    }

    /// The caller that shows this text as its key; none where it is unknown, revoked or expired.
    ///
    /// # Errors
    /// Those of the store.
    pub fn authenticate(&self, text: &str) -> Result<Option<Caller>, StoreError> {
        let Some(secret) = self.secret_of(text) else { return Ok(None) };
        let owner = self.key_owner(&secret.hash())?;
        let owner = owner.filter(|caller| caller.key.as_ref().is_some_and(|key| key.is_live(self.clock.now())));
        if let Some(caller) = &owner {
            self.stamp_key(caller);
        }
        Ok(owner)
    }

    /// The key with this hash and its account, also where the key is revoked or has expired.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn key_owner(&self, hash: &[u8; 32]) -> Result<Option<Caller>, StoreError> {
        let known = self.hot_keys.get(hash, self.store.key_changes());
        let Some(HotKey { account, key, .. }) = known.map_or_else(|| self.read_key(hash), |hot| Ok(Some(hot)))? else {
            return Ok(None);
        };
        // Index and memory compare in their own time; what it found is compared again in constant time.
        Ok(bool::from(key.hash.ct_eq(hash)).then_some(Caller { account, key: Some(key) }))
    }

    /// The suspension of a caller's account. The operator is never suspended.
    ///
    /// # Errors
    /// Those of the store.
    pub fn suspension_of(&self, caller: &Caller) -> Result<Option<Arc<SuspensionRow>>, StoreError> {
        let Some(key) = &caller.key else { return Ok(None) };
        match self.hot_keys.get(&key.hash, self.store.key_changes()) {
            Some(hot) => Ok(hot.suspension),
            None => Ok(self.suspension(caller.account)?.map(Arc::new)),
        }
    }

    /// The suspension of an account. None where it is not suspended.
    ///
    /// # Errors
    /// Those of the store.
    pub fn suspension(&self, account: AccountId) -> Result<Option<SuspensionRow>, StoreError> {
        suspension(&self.store.snapshot()?, account)
    }

    /// Suspends an account: its keys and users may look, but change and send nothing, and its queue is on hold. Mail
    /// whose MAIL was written ends by its outcome. Repeating it changes the reason.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn suspend_account(&self, on: Behalf, reason: SuspensionReason) -> Result<SuspensionRow, Stop<NotThere>> {
        let op = SuspendAccount { account: on.account, reason };
        self.commit_on(on, op).await
    }

    /// Resumes a suspended account: its queue and its webhooks continue. May be repeated.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn resume_account(&self, on: Behalf) -> Result<(), Stop<NotThere>> {
        let account = on.account;
        self.commit_on(on, ResumeAccount { account }).await?;
        if let Some(view) = self.queue_view() {
            view.wake(account);
        }
        Ok(())
    }

    /// Has the use of a caller's key written down, where the last one is a minute old.
    pub(super) fn stamp_key(&self, caller: &Caller) {
        let now = self.clock.now();
        if let Some(key) = &caller.key
            && key.needs_use_stamp(now)
        {
            self.stamp_use(caller.account, key.id, now);
        }
    }

    /// The key with this hash, as the store has it, remembered from now on.
    fn read_key(&self, hash: &[u8; 32]) -> Result<Option<HotKey>, StoreError> {
        // Which key a hash belongs to never changes; how the key stands is read after its stamp is taken.
        let Some((account, found)) = key_by_hash(&self.store.snapshot()?, hash)? else { return Ok(None) };
        let stamp = self.store.key_changes().stamp(account, found.id);
        let snapshot = self.store.snapshot()?;
        let Some(key) = snapshot.row::<ApiKey>(&schema::api_key(account, found.id))? else { return Ok(None) };
        let suspension = suspension(&snapshot, account)?.map(Arc::new);
        let hot = HotKey { account, key: Arc::new(key), suspension, stamp };
        self.hot_keys.put(hot.clone());
        Ok(Some(hot))
    }

    /// Has the key's use written down without waiting for it: an answer never waits for a stamp.
    fn stamp_use(&self, account: AccountId, key: KeyId, at: Timestamp) {
        if !self.being_stamped.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return;
        }
        let being_stamped = Arc::clone(&self.being_stamped);
        self.store.post(TouchKey { account, key, at }, move |_written| {
            // Unwritten, the next use tries again.
            being_stamped.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
    }
}

/// Holds a new key to what the asking one may do itself.
fn check_not_more(own: &ApiKey, new: &NewKey) -> Result<(), NewKeyRefusal> {
    if let Some(lacking) = new.scopes.as_list().into_iter().find(|scope| !own.scopes.contains(*scope)) {
        return Err(NewKeyRefusal::Scope(lacking));
    }
    match own.stream {
        Some(stream) if new.stream != Some(stream) => Err(NewKeyRefusal::Stream(stream)),
        Some(_) | None => Ok(()),
    }
}

/// The accounts that a token's hint may mean.
pub(super) fn accounts_of_hint(read: &impl Read, hint: AccountHint) -> Result<Vec<AccountId>, StoreError> {
    let (from, to) = (hint.0, after_prefix(&hint.0));
    let mut accounts = Vec::new();
    read.scan(Table::AccountsByHint, &from, &to, Order::Ascending, &mut |key, _| {
        accounts.extend(key.last_chunk::<16>().map(|account| AccountId(Ulid(*account))));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(accounts)
}
