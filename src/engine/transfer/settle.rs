//! Last checks before a message is sent, and the recording of its outcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Shared;
use super::failed_attempt::route_failed;
use super::paused::is_paused;
use super::relays::Number;
use super::site::Site;
use crate::base::entropy;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::event::AttemptFacts;
use crate::engine::backlog::BacklogItem;
use crate::engine::lease::Lease;
use crate::engine::ports::RouteFailure;
use crate::engine::suppressed_messages::Leased;
use crate::machine::destination::QueuedMessage;
use crate::smtp::finding;
use crate::store::Store;
use crate::store::error::{OpError, StoreError};
use crate::store::op::outcomes;
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::op::suppression;
use crate::store::op::suspension::suspension;
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema;
use crate::store::timer::Timer;

/// Delay after which a message that could not be read is checked again.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Pause before an outcome is recorded again; tests do not wait for it.
const RECORD_AGAIN: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 60_000 });

/// State of a leased message's rows.
pub(super) enum LeasedRows {
    /// The message must be sent.
    Send(Box<MessageRow>),
    /// The message ends without an attempt.
    Settle(TransferEnd),
    /// The account has paused its mail for the site, or is suspended.
    Paused,
    /// The timer is stale.
    Stale,
}

/// A message in progress, whose outcome is not recorded yet.
pub(super) struct Unsettled {
    pub(super) queued: QueuedMessage,
    /// Guard that counts the message as work in memory, from MAIL on.
    pub(super) held: Option<BacklogItem>,
    /// Lease: reserved until MAIL, then exclusive.
    pub(super) lease: Option<Lease>,
    /// Transcript of a failed attempt.
    pub(super) transcript: Option<String>,
}

impl Shared {
    /// Reads the rows of a leased message: whether it must still be sent, and whether it may go to the site that it
    /// waits for.
    pub(super) fn look(&self, queued: &QueuedMessage, site: Option<&Site>) -> Result<LeasedRows, StoreError> {
        let engine = &self.engine;
        // Mail sent now could not be recorded, and would be sent again.
        if let Some(failure) = engine.store.health().failure() {
            return Err(failure.clone());
        }
        let snapshot = engine.store.snapshot()?;
        let key = schema::message(queued.place.account, queued.place.id);
        let transfer = snapshot.row::<TransferRow>(&key)?;
        let Some(transfer) = transfer.filter(|transfer| transfer.due == Some(queued.place.due)) else {
            return Ok(LeasedRows::Stale);
        };
        // A report ended the message while it was in flight, and the process ended before it recorded the outcome.
        if !transfer.state.status().is_waiting() {
            return Ok(LeasedRows::Settle(TransferEnd::Over));
        }
        let Some(row) = snapshot.row::<MessageRow>(&key)? else { return Ok(LeasedRows::Stale) };
        if suppression::is_suppressed(&snapshot, queued.place.account, &row.to)? {
            return Ok(LeasedRows::Settle(TransferEnd::Suppressed));
        }
        if self.expiry() >= row.give_up_at {
            return Ok(LeasedRows::Settle(TransferEnd::GaveUp(finding::expired())));
        }
        if suspension(&snapshot, queued.place.account)?.is_some() {
            return Ok(LeasedRows::Paused);
        }
        let is_paused = |site: &Site| is_paused(&snapshot, queued.place.account, &site.name(), &row.to);
        if site.map(is_paused).transpose()? == Some(true) {
            return Ok(LeasedRows::Paused);
        }
        Ok(LeasedRows::Send(Box::new(row)))
    }

    /// Settles a message that needs no connection: it has expired, or its domain can't be reached.
    pub(super) fn settle_unsent(self: &Arc<Self>, queued: QueuedMessage, why: Unsent) {
        let Some(lease) = self.leases.take(queued.place.id) else { return self.give_back_when_free(queued) };
        let unsettled = Unsettled { queued, held: None, lease: Some(lease), transcript: None };
        match (self.look(&queued, None), why) {
            (Ok(LeasedRows::Settle(end)), _) => unsettled.settle(self, end, AttemptFacts::default()),
            (Ok(LeasedRows::Send(_) | LeasedRows::Paused), Unsent::Late) => unsettled.expired(self),
            (Ok(LeasedRows::Send(_)), Unsent::NoRoute(relay, failure)) => {
                let relay = Some(self.relays.relay(relay).name.to_string());
                let facts = AttemptFacts { relay, duration_ms: Some(0), ..AttemptFacts::default() };
                unsettled.settle(self, route_failed(&failure, self.now()), facts);
            }
            (Ok(LeasedRows::Paused), Unsent::NoRoute(..)) => {
                drop(unsettled);
                self.hold_paused(queued, None);
            }
            (Ok(LeasedRows::Stale), _) => self.timers().forget(&Timer::of_message(&queued)),
            (Err(error), _) => unsettled.unreadable(self, error),
        }
    }

    /// Gives the message's timer back once nobody has the message's lease. The timer is due, and would otherwise fire
    /// repeatedly until then. If an operation ended the message, it has removed the timer. If the clock was set back
    /// while a worker waited, the worker has the lease, and its message has a new timer.
    pub(super) fn give_back_when_free(self: &Arc<Self>, queued: QueuedMessage) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            shared.leases.is_free(queued.place.id).await;
            shared.timers().give_back(Timer::of_message(&queued));
        });
    }

    /// Returns the provider that runs this server. Outcomes are counted by provider.
    fn provider_of(&self, host: &str) -> String {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        self.shaping.provider_of(&[name]).unwrap_or(outcomes::OTHER).to_owned()
    }

    /// Returns the other waiting messages to the address, if this outcome suppresses it.
    pub(super) fn others(&self, queued: &QueuedMessage, to: &Address, end: &TransferEnd) -> Leased {
        if !matches!(end, TransferEnd::Bounced(bounce) if bounce.suppressed) {
            return Leased::default();
        }
        self.engine.lease_waiting(queued.place.account, [to]).unwrap_or_else(|error| {
            // The other messages still end, each one before its next attempt.
            tracing::error!(%error, "could not find other messages to a suppressed address; each ends later");
            Leased::default()
        })
    }

    /// Postpones a message to `until`, without an attempt; the time is stored in a row.
    pub(super) fn postpone(self: &Arc<Self>, queued: QueuedMessage, until: Timestamp) {
        let unsettled = Unsettled { queued, held: None, lease: None, transcript: None };
        unsettled.settle(self, TransferEnd::Postponed { until }, AttemptFacts::default());
    }
}

/// Reason why a message needs no connection.
pub(super) enum Unsent {
    /// The message has expired.
    Late,
    /// The domain has no mail server that this relay could use.
    NoRoute(Number, RouteFailure),
}

impl Unsettled {
    /// Makes the lease exclusive. Returns false if an operation has taken it.
    pub(super) fn begin(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::begin)
    }

    /// Commits the outcome without waiting for it; the lease lasts until it is committed.
    pub(super) fn settle(self, shared: &Shared, end: TransferEnd, facts: AttemptFacts) {
        let op = self.operation(shared, end, facts, Vec::new());
        self.post(shared, op, || {});
    }

    /// Commits the outcome like [`Self::settle`], and also ends `others`: the messages to the address `to`, which this
    /// outcome suppresses.
    pub(super) fn settle_with(
        self,
        shared: &Shared,
        end: TransferEnd,
        facts: AttemptFacts,
        others: Leased,
        to: Address,
    ) {
        let account = self.queued.place.account;
        let Leased { messages, leases, is_full } = others;
        let op = self.operation(shared, end, facts, messages);
        let (engine, runtime) = (Arc::clone(&shared.engine), Handle::current());
        self.post(shared, op, move || {
            drop(leases);
            if is_full {
                runtime.spawn(async move { engine.end_waiting(account, &[to]).await });
            }
        });
    }

    fn operation(
        &self,
        shared: &Shared,
        end: TransferEnd,
        facts: AttemptFacts,
        others: Vec<MessageId>,
    ) -> SettleTransfer {
        let (account, message, due) = (self.queued.place.account, self.queued.place.id, self.queued.place.due);
        let provider = facts.mx_host.as_deref().map(|host| shared.provider_of(host));
        let random = entropy::bytes(&*shared.engine.entropy);
        let transcript = self.transcript.clone();
        SettleTransfer { account, message, due, end, facts, provider, random, transcript, others }
    }

    /// Posts the outcome. If that fails, posts only the message's end, so that an accepted message is not sent again
    /// because of a damaged row of another kind.
    fn post(mut self, shared: &Shared, op: SettleTransfer, then: impl FnOnce() + Send + 'static) {
        self.held.get_or_insert_with(|| shared.backlog.hold());
        let (facts, others) = (AttemptFacts::default(), Vec::new());
        let bare = SettleTransfer { end: op.end.clone(), facts, provider: None, transcript: None, others, ..op };
        let (store, runtime) = (Arc::clone(&shared.engine.store), Handle::current());
        shared.engine.store.post(op, move |answer| match answer {
            Ok(_) => {
                drop(self);
                then();
            }
            Err(OpError::Refused(never)) => match never {},
            Err(OpError::Failed(error)) => {
                tracing::error!(%error, "could not record the details of an outcome; recording only its result");
                self.post_bare(store, runtime, bare);
            }
        });
    }

    /// Posts a bare outcome every minute until it is recorded. The message stays leased, so it is not sent meanwhile.
    fn post_bare(self, store: Arc<Store>, runtime: Handle, op: SettleTransfer) {
        let (again, later) = (op.clone(), Arc::clone(&store));
        store.post(op, move |answer| match answer {
            Ok(_) => drop(self),
            Err(OpError::Refused(never)) => match never {},
            // A failed store records nothing any more: the attempt is repeated after the restart.
            Err(OpError::Failed(error)) if later.health().failure().is_some() => {
                tracing::error!(%error, "could not record an outcome; its attempt is repeated after the restart");
                later.timers().forget(&Timer::of_message(&self.queued));
            }
            Err(OpError::Failed(error)) => {
                tracing::error!(%error, "could not record an outcome; retrying in a minute");
                let next = runtime.clone();
                runtime.spawn(async move {
                    tokio::time::sleep(RECORD_AGAIN).await;
                    self.post_bare(later, next, again);
                });
            }
        });
    }

    /// The message or its content has expired.
    pub(super) fn expired(self, shared: &Shared) {
        self.settle(shared, TransferEnd::GaveUp(finding::expired()), AttemptFacts::default());
    }

    /// The content can't be read from the disk. This does not count as an attempt, and may pass.
    pub(super) fn content_unreadable(self, shared: &Shared, error: &StoreError) {
        tracing::error!(
            message_id = %self.queued.place.id, %error,
            "could not read the content of a message; trying again every minute for an hour, then the message fails"
        );
        self.settle(shared, TransferEnd::Unreadable, AttemptFacts::default());
    }

    /// A damaged row stays damaged. Any other error may pass, and does not count as an attempt.
    pub(super) fn unreadable(mut self, shared: &Shared, error: StoreError) {
        let message = self.queued.place.id;
        match error {
            StoreError::Row { .. } | StoreError::Damaged { .. } | StoreError::Panicked => {
                tracing::error!(message_id = %message, %error, "could not read a message; deferring it");
                self.settle(shared, TransferEnd::Crashed, AttemptFacts::default());
            }
            error => {
                tracing::error!(message_id = %message, %error, "could not read a message; retrying in a minute");
                self.lease = None;
                let until = shared.now() + UNREADABLE;
                self.settle(shared, TransferEnd::Postponed { until }, AttemptFacts::default());
            }
        }
    }
}
