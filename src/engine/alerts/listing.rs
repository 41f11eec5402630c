//! Reading alerts: an account's, the service's, or all.

use std::ops::ControlFlow;

use super::record::Alert;
use crate::base::id::{AccountId, AlertId, Ulid, UserId};
use crate::domain::alert::{Condition, Severity, SubjectKind};
use crate::engine::Engine;
use crate::engine::listing::{Page, PageRequest, last_id, range};
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::alert::{AlertRow, OpenAlertRow};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Maximum number of open alerts that a page header counts.
const STRIP_MAX: usize = 100;

/// Whether an alert has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertState {
    /// Open alerts.
    Open,
    /// Ended alerts.
    Resolved,
}

/// Error: the text is not a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be open or resolved")]
pub struct InvalidAlertState;

impl std::str::FromStr for AlertState {
    type Err = InvalidAlertState;

    fn from_str(text: &str) -> Result<Self, InvalidAlertState> {
        match text {
            "open" => Ok(Self::Open),
            "resolved" => Ok(Self::Resolved),
            _ => Err(InvalidAlertState),
        }
    }
}

/// Conditions on alerts; `None` matches everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlertFilter {
    /// Whether the alert has ended.
    pub state: Option<AlertState>,
    /// The alert's condition.
    pub condition: Option<Condition>,
    /// The user that the alert is about.
    pub user: Option<UserId>,
}

impl AlertFilter {
    fn takes(&self, row: &AlertRow) -> bool {
        let is_in_state = match self.state {
            Some(AlertState::Open) => row.resolved_at.is_none(),
            Some(AlertState::Resolved) => row.resolved_at.is_some(),
            None => true,
        };
        let is_about = |user: UserId| {
            let subject = row.subject.as_ref().filter(|subject| subject.kind == SubjectKind::User);
            subject.is_some_and(|subject| subject.id == user.to_string())
        };
        is_in_state
            && self.condition.is_none_or(|condition| condition == row.condition)
            && self.user.is_none_or(is_about)
    }
}

/// Number of open alerts that an account sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenAlerts {
    /// Number of open alerts.
    pub count: usize,
    /// The highest severity among the open alerts.
    pub worst: Option<Severity>,
    /// Summary of the open alert, if there is only one.
    pub summary: Option<String>,
}

/// Scope of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertsOf {
    /// Alerts of an account. If it is the only account, it also sees the service's.
    Account(AccountId),
    /// Alerts of an operator's account, and the service's.
    Operator(AccountId),
    /// All alerts, for the operator.
    All,
}

impl Engine {
    /// Returns a page of alerts, newest first. May read many rows, so it blocks.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn alerts_of(&self, of: AlertsOf, filter: AlertFilter, page: PageRequest) -> Result<Page<Alert>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let mut found = match of {
            AlertsOf::All => all(&snapshot, filter, page)?,
            AlertsOf::Account(_) | AlertsOf::Operator(_) => {
                let mut found = Vec::new();
                for scope in scopes(&snapshot, of)? {
                    found.extend(of_scope(&snapshot, scope, filter, page)?);
                }
                found
            }
        };
        found.sort_by_key(|alert| std::cmp::Reverse(alert.id));
        Ok(Page::cut(found.into_iter().map(|alert| (alert.id.0, alert)).collect(), page.limit))
    }

    /// Returns one alert.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn alert(&self, of: AlertsOf, id: AlertId) -> Result<Option<Alert>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let scopes = match of {
            AlertsOf::Account(_) | AlertsOf::Operator(_) => scopes(&snapshot, of)?,
            AlertsOf::All => snapshot.get(Table::AlertOwners, id.as_bytes())?.and_then(owner).into_iter().collect(),
        };
        for account in scopes {
            if let Some(row) = snapshot.row::<AlertRow>(&schema::alert(account, id))? {
                return Ok(Some(Alert { account, id, row }));
            }
        }
        Ok(None)
    }

    /// Returns whether the service's alerts are among those of a listing.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn has_service_alerts(&self, of: AlertsOf) -> Result<bool, StoreError> {
        Ok(of == AlertsOf::All || scopes(&self.store.snapshot()?, of)?.len() > 1)
    }

    /// Returns the open alerts of an account or operator, for the header of the pages.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn open_alerts(&self, of: AlertsOf) -> Result<OpenAlerts, StoreError> {
        self.open_alerts_except(of, &[])
    }

    /// Returns the open alerts of an account or operator, without those of some conditions.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn open_alerts_except(&self, of: AlertsOf, except: &[Condition]) -> Result<OpenAlerts, StoreError> {
        let snapshot = self.store.snapshot()?;
        let (mut open, mut last) = (OpenAlerts::default(), Vec::new());
        for scope in scopes(&snapshot, of)? {
            let rows = snapshot.sound_rows::<OpenAlertRow>(scope.as_bytes(), STRIP_MAX)?;
            for (key, row) in rows.into_iter().filter(|(_, row)| !except.contains(&row.condition)) {
                open.count += 1;
                open.worst = open.worst.max(Some(row.severity));
                last = key;
            }
        }
        if open.count == 1 {
            open.summary = snapshot.sound_row::<AlertRow>(&last)?.map(|alert| alert.summary);
        }
        Ok(open)
    }

    /// Counts the open alerts by condition and severity. Combinations that a condition can't have are skipped.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn open_alert_counts(&self) -> Result<Vec<(Condition, Severity, u64)>, StoreError> {
        let severities = |condition: &Condition| {
            let condition = *condition;
            condition.severities().iter().map(move |severity| (condition, *severity, 0))
        };
        let mut counts: Vec<_> = Condition::ALL.iter().flat_map(severities).collect();
        let snapshot = self.store.snapshot()?;
        snapshot.scan_sound(Table::OpenAlerts, &[], &after_prefix(&[]), Order::Ascending, &mut |_, bytes| {
            if let Some(open) = sound(OpenAlertRow::decode(bytes))?
                && let Some(count) = counts
                    .iter_mut()
                    .find(|(condition, severity, _)| (*condition, *severity) == (open.condition, open.severity))
            {
                count.2 += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(counts)
    }
}

fn owner(bytes: Vec<u8>) -> Option<AccountId> {
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| AccountId(Ulid(bytes)))
}

/// Returns the scopes whose alerts an account or operator sees.
fn scopes(snapshot: &Snapshot, of: AlertsOf) -> Result<Vec<AccountId>, StoreError> {
    let keys = |most| snapshot.sound_keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, most);
    Ok(match of {
        AlertsOf::Operator(account) => vec![account, AccountId::default()],
        AlertsOf::Account(account) if keys(2)?.len() == 1 => vec![account, AccountId::default()],
        AlertsOf::Account(account) => vec![account],
        AlertsOf::All => {
            let accounts = keys(usize::MAX)?.into_iter().filter_map(owner);
            accounts.chain([AccountId::default()]).collect()
        }
    })
}

/// Returns one more alert of a scope than the page holds, before its position.
fn of_scope(
    snapshot: &Snapshot,
    account: AccountId,
    filter: AlertFilter,
    page: PageRequest,
) -> Result<Vec<Alert>, StoreError> {
    let (from, to) = range(account.as_bytes(), page.before);
    let mut found = Vec::new();
    snapshot.scan_sound(Table::Alerts, &from, &to, Order::Descending, &mut |key, bytes| {
        if let Some(id) = last_id(key)
            && let Some(row) = sound(AlertRow::decode(bytes))?.filter(|row| filter.takes(row))
        {
            found.push(Alert { account, id: AlertId(id), row });
        }
        Ok(if found.len() > page.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Returns one more alert than the page holds, before its position.
fn all(snapshot: &Snapshot, filter: AlertFilter, page: PageRequest) -> Result<Vec<Alert>, StoreError> {
    let (from, to) = range(&[], page.before);
    let mut found = Vec::new();
    snapshot.scan_sound(Table::AlertOwners, &from, &to, Order::Descending, &mut |key, bytes| {
        if let (Some(id), Some(account)) = (last_id(key), owner(bytes.to_vec()))
            && let Some(row) = snapshot.sound_row::<AlertRow>(&schema::alert(account, AlertId(id)))?
            && filter.takes(&row)
        {
            found.push(Alert { account, id: AlertId(id), row });
        }
        Ok(if found.len() > page.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}
