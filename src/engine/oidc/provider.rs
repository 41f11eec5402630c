//! The identity provider: its document and its keys, cached according to their headers, and the requests of a sign-in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use super::OidcSettings;
use crate::base::secret::Secret;
use crate::domain::id_token::{InvalidKeys, ProviderKeys, UserInfo};
use crate::domain::provider_document::{InvalidDocument, ProviderDocument, document_url};
use crate::engine::ports::{Clock, IdentityProvider, PostError, ProviderAnswer, ProviderRequest};

/// Cache time of a document without a caching header.
const KEPT: Duration = Duration::from_secs(5 * 60);
/// Minimum and maximum cache time, regardless of the headers.
const KEPT_MIN: Duration = Duration::from_secs(10);
const KEPT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Time for which a failing provider is not queried again.
const FAILED: Duration = Duration::from_secs(3);
/// Maximum number of early fetches of keys within [`REFETCHED_IN`], because a token names an unknown key.
const REFETCHED_MAX: usize = 5;
const REFETCHED_IN: Duration = Duration::from_secs(60);

/// A failure of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProviderFault {
    /// The request failed.
    #[error("the provider could not be reached ({})", .0.as_str())]
    Unreachable(PostError),
    /// A request failed a moment ago.
    #[error("the provider failed a moment ago")]
    FailedBefore,
    /// The answer has a status other than 200.
    #[error("the provider answered {1} at its {0}")]
    Status(&'static str, u16),
    /// The provider's document is invalid.
    #[error(transparent)]
    Document(#[from] InvalidDocument),
    /// The provider's keys are invalid.
    #[error(transparent)]
    Keys(#[from] InvalidKeys),
    /// The answer can't be parsed.
    #[error("the answer of the provider's {0} is malformed")]
    Malformed(&'static str),
}

/// Tokens received for a code.
#[derive(Deserialize)]
pub(super) struct Tokens {
    pub(super) id_token: String,
    pub(super) access_token: Option<String>,
}

/// The provider.
pub(super) struct Provider {
    http: Arc<dyn IdentityProvider>,
    /// Locked during requests, so that concurrent sign-ins share one request.
    known: Mutex<ProviderCache>,
}

/// A cached value and its expiry, in the machine's time.
struct ExpiringValue<T> {
    value: Arc<T>,
    until: Duration,
}

#[derive(Default)]
struct ProviderCache {
    document: Option<ExpiringValue<ProviderDocument>>,
    keys: Option<ExpiringValue<ProviderKeys>>,
    /// End of the period without requests after a failure.
    failed_until: Duration,
    /// Times of the last early fetches of keys.
    refetched: VecDeque<Duration>,
}

impl Provider {
    pub(super) fn new(http: Arc<dyn IdentityProvider>) -> Self {
        Self { http, known: Mutex::default() }
    }

    /// Returns the provider's document.
    pub(super) async fn document(
        &self,
        issuer: &str,
        clock: &dyn Clock,
    ) -> Result<Arc<ProviderDocument>, ProviderFault> {
        let mut known = self.known.lock().await;
        let now = clock.monotonic();
        if let Some(kept) = known.document.as_ref().filter(|kept| now < kept.until) {
            return Ok(Arc::clone(&kept.value));
        }
        let fetched = self.fetch(&mut known, document_url(issuer)?, "document", clock).await?;
        let value = Arc::new(ProviderDocument::read(&fetched.body, issuer)?);
        let until = clock.monotonic() + kept_for(&fetched);
        known.document = Some(ExpiringValue { value: Arc::clone(&value), until });
        Ok(value)
    }

    /// Returns the provider's keys. `are_outdated` means that a token names an unknown key. The keys are then fetched
    /// again, at most a few times per minute.
    pub(super) async fn keys(
        &self,
        document: &ProviderDocument,
        are_outdated: bool,
        clock: &dyn Clock,
    ) -> Result<Arc<ProviderKeys>, ProviderFault> {
        let mut known = self.known.lock().await;
        let now = clock.monotonic();
        if let Some(value) = known.keys_at(now, are_outdated) {
            return Ok(value);
        }
        let fetched = self.fetch(&mut known, document.jwks_uri.clone(), "keys", clock).await?;
        let value = Arc::new(ProviderKeys::read(&fetched.body)?);
        let until = clock.monotonic() + kept_for(&fetched);
        known.keys = Some(ExpiringValue { value: Arc::clone(&value), until });
        Ok(value)
    }

    async fn fetch(
        &self,
        known: &mut ProviderCache,
        url: Url,
        what: &'static str,
        clock: &dyn Clock,
    ) -> Result<ProviderAnswer, ProviderFault> {
        if clock.monotonic() < known.failed_until {
            return Err(ProviderFault::FailedBefore);
        }
        let fetched = self.ask(ProviderRequest { url, form: None, authorization: None }, what).await;
        if fetched.is_err() {
            known.failed_until = clock.monotonic() + FAILED;
        }
        fetched
    }

    async fn ask(&self, request: ProviderRequest, what: &'static str) -> Result<ProviderAnswer, ProviderFault> {
        let answer = self.http.ask(request).await.map_err(ProviderFault::Unreachable)?;
        if answer.status == 200 { Ok(answer) } else { Err(ProviderFault::Status(what, answer.status)) }
    }

    /// Exchanges `code` for tokens, and proves the possession of `verifier` (RFC 6749 4.1.3, RFC 7636 4.5).
    pub(super) async fn tokens(
        &self,
        document: &ProviderDocument,
        settings: &OidcSettings,
        (code, verifier, redirect_uri): (&str, &str, &str),
    ) -> Result<Tokens, ProviderFault> {
        let (form, authorization) = exchange(document, settings, (code, verifier, redirect_uri));
        let request = ProviderRequest { url: document.token_endpoint.clone(), form: Some(form), authorization };
        let answer = self.ask(request, "token endpoint").await?;
        serde_json::from_slice(&answer.body).map_err(|_| ProviderFault::Malformed("token endpoint"))
    }

    /// Returns the provider's record of the person with this access token.
    pub(super) async fn user_info(&self, url: &Url, access_token: &str) -> Result<UserInfo, ProviderFault> {
        let authorization = Some(Secret::new(format!("Bearer {access_token}")));
        let request = ProviderRequest { url: url.clone(), form: None, authorization };
        let answer = self.ask(request, "userinfo endpoint").await?;
        serde_json::from_slice(&answer.body).map_err(|_| ProviderFault::Malformed("userinfo endpoint"))
    }
}

impl ProviderCache {
    /// Returns the cached keys, unless they have to be fetched at `now`.
    fn keys_at(&mut self, now: Duration, are_outdated: bool) -> Option<Arc<ProviderKeys>> {
        let kept = self.keys.as_ref().filter(|kept| now < kept.until)?;
        if !are_outdated {
            return Some(Arc::clone(&kept.value));
        }
        self.refetched.retain(|at| now.saturating_sub(*at) < REFETCHED_IN);
        if self.refetched.len() >= REFETCHED_MAX {
            return Some(Arc::clone(&kept.value));
        }
        self.refetched.push_back(now);
        None
    }
}

fn kept_for(answer: &ProviderAnswer) -> Duration {
    answer.lifetime.unwrap_or(KEPT).clamp(KEPT_MIN, KEPT_MAX)
}

/// Returns the form and the header that exchange a code for tokens.
fn exchange(
    document: &ProviderDocument,
    settings: &OidcSettings,
    (code, verifier, redirect_uri): (&str, &str, &str),
) -> (Secret, Option<Secret>) {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs([
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
    ]);
    let authorization = match &settings.client_secret {
        Some(secret) if !document.takes_secret_in_body => Some(basic(&settings.client_id, secret)),
        Some(secret) => {
            let pairs = [("client_id", settings.client_id.as_str()), ("client_secret", secret.expose_text())];
            form.extend_pairs(pairs);
            None
        }
        None => {
            form.append_pair("client_id", &settings.client_id);
            None
        }
    };
    (Secret::new(form.finish()), authorization)
}

/// Returns HTTP Basic credentials as OAuth defines them: both parts are form-encoded first (RFC 6749 2.3.1).
fn basic(client_id: &str, secret: &Secret) -> Secret {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let both = format!("{}:{}", encoded(client_id), encoded(secret.expose_text()));
    Secret::new(format!("Basic {}", STANDARD.encode(both)))
}
