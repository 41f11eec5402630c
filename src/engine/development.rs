//! Additions for `dev`: chosen keys and webhook secrets, domains without DNS, and accounts that can be reset (contract
//! 12.2).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Engine;
use super::accounts::{NewKey, NewKeyRefusal};
use super::audit::Behalf;
use super::endpoints::NewEndpoint;
use super::lease::Lease;
use super::listing::PageRequest;
use crate::base::id::{AccountId, DomainId, EndpointId, KeyId, MessageId, UserId};
use crate::base::secret::Secret;
use crate::domain::api_key::{ApiKey, KeySecret};
use crate::domain::hostname::DomainName;
use crate::domain::return_path::AccountHint;
use crate::domain::stream::Stream;
use crate::domain::user::User;
use crate::domain::webhook_url::WebhookUrl;
use crate::store::error::{OpError, StoreError};
use crate::store::op::domain::{AdoptDomain, DomainRefusal};
use crate::store::op::endpoint::{EndpointRefusal, RotateSecret};
use crate::store::op::erase::{EraseAccount, RawRow};
use crate::store::read::Read as _;
use crate::store::row::domain::DomainRow;
use crate::store::row::identity::IdentityRow;
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};

/// Maximum time to wait for running attempts before their account is erased. It is longer than the simulator's silence.
/// An attempt that ends later finds no row to write to.
const PATIENCE: Duration = Duration::from_secs(5);
/// All rows of a kind.
const ALL: PageRequest = PageRequest { before: None, limit: usize::MAX };

/// Additions for `dev`.
#[derive(Default)]
pub struct Development {
    chosen_keys: RwLock<Vec<KeySecret>>,
    takes_any_domain: AtomicBool,
}

impl Development {
    /// Accepts a key with this text, if the store has it.
    pub fn register_key(&self, key: KeySecret) {
        self.chosen_keys.write().unwrap_or_else(PoisonError::into_inner).push(key);
    }

    /// Returns the chosen key with this text.
    pub(super) fn chosen_key(&self, text: &str) -> Option<KeySecret> {
        let keys = self.chosen_keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|key| key.expose() == text).cloned()
    }

    /// Makes every sender domain count as verified.
    pub fn take_any_domain(&self) {
        self.takes_any_domain.store(true, Relaxed);
    }
}

/// The rows that an account keeps when it is reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenIds {
    /// API keys.
    pub keys: Vec<KeyId>,
    /// Domains.
    pub domains: Vec<DomainId>,
    /// Users of the panel.
    pub users: Vec<UserId>,
    /// Webhook endpoints.
    pub endpoints: Vec<EndpointId>,
}

impl Engine {
    /// Creates a key with a chosen secret, and accepts it.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn adopt_key(
        &self,
        account: AccountId,
        new: NewKey,
        secret: KeySecret,
    ) -> Result<ApiKey, OpError<NewKeyRefusal>> {
        let key = self.make_key_of(Behalf::operator(account), new, &secret).await?;
        self.development.register_key(secret);
        Ok(key)
    }

    /// Creates an endpoint for all events with this secret.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn give_endpoint(
        &self,
        account: AccountId,
        url: WebhookUrl,
        secret: &Secret,
    ) -> Result<EndpointId, OpError<EndpointRefusal>> {
        let new = NewEndpoint { url, events: None, description: None };
        self.create_endpoint_with(Behalf::operator(account), new, secret).await.map(|(id, _)| id)
    }

    /// Sets an endpoint's secret.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn give_secret(
        &self,
        account: AccountId,
        endpoint: EndpointId,
        secret: &Secret,
    ) -> Result<(), OpError<EndpointRefusal>> {
        let op = RotateSecret { account, endpoint, secret: self.sealed(endpoint, secret) };
        self.commit_on(Behalf::operator(account), op).await.map(drop)
    }

    /// Registers a sender's domain as verified, if all domains count as verified. Returns whether it was registered.
    pub async fn adopt_domain(&self, account: AccountId, name: &DomainName) -> bool {
        if !self.development.takes_any_domain.load(Relaxed) {
            return false;
        }
        let adopt = async {
            let (id, row) = self.new_verified_domain(account, name.clone(), Stream::Transactional).await?;
            self.store.commit(AdoptDomain { account, id, row }).await
        };
        match adopt.await {
            Ok(()) => true,
            Err(OpError::Refused(refusal)) => {
                tracing::warn!(
                    domain = %name,
                    ?refusal,
                    "could not add a sender's domain; its message is checked without it"
                );
                matches!(refusal, DomainRefusal::Exists)
            }
            Err(OpError::Failed(error)) => {
                tracing::error!(
                    %error,
                    domain = %name,
                    "could not add a sender's domain; its message is checked without it"
                );
                false
            }
        }
    }

    /// Returns the account that a message belongs to.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn account_of_message(&self, id: MessageId) -> Result<Option<AccountId>, StoreError> {
        let snapshot = self.store.snapshot()?;
        for account in self.accounts(ALL)?.rows {
            if snapshot.has(Table::Messages, &schema::message(account.id, id))? {
                return Ok(Some(account.id));
            }
        }
        Ok(None)
    }

    /// Returns the current rows of an account, including the given identifiers.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn rows_of(&self, account: AccountId, given: &GivenIds) -> Result<Vec<RawRow>, StoreError> {
        let read = self.store.snapshot()?;
        let mut rows = Vec::new();
        let mut add = |table, key: &[u8]| RawRow::read(&read, table, key).map(|row| rows.extend(row));
        add(Table::Accounts, account.as_bytes())?;
        add(Table::AccountsByHint, &schema::account_of_hint(AccountHint::of(account), account))?;
        for id in &given.keys {
            let key = schema::api_key(account, *id);
            let Some(row) = read.row::<ApiKey>(&key)? else { continue };
            add(Table::Keys, &key)?;
            add(Table::KeysByHash, &row.hash)?;
        }
        for id in &given.domains {
            let key = schema::domain(account, *id);
            let Some(row) = read.row::<DomainRow>(&key)? else { continue };
            let name = row.name.as_str().as_bytes();
            add(Table::Domains, &key)?;
            add(Table::DomainsByName, &schema::named(account, name))?;
            if read.get(Table::DomainOwners, name)?.is_some_and(|owner| owner == key) {
                add(Table::DomainOwners, name)?;
            }
        }
        for id in &given.users {
            let key = schema::owned(account, id.as_bytes());
            let Some(row) = read.row::<User>(&key)? else { continue };
            add(Table::Users, &key)?;
            add(Table::UsersByEmail, row.email.match_key().as_bytes())?;
            if let Some(identity) = read.row::<IdentityRow>(&key)? {
                add(Table::Identities, &key)?;
                add(Table::UsersByIdentity, &identity.digest())?;
            }
        }
        for id in &given.endpoints {
            add(Table::Endpoints, &schema::endpoint(account, *id))?;
        }
        Ok(rows)
    }

    /// Resets an account to `rows`; without rows the account is removed. Waits for running attempts first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn begin_again(&self, account: AccountId, rows: Vec<RawRow>) -> Result<(), StoreError> {
        let _block = self.blocked_accounts.block(account);
        let ended = tokio::time::timeout(PATIENCE, self.blocked_accounts.until_idle(account)).await;
        let _leases = self.leases_of(account).await?;
        if ended.is_err() {
            tracing::warn!(%account, "webhook request did not finish in time; erasing the account without it");
        }
        let keys: Vec<KeyId> = self.keys(account, ALL)?.rows.iter().map(|key| key.id).collect();
        loop {
            let erased = self.store.commit(EraseAccount { account, rows: rows.clone() }).await;
            match erased {
                Ok(true) => break,
                Ok(false) => {}
                Err(OpError::Failed(error)) => return Err(error),
                Err(OpError::Refused(never)) => match never {},
            }
        }
        self.rates.forget(account, &keys);
        self.smtp_refusals.forget(account);
        Ok(())
    }

    /// Returns the leases of the account's messages in flight, once their attempts have ended.
    async fn leases_of(&self, account: AccountId) -> Result<Vec<Lease>, StoreError> {
        let mut leases = Vec::new();
        for message in self.leases.leased() {
            if self.store.snapshot()?.row::<MessageRow>(&schema::message(account, message))?.is_some() {
                leases.extend(self.leases.take_within(message, PATIENCE).await);
            }
        }
        Ok(leases)
    }
}
