//! Links with which users choose their own password ([`crate::domain::setup_link`]): creating and redeeming them.

use super::Engine;
use super::audit::Behalf;
use super::sign_in::{SignInRefusal, StartedSession};
use super::users::{UserChange, UserRefusal};
use crate::base::id::{AccountId, ChangeId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::audit::{Action, Actor, Change};
use crate::domain::session::{Client, Session, Stage};
use crate::domain::setup_link::{KEY_PURPOSE, LIFETIME, SetupToken, credentials};
use crate::domain::user::{NewPassword, User};
use crate::store::error::{OpError, StoreError};
use crate::store::op::invitation::was_sent;
use crate::store::read::Read as _;
use crate::store::row::audit::AuditRow;
use crate::store::row::identity::IdentityRow;
use crate::store::schema;

/// A new link.
#[derive(Debug)]
pub struct SetupLink {
    /// Complete URL. Secret.
    pub url: String,
    /// Expiry time.
    pub expires_at: Timestamp,
}

/// User who may choose a password with a link.
#[derive(Debug)]
pub struct LinkedUser {
    /// The user's account.
    pub account: AccountId,
    /// The user.
    pub user: User,
    /// Line of the audit log that names the link's creator.
    line: Option<ChangeId>,
}

impl Engine {
    pub(super) fn setup_key(&self) -> Secret {
        self.store.master_key().derive(KEY_PURPOSE)
    }

    /// Returns the part of a user's state that invalidates their links when it changes.
    pub(super) fn link_credentials(&self, account: AccountId, user: &User) -> Result<String, StoreError> {
        let identity: Option<IdentityRow> = self.store.snapshot()?.row(&schema::user(account, user.id))?;
        let digest = identity.map(|identity| identity.digest());
        Ok(credentials(user, digest.as_ref().map(|digest| &digest[..])))
    }

    /// Creates a link for a user of the account; `None` if there is no such user, or the user is disabled. Earlier
    /// links stay valid. Writes the line of the audit log before the link is returned.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn setup_link(&self, on: impl Into<Behalf>, user: UserId) -> Result<Option<SetupLink>, StoreError> {
        let on = on.into();
        let account = on.account;
        let Some(user) = self.user(account, user)?.filter(|user| !user.disabled) else { return Ok(None) };
        let line = self.note(&on, Change::new(Action::SetupLinkMade, user.id, user.email.as_given())).await?;
        let expires_at = self.clock.now() + LIFETIME;
        let owner = (account, user.id);
        let credentials = self.link_credentials(account, &user)?;
        let token = SetupToken::sign(&self.setup_key(), owner, &credentials, expires_at, line);
        let public_url = self.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        Ok(Some(SetupLink { url: format!("{public_url}/setup?token={token}"), expires_at }))
    }

    /// Returns the user who may choose a password with this token.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn user_by_link(&self, token: &str) -> Result<Option<LinkedUser>, StoreError> {
        let Ok(token) = token.parse::<SetupToken>() else { return Ok(None) };
        let user = self.user(token.account, token.user)?.filter(|user| !user.disabled);
        let Some(user) = user else { return Ok(None) };
        let credentials = self.link_credentials(token.account, &user)?;
        let holds = token.holds(&self.setup_key(), &credentials, self.clock.now());
        Ok(holds.then_some(LinkedUser { account: token.account, user, line: token.line }))
    }

    /// Returns whether this token belongs to the user and was sent to their address, which proves that they read mail
    /// there.
    pub(super) fn is_sent_link(&self, token: &str, user: UserId) -> Result<bool, StoreError> {
        let Some(linked) = self.user_by_link(token)?.filter(|linked| linked.user.id == user) else { return Ok(false) };
        self.was_sent(&linked)
    }

    fn was_sent(&self, linked: &LinkedUser) -> Result<bool, StoreError> {
        let snapshot = self.store.snapshot()?;
        linked.line.map_or(Ok(false), |line| was_sent(&snapshot, linked.account, line))
    }

    /// Returns the creator of a link, as shown in the audit log.
    fn maker_of(&self, linked: &LinkedUser) -> Result<String, StoreError> {
        let Some(line) = linked.line else { return Ok("an earlier version".to_owned()) };
        let row: Option<AuditRow> = self.store.snapshot()?.row(&schema::change(linked.account, line))?;
        Ok(row.map_or_else(|| line.to_string(), |row| row.actor.to_string()))
    }

    /// Sets the password that the user of a token has chosen. This invalidates the token, ends the user's other
    /// sessions, and starts a session: a complete one, or one that awaits the second factor.
    ///
    /// # Errors
    /// [`SignInRefusal::Wrong`] if the token is invalid or was used meanwhile, or the store's failure.
    pub async fn set_up(
        &self,
        linked: LinkedUser,
        password: NewPassword,
        from: Client<'_>,
    ) -> Result<StartedSession, OpError<SignInRefusal>> {
        let actor = Actor::SetupLink { maker: self.maker_of(&linked)? };
        // Only the owner of the address could open a link that was sent there.
        let proves_address = self.was_sent(&linked)?;
        let LinkedUser { account, user, line: _ } = linked;
        let change = UserChange {
            password: Some(password),
            instead_of: Some(user.password_hash.clone()),
            proves_address,
            ..UserChange::default()
        };
        let changed = self.change_user(Behalf::new(account, actor), user.id, change).await;
        let user = changed.map_err(|stop| match stop {
            OpError::Refused(UserRefusal::Crowded) => OpError::Refused(SignInRefusal::Crowded),
            OpError::Refused(
                UserRefusal::NotFound | UserRefusal::EmailTaken | UserRefusal::TooMany | UserRefusal::LastOwner,
            ) => OpError::Refused(SignInRefusal::Wrong),
            OpError::Failed(error) => OpError::Failed(error),
        })?;
        let stage = if user.totp.is_some() { Stage::CodeAwaited } else { Stage::SignedIn };
        let session = Session::begin(account, user.id, stage, from, self.clock.now());
        self.begin_session(session, &user, None, None, from).await
    }
}
