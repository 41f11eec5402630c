//! Inviting a user, and the addresses to which the service may send mail. An address qualifies if the operator
//! set it on the command line, or if its owner opened a link sent to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::audit::{self, Auditable};
use super::user::{CreateUser, CreateUserRefusal};
use super::{Op, notice};
use crate::base::id::{AccountId, ChangeId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::audit::{Action, Actor, Change};
use crate::domain::setup_link;
use crate::domain::user::User;
use crate::machine::service_clock::DIFFERENCE_MAX;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::audit::AuditRow;
use crate::store::row::notice::{InvitationRow, InvitationsRow, NoticeContent, ProvenAddressRow};
use crate::store::schema;
use crate::store::tables::Tables;

/// Maximum number of invitations of one account within [`WINDOW`].
pub const INVITATIONS_MAX: usize = 20;
/// Time over which invitations are counted.
pub const WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Way in which an invited user gets the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkChannel {
    /// The service sends the link by mail.
    Mail,
    /// The inviting user passes the link on. Its use proves no address.
    Inviter,
}

/// Creates a user and invites them.
#[derive(Debug, Serialize, Deserialize)]
pub struct InviteUser {
    /// The account.
    pub account: AccountId,
    /// The user who invites.
    pub actor: Actor,
    /// The user, with a random password that is never shown.
    pub user: User,
    /// Way of the link.
    pub channel: LinkChannel,
}

/// Reason why an invitation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InviteRefusal {
    /// The user can't be created.
    User(CreateUserRefusal),
    /// The account has made [`INVITATIONS_MAX`] invitations within a day.
    TooMany {
        /// Time at which the next one may be made.
        until: Timestamp,
    },
}

impl Op for InviteUser {
    type Reply = User;
    type Refusal = InviteRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<InviteRefusal>> {
        let now = tables.now();
        let mut made = tables.row::<InvitationsRow>(self.account.as_bytes())?.unwrap_or_default().made;
        // Times after this one were recorded by a clock that was ahead.
        made.retain(|at| *at + WINDOW > now && *at <= now + DIFFERENCE_MAX);
        if made.len() >= INVITATIONS_MAX {
            let until = made.first().map_or(now, |first| *first + WINDOW);
            return Err(OpError::Refused(InviteRefusal::TooMany { until }));
        }
        let create = CreateUser { account: self.account, user: self.user.clone() };
        let user = create.apply(tables).map_err(|stop| match stop {
            OpError::Refused(refusal) => OpError::Refused(InviteRefusal::User(refusal)),
            OpError::Failed(error) => OpError::Failed(error),
        })?;
        made.push(now);
        tables.put(self.account.as_bytes(), &InvitationsRow { made });
        match self.channel {
            LinkChannel::Inviter => {
                audit::write(tables, self.account, &self.actor, create.change(&user))?;
            }
            LinkChannel::Mail => {
                let name = format!("{} as {}", user.email.as_given(), user.role);
                let change = Change::new(Action::UserInvited, user.id, name);
                let line = audit::write(tables, self.account, &self.actor, change)?;
                let expires_at = now + setup_link::LIFETIME;
                let invitation = InvitationRow { account: self.account, user: user.id, line, expires_at };
                notice::add(tables, NoticeContent::Invitation(invitation), now);
            }
        }
        Ok(user)
    }
}

/// A change of a user that also proves their address: the operator made it on the command line, or the user opened a
/// link sent to the address.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProvingAddress<O>(pub O);

impl<O: Auditable<Reply = User>> Op for ProvingAddress<O> {
    type Reply = User;
    type Refusal = O::Refusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<O::Refusal>> {
        let user = self.0.apply(tables)?;
        prove(tables, &user.email)?;
        Ok(user)
    }
}

impl<O: Auditable<Reply = User>> Auditable for ProvingAddress<O> {
    fn change(&self, user: &User) -> Change {
        self.0.change(user)
    }

    fn needs_space(&self) -> bool {
        self.0.needs_space()
    }
}

/// Returns whether an address has been proven to belong to its owner.
///
/// # Errors
/// Database errors.
pub fn is_proven(read: &impl Read, email: &Address) -> Result<bool, StoreError> {
    Ok(read.sound_row::<ProvenAddressRow>(email.match_key().as_bytes())?.is_some())
}

/// Records that an address is proven: its owner opened a link, or the operator confirmed it.
///
/// # Errors
/// Database errors.
pub(super) fn prove(tables: &mut Tables<'_>, email: &Address) -> Result<(), StoreError> {
    if !is_proven(tables, email)? {
        let since = tables.now();
        tables.put(email.match_key().as_bytes(), &ProvenAddressRow { since });
    }
    Ok(())
}

/// Returns whether the link in an audit line was sent by mail.
///
/// # Errors
/// Database errors.
pub fn was_sent(read: &impl Read, account: AccountId, line: ChangeId) -> Result<bool, StoreError> {
    let row: Option<AuditRow> = read.sound_row(&schema::change(account, line))?;
    Ok(row.is_some_and(|row| row.change.action == Action::UserInvited))
}

#[cfg(test)]
mod tests;
