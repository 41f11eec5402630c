//! Links by which users choose their own password ([`crate::domain::setup_link`]): making them, and honouring them.

use super::Engine;
use super::audit::Behalf;
use super::sign_in::{Begun, SignInRefusal};
use super::users::{UserChange, UserRefusal};
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::audit::Person;
use crate::domain::session::{Client, Session, Stage};
use crate::domain::setup_link::{KEY_PURPOSE, LIFETIME, SetupToken};
use crate::domain::user::{NewPassword, User};
use crate::store::error::{Stop, StoreError};

/// A link that was made.
#[derive(Debug)]
pub struct SetupLink {
    /// The whole address. Secret.
    pub url: String,
    /// Until when it is good.
    pub expires_at: Timestamp,
}

impl Engine {
    fn setup_key(&self) -> Secret {
        self.store.master_key().derive(KEY_PURPOSE)
    }

    /// A link for a user of the account; none where there is no such user, or they are kept from signing in. The ones
    /// made before stay good.
    ///
    /// # Errors
    /// Those of the store.
    pub fn setup_link(&self, account: AccountId, user: UserId) -> Result<Option<SetupLink>, StoreError> {
        let Some(user) = self.user(account, user)?.filter(|user| !user.disabled) else { return Ok(None) };
        let expires_at = self.clock.now() + LIFETIME;
        let token = SetupToken::sign(&self.setup_key(), account, user.id, &user.password_hash, expires_at);
        let public_url = self.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        Ok(Some(SetupLink { url: format!("{public_url}/setup?token={token}"), expires_at }))
    }

    /// Who may choose a password by this token, if anybody may.
    ///
    /// # Errors
    /// Those of the store.
    pub fn user_by_link(&self, token: &str) -> Result<Option<(AccountId, User)>, StoreError> {
        let Ok(token) = token.parse::<SetupToken>() else { return Ok(None) };
        let user = self.user(token.account, token.user)?.filter(|user| !user.disabled);
        let holds = |user: &User| token.holds(&self.setup_key(), &user.password_hash, self.clock.now());
        Ok(user.filter(holds).map(|user| (token.account, user)))
    }

    /// Sets the password that the user of a token has chosen, which ends the token and their other sessions, and begins
    /// a session: a whole one, or one that awaits the second factor.
    ///
    /// # Errors
    /// [`SignInRefusal::Wrong`] where the token does not hold, or was used meanwhile; or the store's failure.
    pub async fn set_up(
        &self,
        (account, user): (AccountId, User),
        password: NewPassword,
        from: Client<'_>,
    ) -> Result<Begun, Stop<SignInRefusal>> {
        let person = Person { user: user.id, email: user.email.as_given().to_owned() };
        let change = UserChange {
            password: Some(password),
            instead_of: Some(user.password_hash.clone()),
            ..UserChange::default()
        };
        let changed = self.change_user(Behalf { account, person: Some(person) }, user.id, change).await;
        let user = changed.map_err(|stop| match stop {
            Stop::Refused(UserRefusal::Crowded) => Stop::Refused(SignInRefusal::Crowded),
            Stop::Refused(UserRefusal::NotFound | UserRefusal::EmailTaken) => Stop::Refused(SignInRefusal::Wrong),
            Stop::Failed(error) => Stop::Failed(error),
        })?;
        let stage = if user.totp.is_some() { Stage::CodeAwaited } else { Stage::SignedIn };
        let session = Session::begin(account, user.id, stage, from, self.clock.now());
        self.begin_session(session, &user, None, None).await
    }
}
