//! Users who were invited and have not signed in yet. Nothing is stored for a setup link, but the audit log has the
//! time of its creation.

use std::collections::HashMap;

use super::page_guard::Visit;
use super::timestamp::ShortTime;
use crate::base::time::Timestamp;
use crate::domain::audit::Action;
use crate::domain::setup_link::LIFETIME;
use crate::domain::user::User;
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;

/// Maximum number of the newest audit lines that are read.
const LOOKED_AT: usize = 1_000;

/// An invitation that was not accepted yet.
pub(super) struct Invitation {
    /// End of the newest link.
    pub(super) ends_at: ShortTime,
    /// Whether the link has expired.
    pub(super) is_expired: bool,
}

/// Creation times of the newest setup links.
pub(super) struct Invitations(HashMap<String, Timestamp>);

impl Invitations {
    /// Reads the links of those of the users who have never signed in.
    ///
    /// # Errors
    /// Store errors.
    pub(super) fn of(visit: &Visit<'_>, users: &[User]) -> Result<Self, StoreError> {
        let mut links = HashMap::new();
        if users.iter().any(|user| user.last_sign_in_at.is_none()) {
            let page = PageRequest { before: None, limit: LOOKED_AT };
            for (_, row) in visit.api.engine.audit_log(visit.account_id(), page)?.rows {
                if matches!(row.change.action, Action::UserInvited | Action::SetupLinkMade) {
                    links.entry(row.change.object).or_insert(row.at);
                }
            }
        }
        Ok(Self(links))
    }

    /// Returns the invitation of a user who has not accepted it yet.
    pub(super) fn open(&self, visit: &Visit<'_>, user: &User) -> Option<Invitation> {
        let made_at = self.0.get(&user.id.to_string()).filter(|_| user.last_sign_in_at.is_none())?;
        let ends_at = *made_at + LIFETIME;
        Some(Invitation { ends_at: visit.moment(ends_at).short(visit.now), is_expired: ends_at <= visit.now })
    }
}
