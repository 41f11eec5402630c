//! Invitations to the panel. The link is sent by email, like an alert, and proves the user's address. Without outgoing
//! mail, the inviting user sees the link, and it proves nothing.

use super::Engine;
use super::audit::Behalf;
use super::setup_link::SetupLink;
use super::users::UserRefusal;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::setup_link::{self, SetupToken};
use crate::domain::user::{Role, User};
use crate::store::error::{OpError, StoreError};
use crate::store::op::invitation::{InviteRefusal, InviteUser, LinkChannel};
use crate::store::op::user::CreateUserRefusal;
use crate::store::row::notice::InvitationRow;

/// An invited user.
#[derive(Debug)]
pub enum InvitedUser {
    /// The link is sent to the user by email.
    ByMail(User),
    /// The inviting user passes on the link.
    ByLink(User, SetupLink),
}

/// Reason why a user is not invited.
#[derive(Debug)]
pub enum InvitationRefusal {
    /// The user can't be created.
    User(UserRefusal),
    /// The account has reached its daily limit of invitations.
    TooMany {
        /// Time from which the next invitation is possible.
        until: Timestamp,
    },
}

impl Engine {
    /// Creates a user with an unknown password, and invites them to choose one.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn invite_user(
        &self,
        on: Behalf,
        email: Address,
        role: Role,
    ) -> Result<InvitedUser, OpError<InvitationRefusal>> {
        self.check_space()?;
        let channel = if self.settings.mails_invitations { LinkChannel::Mail } else { LinkChannel::Inviter };
        let (user, _password) = self.new_user(on.account, email, role).await.map_err(|_| UserRefusal::Crowded)?;
        let op = InviteUser { account: on.account, actor: on.actor.clone(), user, channel };
        let user = self.store.commit(op).await.map_err(refused)?;
        match channel {
            LinkChannel::Mail => Ok(InvitedUser::ByMail(user)),
            LinkChannel::Inviter => {
                let link = self.setup_link(on, user.id).await?.ok_or(UserRefusal::NotFound)?;
                Ok(InvitedUser::ByLink(user, link))
            }
        }
    }

    /// Returns the address and the link of an invitation that is due. `None` if the invitation has expired, or its user
    /// is gone or has signed in already.
    pub(super) fn invitation_link(&self, invitation: &InvitationRow) -> Result<Option<(Address, String)>, StoreError> {
        let InvitationRow { account, user, line, expires_at } = *invitation;
        let now = self.clock.now();
        if now >= expires_at {
            return Ok(None);
        }
        // A link that lasts longer is refused: a clock that was ahead made it.
        let expires_at = expires_at.min(now + setup_link::LIFETIME);
        let user = self.user(account, user)?.filter(|user| !user.disabled && user.last_sign_in_at.is_none());
        let Some(user) = user else { return Ok(None) };
        let credentials = self.link_credentials(account, &user)?;
        let token = SetupToken::sign(&self.setup_key(), (account, user.id), &credentials, expires_at, line);
        let public_url = self.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        Ok(Some((user.email, format!("{public_url}/setup?token={token}"))))
    }
}

impl From<UserRefusal> for OpError<InvitationRefusal> {
    fn from(refusal: UserRefusal) -> Self {
        Self::Refused(InvitationRefusal::User(refusal))
    }
}

fn refused(stop: OpError<InviteRefusal>) -> OpError<InvitationRefusal> {
    match stop {
        OpError::Failed(error) => OpError::Failed(error),
        OpError::Refused(InviteRefusal::TooMany { until }) => OpError::Refused(InvitationRefusal::TooMany { until }),
        OpError::Refused(InviteRefusal::User(CreateUserRefusal::NoSuchAccount)) => UserRefusal::NotFound.into(),
        OpError::Refused(InviteRefusal::User(CreateUserRefusal::EmailTaken)) => UserRefusal::EmailTaken.into(),
        OpError::Refused(InviteRefusal::User(CreateUserRefusal::TooMany)) => UserRefusal::TooMany.into(),
    }
}
