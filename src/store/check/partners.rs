//! Check of rows that refer to each other: an index row and the row that it finds, a row and its owner.

use super::{CheckInputs, Report, Rule, shown};
use crate::base::id::{AccountId, DeliveryId, EventId, MessageId, Ulid};
use crate::domain::account::Account;
use crate::domain::api_key::ApiKey;
use crate::domain::return_path::AccountHint;
use crate::domain::session::Session;
use crate::domain::user::User;
use crate::store::error::StoreError;
use crate::store::row::Row;
use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
use crate::store::row::domain::DomainRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::{EventLogRow, EventOfTypeRow};
use crate::store::row::idempotency::IdempotencyRow;
use crate::store::row::identity::IdentityRow;
use crate::store::row::message::MessageRow;
use crate::store::row::suppression::SuppressionRow;
use crate::store::schema::{self, Table};

/// A row that must exist, with its value if that is known.
type Partner = (Table, Vec<u8>, Option<Vec<u8>>);

/// Checks that the rows on which a row depends exist.
pub(super) fn judge(
    sight: &CheckInputs<'_>,
    table: Table,
    key: &[u8],
    value: &[u8],
    report: &mut Report,
) -> Result<(), StoreError> {
    for (other, other_key, expected) in partners(sight, table, key, value)? {
        let found = sight.get(other, &other_key)?;
        let fits = found.as_ref().is_some_and(|found| expected.as_ref().is_none_or(|expected| expected == found));
        if !fits {
            let fault = if found.is_none() { "is missing" } else { "refers to another row" };
            report.fail(Rule::Partner, || {
                format!(
                    "table {}, row {}: its row {} of table {} {fault}",
                    table.name(),
                    shown(key),
                    shown(&other_key),
                    other.name()
                )
            });
        }
    }
    Ok(())
}

fn account_of(key: &[u8]) -> AccountId {
    AccountId(ulid(&key[..16]))
}

fn ulid(bytes: &[u8]) -> Ulid {
    Ulid(bytes.try_into().unwrap_or_default())
}

fn partners(sight: &CheckInputs<'_>, table: Table, key: &[u8], value: &[u8]) -> Result<Vec<Partner>, StoreError> {
    let there = |table: Table, key: &[u8]| (table, key.to_vec(), None);
    let owner = || there(Table::Accounts, &key[..16]);
    Ok(match table {
        Table::Accounts => {
            let id = Account::decode(value)?.id;
            vec![there(Table::AccountsByHint, &schema::account_of_hint(AccountHint::of(id), id))]
        }
        Table::AccountsByHint => vec![there(Table::Accounts, &key[5..])],
        Table::Keys => {
            vec![owner(), (Table::KeysByHash, ApiKey::decode(value)?.hash.to_vec(), Some(key.to_vec()))]
        }
        Table::KeysByHash => vec![there(Table::Keys, value)],
        Table::Domains => {
            let name = schema::named(account_of(key), DomainRow::decode(value)?.name.as_str().as_bytes());
            vec![owner(), (Table::DomainsByName, name, Some(key[16..].to_vec()))]
        }
        Table::DomainsByName => vec![there(Table::Domains, &[&key[..16], value].concat())],
        Table::DomainOwners => vec![there(Table::Domains, value)],
        Table::Messages => {
            let row = MessageRow::decode(value)?;
            let index =
                |original| schema::message_by_original_id(account_of(key), original, MessageId(ulid(&key[16..])));
            let found_by =
                row.original_message_id().map(|original| there(Table::MessagesByOriginalId, &index(original)));
            [owner(), there(Table::Transfers, key)].into_iter().chain(found_by).collect()
        }
        Table::MessagesByOriginalId => vec![there(Table::Messages, &[&key[..16], &key[32..]].concat())],
        Table::Transfers | Table::MessageIndex => vec![there(Table::Messages, key)],
        Table::Timeline => vec![there(Table::Messages, &key[..32])],
        Table::Transcripts => vec![there(Table::Timeline, key)],
        Table::EventLog => {
            let (account, event) = (account_of(key), EventId(ulid(&key[16..])));
            let EventLogRow { message, kind } = EventLogRow::decode(value)?;
            vec![
                there(Table::Timeline, &schema::timeline(account, message, event)),
                there(Table::EventLogByType, &schema::event_of_type(account, kind, event)),
            ]
        }
        Table::EventLogByType => {
            let (account, event) = (account_of(key), EventId(ulid(&key[17..])));
            let message = EventOfTypeRow::decode(value)?.message;
            vec![
                there(Table::EventLog, &schema::event(account, event)),
                there(Table::Timeline, &schema::timeline(account, message, event)),
            ]
        }
        Table::Endpoints
        | Table::ActiveKeys
        | Table::StoredContent
        | Table::Quotas
        | Table::Reputations
        | Table::AuditLog
        | Table::AuditLines
        | Table::SuppressionCounts
        | Table::SuppressionImports
        | Table::Pauses
        | Table::Invitations
        | Table::Suspensions
        | Table::DmarcReports
        | Table::DmarcSeen
        | Table::DmarcDays
        | Table::DmarcCounts
        | Table::DmarcSources
        | Table::DmarcReporters
        | Table::DmarcSums => vec![owner()],
        Table::DmarcMarks => vec![owner(), there(Table::DmarcSources, key)],
        Table::StoredContentByBucket => vec![there(Table::Accounts, &key[8..])],
        Table::Deliveries => delivery(sight, key, value)?,
        Table::DeliveriesByEndpoint => vec![there(Table::Deliveries, &[&key[..16], &key[32..]].concat())],
        Table::Attempts => vec![there(Table::Deliveries, &key[..32])],
        Table::Outstanding if key.len() == 16 => vec![owner()],
        Table::Outstanding => vec![there(Table::Endpoints, key)],
        Table::Parked => vec![there(Table::Deliveries, &[&key[..16], &key[40..]].concat())],
        Table::Idempotency => {
            let binding = IdempotencyRow::decode(value)?.binding;
            let hash = key[16..].try_into().unwrap_or([0; 32]);
            let by_expiry = schema::idempotency_expiry(binding.expires_at, account_of(key), &hash);
            vec![owner(), there(Table::IdempotencyByExpiry, &by_expiry)]
        }
        Table::Suppressions => {
            let id = schema::suppression(account_of(key), SuppressionRow::decode(value)?.id);
            vec![owner(), (Table::SuppressionsById, id.to_vec(), Some(key[16..].to_vec()))]
        }
        Table::SuppressionsById => vec![there(Table::Suppressions, &[&key[..16], value].concat())],
        Table::Waiting => {
            let message = MessageId(ulid(&key[key.len() - 16..]));
            vec![there(Table::Transfers, &schema::message(account_of(key), message))]
        }
        Table::Users => {
            let email = User::decode(value)?.email.match_key();
            vec![owner(), (Table::UsersByEmail, email.into_bytes(), Some(key.to_vec()))]
        }
        Table::SavedSearches => vec![there(Table::Users, key)],
        Table::UsersByEmail => vec![there(Table::Users, value)],
        Table::Identities => {
            let digest = IdentityRow::decode(value)?.digest();
            vec![there(Table::Users, key), (Table::UsersByIdentity, digest.to_vec(), Some(key.to_vec()))]
        }
        Table::UsersByIdentity => vec![there(Table::Identities, value)],
        Table::Sessions => {
            let (session, own) = (Session::decode(value)?, key.try_into().unwrap_or([0; 32]));
            vec![there(Table::SessionsByUser, &schema::session_of_user(session.account, session.user, &own))]
        }
        Table::SessionsByUser => vec![there(Table::Sessions, &key[32..])],
        // Alerts of the service have no account.
        Table::Alerts => vec![(Table::AlertOwners, key[16..].to_vec(), Some(key[..16].to_vec()))],
        Table::AlertOwners => vec![there(Table::Alerts, &[value, key].concat())],
        Table::OpenAlerts => vec![there(Table::Alerts, key)],
        // Facts about the store, counts, and rows that may outlive the rows that they name.
        Table::Meta
        | Table::Redelivered
        | Table::IdempotencyByExpiry
        | Table::WarmUps
        | Table::StsPolicies
        | Table::TlsReports
        | Table::TlsReportDays
        | Table::Outcomes
        | Table::ClockDoubts
        | Table::AlertStates
        | Table::Notices
        | Table::NoticeAddresses
        | Table::ProvenAddresses
        | Table::Timers => Vec::new(),
    })
}

/// Returns a delivery's event and, as long as its endpoint has a list of deliveries, its place in that list.
fn delivery(sight: &CheckInputs<'_>, key: &[u8], value: &[u8]) -> Result<Vec<Partner>, StoreError> {
    let (account, id) = (account_of(key), DeliveryId(ulid(&key[16..])));
    let row = DeliveryRow::decode(value)?;
    let mut partners = vec![(Table::Accounts, key[..16].to_vec(), None)];
    if let DeliveryPayload::Event { message, .. } = row.owed {
        partners.push((Table::Timeline, schema::timeline(account, message, row.event).to_vec(), None));
    }
    if sight.find::<EndpointRow>(&schema::endpoint(account, row.endpoint))?.is_some() {
        let listed = schema::delivery_of_endpoint(account, row.endpoint, id);
        partners.push((Table::DeliveriesByEndpoint, listed.to_vec(), None));
    }
    Ok(partners)
}
