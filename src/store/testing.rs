//! Helpers for tests of the store: a store in a temporary directory, with a settable clock and repeatable randomness.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::content::Place;
use super::error::OpError;
use super::job::{Answer, Job, Urgency};
use super::op::Op;
use super::op::accept::{Accept, Accepted};
use super::op::account::CreateAccount;
use super::op::admission::{IdempotencyClaim, Refusal};
use super::op::domain::CreateDomain;
use super::op::endpoint::CreateEndpoint;
use super::op::settle_transfer::{SettleTransfer, TransferEnd};
use super::open::{OnJournalDamage, OpenError, ReplicaStart, StartOptions, StoreEnvironment};
use super::read::Read;
use super::row::Row;
use super::row::domain::DomainRow;
use super::row::endpoint::EndpointRow;
use super::row::message::{MessageRow, TransferRow};
use super::schema::{self, Table};
use super::snapshot::Snapshot;
use super::{Store, timer};
use crate::base::entropy::{self, SeededEntropy};
use crate::base::id::{AccountId, DomainId, EndpointId, MessageId, Ulid};
use crate::base::secret::SealedSecret;
use crate::base::time::Timestamp;
use crate::domain::account::{Account, QuotaLimits};
use crate::domain::event::{AttemptFacts, EventType};
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::machine::{endpoint, retention};

/// Time at which every test begins: the start of a UTC hour.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000 / 3_600_000 * 3_600_000);

/// A store for one test.
pub(crate) struct TestStore {
    store: Option<Store>,
    now: Arc<AtomicU64>,
    /// Milliseconds of monotonic time.
    passed: Arc<AtomicU64>,
    seed: u64,
    pub(super) replica: Option<ReplicaStart>,
    directory: tempfile::TempDir,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        let mut made = Self::closed_in(tempfile::tempdir().unwrap(), 0);
        made.open().unwrap();
        made
    }

    /// Opens the existing store in `directory`.
    pub(super) fn in_directory(directory: tempfile::TempDir) -> Self {
        Self::try_in_directory(directory, OnJournalDamage::Refuse).unwrap()
    }

    /// Opens the existing store in `directory`, or returns the error.
    pub(super) fn try_in_directory(
        directory: tempfile::TempDir,
        on_damage: OnJournalDamage,
    ) -> Result<Self, OpenError> {
        let mut made = Self::closed_in(directory, 1000);
        made.open_with(on_damage)?;
        Ok(made)
    }

    /// Returns the error of opening the store in `directory`, and the directory.
    pub(super) fn refused_in_directory(
        directory: tempfile::TempDir,
        on_damage: OnJournalDamage,
    ) -> (tempfile::TempDir, OpenError) {
        let mut made = Self::closed_in(directory, 1000);
        let error = made.open_with(on_damage).expect_err("the store opened");
        (std::mem::replace(&mut made.directory, tempfile::tempdir().unwrap()), error)
    }

    fn closed_in(directory: tempfile::TempDir, seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(START.as_millis()));
        Self { store: None, now, passed: Arc::default(), seed, replica: None, directory }
    }

    /// Returns the inputs of the store. Each opening gets different randomness.
    pub(super) fn surroundings(&mut self) -> StoreEnvironment {
        self.seed += 1;
        let now = Arc::clone(&self.now);
        StoreEnvironment {
            now: Arc::new(move || Timestamp::from_millis(now.load(Ordering::SeqCst)).into()),
            entropy: Arc::new(SeededEntropy::new(self.seed)),
        }
    }

    pub(super) fn open(&mut self) -> Result<(), OpenError> {
        self.open_with(OnJournalDamage::Refuse)
    }

    fn open_with(&mut self, on_journal_damage: OnJournalDamage) -> Result<(), OpenError> {
        let (surroundings, passed) = (self.surroundings(), Arc::clone(&self.passed));
        let monotonic = Arc::new(move || Duration::from_millis(passed.load(Ordering::SeqCst)));
        let options = StartOptions { on_journal_damage, monotonic, replica: self.replica, ..StartOptions::default() };
        self.store = Some(Store::open_within(self.directory.path(), surroundings, Duration::ZERO, options)?);
        Ok(())
    }

    /// Closes the store and releases the directory.
    pub(super) fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close();
        }
    }

    /// Writes a row directly.
    pub(super) fn write<R: Row>(&self, key: &[u8], row: &R) {
        self.put(R::TABLE, key, Some(&row.encode()));
    }

    /// Writes bytes directly, or removes the row.
    pub(crate) fn put(&self, table: Table, key: &[u8], value: Option<&[u8]>) {
        // Acknowledged batches may not be in the database yet; a snapshot waits for them.
        drop(self.snapshot());
        let transaction = self.store().database.begin_write().unwrap();
        let mut changes = super::changes::Changes::default();
        changes.put(table, key.to_vec(), value.map(<[u8]>::to_vec));
        changes.write_to(&transaction).unwrap();
        transaction.commit().unwrap();
    }

    pub(super) fn reopen(&mut self) {
        self.close();
        self.open().unwrap();
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.now.store(now.as_millis(), Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.passed.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        self.set_now(self.now() + time);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.store().snapshot().unwrap()
    }

    pub(crate) fn row<R: Row>(&self, key: &[u8]) -> R {
        self.snapshot().row(key).unwrap().unwrap()
    }

    /// Returns the number of keys that begin with `prefix`.
    pub(crate) fn count(&self, table: Table, prefix: &[u8]) -> usize {
        self.keys(table, prefix).len()
    }

    pub(crate) fn keys(&self, table: Table, prefix: &[u8]) -> Vec<Vec<u8>> {
        let end = super::read::after_prefix(prefix);
        self.snapshot().keys(table, prefix, &end, super::read::Order::Ascending, usize::MAX).unwrap()
    }

    /// Returns the timers of one kind in the table.
    pub(crate) fn timers(&self, kind: timer::TimerKind) -> Vec<timer::Timer> {
        let timers = self.keys(Table::Timers, &[]).into_iter().filter_map(|key| timer::Timer::decode(&key));
        timers.filter(|timer| timer.kind == kind).collect()
    }

    /// Commits `op` and returns its answer.
    pub(crate) fn commit<O: Op>(&self, op: O) -> Answer<O> {
        let (sender, receiver) = mpsc::channel();
        let done = move |answer| drop(sender.send(answer));
        self.store().enqueue(Job::new(op, Urgency::Awaited, done));
        receiver.recv().unwrap()
    }

    /// Commits an operation that must not be refused.
    pub(crate) fn done<O: Op>(&self, op: O) -> O::Reply {
        match self.commit(op) {
            Ok(reply) => reply,
            Err(OpError::Refused(_)) => panic!("the operation was refused"),
            Err(OpError::Failed(error)) => panic!("the store failed: {error}"),
        }
    }

    pub(crate) fn account(&self, quota: QuotaLimits) -> AccountId {
        let account = Account::new(AccountId::default(), "Example".parse().unwrap(), quota, START);
        self.done(CreateAccount { account, by: None }).id
    }

    pub(crate) fn domain(&self, account: AccountId, name: &str, stream: Stream, status: DomainStatus) -> DomainId {
        let id = DomainId(self.fresh_id());
        let row = domain_row(name, stream, status);
        self.done(CreateDomain { account, id, row });
        id
    }

    pub(crate) fn endpoint(&self, account: AccountId, events: Option<&[EventType]>) -> EndpointId {
        let id = EndpointId(self.fresh_id());
        self.done(CreateEndpoint { account, id, row: endpoint_row(events) });
        id
    }

    fn fresh_id(&self) -> Ulid {
        Ulid::new(self.now(), entropy::bytes(&**self.store().entropy()))
    }

    /// Creates an account with a verified transactional domain `example.com`.
    pub(crate) fn sender(&self) -> Sender<'_> {
        self.sender_with(QuotaLimits::default())
    }

    pub(crate) fn sender_with(&self, quota: QuotaLimits) -> Sender<'_> {
        let account = self.account(quota);
        let domain = self.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified);
        Sender { test: self, account, domain }
    }
}

impl Store {
    /// Makes the store fail as if its writer had panicked.
    pub(crate) fn fail_in_writer(&self) {
        drop(self.health.watch("writer", || -> Result<(), _> { panic!("a damaged page") }));
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a sending domain.
pub(crate) fn domain_row(name: &str, stream: Stream, status: DomainStatus) -> DomainRow {
    DomainRow { status, ..DomainRow::new(name.parse().unwrap(), stream, START) }
}

/// Returns a webhook endpoint for `events`, or for all events.
pub(super) fn endpoint_row(events: Option<&[EventType]>) -> EndpointRow {
    EndpointRow {
        url: "https://hooks.example/".to_owned(),
        events: events.map(<[EventType]>::to_vec),
        description: None,
        secret: SealedSecret(Vec::new()),
        state: endpoint::State::default(),
        failed: Vec::new(),
        last_success_at: None,
        last_failure_at: None,
        created_at: START,
        updated_at: START,
    }
}

/// Returns a message to `to`, accepted at `now`.
pub(crate) fn message_row(domain: DomainId, to: &str, now: Timestamp) -> MessageRow {
    let day = Duration::from_secs(24 * 3600);
    MessageRow {
        domain,
        stream: Stream::Transactional,
        from: "a@example.com".parse().unwrap(),
        from_name: None,
        to: to.parse().unwrap(),
        subject: Some("Grüße".to_owned()),
        metadata: BTreeMap::from([("order".to_owned(), "42".to_owned())]),
        unsubscribe_url: None,
        created_at: now,
        expires_at: None,
        give_up_at: now + 2 * day,
        content_expires_at: now + 30 * day,
        key: None,
        selectors: Vec::new(),
        size_bytes: 1000,
        place: Place::unknown(retention::Bucket { end: now + 30 * day }.end),
        return_path: "b+x@bounces.example".to_owned(),
        eight_bit: false,
        smtputf8: false,
        waives_tls: false,
        is_raw: false,
        text_ends_line: false,
        html_ends_line: false,
        submission: None,
    }
}

/// A sender: an account with a verified domain.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    test: &'a TestStore,
    pub(crate) account: AccountId,
    pub(crate) domain: DomainId,
}

impl<'a> Sender<'a> {
    /// Returns a sender for `account` from `domain`.
    pub(crate) const fn of(test: &'a TestStore, account: AccountId, domain: DomainId) -> Self {
        Self { test, account, domain }
    }

    /// Returns the operation that accepts a message from `a@example.com`. No body is written for it.
    pub(crate) fn message(&self, to: &str) -> Accept {
        let now = self.test.now();
        let id = self.test.store().reserve_message_id(now);
        let message = message_row(self.domain, to, now);
        let answer = format!("{{\"id\":\"{id}\"}}").into_bytes();
        Accept { account: self.account, key_stream: None, id, message, answer, idempotency: None, stored_bytes_max: 0 }
    }

    /// Accepts a message.
    pub(crate) fn accept(&self, to: &str) -> MessageId {
        let accept = self.message(to);
        let id = accept.id;
        assert!(!self.test.done(accept).is_replay);
        id
    }

    /// Accepts a message with a body whose deadline is `hours` after the start.
    pub(crate) fn accept_with_body(&self, to: &str, hours: u64, body: &[u8]) -> MessageId {
        let mut accept = self.message(to);
        let (id, end) = (accept.id, START + Duration::from_secs(3600 * hours));
        accept.message.content_expires_at = end;
        let store = self.test.store();
        let sealed = store.content().seal(end, id, body.to_vec());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let committed = runtime.block_on(store.commit_with_body(store.announce(), sealed, move |place| {
            accept.message.place = place;
            accept
        }));
        assert!(committed.is_ok());
        id
    }

    /// Serves the timer of a message.
    pub(crate) fn settle(&self, message: MessageId, end: TransferEnd) {
        let due = self.test.row::<TransferRow>(&self.key(message)).due.unwrap_or_default();
        let facts = AttemptFacts::default();
        let (account, others) = (self.account, Vec::new());
        self.test.done(SettleTransfer {
            account,
            message,
            due,
            end,
            facts,
            provider: None,
            random: [0; 4],
            others,
            transcript: None,
        });
    }

    /// Accepts a message with an idempotency key.
    pub(crate) fn accept_once(&self, to: &str, key: u8, body: u8) -> Result<Accepted, Refusal> {
        let claim = IdempotencyClaim { key_hash: [key; 32], body_hash: [body; 32] };
        self.test.answer_of(Accept { idempotency: Some(claim), ..self.message(to) })
    }

    /// Returns the key of a message's rows.
    pub(crate) fn key(&self, message: MessageId) -> [u8; 32] {
        schema::message(self.account, message)
    }
}

impl TestStore {
    /// Returns the result of accepting. Panics if the store failed.
    pub(crate) fn answer_of(&self, accept: Accept) -> Result<Accepted, Refusal> {
        self.commit(accept).map_err(|stop| match stop {
            OpError::Refused(refusal) => refusal,
            OpError::Failed(error) => panic!("the store failed: {error}"),
        })
    }
}
