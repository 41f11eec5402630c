//! The one place that names tables and builds their keys.
//!
//! Keys begin with the account, so that another tenant's row can't be reached by a forgotten check, and go on with
//! identifiers, which sort by time: new rows land at the end of their account's range. All integers are big-endian,
//! so bytes compare like the values they stand for.

pub mod meta;
mod original_id;
pub use original_id::{message_by_original_id, messages_by_original_id};

use redb::{Database, ReadableDatabase as _, TableDefinition, TableHandle as _, WriteTransaction};

use crate::base::id::{
    AccountId, ChangeId, DeliveryId, DomainId, EndpointId, EventId, KeyId, MessageId, SuppressionId, Ulid, UserId,
};
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::hostname::DomainName;
use crate::domain::return_path::AccountHint;
use crate::domain::stream::Stream;

use super::error::StoreError;
use super::row::tls_policy::PolicyType;

/// The format of the whole store. A store of a newer format is refused.
pub const FORMAT: u32 = 2;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A table of the store.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Table {$($(#[$doc])* $name,)*}

        impl Table {
            /// Every table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name in the file. Never changed, never used again for something else.
            pub const fn name(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }
        }
    };
}

tables! {
    /// Facts about the store itself: format, last identifiers.
    Meta = "meta";
    /// account → settings and quota limits.
    Accounts = "accounts";
    /// hint of the account, account → nothing: whose a return path may be.
    AccountsByHint = "accounts_by_hint";
    /// account, key → API key.
    Keys = "keys";
    /// SHA-256 of the secret → account, key.
    KeysByHash = "keys_by_hash";
    /// account, domain → sending domain with its sealed DKIM keys.
    Domains = "domains";
    /// account, name → domain.
    DomainsByName = "domains_by_name";
    /// name → account and domain: who has it verified.
    DomainOwners = "domain_owners";
    /// account, message → what was accepted; written once.
    Messages = "messages";
    /// account, message → how far its transfer is.
    Transfers = "transfers";
    /// account, last message of a block → what the block's messages may be found by.
    MessageIndex = "message_index";
    /// account, digest of the client's Message-ID, message → nothing.
    MessagesByOriginalId = "messages_by_original_id";
    /// account, message, event → the event's JSON bytes; written once, kept with the message.
    Timeline = "timeline";
    /// account, message, event → what was said in the attempt that failed: text, kept as long as the event log's event.
    Transcripts = "transcripts";
    /// account, event → type and message: the customer's event log, kept 30 days.
    EventLog = "event_log";
    /// account, type, event → message: the event log by type.
    EventLogByType = "event_log_by_type";
    /// account, endpoint → webhook endpoint.
    Endpoints = "endpoints";
    /// account, delivery → one event owed to one endpoint.
    Deliveries = "deliveries";
    /// account, endpoint, delivery → nothing: the deliveries of an endpoint.
    DeliveriesByEndpoint = "deliveries_by_endpoint";
    /// account, delivery, attempt number → one attempt.
    Attempts = "attempts";
    /// account, endpoint, event → delivery: the latest one, where the event was owed more than once.
    Redelivered = "redelivered";
    /// account, endpoint, due, delivery → nothing: what waits for a disabled endpoint.
    Parked = "parked";
    /// account, endpoint → how many of its deliveries are pending or held; account → how many were requested.
    Outstanding = "outstanding";
    /// account → its API keys that are neither revoked nor expired.
    ActiveKeys = "active_keys";
    /// account → bytes of its messages' content in segments.
    StoredContent = "stored_content";
    /// bucket, account → bytes of the account's messages' content in segments of the bucket.
    StoredContentByBucket = "stored_content_by_bucket";
    /// account, hash of the key → answer and body hash.
    Idempotency = "idempotency";
    /// expiry, account, hash of the key → nothing.
    IdempotencyByExpiry = "idempotency_by_expiry";
    /// account → use of the two quota windows.
    Quotas = "quotas";
    /// account, address in matching form → suppression.
    Suppressions = "suppressions";
    /// account, suppression → address in matching form: the list, newest last.
    SuppressionsById = "suppressions_by_id";
    /// account → its import of suppressions that is not at its end.
    SuppressionImports = "suppression_imports";
    /// relay, site → how much the relay handed over there on the last day that it did: for relays that warm up.
    WarmUps = "warm_ups";
    /// account, address in matching form, NUL, message → nothing: the messages that wait.
    Waiting = "waiting";
    /// account, site or domain → since when the account's mail for it is paused.
    Pauses = "pauses";
    /// account, user → somebody who signs in to the panel.
    Users = "users";
    /// address in matching form → account, user.
    UsersByEmail = "users_by_email";
    /// SHA-256 of the token → a signed-in browser.
    Sessions = "sessions";
    /// account, user, SHA-256 of the token → nothing: the sessions of a user.
    SessionsByUser = "sessions_by_user";
    /// account, line → what somebody changed through the panel.
    AuditLog = "audit_log";
    /// account → how many lines its audit log has.
    AuditLines = "audit_lines";
    /// digest of a receiving domain → its MTA-STS policy.
    StsPolicies = "sts_policies";
    /// day, digest of a receiving domain, kind of policy → how TLS sessions went.
    TlsReports = "tls_reports";
    /// day → how many rows it has there.
    TlsReportDays = "tls_report_days";
    /// account, hour, stream, sending domain, provider → what became of the messages accepted in that hour.
    Outcomes = "outcomes";
    /// account → how its bounces and complaints were judged last.
    Reputations = "reputations";
    /// number → a doubt about the wall clock: when it began, and what came of it.
    ClockDoubts = "clock_doubts";
    /// due, kind, account, identifier → nothing: what is to happen when. This table is the far timer wheel.
    Timers = "timers";
}

impl Table {
    /// How redb knows the table.
    pub(super) const fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}

/// Refuses a database where a known table is missing and an unknown one stands in its place: a damaged name, whose
/// rows would all be taken as absent. Tables of a later version beside all known ones are left alone.
///
/// # Errors
/// [`StoreError::Corrupted`] names both; those of the database.
pub(super) fn refuse_renamed(database: &Database) -> Result<(), StoreError> {
    let found: Vec<_> = database.begin_read()?.list_tables()?.map(|table| table.name().to_owned()).collect();
    let is_known = |name: &&String| Table::ALL.iter().any(|table| table.name() == name.as_str());
    let missing = Table::ALL.iter().find(|table| !found.iter().any(|name| name == table.name()));
    match (found.iter().find(|name| !is_known(name)), missing) {
        (Some(unknown), Some(missing)) => {
            let missing = missing.name();
            Err(StoreError::Corrupted(format!("it has no table {missing:?}, and an unknown table {unknown:?}")))
        }
        _ => Ok(()),
    }
}

/// Makes sure that every table exists, so that snapshots may open them all.
///
/// # Errors
/// Those of the database.
pub(super) fn make_tables(transaction: &WriteTransaction) -> Result<(), StoreError> {
    for table in Table::ALL {
        transaction.open_table(table.definition())?;
    }
    Ok(())
}

/// `account` and a 16-byte identifier: the key of most rows.
pub fn owned(account: AccountId, id: &[u8; 16]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(account.as_bytes());
    key[16..].copy_from_slice(id);
    key
}

/// A relay's name, which has no NUL, and a site's.
pub fn warm_up(relay: &str, site: &str) -> Vec<u8> {
    [relay.as_bytes(), b"\0", site.as_bytes()].concat()
}

/// `account` and two identifiers.
fn owned_pair(account: AccountId, first: &[u8; 16], second: &[u8; 16]) -> [u8; 48] {
    let mut key = [0; 48];
    key[..32].copy_from_slice(&owned(account, first));
    key[32..].copy_from_slice(second);
    key
}

/// `account` and bytes of any length.
pub fn named(account: AccountId, name: &[u8]) -> Vec<u8> {
    [account.as_bytes(), name].concat()
}

/// Key of [`Table::AccountsByHint`].
pub fn account_of_hint(hint: AccountHint, account: AccountId) -> [u8; 21] {
    let mut key = [0; 21];
    key[..5].copy_from_slice(&hint.0);
    key[5..].copy_from_slice(account.as_bytes());
    key
}

/// Key of [`Table::Keys`].
pub fn api_key(account: AccountId, key: KeyId) -> [u8; 32] {
    owned(account, key.as_bytes())
}

/// Key of [`Table::Domains`].
pub fn domain(account: AccountId, domain: DomainId) -> [u8; 32] {
    owned(account, domain.as_bytes())
}

/// Key of [`Table::Messages`], [`Table::Transfers`] and [`Table::MessageIndex`].
pub fn message(account: AccountId, message: MessageId) -> [u8; 32] {
    owned(account, message.as_bytes())
}

/// Key of [`Table::Timeline`] and [`Table::Transcripts`].
pub fn timeline(account: AccountId, message: MessageId, event: EventId) -> [u8; 48] {
    owned_pair(account, message.as_bytes(), event.as_bytes())
}

/// Key of [`Table::EventLog`].
pub fn event(account: AccountId, event: EventId) -> [u8; 32] {
    owned(account, event.as_bytes())
}

/// Key of [`Table::EventLogByType`].
pub fn event_of_type(account: AccountId, kind: EventType, event: EventId) -> [u8; 33] {
    let mut key = [0; 33];
    key[..16].copy_from_slice(account.as_bytes());
    key[16] = kind.code();
    key[17..].copy_from_slice(event.as_bytes());
    key
}

/// Key of [`Table::Endpoints`].
pub fn endpoint(account: AccountId, endpoint: EndpointId) -> [u8; 32] {
    owned(account, endpoint.as_bytes())
}

/// Key of [`Table::Deliveries`].
pub fn delivery(account: AccountId, delivery: DeliveryId) -> [u8; 32] {
    owned(account, delivery.as_bytes())
}

/// Key of [`Table::DeliveriesByEndpoint`].
pub fn delivery_of_endpoint(account: AccountId, endpoint: EndpointId, delivery: DeliveryId) -> [u8; 48] {
    owned_pair(account, endpoint.as_bytes(), delivery.as_bytes())
}

/// Key of [`Table::Redelivered`].
pub fn redelivered(account: AccountId, endpoint: EndpointId, event: EventId) -> [u8; 48] {
    owned_pair(account, endpoint.as_bytes(), event.as_bytes())
}

/// Key of [`Table::Attempts`].
pub fn attempt(account: AccountId, delivery: DeliveryId, number: u8) -> [u8; 33] {
    let mut key = [0; 33];
    key[..32].copy_from_slice(&owned(account, delivery.as_bytes()));
    key[32] = number;
    key
}

/// Key of [`Table::Parked`].
pub fn parked(account: AccountId, endpoint: EndpointId, due: Timestamp, delivery: DeliveryId) -> [u8; 56] {
    let mut key = [0; 56];
    key[..32].copy_from_slice(&owned(account, endpoint.as_bytes()));
    key[32..40].copy_from_slice(&due.as_millis().to_be_bytes());
    key[40..].copy_from_slice(delivery.as_bytes());
    key
}

/// Key of [`Table::StoredContentByBucket`].
pub fn stored_content(bucket: Timestamp, account: AccountId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&bucket.as_millis().to_be_bytes());
    key[8..].copy_from_slice(account.as_bytes());
    key
}

/// Key of [`Table::Users`], and the beginning of the keys of [`Table::SessionsByUser`].
pub fn user(account: AccountId, user: UserId) -> [u8; 32] {
    owned(account, user.as_bytes())
}

/// Key of [`Table::SessionsByUser`].
pub fn session_of_user(account: AccountId, user: UserId, session: &[u8; 32]) -> [u8; 64] {
    let mut key = [0; 64];
    key[..32].copy_from_slice(&owned(account, user.as_bytes()));
    key[32..].copy_from_slice(session);
    key
}

/// Key of [`Table::SuppressionsById`].
pub fn suppression(account: AccountId, suppression: SuppressionId) -> [u8; 32] {
    owned(account, suppression.as_bytes())
}

/// Key of [`Table::AuditLog`].
pub fn change(account: AccountId, change: ChangeId) -> [u8; 32] {
    owned(account, change.as_bytes())
}

/// The beginning of the keys of [`Table::Waiting`] for one address. No address contains a NUL, so none is the
/// beginning of another.
pub fn waiting_for(account: AccountId, match_key: &str) -> Vec<u8> {
    [account.as_bytes().as_slice(), match_key.as_bytes(), &[0]].concat()
}

/// Key of [`Table::Waiting`].
pub fn waiting(account: AccountId, match_key: &str, message: MessageId) -> Vec<u8> {
    let mut key = waiting_for(account, match_key);
    key.extend_from_slice(message.as_bytes());
    key
}

/// Key of [`Table::IdempotencyByExpiry`].
pub fn idempotency_expiry(expires_at: Timestamp, account: AccountId, hash: &[u8; 32]) -> [u8; 56] {
    let mut key = [0; 56];
    key[..8].copy_from_slice(&expires_at.as_millis().to_be_bytes());
    key[8..24].copy_from_slice(account.as_bytes());
    key[24..].copy_from_slice(hash);
    key
}

/// Key of [`Table::StsPolicies`]: as long as a timer's identifier, which it is too.
pub fn sts_policy(domain: &DomainName) -> [u8; 16] {
    let digest = hmac_sha256(b"sts policy", &[domain.as_str().as_bytes()]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// What the keys of [`Table::TlsReports`] begin with for one day and domain: as long as a timer's identifier, which it
/// is too.
pub fn tls_reports_of(day: u32, domain: &DomainName) -> [u8; 16] {
    let digest = hmac_sha256(b"tls report", &[domain.as_str().as_bytes()]);
    let mut prefix = [0; 16];
    let (of_day, of_domain) = prefix.split_at_mut(4);
    of_day.copy_from_slice(&tls_report_day(day));
    of_domain.copy_from_slice(&digest[..12]);
    prefix
}

/// Key of [`Table::TlsReports`], of what [`tls_reports_of`] tells.
pub fn tls_report(of: [u8; 16], policy_type: PolicyType) -> [u8; 17] {
    let mut key = [policy_type as u8; 17];
    key[..16].copy_from_slice(&of);
    key
}

/// Key of [`Table::TlsReportDays`], and what the keys of its rows begin with.
pub const fn tls_report_day(day: u32) -> [u8; 4] {
    day.to_be_bytes()
}

/// What the keys of [`Table::Outcomes`] begin with for one hour, counted from the epoch.
pub fn outcomes_of_hour(account: AccountId, hour: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(account.as_bytes());
    key[16..].copy_from_slice(&hour.to_be_bytes());
    key
}

/// Key of [`Table::Outcomes`]. The provider is empty where no server was asked.
pub fn outcomes(account: AccountId, hour: u32, stream: Stream, domain: DomainId, provider: &str) -> Vec<u8> {
    let of_hour = outcomes_of_hour(account, hour);
    [&of_hour[..], &[stream as u8], domain.as_bytes(), provider.as_bytes()].concat()
}

/// Hour, stream, sending domain and provider in a key of [`Table::Outcomes`].
pub fn outcomes_parts(key: &[u8]) -> Option<(u32, Stream, DomainId, &str)> {
    let (hour, rest) = key.get(16..)?.split_first_chunk::<4>()?;
    let (&stream, rest) = rest.split_first()?;
    let (domain, provider) = rest.split_first_chunk::<16>()?;
    let stream = Stream::ALL.into_iter().find(|known| *known as u8 == stream)?;
    let provider = std::str::from_utf8(provider).ok()?;
    Some((u32::from_be_bytes(*hour), stream, DomainId(Ulid(*domain)), provider))
}

/// The due time and delivery in a key of [`Table::Parked`].
pub fn parked_parts(key: &[u8]) -> Option<(Timestamp, DeliveryId)> {
    let rest = key.get(32..)?;
    let (due, delivery) = rest.split_first_chunk::<8>()?;
    Some((Timestamp::from_millis(u64::from_be_bytes(*due)), DeliveryId(Ulid(delivery.try_into().ok()?))))
}
