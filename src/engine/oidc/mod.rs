//! Signing in by OpenID Connect: the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, 3.1).
//! The panel calls it. It never makes or promotes an owner, and nobody is signed in on the word of an address alone: a
//! person is known by the provider's name for them, which is bound to a user at their first sign-in.

mod people;
mod provider;
mod refusal;
mod started;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use url::Url;

use self::provider::{Provider, Tokens};
use self::started::Started;
use super::Engine;
use super::sign_in::Begun;
use super::throttles::Bucket;
use crate::base::id::AccountId;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::id_token::{self, Expected, IdToken, InvalidIdToken};
use crate::domain::provider_document::ProviderDocument;
use crate::domain::session::{Client, OwnedClient};
use crate::domain::user::Role;
use crate::engine::ports::IdentityProvider;
use crate::store::error::Stop;
use crate::store::op::identity::user_by_identity;
use crate::store::row::identity::IdentityRow;

pub use self::provider::ProviderFault;
pub use self::refusal::OidcRefusal;
pub use self::started::LIFETIME;

/// The path to which the provider sends people back.
pub const CALLBACK: &str = "/login/oidc/callback";
/// The time that the provider may take in all for one page.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pages at once that ask the provider.
const AT_ONCE: usize = 16;

/// `[oidc]`, checked.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// The provider, as it calls itself.
    pub issuer: String,
    /// Our name at the provider.
    pub client_id: String,
    /// Our secret at the provider; none for a public client.
    pub client_secret: Option<Secret>,
    /// Domains whose addresses may become users.
    pub allowed_domains: Vec<DomainName>,
    /// The account of new users; none are made without.
    pub account: Option<AccountId>,
    /// The role of new users. Never the owner's.
    pub default_role: Role,
}

/// Sign-in by OpenID Connect.
pub struct Oidc {
    settings: OidcSettings,
    provider: Provider,
    at_once: Semaphore,
}

impl Oidc {
    /// Sign-in at the provider of `settings`, which is asked through `http`.
    pub fn new(settings: OidcSettings, http: Arc<dyn IdentityProvider>) -> Self {
        Self { settings, provider: Provider::new(http), at_once: Semaphore::new(AT_ONCE) }
    }

    /// The host of the provider, by which people know it.
    pub fn provider_name(&self) -> &str {
        let rest = self.settings.issuer.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }
}

/// Refuses; the store's failures are another kind.
type Outcome<T> = Result<T, Stop<OidcRefusal>>;

fn refuse<T>(refusal: impl Into<OidcRefusal>) -> Outcome<T> {
    Err(Stop::Refused(refusal.into()))
}

/// A sign-in that is to begin.
#[derive(Debug, Clone, Copy, Default)]
pub struct BeginOidc<'b> {
    /// Our own address to go on to.
    pub next: &'b str,
    /// Whether the provider asks the person even where it knows them.
    pub is_again: bool,
    /// The token of the setup link that it is begun from; empty where it is begun elsewhere.
    pub link: &'b str,
}

/// The answer that the browser brings back from the provider.
#[derive(Debug, Clone, Default)]
pub struct ProviderReturn {
    /// The cookie of the sign-in.
    pub cookie: String,
    /// The number of the sign-in.
    pub state: String,
    /// The code.
    pub code: String,
    /// The error in place of a code.
    pub error: String,
    /// The provider that answers, where it says so (RFC 9207).
    pub issuer: Option<String>,
}

/// A session that has begun, and where it leads.
#[derive(Debug)]
pub struct SignedIn {
    /// The session.
    pub begun: Begun,
    /// Our own address to go on to.
    pub next: String,
}

impl Engine {
    fn redirect_uri(&self) -> String {
        let public_url = self.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        format!("{public_url}{CALLBACK}")
    }

    /// Begins a sign-in: the provider's address to go to, and the cookie to bring back.
    ///
    /// # Errors
    /// [`OidcRefusal`].
    pub async fn begin_oidc(
        &self,
        oidc: &Oidc,
        begin: BeginOidc<'_>,
        real_now: Timestamp,
    ) -> Result<(Url, String), OidcRefusal> {
        let _place = oidc.at_once.try_acquire().map_err(|_| OidcRefusal::Crowded)?;
        let settings = &oidc.settings;
        let document = timeout(DEADLINE, oidc.provider.document(&settings.issuer, &*self.clock)).await;
        let document = document.map_err(|_| OidcRefusal::Slow)??;
        let started = Started::new(&begin, real_now, &*self.entropy);
        let mut url = document.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &settings.client_id)
            .append_pair("redirect_uri", &self.redirect_uri())
            .append_pair("scope", "openid email")
            .append_pair("state", &started.state)
            .append_pair("nonce", &started.nonce)
            .append_pair("code_challenge", &started.challenge())
            .append_pair("code_challenge_method", "S256");
        if begin.is_again {
            url.query_pairs_mut().append_pair("prompt", "login").append_pair("max_age", "0");
        }
        Ok((url, started.sealed(self.store.master_key(), &*self.entropy)))
    }

    /// Ends a sign-in with what the browser brought back, and begins a session. Failures count for the client's
    /// address.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn finish_oidc(
        self: &Arc<Self>,
        returned: ProviderReturn,
        from: Client<'_>,
        real_now: Timestamp,
    ) -> Outcome<SignedIn> {
        let buckets = vec![Bucket::client(from.address)];
        let (engine, from) = (Arc::clone(self), OwnedClient::from(from));
        let attempt = async move {
            let Some(oidc) = engine.oidc.get() else { return refuse(OidcRefusal::NotStarted) };
            let Ok(_place) = oidc.at_once.try_acquire() else { return refuse(OidcRefusal::Crowded) };
            let key = engine.store.master_key();
            let Some(started) = Started::open(&returned.cookie, &returned.state, key, real_now) else {
                return refuse(OidcRefusal::NotStarted);
            };
            let vouched = timeout(DEADLINE, engine.vouched(oidc, &started, &returned, real_now)).await;
            let person = vouched.unwrap_or_else(|_| refuse(OidcRefusal::Slow))?;
            let begun = engine.session_of(oidc, (&person, &started.link), &from, real_now).await?;
            Ok(SignedIn { begun, next: started.next })
        };
        self.throttled(buckets, attempt, OidcRefusal::is_failure).await
    }

    /// The person for whom the provider vouches.
    async fn vouched(
        &self,
        oidc: &Oidc,
        started: &Started,
        returned: &ProviderReturn,
        real_now: Timestamp,
    ) -> Outcome<IdToken> {
        let (settings, provider) = (&oidc.settings, &oidc.provider);
        let document = provider.document(&settings.issuer, &*self.clock).await.map_err(provider_fault)?;
        let is_issuer = returned.issuer.as_ref().map_or(!document.names_issuer, |issuer| *issuer == settings.issuer);
        if !is_issuer {
            return refuse(OidcRefusal::Issuer);
        }
        if returned.code.is_empty() {
            return refuse(OidcRefusal::Denied(error_word(&returned.error)));
        }
        let exchange = (returned.code.as_str(), started.verifier.as_str(), &*self.redirect_uri());
        let tokens = provider.tokens(&document, settings, exchange).await.map_err(provider_fault)?;
        let expected = Expected {
            issuer: &settings.issuer,
            client_id: &settings.client_id,
            nonce: &started.nonce,
            begun_at: started.begun_at,
            is_again: started.is_again,
            now: real_now,
        };
        let keys = provider.keys(&document, false, &*self.clock).await.map_err(provider_fault)?;
        let verified = match id_token::verify(&tokens.id_token, &keys, &expected) {
            Err(InvalidIdToken::UnknownKey) => {
                let keys = provider.keys(&document, true, &*self.clock).await.map_err(provider_fault)?;
                id_token::verify(&tokens.id_token, &keys, &expected)
            }
            verified => verified,
        };
        let person = verified.map_err(|invalid| Stop::Refused(invalid.into()))?;
        let identity = identity_of(oidc, &person);
        if user_by_identity(&self.store.snapshot()?, &identity)?.is_some() {
            return Ok(person);
        }
        with_address(oidc, &document, tokens, person).await
    }
}

fn identity_of(oidc: &Oidc, person: &IdToken) -> IdentityRow {
    IdentityRow { issuer: oidc.settings.issuer.clone(), subject: person.subject.clone() }
}

/// The person with their address, for which the userinfo endpoint is asked where the token has none.
async fn with_address(oidc: &Oidc, document: &ProviderDocument, tokens: Tokens, person: IdToken) -> Outcome<IdToken> {
    let (Some(url), Some(access_token), None) = (&document.userinfo_endpoint, &tokens.access_token, &person.email)
    else {
        return Ok(person);
    };
    let info = oidc.provider.user_info(url, access_token).await.map_err(provider_fault)?;
    if info.sub != person.subject {
        return refuse(OidcRefusal::OtherSubject);
    }
    let email_verified = info.is_email_verified();
    Ok(IdToken { email: info.email, email_verified, ..person })
}

fn provider_fault(fault: ProviderFault) -> Stop<OidcRefusal> {
    Stop::Refused(fault.into())
}

/// The provider's word for an error (RFC 6749 4.1.2.1), which comes from the browser: shortened, and without anything
/// that such a word does not have.
fn error_word(text: &str) -> String {
    let word: String = text.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(40).collect();
    if word.is_empty() { "no code".to_owned() } else { word }
}
