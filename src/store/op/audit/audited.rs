//! Lines of the audit log for each operation.

use super::{Auditable, CONFIDENTIAL_URL, Values};
use crate::domain::account::{Account, QuotaLimits};
use crate::domain::api_key::ApiKey;
use crate::domain::audit::{Action, Change};
use crate::domain::user::User;
use crate::store::error::StoreError;
use crate::store::op::account::{CreateKey, RenameKey, RevokeKey, UpdateAccount};
use crate::store::op::cancel::CancelMessage;
use crate::store::op::dmarc::{IgnoreDmarcReporter, MarkDmarcSource};
use crate::store::op::domain::CreateDomain;
use crate::store::op::domain_change::{DeleteDomain, RotateDkim, RotateStandby, UpdateDomain};
use crate::store::op::endpoint::{CreateEndpoint, RotateSecret, UpdateEndpoint};
use crate::store::op::endpoint_end::DeleteEndpoint;
use crate::store::op::identity::{BindIdentity, CreateIdentified};
use crate::store::op::pause::{PauseSite, ResumeSite};
use crate::store::op::redeliver::{Redeliver, TestEndpoint};
use crate::store::op::session::EndSessions;
use crate::store::op::suppression::{Added, ImportSuppressions, Suppress, Unsuppress};
use crate::store::op::suppression_import::FinishImport;
use crate::store::op::suspension::{ResumeAccount, SuspendAccount, suspension};
use crate::store::op::user::{CreateUser, DeleteUser, UpdateUser};
use crate::store::read::Read as _;
use crate::store::row::domain::DomainRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::suppression::SuppressionRow;
use crate::store::row::suspension::SuspensionRow;
use crate::store::schema;
use crate::store::tables::Tables;

impl Auditable for UpdateAccount {
    fn change(&self, account: &Account) -> Change {
        Change::new(Action::SettingsChanged, account.id, account.name.as_str())
    }

    fn values(&self, read: &Tables<'_>) -> Result<Values, StoreError> {
        let Some(account) = read.row::<Account>(self.account.as_bytes())? else { return Ok(Values::new()) };
        let QuotaLimits { per_hour, per_day } = account.quota;
        Ok(vec![
            ("name", account.name.as_str().to_owned()),
            ("time_zone", account.time_zone.as_str().to_owned()),
            ("content_retention_days", account.content_retention_days.get().to_string()),
            ("hosted_unsubscribe", account.hosted_unsubscribe.to_string()),
            ("keep_message_id", account.keep_message_id.to_string()),
            ("quota_per_hour", per_hour.to_string()),
            ("quota_per_day", per_day.to_string()),
        ])
    }
}

impl Auditable for CreateUser {
    fn change(&self, user: &User) -> Change {
        Change::new(Action::UserAdded, user.id, format!("{} as {}", user.email.as_given(), user.role))
    }
}

impl Auditable for CreateIdentified {
    fn change(&self, user: &User) -> Change {
        let name = format!("{} as {}, at their first sign-in by OpenID Connect", user.email.as_given(), user.role);
        Change::new(Action::UserAdded, user.id, name)
    }
}

impl Auditable for BindIdentity {
    fn change(&self, user: &User) -> Change {
        Change::new(Action::IdentityBound, user.id, user.email.as_given())
    }
}

impl Auditable for UpdateUser {
    fn change(&self, user: &User) -> Change {
        let action = match (&self.password_hash, self.disabled, &self.totp, self.operator) {
            (_, _, _, Some(true)) => Action::OperatorNamed,
            (_, _, _, Some(false)) => Action::OperatorDismissed,
            (Some(_), _, _, None) => Action::PasswordChanged,
            (None, Some(true), _, None) => Action::UserDisabled,
            (None, Some(false), _, None) => Action::UserEnabled,
            (None, None, Some(Some(_)), None) => Action::SecondFactorSet,
            (None, None, Some(None), None) => Action::SecondFactorRemoved,
            (None, None, None, None) => Action::RoleChanged,
        };
        Change::new(action, user.id, user.email.as_given())
    }

    fn values(&self, read: &Tables<'_>) -> Result<Values, StoreError> {
        let user = read.row::<User>(&schema::user(self.account, self.user))?;
        Ok(user.map(|user| ("role", user.role.to_string())).into_iter().collect())
    }

    /// Returns whether the change is refused on a nearly full disk. A user who fears that a password is compromised
    /// must be able to change it even then.
    fn needs_space(&self) -> bool {
        let is_secured = self.password_hash.is_some() || self.totp.is_some();
        !is_secured && self.disabled != Some(true) && self.operator != Some(false)
    }
}

impl Auditable for DeleteUser {
    fn change(&self, user: &User) -> Change {
        Change::new(Action::UserRemoved, user.id, user.email.as_given())
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for EndSessions {
    fn change(&self, (): &()) -> Change {
        Change::new(Action::SessionsEnded, self.user, "their own")
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for CreateKey {
    fn change(&self, key: &ApiKey) -> Change {
        Change::new(Action::KeyCreated, key.id, &key.name)
    }
}

impl Auditable for RenameKey {
    fn change(&self, key: &ApiKey) -> Change {
        Change::new(Action::KeyRenamed, key.id, &key.name)
    }
}

impl Auditable for RevokeKey {
    fn change(&self, key: &ApiKey) -> Change {
        Change::new(Action::KeyRevoked, key.id, &key.name)
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for CreateDomain {
    fn change(&self, row: &DomainRow) -> Change {
        Change::new(Action::DomainAdded, self.id, row.name.as_str())
    }
}

impl Auditable for UpdateDomain {
    fn change(&self, row: &DomainRow) -> Change {
        let what = match (self.stream, self.rotation_days) {
            (None, Some(0)) => format!("{}: no DKIM rotation", row.name),
            (None, Some(days)) => format!("{}: DKIM rotation every {days} days", row.name),
            (_, _) => format!("{} to {}", row.name, row.stream),
        };
        Change::new(Action::DomainChanged, self.domain, what)
    }
}

impl Auditable for RotateDkim {
    fn change(&self, row: &DomainRow) -> Change {
        Change::new(Action::DomainKeysRotated, self.domain, row.name.as_str())
    }
}

impl Auditable for RotateStandby {
    fn change(&self, row: &DomainRow) -> Change {
        Change::new(Action::DomainKeysRotated, self.look.domain, row.name.as_str())
    }
}

impl Auditable for DeleteDomain {
    fn change(&self, row: &DomainRow) -> Change {
        Change::new(Action::DomainDeleted, self.domain, row.name.as_str())
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for MarkDmarcSource {
    fn change(&self, row: &DomainRow) -> Change {
        let mark = match self.is_mine {
            Some(true) => "its own",
            Some(false) => "not its own",
            None => "unmarked",
        };
        Change::new(Action::DmarcSourceMarked, self.domain, format!("{}: {} is {mark}", row.name, self.network))
    }
}

impl Auditable for IgnoreDmarcReporter {
    fn change(&self, row: &DomainRow) -> Change {
        let mark = if self.is_ignored { "is ignored" } else { "counts" };
        Change::new(Action::DmarcReporterMarked, self.domain, format!("{}: {} {mark}", row.name, self.name))
    }
}

/// Returns the host of an endpoint, by which users know it. The rest of its URL may be confidential.
pub fn host(row: &EndpointRow) -> &str {
    let rest = row.url.split_once("://").map_or(row.url.as_str(), |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Returns the name of an endpoint for people: its description, or its host.
fn title(row: &EndpointRow) -> &str {
    row.description.as_deref().filter(|words| !words.is_empty()).unwrap_or_else(|| host(row))
}

impl Auditable for CreateEndpoint {
    fn change(&self, row: &EndpointRow) -> Change {
        Change::new(Action::WebhookCreated, self.id, title(row))
    }
}

impl Auditable for UpdateEndpoint {
    fn change(&self, row: &EndpointRow) -> Change {
        let action = match self.enabled {
            Some(true) => Action::WebhookReactivated,
            Some(false) => Action::WebhookPaused,
            None => Action::WebhookChanged,
        };
        Change::new(action, self.endpoint, title(row))
    }

    fn values(&self, read: &Tables<'_>) -> Result<Values, StoreError> {
        let row = read.row::<EndpointRow>(&schema::endpoint(self.account, self.endpoint))?;
        let Some(row) = row else { return Ok(Values::new()) };
        let events = row.events.as_deref().map_or_else(
            || "all".to_owned(),
            |events| events.iter().map(|event| event.as_str()).collect::<Vec<_>>().join(" and "),
        );
        Ok(vec![
            ("description", row.description.clone().unwrap_or_else(|| "none".to_owned())),
            ("host", host(&row).to_owned()),
            (CONFIDENTIAL_URL, row.url.clone()),
            ("events", events),
        ])
    }

    fn needs_space(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl Auditable for RotateSecret {
    fn change(&self, row: &EndpointRow) -> Change {
        Change::new(Action::WebhookSecretRotated, self.endpoint, title(row))
    }
}

impl Auditable for DeleteEndpoint {
    fn change(&self, row: &EndpointRow) -> Change {
        Change::new(Action::WebhookDeleted, self.endpoint, title(row))
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for TestEndpoint {
    fn change(&self, _: &Self::Reply) -> Change {
        Change::new(Action::WebhookTested, self.endpoint, "")
    }
}

impl Auditable for Redeliver {
    fn change(&self, delivery: &Self::Reply) -> Change {
        Change::new(Action::DeliverySentAgain, self.delivery, delivery.to_string())
    }
}

impl Auditable for Suppress {
    fn change(&self, added: &Added) -> Change {
        Change::new(Action::AddressSuppressed, added.row.id, &added.row.email)
    }
}

impl Auditable for ImportSuppressions {
    fn change(&self, _: &usize) -> Change {
        imported(self.suppressions.len())
    }
}

impl Auditable for FinishImport {
    fn change(&self, (): &()) -> Change {
        imported(self.count)
    }
}

fn imported(count: usize) -> Change {
    Change::new(Action::SuppressionsImported, "", format!("a list of {count}"))
}

impl Auditable for Unsuppress {
    fn change(&self, row: &SuppressionRow) -> Change {
        Change::new(Action::SuppressionLifted, row.id, &row.email)
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for PauseSite {
    fn change(&self, (): &()) -> Change {
        Change::new(Action::SitePaused, "", self.site.as_str())
    }
}

impl Auditable for ResumeSite {
    fn change(&self, (): &()) -> Change {
        Change::new(Action::SiteResumed, "", self.site.as_str())
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for SuspendAccount {
    fn change(&self, _: &SuspensionRow) -> Change {
        Change::new(Action::AccountSuspended, "", self.reason.as_str())
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for ResumeAccount {
    fn change(&self, (): &()) -> Change {
        Change::new(Action::AccountResumed, "", "")
    }

    fn values(&self, read: &Tables<'_>) -> Result<Values, StoreError> {
        Ok(vec![("suspended", suspension(read, self.account)?.is_some().to_string())])
    }

    /// Resuming an account that isn't suspended changes nothing.
    fn is_logged(&self, before: &Values, after: &Values) -> bool {
        before != after
    }

    fn needs_space(&self) -> bool {
        false
    }
}

impl Auditable for CancelMessage {
    fn change(&self, (): &()) -> Change {
        Change::new(Action::MessageCanceled, self.message, "")
    }

    fn needs_space(&self) -> bool {
        false
    }
}
