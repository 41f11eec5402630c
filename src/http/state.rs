//! State that the handlers share: the engine, and configuration that only the API needs. It is the [`Authenticator`] of
//! their requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::body_budget::{BodyBudgets, BudgetHolder, Charge, ExcessPolicy};
use super::dev::Dev;
use super::error::ApiError;
use super::sent_forms::SentForms;
use super::service::{Admission, Authenticator};
use super::status::StatusSources;
use crate::base::id::AccountId;
use crate::domain::account::Account;
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageRecord;
use crate::engine::rates::RequestLimits;
use crate::engine::{Caller, Engine};
use crate::net::http_client::Client;
use crate::net::network_guard::Guard;
use crate::store::error::StoreError;

/// The state of the API.
pub struct Api {
    /// The engine, which the handlers call.
    pub engine: Arc<Engine>,
    /// Decides which addresses a webhook's URL may have.
    pub guard: Arc<Guard>,
    /// Parts that `dev` adds; `None` in `serve`.
    pub dev: Option<Arc<Dev>>,
    /// Maximum size of a request's body in bytes (`limits.body_bytes`).
    pub body_bytes: usize,
    /// The memory budget of bodies and of stored messages that are read.
    pub budgets: Arc<BodyBudgets>,
    /// The source of the status, set once the service runs.
    pub status: OnceLock<StatusSources>,
    /// Forms of the panel whose answer showed a secret.
    pub sent_forms: SentForms,
    is_shutting_down: AtomicBool,
}

impl Api {
    /// Creates the state over an engine.
    pub fn new(
        engine: Arc<Engine>,
        guard: Arc<Guard>,
        body_bytes: usize,
        budgets: Arc<BodyBudgets>,
        dev: Option<Arc<Dev>>,
    ) -> Self {
        Self {
            engine,
            guard,
            dev,
            body_bytes,
            budgets,
            status: OnceLock::new(),
            sent_forms: SentForms::default(),
            is_shutting_down: AtomicBool::new(false),
        }
    }

    /// Makes `/readyz` report the shutdown from now on, and ends the event streams, which would otherwise never end.
    pub fn shut_down(&self) {
        self.is_shutting_down.store(true, Relaxed);
        self.engine.streams.end();
        if let Some(dev) = &self.dev {
            dev.capture.end_waits();
        }
    }

    /// Passes the signed message to `use_it` and returns the result, or `None` if its content has expired.
    ///
    /// # Errors
    /// [`ApiError::Internal`] if the content is damaged; errors of the store.
    pub(crate) async fn content<T: Send + 'static>(
        &self,
        account: AccountId,
        record: &MessageRecord,
        use_it: impl FnOnce(Vec<u8>) -> T + Send + 'static,
    ) -> Result<Option<T>, ApiError> {
        self.engine.content(account, record, use_it).await.map_err(|error| match error {
            // The store works; only this message is unreadable.
            StoreError::Content(fault) => {
                tracing::error!(
                    message_id = %record.id,
                    fault,
                    "could not read the content of a message; the request failed"
                );
                ApiError::Internal
            }
            error => error.into(),
        })
    }

    /// Returns the signed message, and `None` once its content has expired. The account is charged for the bytes before
    /// they are read, so that many requests for a large message take no more memory than their answers may.
    ///
    /// # Errors
    /// [`ApiError::Overloaded`] if the account's share has no room; otherwise as [`Self::content`].
    pub(crate) async fn signed_message(
        &self,
        account: AccountId,
        record: &MessageRecord,
    ) -> Result<Option<Vec<u8>>, ApiError> {
        let bytes = usize::try_from(record.row.size_bytes).unwrap_or(usize::MAX);
        let charge = Charge::of_answer(&self.budgets, BudgetHolder::Account(account), bytes, ExcessPolicy::Refuse)?;
        let read = move |signed| {
            // The read continues even if its request has ended.
            let _charge = charge;
            signed
        };
        self.content(account, record, read).await
    }

    /// Checks that the service accepts new work.
    ///
    /// # Errors
    /// The 503 with the reason.
    pub(crate) fn check_ready(&self) -> Result<(), ApiError> {
        // A client of `dev` that waits for readiness then uses the first account.
        let is_starting = self.dev.as_ref().is_some_and(|dev| !dev.given.have_begun());
        if is_starting || self.is_shutting_down.load(Relaxed) {
            return Err(ApiError::ShuttingDown);
        }
        let store = &self.engine.store;
        if store.health().failure().is_some() {
            return Err(ApiError::StorageFailed);
        }
        if self.engine.replication.get().is_some_and(|replication| !replication.is_ready()) {
            return Err(ApiError::ReplicaUnavailable);
        }
        if store.free_bytes()? < self.engine.settings.min_free_bytes {
            return Err(ApiError::StorageFull);
        }
        Ok(())
    }

    /// Counts `more` requests of the caller in addition to the one counted already. If they exceed the limit, that one
    /// is uncounted too. `None` for the operator, who has no limit.
    pub(super) fn admit_more(&self, caller: &Caller, more: usize) -> Option<Admission> {
        let key = caller.key.as_ref()?;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Engine { rates, settings, clock, .. } = &*self.engine;
        let limits = RequestLimits { key: settings.requests_per_minute, account: settings.account_requests_per_minute };
        let counted = rates.admit_more(caller.account, key.id, limits, more, clock.monotonic());
        let (view, refused) = match counted {
            Ok(view) => (view, None),
            Err(limited) => (limited.view, Some(limited.retry_after_secs)),
        };
        Some(Admission { left: view.remaining.into(), reset_s: view.reset_secs, refused })
    }

    /// Returns the account of a caller. It exists, since its key or name was found.
    pub(super) fn account_of(&self, caller: &Caller) -> Result<Account, ApiError> {
        self.engine.account(caller.account)?.ok_or(ApiError::Internal)
    }

    /// Returns the only account, for commands without one.
    fn only_account(&self) -> Result<AccountId, ApiError> {
        let accounts = self.engine.accounts(PageRequest { before: None, limit: 2 })?.rows;
        match accounts.as_slice() {
            [only] => Ok(only.id),
            [] => Err(Violations::of("account", "is required, but no account exists yet; create one first").into()),
            _ => Err(Violations::of("account", "is required, because there are several accounts").into()),
        }
    }
}

impl Authenticator for Api {
    type Caller = Caller;

    async fn authenticate(&self, key: &str) -> Result<Option<Caller>, ApiError> {
        Ok(self.engine.authenticate(key)?)
    }

    async fn operator(&self, account: Option<&str>) -> Result<Caller, ApiError> {
        let account = match account {
            Some(named) => {
                let id = named.parse().map_err(|_| ApiError::NotFound)?;
                self.engine.account(id)?.ok_or(ApiError::NotFound)?.id
            }
            None => self.only_account()?,
        };
        Ok(Caller { account, key: None })
    }

    fn account(&self, caller: &Caller) -> AccountId {
        caller.account
    }

    fn is_dev_client(&self, client: Client) -> bool {
        let is_allowed = |address| self.dev.as_ref().is_some_and(|dev| dev.lets_in(address));
        client.is_loopback() || (!client.is_forwarded && client.address.is_some_and(is_allowed))
    }

    fn may(&self, caller: &Caller, scope: Scope) -> bool {
        caller.key.as_ref().is_none_or(|key| key.scopes.contains(scope))
    }

    fn check_suspension(&self, caller: &Caller) -> Result<(), ApiError> {
        match self.engine.suspension_of(caller)? {
            Some(suspension) => Err(ApiError::AccountSuspended(suspension.reason.as_str().to_owned())),
            None => Ok(()),
        }
    }

    async fn check_replica(&self) -> Result<(), ApiError> {
        match self.engine.may_accept().await {
            true => Ok(()),
            false => Err(ApiError::ReplicaUnavailable),
        }
    }

    fn admit(&self, caller: &Caller) -> Admission {
        let engine = &self.engine;
        let limit = engine.settings.requests_per_minute;
        let limits = RequestLimits::of(&engine.settings);
        let now = engine.clock.monotonic();
        let Some(key) = &caller.key else { return Admission { left: limit.into(), reset_s: 0, refused: None } };
        let (view, refused) = match engine.rates.admit(caller.account, key.id, limits, now) {
            Ok(view) => (view, None),
            Err(limited) => (limited.view, Some(limited.retry_after_secs)),
        };
        Admission { left: view.remaining.into(), reset_s: view.reset_secs, refused }
    }
}
