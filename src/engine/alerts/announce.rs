//! Recipients of an alert's notices.
//!
//! The operator gets alerts of the service and critical alerts of accounts, by mail and webhook. An account's owners
//! get the account's alerts, and a user gets alerts about their own sign-ins. Mail goes only to addresses that the
//! operator created, or whose owner has opened a link sent there. So an account can't use the service to write to
//! strangers.

use serde::Serialize;

use super::record::AlertRecord;
use crate::base::id::{AccountId, AlertId};
use crate::domain::address::Address;
use crate::domain::alert::{Condition, NoticeKind, Scope, Severity};
use crate::domain::limits::USERS_COUNT;
use crate::domain::user::{Role, User};
use crate::engine::Engine;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Infallible;
use crate::store::op::invitation::is_proven;
use crate::store::op::notice::{AlertChangeNotice, Announce};
use crate::store::read::Read;
use crate::store::row::alert::AlertRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::Timer;

/// Body of a webhook request.
#[derive(Serialize)]
pub(super) struct WebhookBody<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) alert: AlertRecord<'a>,
}

impl WebhookBody<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|error| unreachable!("a record is plain JSON: {error}"))
    }
}

impl Engine {
    /// Serves the timer of an alert's changes.
    pub(in crate::engine) async fn announce_alert(&self, timer: Timer) -> Result<(), OpError<Infallible>> {
        let (account, id) = (timer.account, AlertId(timer.id));
        let tellings = {
            let snapshot = self.store.snapshot()?;
            match snapshot.sound_row::<AlertRow>(&schema::alert(account, id))? {
                Some(row) => self.tellings(&snapshot, account, id, &row)?,
                None => Vec::new(),
            }
        };
        self.store.commit(Announce { timer, tellings }).await
    }

    fn tellings(
        &self,
        snapshot: &Snapshot,
        account: AccountId,
        id: AlertId,
        row: &AlertRow,
    ) -> Result<Vec<AlertChangeNotice>, StoreError> {
        let addresses = self.notified_addresses(snapshot, account, row)?;
        let webhook = self.settings.alerts.webhook.as_ref().filter(|_| concerns_operator(row));
        let telling = |announcement: &crate::store::row::alert::PendingNotice| {
            log(id, row, announcement.kind);
            let body = |_| WebhookBody { kind: announcement.kind.webhook_type(), alert: self.alert_record(id, row) };
            let webhook = webhook.map(|webhook| body(webhook).bytes());
            AlertChangeNotice { announcement: *announcement, addresses: addresses.clone(), webhook }
        };
        Ok(row.announcements.iter().map(telling).collect())
    }

    /// Returns the addresses that get an alert, without duplicates.
    pub(super) fn notified_addresses(
        &self,
        snapshot: &Snapshot,
        account: AccountId,
        row: &AlertRow,
    ) -> Result<Vec<Address>, StoreError> {
        let settings = &self.settings.alerts;
        let mut addresses = Vec::new();
        if concerns_operator(row) {
            addresses.extend(settings.email.iter().cloned());
        }
        let users = match row.condition.scope() {
            Scope::System => Vec::new(),
            Scope::Account => snapshot.sound_rows::<User>(account.as_bytes(), USERS_COUNT)?,
        };
        for (_, user) in users {
            let is_notified = match row.condition {
                Condition::NewSignIn => row.subject.as_ref().is_some_and(|subject| subject.id == user.id.to_string()),
                _ => settings.tells_owners && user.role == Role::Owner,
            };
            if is_notified && !user.disabled && is_proven(snapshot, &user.email)? {
                addresses.push(user.email);
            }
        }
        let mut seen = std::collections::HashSet::new();
        let mut others = Vec::new();
        for address in addresses {
            if seen.insert(address.match_key()) && !self.is_own(snapshot, &address)? {
                others.push(address);
            }
        }
        Ok(others)
    }

    /// Returns whether mail to an address returns to this service: to the bounce host, or to the return path of a
    /// domain. A notice about such mail could cause another one.
    fn is_own(&self, read: &impl Read, address: &Address) -> Result<bool, StoreError> {
        let host = address.domain().as_str();
        let domain = host.strip_prefix("rp.").filter(|_| self.settings.receives_mail);
        let is_return_path = domain.map_or(Ok(false), |name| read.has(Table::DomainOwners, name.as_bytes()))?;
        Ok(is_return_path || host == self.settings.bounce_host)
    }
}

/// Returns whether the operator gets the alert: an alert of the service, or an account's alert that was critical.
fn concerns_operator(row: &AlertRow) -> bool {
    row.condition.scope() == Scope::System || row.worst == Severity::Critical
}

fn log(id: AlertId, row: &AlertRow, kind: NoticeKind) {
    let (condition, severity) = (row.condition.as_str(), row.severity.as_str());
    let subject = row.subject.as_ref().map_or("", |subject| &subject.id);
    match kind {
        NoticeKind::Resolved => tracing::info!(alert = %id, condition, subject, "alert resolved"),
        NoticeKind::Opened | NoticeKind::Worse | NoticeKind::Reminder | NoticeKind::Test => {
            let change = kind.as_str();
            if row.severity == Severity::Info {
                tracing::info!(alert = %id, condition, severity, subject, change, "alert open");
            } else {
                tracing::warn!(alert = %id, condition, severity, subject, change, "alert open");
            }
        }
    }
}
