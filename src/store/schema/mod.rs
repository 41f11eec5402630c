//! The only module that names tables and builds their keys.
//!
//! Keys begin with the account, so that a missing check can't expose another tenant's row. Identifiers follow, which
//! sort by time: new rows are added at the end of their account's range. All integers are big-endian, so that bytes
//! sort like the encoded values.

pub mod dmarc;
pub mod meta;
mod original_id;
mod table;
pub use original_id::{message_by_original_id, messages_by_original_id};
pub use table::Table;

use redb::{Database, ReadableDatabase as _, TableHandle as _, WriteTransaction};

use crate::base::id::{
    AccountId, AlertId, ChangeId, DeliveryId, DomainId, EndpointId, EventId, KeyId, MessageId, SuppressionId, Ulid,
    UserId,
};
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;
use crate::domain::alert::Condition;
use crate::domain::event::EventType;
use crate::domain::hostname::DomainName;
use crate::domain::return_path::AccountHint;
use crate::domain::stream::Stream;

use super::error::StoreError;
use super::row::tls_policy::PolicyType;

/// Format of the store. A store of a newer format is refused.
pub const FORMAT: u32 = 2;

/// Refuses a database that lacks a known table and has an unknown one. This means that a table's name is damaged, and
/// all its rows would count as absent. Additional tables of a later version are ignored.
///
/// # Errors
/// [`StoreError::Corrupted`] names both tables; database errors.
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

/// Creates missing tables, so that snapshots can open all of them.
///
/// # Errors
/// Database errors.
pub(super) fn make_tables(transaction: &WriteTransaction) -> Result<(), StoreError> {
    for table in Table::ALL {
        transaction.open_table(table.definition())?;
    }
    Ok(())
}

/// Key of most rows: `account` and a 16-byte identifier.
pub fn owned(account: AccountId, id: &[u8; 16]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(account.as_bytes());
    key[16..].copy_from_slice(id);
    key
}

/// Key of a relay's name, which has no NUL, and a site's name.
pub fn warm_up(relay: &str, site: &str) -> Vec<u8> {
    [relay.as_bytes(), b"\0", site.as_bytes()].concat()
}

/// Key of `account` and two identifiers.
fn owned_pair(account: AccountId, first: &[u8; 16], second: &[u8; 16]) -> [u8; 48] {
    let mut key = [0; 48];
    key[..32].copy_from_slice(&owned(account, first));
    key[32..].copy_from_slice(second);
    key
}

/// Key of `account` and bytes of any length.
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

/// Key of [`Table::Users`] and [`Table::SavedSearches`], and prefix of the keys of [`Table::SessionsByUser`].
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

/// Prefix of the keys of [`Table::Waiting`] for one address. No address contains a NUL, so no address is a prefix of
/// another.
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

/// Key of [`Table::StsPolicies`]. It has the length of a timer's identifier and also serves as one.
pub fn sts_policy(domain: &DomainName) -> [u8; 16] {
    let digest = hmac_sha256(b"sts policy", &[domain.as_str().as_bytes()]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// Returns the prefix of the keys of [`Table::TlsReports`] for one day and domain. It has the length of a timer's
/// identifier and also serves as one.
pub fn tls_reports_of(day: u32, domain: &DomainName) -> [u8; 16] {
    let digest = hmac_sha256(b"tls report", &[domain.as_str().as_bytes()]);
    let mut prefix = [0; 16];
    let (of_day, of_domain) = prefix.split_at_mut(4);
    of_day.copy_from_slice(&tls_report_day(day));
    of_domain.copy_from_slice(&digest[..12]);
    prefix
}

/// Key of [`Table::TlsReports`] with a prefix from [`tls_reports_of`].
pub fn tls_report(of: [u8; 16], policy_type: PolicyType) -> [u8; 17] {
    let mut key = [policy_type as u8; 17];
    key[..16].copy_from_slice(&of);
    key
}

/// Key of [`Table::TlsReportDays`], and prefix of the keys of that day's rows.
pub const fn tls_report_day(day: u32) -> [u8; 4] {
    day.to_be_bytes()
}

/// Returns the prefix of the keys of [`Table::Outcomes`] for one hour, as a number of hours since the epoch.
pub fn outcomes_of_hour(account: AccountId, hour: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(account.as_bytes());
    key[16..].copy_from_slice(&hour.to_be_bytes());
    key
}

/// Key of [`Table::Outcomes`]. The provider is empty if no server was contacted.
pub fn outcomes(account: AccountId, hour: u32, stream: Stream, domain: DomainId, provider: &str) -> Vec<u8> {
    let of_hour = outcomes_of_hour(account, hour);
    [&of_hour[..], &[stream as u8], domain.as_bytes(), provider.as_bytes()].concat()
}

/// Returns the hour, stream, sending domain and provider in a key of [`Table::Outcomes`].
pub fn outcomes_parts(key: &[u8]) -> Option<(u32, Stream, DomainId, &str)> {
    let (hour, rest) = key.get(16..)?.split_first_chunk::<4>()?;
    let (&stream, rest) = rest.split_first()?;
    let (domain, provider) = rest.split_first_chunk::<16>()?;
    let stream = Stream::ALL.into_iter().find(|known| *known as u8 == stream)?;
    let provider = std::str::from_utf8(provider).ok()?;
    Some((u32::from_be_bytes(*hour), stream, DomainId(Ulid(*domain)), provider))
}

/// Key of [`Table::Alerts`] and [`Table::OpenAlerts`].
pub fn alert(account: AccountId, alert: AlertId) -> [u8; 32] {
    owned(account, alert.as_bytes())
}

/// Prefix of the keys of [`Table::AlertStates`] for one condition.
pub fn alert_states_of(account: AccountId, condition: Condition) -> Vec<u8> {
    [account.as_bytes().as_slice(), &[condition.code()]].concat()
}

/// Key of [`Table::AlertStates`].
pub fn alert_state(account: AccountId, condition: Condition, subject: &str) -> Vec<u8> {
    [&alert_states_of(account, condition), subject.as_bytes()].concat()
}

/// Returns the subject in a key of [`Table::AlertStates`].
pub fn alert_state_subject(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(17..)?).ok()
}

/// Returns the due time and the delivery in a key of [`Table::Parked`].
pub fn parked_parts(key: &[u8]) -> Option<(Timestamp, DeliveryId)> {
    let rest = key.get(32..)?;
    let (due, delivery) = rest.split_first_chunk::<8>()?;
    Some((Timestamp::from_millis(u64::from_be_bytes(*due)), DeliveryId(Ulid(delivery.try_into().ok()?))))
}
