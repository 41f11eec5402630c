//! Verification of ID tokens of OpenID Connect (OpenID Connect Core 1.0, 3.1.3.7): whether the provider issued a token
//! for this service and this sign-in, and for which person. Claims count only after the signature is verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use crate::base::jws::{JwsAlgorithm, JwsKey};
use crate::base::time::Timestamp;

/// Maximum difference in seconds between the provider's clock and ours.
const SKEW_SECS: u64 = 60;
/// Maximum number of a provider's keys that are read.
const KEYS_MAX: usize = 64;
/// Maximum length of a subject in bytes (OpenID Connect Core 1.0, 2).
const SUBJECT_MAX: usize = 255;

/// The keys of a provider (RFC 7517). Keys of unsupported kinds are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderKeys(Vec<ProviderKey>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProviderKey {
    id: Option<String>,
    algorithm: Option<JwsAlgorithm>,
    key: JwsKey,
}

/// Error: the text is not a set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the provider's keys are not a JSON Web Key Set")]
pub struct InvalidKeys;

#[derive(Deserialize)]
struct WrittenKeys {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl ProviderKeys {
    /// Reads a JSON Web Key Set.
    ///
    /// # Errors
    /// [`InvalidKeys`].
    pub fn read(json: &[u8]) -> Result<Self, InvalidKeys> {
        let written: WrittenKeys = serde_json::from_slice(json).map_err(|_| InvalidKeys)?;
        let keys = written.keys.into_iter().filter_map(|key| ProviderKey::of(serde_json::from_value(key).ok()?));
        Ok(Self(keys.take(KEYS_MAX).collect()))
    }

    /// Returns the keys that may have made a signature by `algorithm`: the named one, or all if none is named.
    fn candidates(&self, id: Option<&str>, algorithm: JwsAlgorithm) -> impl Iterator<Item = &JwsKey> {
        let fits = move |key: &&ProviderKey| {
            key.key.fits(algorithm)
                && key.algorithm.is_none_or(|own| own == algorithm)
                && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        self.0.iter().filter(fits).map(|key| &key.key)
    }
}

impl ProviderKey {
    fn of(written: WrittenKey) -> Option<Self> {
        if written.r#use.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let key = match (written.kty.as_str(), written.crv.as_deref()) {
            ("RSA", _) => JwsKey::Rsa { n: bytes(written.n)?, e: bytes(written.e)? },
            ("EC", Some("P-256")) => JwsKey::P256 { x: bytes(written.x)?, y: bytes(written.y)? },
            _ => return None,
        };
        let algorithm = match written.alg {
            Some(name) => Some(JwsAlgorithm::named(&name)?),
            None => None,
        };
        Some(Self { id: written.kid, algorithm, key })
    }
}

/// Expected claims of a token.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedClaims<'a> {
    /// The provider's issuer name.
    pub issuer: &'a str,
    /// Client ID of this service at the provider.
    pub client_id: &'a str,
    /// The nonce of this sign-in.
    pub nonce: &'a str,
    /// The time at which the sign-in began.
    pub begun_at: Timestamp,
    /// Whether the person had to authenticate again after that.
    pub is_again: bool,
    /// Current time.
    pub now: Timestamp,
}

/// The person that a token identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdToken {
    /// The provider's identifier of the person, which never changes.
    pub subject: String,
    /// Address of the person.
    pub email: Option<String>,
    /// Whether the provider has verified that the address belongs to the person.
    pub email_verified: bool,
    /// Time at which the person last authenticated, if the provider says so.
    pub authenticated_at: Option<Timestamp>,
}

/// Reason why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdToken {
    /// The text is not a signed token.
    #[error("the ID token is malformed")]
    Malformed,
    /// `none`, an algorithm with a shared key, or an unknown algorithm.
    #[error("the ID token is not signed by RS256, PS256 or ES256")]
    Algorithm,
    /// No key of the provider can have made the signature.
    #[error("the ID token is signed with an unknown key")]
    UnknownKey,
    /// The key did not make the signature.
    #[error("the signature of the ID token does not verify")]
    Signature,
    /// Another provider issued the token.
    #[error("the ID token has another issuer")]
    Issuer,
    /// The token was issued for another client.
    #[error("the ID token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the ID token has expired")]
    Expired,
    /// The token was issued before this sign-in, or in the future.
    #[error("the ID token was not issued during this sign-in")]
    IssuedAt,
    /// The token was issued for another sign-in.
    #[error("the ID token has another nonce")]
    Nonce,
    /// The token has no valid subject.
    #[error("the ID token has no valid subject")]
    Subject,
    /// The provider did not authenticate the person again.
    #[error("the ID token does not say that the person has authenticated again")]
    NotAgain,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: Value,
    iat: Value,
    auth_time: Option<Value>,
    nonce: Option<String>,
    email: Option<String>,
    email_verified: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// A person's record at the userinfo endpoint (OpenID Connect Core 1.0, 5.3).
#[derive(Debug, Deserialize)]
pub struct UserInfo {
    /// The provider's identifier of the person.
    pub sub: String,
    /// Address of the person.
    pub email: Option<String>,
    email_verified: Option<Value>,
}

impl UserInfo {
    /// Returns whether the provider has verified that the address belongs to the person.
    pub fn is_email_verified(&self) -> bool {
        is_true(self.email_verified.as_ref())
    }
}

/// Returns whether the value is true. Some providers write the word instead of the value.
fn is_true(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Bool(true))) || value.and_then(Value::as_str) == Some("true")
}

/// Returns the person that `token` identifies, if it was signed with `keys` and has the expected claims.
///
/// # Errors
/// [`InvalidIdToken`].
pub fn verify(token: &str, keys: &ProviderKeys, expected: &ExpectedClaims<'_>) -> Result<IdToken, InvalidIdToken> {
    let (signed, signature) = token.rsplit_once('.').ok_or(InvalidIdToken::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(InvalidIdToken::Malformed)?;
    let header: Header = decoded(header)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| InvalidIdToken::Malformed)?;
    let algorithm = JwsAlgorithm::named(&header.alg).ok_or(InvalidIdToken::Algorithm)?;
    // Extensions that must be understood are not supported (RFC 7515 4.1.11).
    if header.crit.is_some() {
        return Err(InvalidIdToken::Malformed);
    }
    let mut candidates = keys.candidates(header.kid.as_deref(), algorithm).peekable();
    if candidates.peek().is_none() {
        return Err(InvalidIdToken::UnknownKey);
    }
    if !candidates.any(|key| key.verifies(algorithm, signed.as_bytes(), &signature)) {
        return Err(InvalidIdToken::Signature);
    }
    judge(decoded(claims)?, expected)
}

fn decoded<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, InvalidIdToken> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidIdToken::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| InvalidIdToken::Malformed)
}

/// Compares the claims of a verified token with the expected ones.
fn judge(claims: Claims, expected: &ExpectedClaims<'_>) -> Result<IdToken, InvalidIdToken> {
    let now = expected.now.as_secs();
    let (exp, iat) = (seconds(&claims.exp)?, seconds(&claims.iat)?);
    let is_nonce = |nonce: &String| bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes()));
    let auth_time = claims.auth_time.as_ref().map(seconds).transpose()?;
    if claims.iss != expected.issuer {
        return Err(InvalidIdToken::Issuer);
    }
    if !is_for(&claims, expected.client_id) {
        return Err(InvalidIdToken::Audience);
    }
    if exp.saturating_add(SKEW_SECS) <= now {
        return Err(InvalidIdToken::Expired);
    }
    let earliest = expected.begun_at.as_secs().saturating_sub(SKEW_SECS);
    if iat < earliest || iat > now.saturating_add(SKEW_SECS) {
        return Err(InvalidIdToken::IssuedAt);
    }
    if !claims.nonce.as_ref().is_some_and(is_nonce) {
        return Err(InvalidIdToken::Nonce);
    }
    if claims.sub.is_empty() || claims.sub.len() > SUBJECT_MAX {
        return Err(InvalidIdToken::Subject);
    }
    if expected.is_again && auth_time.is_none_or(|at| at < earliest) {
        return Err(InvalidIdToken::NotAgain);
    }
    let authenticated_at = auth_time.map(|at| Timestamp::from_millis(at.saturating_mul(1000)).min(expected.now));
    let email_verified = is_true(claims.email_verified.as_ref());
    Ok(IdToken { subject: claims.sub, email: claims.email, email_verified, authenticated_at })
}

/// Returns whether a token is for this client: the only audience, or the authorized party of several.
fn is_for(claims: &Claims, client_id: &str) -> bool {
    let (is_audience, is_only) = match &claims.aud {
        Audience::One(one) => (one == client_id, true),
        Audience::Many(many) => (many.iter().any(|one| one == client_id), many.len() == 1),
    };
    is_audience && claims.azp.as_ref().map_or(is_only, |party| party == client_id)
}

/// Returns seconds since the epoch. Some providers write fractions.
fn seconds(value: &Value) -> Result<u64, InvalidIdToken> {
    let number = value.as_f64().filter(|number| (0.0..=1e13).contains(number)).ok_or(InvalidIdToken::Malformed)?;
    // The range was checked, so only the fraction is lost.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(number as u64)
}

#[cfg(test)]
mod tests;
