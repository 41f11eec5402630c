//! Sign-in by OpenID Connect: the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, 3.1).
//! Called by the panel. It never creates or promotes an owner, and an address alone never suffices. A person is
//! identified by the provider's subject identifier, which is bound to a user at their first sign-in.

mod kept_forms;
mod people;
mod provider;
mod refusal;
mod started;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use url::Url;

use self::provider::{Provider, Tokens};
use self::started::StartedSignIn;
use super::Engine;
use super::sign_in::StartedSession;
use super::throttles::Bucket;
use super::turn_permits::{QueuedTurn, TurnQueue};
use crate::base::id::AccountId;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::device::DeviceToken;
use crate::domain::hostname::DomainName;
use crate::domain::id_token::{self, ExpectedClaims, IdToken, InvalidIdToken};
use crate::domain::network::Network;
use crate::domain::provider_document::ProviderDocument;
use crate::domain::session::{Client, OwnedClient};
use crate::domain::user::Role;
use crate::engine::ports::IdentityProvider;
use crate::store::error::OpError;
use crate::store::op::identity::user_by_identity;
use crate::store::row::identity::IdentityRow;

pub use self::kept_forms::{KeptForm, KeptForms};
pub use self::provider::ProviderFault;
pub use self::refusal::OidcRefusal;
pub use self::started::LIFETIME;

/// Path to which the provider redirects the browser.
pub const CALLBACK: &str = "/login/oidc/callback";
/// Time limit for all requests to the provider for one page.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent pages that query the provider. The clients' networks take turns.
const AT_ONCE: usize = 16;
/// Maximum number of pages that wait for their turn or query the provider.
const PAGES_MAX: usize = 1024;
/// Maximum number of pages of one network that wait for their turn or query the provider.
const PAGES_OF_SITE: usize = 16;

/// The validated `[oidc]` section.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// Issuer identifier of the provider.
    pub issuer: String,
    /// Our client identifier at the provider.
    pub client_id: String,
    /// Our client secret; `None` for a public client.
    pub client_secret: Option<Secret>,
    /// Domains whose addresses may become users.
    pub allowed_domains: Vec<DomainName>,
    /// Account of new users; with `None` no users are created.
    pub account: Option<AccountId>,
    /// The role of new users. Never the owner's.
    pub default_role: Role,
}

/// Sign-in by OpenID Connect.
pub struct Oidc {
    /// Forms of users who sign in again.
    pub forms: KeptForms,
    settings: OidcSettings,
    provider: Provider,
    pages: TurnQueue<Option<Network>>,
}

impl Oidc {
    /// Creates sign-in at the provider of `settings`, which is reached through `http`.
    pub fn new(settings: OidcSettings, http: Arc<dyn IdentityProvider>) -> Self {
        let pages = TurnQueue::new(AT_ONCE, PAGES_MAX, PAGES_OF_SITE);
        Self { forms: KeptForms::default(), settings, provider: Provider::new(http), pages }
    }

    /// Waits until a page may query the provider for the client at `address`.
    async fn turn(&self, address: &str) -> Result<QueuedTurn<Option<Network>>, OidcRefusal> {
        let site = address.parse().ok().map(Network::of_site);
        timeout(DEADLINE, self.pages.take(site)).await.ok().flatten().ok_or(OidcRefusal::Crowded)
    }

    /// Returns the host of the provider, which people recognise.
    pub fn provider_name(&self) -> &str {
        let rest = self.settings.issuer.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }
}

/// Result with a refusal; the store's failures are another variant.
type Outcome<T> = Result<T, OpError<OidcRefusal>>;

fn refuse<T>(refusal: impl Into<OidcRefusal>) -> Outcome<T> {
    Err(OpError::Refused(refusal.into()))
}

/// Parameters of a new sign-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct BeginOidc<'b> {
    /// Our own path to continue at.
    pub next: &'b str,
    /// Whether the provider must authenticate the person again even if it has a session with them.
    pub is_again: bool,
    /// Token of the setup link that started the sign-in; empty without a link.
    pub link: &'b str,
}

/// Data that the browser returns from the provider.
#[derive(Debug, Clone, Default)]
pub struct ProviderReturn {
    /// The cookie of the sign-in.
    pub cookie: String,
    /// The `state` parameter of the sign-in.
    pub state: String,
    /// Authorization code.
    pub code: String,
    /// Error instead of a code.
    pub error: String,
    /// Issuer of the answer, if it is given (RFC 9207).
    pub issuer: Option<String>,
}

/// A new session, and the path to continue at.
#[derive(Debug)]
pub struct SignedIn {
    /// The session.
    pub begun: StartedSession,
    /// Our own path to continue at.
    pub next: String,
}

impl Engine {
    fn redirect_uri(&self) -> String {
        let public_url = self.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        format!("{public_url}{CALLBACK}")
    }

    /// Starts a sign-in for the client at `address`. Returns the provider's URL to redirect to, and the cookie of the
    /// sign-in.
    ///
    /// # Errors
    /// [`OidcRefusal`].
    pub async fn begin_oidc(
        &self,
        oidc: &Oidc,
        begin: BeginOidc<'_>,
        address: &str,
        real_now: Timestamp,
    ) -> Result<(Url, String), OidcRefusal> {
        let _turn = oidc.turn(address).await?;
        let settings = &oidc.settings;
        let document = timeout(DEADLINE, oidc.provider.document(&settings.issuer, &*self.clock)).await;
        let document = document.map_err(|_| OidcRefusal::Slow)??;
        let started = StartedSignIn::new(&begin, real_now, &*self.entropy);
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

    /// Completes a sign-in with the data that the browser returned, and starts a session. Failures count for the
    /// client's address. The user is known only afterwards. So if the address has too many failures, a browser with a
    /// device token may still continue. It is refused later if the user has not used it before.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn finish_oidc(
        self: &Arc<Self>,
        returned: ProviderReturn,
        from: Client<'_>,
        real_now: Timestamp,
    ) -> Outcome<SignedIn> {
        let mut buckets = vec![Bucket::client(from.address)];
        let throttled = self.oidc_throttles.check(&buckets, self.clock.monotonic()).err();
        let unless_known = throttled.filter(|_| DeviceToken::parse(from.device).is_some());
        if unless_known.is_some() {
            buckets.clear();
        }
        let (engine, from) = (Arc::clone(self), OwnedClient::from(from));
        // Opening the cookie costs nothing and reveals nothing, so a failure is not counted.
        let key = self.store.master_key();
        let Some(started) = StartedSignIn::open(&returned.cookie, &returned.state, key, real_now) else {
            return refuse(OidcRefusal::NotStarted);
        };
        let attempt = async move {
            let Some(oidc) = engine.oidc.get() else { return refuse(OidcRefusal::NotStarted) };
            let _turn = oidc.turn(from.as_client().address).await.map_err(OpError::Refused)?;
            let vouched = timeout(DEADLINE, engine.vouched(oidc, &started, &returned, real_now)).await;
            let person = vouched.unwrap_or_else(|_| refuse(OidcRefusal::Slow))?;
            if let Some(throttled) = unless_known
                && !engine.knows_browser(oidc, &person, &from)?
            {
                return refuse(throttled);
            }
            let begun = engine.session_of(oidc, (&person, &started.link), &from, real_now).await?;
            Ok(SignedIn { begun, next: started.next })
        };
        self.throttled(&self.oidc_throttles, buckets, attempt, OidcRefusal::is_failure).await
    }

    /// Returns the person whom the provider authenticated.
    async fn vouched(
        &self,
        oidc: &Oidc,
        started: &StartedSignIn,
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
        let expected = ExpectedClaims {
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
        let person = verified.map_err(|invalid| OpError::Refused(invalid.into()))?;
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

/// Returns the person with their address. Queries the userinfo endpoint if the token has none.
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

fn provider_fault(fault: ProviderFault) -> OpError<OidcRefusal> {
    OpError::Refused(fault.into())
}

/// Returns the provider's error code (RFC 6749 4.1.2.1). It comes from the browser, so it is truncated, and characters
/// that are invalid in an error code are removed.
fn error_word(text: &str) -> String {
    let word: String = text.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(40).collect();
    if word.is_empty() { "no code".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ports::{BoxFuture, PostError, ProviderAnswer, ProviderRequest};

    struct SilentProvider;

    impl IdentityProvider for SilentProvider {
        fn ask(&self, _: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, PostError>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_never_keeps_another_from_the_provider() {
        let settings = OidcSettings {
            issuer: "https://login.example.com".to_owned(),
            client_id: "postrider".to_owned(),
            client_secret: None,
            allowed_domains: Vec::new(),
            account: None,
            default_role: Role::Member,
        };
        let oidc = Oidc::new(settings, Arc::new(SilentProvider));
        let mut turns = Vec::new();
        for host in 0..AT_ONCE / 2 {
            turns.push(oidc.turn(&format!("2001:db8:1:{host}::1")).await.unwrap());
        }
        assert_eq!(oidc.turn("2001:db8:1:ffff::1").await.err(), Some(OidcRefusal::Crowded), "after the deadline");
        turns.push(oidc.turn("2001:db8:2::1").await.unwrap());
        turns.pop();
        turns.pop();
        assert!(oidc.turn("2001:db8:1:ffff::1").await.is_ok());
    }
}
