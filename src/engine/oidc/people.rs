//! Users of people whom the provider authenticated. A user is found by the provider's subject identifier, or bound or
//! created at the person's first sign-in.

use super::{Oidc, OidcRefusal, Outcome, identity_of, refuse};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::audit::Actor;
use crate::domain::device::Devices;
use crate::domain::id_token::IdToken;
use crate::domain::session::{OwnedClient, Session, Stage};
use crate::domain::sign_in_log::SignInLog;
use crate::domain::user::{NewPassword, User};
use crate::engine::Engine;
use crate::engine::audit::Behalf;
use crate::engine::sign_in::{SignInRefusal, StartedSession};
use crate::store::error::OpError;
use crate::store::op::identity::{
    BindIdentity, BindRefusal, CreateIdentified, CreateIdentifiedRefusal, user_by_identity,
};
use crate::store::op::invitation::ProvingAddress;
use crate::store::op::user::{CreateUser, CreateUserRefusal, user_by_email};
use crate::store::row::identity::IdentityRow;

impl Engine {
    /// Starts the session of an authenticated person, who came by the setup link of this token.
    pub(super) async fn session_of(
        &self,
        oidc: &Oidc,
        (person, link): (&IdToken, &str),
        from: &OwnedClient,
        real_now: Timestamp,
    ) -> Outcome<StartedSession> {
        let (account, user) = self.identified(oidc, person, link).await?;
        if user.disabled {
            return refuse(OidcRefusal::Disabled);
        }
        let now = self.clock.now();
        let session = Session::begin(account, user.id, Stage::SignedIn, from.as_client(), now);
        // A provider with a session in the browser may not have authenticated the person now. So only its stated time
        // of authentication is a proof.
        let proved_at = person.authenticated_at.map_or(Timestamp::ZERO, |at| now - real_now.since(at));
        let session = Session { proved_at, ..session };
        let begun = self.begin_session(session, &user, None, None, from.as_client()).await;
        begun.map_err(|stop| match stop {
            OpError::Failed(error) => OpError::Failed(error),
            // The user was changed meanwhile.
            OpError::Refused(SignInRefusal::Wrong | SignInRefusal::Throttled(_) | SignInRefusal::Crowded) => {
                OpError::Refused(OidcRefusal::Disabled)
            }
        })
    }

    /// Returns whether the person has signed in with this browser before.
    pub(super) fn knows_browser(
        &self,
        oidc: &Oidc,
        person: &IdToken,
        from: &OwnedClient,
    ) -> Result<bool, OpError<OidcRefusal>> {
        let found = user_by_identity(&self.store.snapshot()?, &identity_of(oidc, person))?;
        Ok(found.is_some_and(|(_, user)| self.known_browser(&user, from.as_client()).is_some()))
    }

    /// Returns the user of a person, bound or created at their first sign-in. An invited user has the role of the
    /// invitation, and their first sign-in invalidates its link.
    async fn identified(&self, oidc: &Oidc, person: &IdToken, link: &str) -> Outcome<(AccountId, User)> {
        let identity = identity_of(oidc, person);
        if let Some(found) = user_by_identity(&self.store.snapshot()?, &identity)? {
            return Ok(found);
        }
        let email = person.email.as_ref().filter(|_| person.email_verified);
        let Some(email) = email.and_then(|email| email.parse::<Address>().ok()) else {
            return refuse(OidcRefusal::Unverified);
        };
        let known = user_by_email(&self.store.snapshot()?, &email.match_key())?;
        match known {
            Some((_, user)) if user.disabled => refuse(OidcRefusal::Disabled),
            Some((account, user)) => {
                let op = BindIdentity { account, user: user.id, identity };
                let on = Behalf::new(account, Actor::Service);
                // Only the owner of the address could open a link that was sent there.
                let bound = match self.is_sent_link(link, user.id)? {
                    true => self.commit_on(on, ProvingAddress(op)).await,
                    false => self.commit_on(on, op).await,
                };
                bound.map(|user| (account, user)).map_err(|stop| match stop {
                    OpError::Refused(BindRefusal::Taken) => OpError::Refused(OidcRefusal::Taken),
                    OpError::Refused(BindRefusal::NotFound) => OpError::Refused(OidcRefusal::Nobody),
                    OpError::Failed(error) => OpError::Failed(error),
                })
            }
            None => match self.newcomer(oidc, email, identity).await {
                Err(OpError::Refused(OidcRefusal::Nobody)) if !link.is_empty() => refuse(OidcRefusal::OtherAddress),
                joined => joined,
            },
        }
    }

    /// Creates a user for a person at their first sign-in, if their domain is allowed.
    async fn newcomer(&self, oidc: &Oidc, email: Address, identity: IdentityRow) -> Outcome<(AccountId, User)> {
        let settings = &oidc.settings;
        let Some(account) = settings.account.filter(|_| settings.allowed_domains.contains(email.domain())) else {
            return refuse(OidcRefusal::Nobody);
        };
        self.check_space()?;
        // The password stays unknown; a setup link can replace it.
        let password = NewPassword::generate(&*self.entropy);
        let hashed = self.passwords.hash(account, &password, &*self.entropy).await;
        let password_hash = hashed.map_err(|_| OpError::Refused(OidcRefusal::Crowded))?;
        let now = self.clock.now();
        let user = User {
            id: self.store.reserve_id(now),
            email,
            role: settings.default_role,
            password_hash,
            totp: None,
            created_at: now,
            last_sign_in_at: None,
            disabled: false,
            devices: Devices::default(),
            is_operator: false,
            sign_ins: SignInLog::default(),
        };
        let op = CreateIdentified { create: CreateUser { account, user }, identity };
        let made = self.commit_on(Behalf::new(account, Actor::Service), op).await;
        made.map(|user| (account, user)).map_err(|stop| match stop {
            OpError::Refused(CreateIdentifiedRefusal::Taken) => OpError::Refused(OidcRefusal::Taken),
            OpError::Refused(CreateIdentifiedRefusal::NotMade(CreateUserRefusal::EmailTaken)) => {
                OpError::Refused(OidcRefusal::Taken)
            }
            OpError::Refused(
                CreateIdentifiedRefusal::Suspended
                | CreateIdentifiedRefusal::NotMade(CreateUserRefusal::NoSuchAccount | CreateUserRefusal::TooMany),
            ) => OpError::Refused(OidcRefusal::Closed),
            OpError::Failed(error) => OpError::Failed(error),
        })
    }
}
