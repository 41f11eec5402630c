//! Sending TLS reports (RFC 8460). After each UTC day, every domain that received mail on that day and requests reports
//! gets one about the security of its sessions.
//!
//! Counting a session arms the timer of its domain's report ([`store::op::tls_report`](crate::store::op)), some hours
//! after the day's end. The sweeper serves it here. A report by mail is an ordinary message of the account that has the
//! sender's domain: signed, queued, visible. Its idempotency key consists of day, domain and destination. So if steps
//! are repeated after a crash, the report is still mailed only once. Sessions of reports are not counted (RFC 8460 3).
//! Otherwise two services would report to each other forever.

mod limits;

pub(super) use limits::ReportLimits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::ports::{LookupFailure, Post, Requester, WebhookRequest};
use super::submit::SubmitError;
use super::{Caller, Engine};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::submission::{Content, Submission};
use crate::mail::tls_report::{DateRange, Failure, MEDIA_TYPE, Policy, PolicyReport, Route, Summary, TlsReport};
use crate::smtp::tls_rpt::{Destination, destinations};
use crate::store::error::{OpError, StoreError};
use crate::store::op::Infallible;
use crate::store::op::admission::{IdempotencyClaim, Refusal};
use crate::store::op::settle_tls_report::SettleTlsReport;
use crate::store::op::tls_report::end_of;
use crate::store::read::Read;
use crate::store::row::tls_policy::{FailureDetail, PolicyType, TlsReportRow};
use crate::store::schema::{self, Table};
use crate::store::timer::Timer;

/// Period over which the reports of a day are spread (RFC 8460 4.1 mentions four hours).
const SPREAD: Duration = Duration::from_secs(4 * 3600);
/// Time for which a report that could not be submitted is retried (RFC 8460 5.5). It equals the lifetime of its
/// idempotency key.
const TRIED_FOR: Duration = Duration::from_secs(24 * 3600);
/// The first wait. Each further wait is as long as the sum of all earlier ones, up to the maximum.
const WAIT_MIN: Duration = Duration::from_secs(600);
const WAIT_MAX: Duration = Duration::from_secs(6 * 3600);
const SECOND: Duration = Duration::from_secs(1);
const USER_AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

/// Data of one timer: the day, the domain and the counts.
struct ReportDay {
    id: [u8; 16],
    day: u32,
    domain: DomainName,
    delivered_to: Vec<String>,
    rows: Vec<(PolicyType, TlsReportRow)>,
}

/// Result of submitting a report to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportOutcome {
    /// The report was submitted, or permanently refused.
    Done,
    /// A later attempt may succeed.
    Later,
}

impl ReportDay {
    /// Returns `None` if the counts are gone.
    fn look(read: &impl Read, timer: Timer) -> Result<Option<Self>, StoreError> {
        let id = timer.id.0;
        let [a, b, c, d, ..] = id;
        let mut rows = Vec::new();
        for policy_type in PolicyType::ALL {
            let row: Option<TlsReportRow> = read.row(&schema::tls_report(id, policy_type))?;
            rows.extend(row.map(|row| (policy_type, row)));
        }
        let Some((_, first)) = rows.first() else { return Ok(None) };
        let (domain, delivered_to) = (first.domain.clone(), first.delivered_to.clone());
        Ok(Some(Self { id, day: u32::from_be_bytes([a, b, c, d]), domain, delivered_to, rows }))
    }

    fn report(&self, submitter: &str, from: &Address) -> TlsReport {
        let end = end_of(self.day);
        let start_datetime = end - Duration::from_secs(24 * 3600);
        let date = start_datetime.to_string();
        TlsReport {
            organization_name: submitter.to_owned(),
            date_range: DateRange { start_datetime, end_datetime: end - SECOND },
            contact_info: from.to_wire(),
            report_id: format!("{}.{}@{submitter}", &date[..10], hex::encode(&self.id[4..])),
            policies: self.rows.iter().map(|(policy_type, row)| policy_report(*policy_type, row)).collect(),
        }
    }
}

fn policy_report(policy_type: PolicyType, row: &TlsReportRow) -> PolicyReport {
    let server = |line: &String| line.strip_prefix("mx: ").map(str::to_owned);
    let failure = |FailureDetail { fault, host, sessions }: &FailureDetail| Failure {
        result_type: fault.as_str(),
        receiving_mx_hostname: host.clone(),
        failed_session_count: *sessions,
    };
    PolicyReport {
        policy: Policy {
            policy_type: policy_type.as_str(),
            policy_string: row.policy.clone(),
            policy_domain: row.domain.to_string(),
            mx_host: row.policy.iter().filter_map(server).collect(),
        },
        summary: Summary { total_successful_session_count: row.successes, total_failure_session_count: row.failures },
        failure_details: row.details.iter().map(failure).collect(),
    }
}

impl Engine {
    /// Returns the delay of the report to `domain` after a day's end. It is spread over hours, and constant for this
    /// service and domain. `None` if reports are not sent.
    pub(super) fn tls_report_after(&self, domain: &DomainName) -> Option<Duration> {
        self.settings.tls_reports_from.as_ref()?;
        let digest =
            Sha256::new().chain_update(&self.settings.hostname).chain_update([0]).chain_update(domain.as_str());
        let [a, b, c, d, ..]: [u8; 32] = digest.finalize().into();
        let place = u64::from(u32::from_be_bytes([a, b, c, d]));
        Some(Duration::from_secs(place % SPREAD.as_secs()))
    }

    /// Serves the timer of a day's report to one domain.
    pub(super) async fn report_tls(self: &Arc<Self>, post: &dyn Post, timer: Timer) -> Result<(), OpError<Infallible>> {
        let over = SettleTlsReport { timer, delivered_to: Vec::new(), again: None };
        let Some(from) = &self.settings.tls_reports_from else { return self.store.commit(over).await };
        let Some(mut counted) = ReportDay::look(&self.store.snapshot()?, timer)? else {
            return self.store.commit(over).await;
        };
        let wanted = match self.resolver.txt(&format!("_smtp._tls.{}", counted.domain), Requester::CHECKS).await {
            Ok(texts) => Some(destinations(&texts)),
            Err(LookupFailure::Absent) => Some(Vec::new()),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => None,
        };
        let mut fate = if wanted.is_some() { ReportOutcome::Done } else { ReportOutcome::Later };
        let report = counted.report(&self.settings.hostname, from);
        for destination in wanted.unwrap_or_default() {
            let name = destination.to_string();
            if counted.delivered_to.contains(&name) {
                continue;
            }
            if !self.report_limits.admit(counted.day, &counted.domain, &destination) {
                tracing::warn!(
                    domain = %counted.domain,
                    "a receiver has its maximum number of TLS reports of a day; dropping one"
                );
                counted.delivered_to.push(name);
                continue;
            }
            let sent = match &destination {
                Destination::Mail(to) => self.mail_report(from, to, &counted, &report).await?,
                Destination::Https(url) => {
                    // If the store has failed, a sent report could not be recorded, and would be sent again.
                    self.store.health().check()?;
                    post_report(post, url.url().clone(), &report).await
                }
            };
            match sent {
                ReportOutcome::Done => counted.delivered_to.push(name),
                ReportOutcome::Later => fate = ReportOutcome::Later,
            }
        }
        let again = match fate {
            ReportOutcome::Done => None,
            ReportOutcome::Later => self.next_try(&counted),
        };
        if fate == ReportOutcome::Later && again.is_none() {
            tracing::warn!(domain = %counted.domain, "could not submit a TLS report within a day; dropping it");
        }
        self.store.commit(SettleTlsReport { timer, delivered_to: counted.delivered_to, again }).await
    }

    fn next_try(&self, counted: &ReportDay) -> Option<Timestamp> {
        let first = end_of(counted.day) + self.tls_report_after(&counted.domain)?;
        let now = self.clock.now();
        let tried_for = now.since(first);
        (tried_for < TRIED_FOR).then(|| (now + tried_for.clamp(WAIT_MIN, WAIT_MAX)).min(first + TRIED_FOR))
    }

    async fn mail_report(
        self: &Arc<Self>,
        from: &Address,
        to: &Address,
        counted: &ReportDay,
        report: &TlsReport,
    ) -> Result<ReportOutcome, StoreError> {
        let Some(account) = self.owner_of(from.domain())? else {
            tracing::error!(
                domain = %from.domain(),
                "delivery.tls_reports_from has no verified domain; TLS report not sent"
            );
            return Ok(ReportOutcome::Later);
        };
        if !self.has_quota_for_reports(account)? {
            tracing::warn!(%account, "half of the account's quota is used; sending a TLS report later");
            return Ok(ReportOutcome::Later);
        }
        let submitter = &self.settings.hostname;
        let message = report.message(Route { from, to, domain: &counted.domain, submitter });
        let submission = Submission {
            from: from.clone(),
            from_name: None,
            to_name: None,
            list_unsubscribe: None,
            to: to.clone(),
            content: Content::Raw(message),
            unsubscribe_url: None,
            metadata: BTreeMap::new(),
            expires_at: Some((self.clock.now() + TRIED_FOR.min(self.settings.queue_lifetime)).into()),
        };
        // A caller can't use this key, because NUL is not a printable character.
        let key = Sha256::new().chain_update(b"tls report\0").chain_update(counted.id).chain_update(to.to_wire());
        let key_hash: [u8; 32] = key.finalize().into();
        let claim = IdempotencyClaim { key_hash, body_hash: key_hash };
        let caller = Caller { account, key: None };
        match self.submit(&caller, submission, Some(claim)).await {
            Ok(_) | Err(SubmitError::Refused(Refusal::RecipientSuppressed)) => Ok(ReportOutcome::Done),
            Err(SubmitError::Invalid(violations)) => {
                tracing::error!(faults = ?violations.by_field().keys(), "could not compose a TLS report; dropping it");
                Ok(ReportOutcome::Done)
            }
            Err(SubmitError::Refused(why)) => {
                tracing::error!(?why, "delivery.tls_reports_from can't send a TLS report; trying again later");
                Ok(ReportOutcome::Later)
            }
            Err(SubmitError::InProgress | SubmitError::Full) => Ok(ReportOutcome::Later),
            Err(SubmitError::Failed(error)) => Err(error),
        }
    }

    /// Returns whether less than half of the account's quota is used. The other half is left to its own mail, since
    /// the receiving domains decide the number of reports.
    fn has_quota_for_reports(&self, account: AccountId) -> Result<bool, StoreError> {
        let Some(account) = self.account(account)? else { return Ok(false) };
        let quota = self.quota(&account)?;
        Ok([quota.hour, quota.day].iter().all(|window| window.used < window.limit.div_ceil(2)))
    }

    /// Returns the account that has `domain` verified.
    fn owner_of(&self, domain: &DomainName) -> Result<Option<AccountId>, StoreError> {
        let owner = self.store.snapshot()?.get(Table::DomainOwners, domain.as_str().as_bytes())?;
        Ok(owner.as_deref().and_then(|key| key.first_chunk::<16>()).map(|account| AccountId(Ulid(*account))))
    }
}

async fn post_report(post: &dyn Post, url: url::Url, report: &TlsReport) -> ReportOutcome {
    let headers = vec![("content-type", MEDIA_TYPE.to_owned()), ("user-agent", USER_AGENT.to_owned())];
    let body = Bytes::from(report.json());
    let request = WebhookRequest { url, headers, body, requester: Requester::CHECKS };
    let outcome = post.post(request, &AtomicBool::new(false)).await;
    match (outcome.error, outcome.status) {
        (None, _) => ReportOutcome::Done,
        // A report that the receiver rejects permanently is not sent again.
        (Some(_), Some(status)) if (400..500).contains(&status) && status != 408 && status != 429 => {
            ReportOutcome::Done
        }
        (Some(_), _) => ReportOutcome::Later,
    }
}

#[cfg(test)]
mod tests;
