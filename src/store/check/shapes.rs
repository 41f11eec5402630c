//! Check of the rows of each table: a key of the right length, and a value that can be read.

use crate::domain::account::Account;
use crate::domain::api_key::ApiKey;
use crate::domain::session::Session;
use crate::domain::user::User;
use crate::machine::quota::Quota;
use crate::machine::reputation::Reputation;
use crate::store::op::outstanding;
use crate::store::replica::Position;
use crate::store::row::Row;
use crate::store::row::alert::{AlertRow, AlertStateRow, OpenAlertRow};
use crate::store::row::audit::{AuditLinesRow, AuditRow};
use crate::store::row::clock_doubt::ClockDoubtRow;
use crate::store::row::delivery::{AttemptRow, DeliveryRow};
use crate::store::row::destroyed_content::DestroyedContent;
use crate::store::row::dmarc::{
    DmarcCountsRow, DmarcDayRow, DmarcMarkRow, DmarcReportRow, DmarcReporterRow, DmarcSourceRow, DmarcSumsRow,
};
use crate::store::row::domain::DomainRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::{EventLogRow, EventOfTypeRow};
use crate::store::row::idempotency::IdempotencyRow;
use crate::store::row::identity::IdentityRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::message_index::IndexedBlock;
use crate::store::row::notice::{InvitationsRow, NoticeAddressRow, NoticeRow, ProvenAddressRow};
use crate::store::row::outcomes::OutcomeCounts;
use crate::store::row::pause::PauseRow;
use crate::store::row::restored::RestoreOrigin;
use crate::store::row::saved_searches::SavedSearchesRow;
use crate::store::row::suppression::{SuppressionImportRow, SuppressionRow};
use crate::store::row::suspension::SuspensionRow;
use crate::store::row::tls_policy::{StsPolicyRow, TlsReportDayRow, TlsReportRow};
use crate::store::row::totals::{
    ActiveKeysRow, OutstandingRow, StoredContentRow, StoredInBucketRow, SuppressionCountRow,
};
use crate::store::row::warm_up::WarmUpRow;
use crate::store::schema::{self, Table, meta};
use crate::store::timer::Timer;

/// Checks a row without its references.
pub(super) fn judge(table: Table, key: &[u8], value: &[u8]) -> Result<(), String> {
    let fits = match table {
        Table::Meta => return fact(key, value),
        Table::Accounts => key.len() == 16 && reads::<Account>(value)?,
        Table::AccountsByHint => key.len() == 21,
        Table::Keys => key.len() == 32 && reads::<ApiKey>(value)?,
        Table::KeysByHash | Table::DomainOwners | Table::UsersByEmail | Table::UsersByIdentity => value.len() == 32,
        Table::Identities => key.len() == 32 && reads::<IdentityRow>(value)?,
        Table::Domains => key.len() == 32 && reads::<DomainRow>(value)?,
        Table::DomainsByName => key.len() > 16 && value.len() == 16,
        Table::Messages => key.len() == 32 && reads::<MessageRow>(value)?,
        Table::Transfers => key.len() == 32 && reads::<TransferRow>(value)?,
        Table::MessageIndex => key.len() == 32 && IndexedBlock::decode(value).is_ok(),
        Table::MessagesByOriginalId | Table::DeliveriesByEndpoint => key.len() == 48,
        Table::DmarcSeen => key.len() == 52,
        Table::IdempotencyByExpiry => key.len() == 56,
        Table::Timeline => key.len() == 48 && event(value)?,
        Table::Transcripts => key.len() == 48 && std::str::from_utf8(value).is_ok(),
        Table::EventLog => key.len() == 32 && reads::<EventLogRow>(value)?,
        Table::EventLogByType => key.len() == 33 && reads::<EventOfTypeRow>(value)?,
        Table::Endpoints => key.len() == 32 && reads::<EndpointRow>(value)?,
        Table::Deliveries => key.len() == 32 && reads::<DeliveryRow>(value)?,
        Table::Attempts => key.len() == 33 && reads::<AttemptRow>(value)?,
        Table::Redelivered => key.len() == 48 && outstanding::is_redelivered(value),
        Table::Outstanding => matches!(key.len(), 16 | 32) && reads::<OutstandingRow>(value)?,
        Table::StoredContent => key.len() == 16 && reads::<StoredContentRow>(value)?,
        Table::StoredContentByBucket => key.len() == 24 && reads::<StoredInBucketRow>(value)?,
        Table::ActiveKeys => key.len() == 16 && reads::<ActiveKeysRow>(value)?,
        Table::Parked => schema::parked_parts(key).is_some(),
        Table::Idempotency => key.len() == 48 && reads::<IdempotencyRow>(value)?,
        Table::Quotas => key.len() == 16 && reads::<Quota>(value)?,
        Table::Suppressions => key.len() > 16 && reads::<SuppressionRow>(value)?,
        Table::SuppressionsById => key.len() == 32,
        Table::SuppressionCounts => key.len() == 16 && reads::<SuppressionCountRow>(value)?,
        Table::SuppressionImports => key.len() == 16 && reads::<SuppressionImportRow>(value)?,
        Table::WarmUps => reads::<WarmUpRow>(value)?,
        Table::Pauses => key.len() > 16 && reads::<PauseRow>(value)?,
        Table::Suspensions => key.len() == 16 && reads::<SuspensionRow>(value)?,
        Table::Waiting => key.len() > 33,
        Table::Users => key.len() == 32 && reads::<User>(value)?,
        Table::SavedSearches => key.len() == 32 && reads::<SavedSearchesRow>(value)?,
        Table::Sessions => key.len() == 32 && reads::<Session>(value)?,
        Table::SessionsByUser => key.len() == 64,
        Table::AuditLines => key.len() == 16 && reads::<AuditLinesRow>(value)?,
        Table::AuditLog => key.len() == 32 && reads::<AuditRow>(value)?,
        Table::StsPolicies => key.len() == 16 && reads::<StsPolicyRow>(value)?,
        Table::TlsReports => reads::<TlsReportRow>(value)?,
        Table::TlsReportDays => key.len() == 4 && reads::<TlsReportDayRow>(value)?,
        Table::Outcomes => schema::outcomes_parts(key).is_some() && reads::<OutcomeCounts>(value)?,
        Table::DmarcReports => key.len() == 48 && reads::<DmarcReportRow>(value)?,
        Table::DmarcDays => key.len() == 36 && reads::<DmarcDayRow>(value)?,
        Table::DmarcCounts => schema::dmarc::dmarc_counts_parts(key).is_some() && reads::<DmarcCountsRow>(value)?,
        Table::DmarcMarks => schema::dmarc::dmarc_source_of(key).is_some() && reads::<DmarcMarkRow>(value)?,
        Table::DmarcSources => schema::dmarc::dmarc_source_of(key).is_some() && reads::<DmarcSourceRow>(value)?,
        Table::DmarcReporters => key.len() == 40 && reads::<DmarcReporterRow>(value)?,
        Table::DmarcSums => key.len() == 36 && reads::<DmarcSumsRow>(value)?,
        Table::Reputations => key.len() == 16 && reads::<Reputation>(value)?,
        Table::ClockDoubts => key.len() == 4 && reads::<ClockDoubtRow>(value)?,
        Table::Alerts => key.len() == 32 && reads::<AlertRow>(value)?,
        Table::AlertStates => schema::alert_state_subject(key).is_some() && reads::<AlertStateRow>(value)?,
        Table::OpenAlerts => key.len() == 32 && reads::<OpenAlertRow>(value)?,
        Table::AlertOwners => key.len() == 16 && value.len() == 16,
        Table::Notices => key.len() == 16 && reads::<NoticeRow>(value)?,
        Table::NoticeAddresses => reads::<NoticeAddressRow>(value)?,
        Table::ProvenAddresses => reads::<ProvenAddressRow>(value)?,
        Table::Invitations => key.len() == 16 && reads::<InvitationsRow>(value)?,
        Table::Timers => Timer::decode(key).is_some(),
    };
    if fits { Ok(()) } else { Err("its key or its value has the wrong length".to_owned()) }
}

fn reads<R: Row>(value: &[u8]) -> Result<bool, String> {
    R::decode(value).map(|_| true).map_err(|error| error.to_string())
}

fn event(value: &[u8]) -> Result<bool, String> {
    let read: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(value);
    read.map(|_| true).map_err(|error| error.to_string())
}

fn fact(key: &[u8], value: &[u8]) -> Result<(), String> {
    let fits = match key {
        meta::FORMAT => value.len() == 4,
        meta::LAST_ID | meta::LAST_MESSAGE_ID | meta::SEQUENCE => value.len() == 16,
        meta::TIME => value.len() == 8,
        meta::REPLICA => Position::decode(value).is_some(),
        meta::RESTORED => reads::<RestoreOrigin>(value)?,
        meta::DESTROYED => reads::<DestroyedContent>(value)?,
        _ => !value.is_empty(),
    };
    if fits { Ok(()) } else { Err("its value is damaged".to_owned()) }
}
