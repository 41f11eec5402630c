//! The discovery document of an identity provider (OpenID Connect Discovery 1.0, 3): the URLs for a sign-in.

use serde::Deserialize;
use url::Url;

/// Maximum length of a URL in bytes.
const URL_MAX: usize = 2048;

/// A checked discovery document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderDocument {
    /// URL of the sign-in page.
    pub authorization_endpoint: Url,
    /// URL where a code is exchanged for a token.
    pub token_endpoint: Url,
    /// URL of the provider's keys.
    pub jwks_uri: Url,
    /// URL of the record about a person.
    pub userinfo_endpoint: Option<Url>,
    /// Whether the client secret is sent in the body, because the provider does not accept HTTP Basic.
    pub takes_secret_in_body: bool,
    /// Whether every answer contains its issuer (RFC 9207).
    pub names_issuer: bool,
}

/// Reason why a document is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDocument {
    /// The text is not a discovery document.
    #[error("the provider's document is malformed")]
    Malformed,
    /// The document is from another provider.
    #[error("the provider's document names another issuer than oidc.issuer")]
    Issuer,
    /// A URL is malformed or not https.
    #[error("the provider's document has an address that is not https")]
    Address,
}

#[derive(Deserialize)]
struct ProviderJson {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl ProviderDocument {
    /// Parses the document of the provider with this `issuer`.
    ///
    /// # Errors
    /// [`InvalidDocument`].
    pub fn read(json: &[u8], issuer: &str) -> Result<Self, InvalidDocument> {
        let written: ProviderJson = serde_json::from_slice(json).map_err(|_| InvalidDocument::Malformed)?;
        if written.issuer != issuer {
            return Err(InvalidDocument::Issuer);
        }
        let userinfo_endpoint = written.userinfo_endpoint.as_deref().map(https).transpose()?;
        // Without the member, a provider accepts HTTP Basic (OpenID Connect Discovery 1.0, 3).
        let methods = written.token_endpoint_auth_methods_supported.unwrap_or_default();
        let takes = |method: &str| methods.iter().any(|one| one == method);
        Ok(Self {
            authorization_endpoint: https(&written.authorization_endpoint)?,
            token_endpoint: https(&written.token_endpoint)?,
            jwks_uri: https(&written.jwks_uri)?,
            userinfo_endpoint,
            takes_secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
            names_issuer: written.authorization_response_iss_parameter_supported,
        })
    }
}

/// Returns the URL of the document of the provider with this `issuer` (OpenID Connect Discovery 1.0, 4).
///
/// # Errors
/// [`InvalidDocument::Address`] if `issuer` is not an https URL without query and fragment.
pub fn document_url(issuer: &str) -> Result<Url, InvalidDocument> {
    let url = https(issuer)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(InvalidDocument::Address);
    }
    https(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))
}

fn https(text: &str) -> Result<Url, InvalidDocument> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host() && text.len() <= URL_MAX);
    url.filter(|url| url.username().is_empty() && url.password().is_none()).ok_or(InvalidDocument::Address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ISSUER: &str = "https://login.example.com/tenant";

    fn read(changes: Value) -> Result<ProviderDocument, InvalidDocument> {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example.com/authorize?tenant=1",
            "token_endpoint": "https://login.example.com/token",
            "jwks_uri": "https://keys.example.com/",
        });
        document.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        ProviderDocument::read(document.to_string().as_bytes(), ISSUER)
    }

    #[test]
    fn a_document_contains_the_urls_of_its_issuer() {
        let document = read(json!({})).unwrap();
        assert_eq!(document.authorization_endpoint.query(), Some("tenant=1"));
        assert!(!document.takes_secret_in_body && !document.names_issuer && document.userinfo_endpoint.is_none());
        let methods = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"] });
        assert!(read(methods).unwrap().takes_secret_in_body);
        assert!(read(json!({ "authorization_response_iss_parameter_supported": true })).unwrap().names_issuer);
    }

    #[test]
    fn rejects_another_issuer_and_unencrypted_urls() {
        assert_eq!(read(json!({ "issuer": "https://login.example.com" })), Err(InvalidDocument::Issuer));
        for name in ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] {
            for address in ["http://login.example.com/", "javascript:alert(1)", "https://u:p@login.example.com/", ""] {
                assert_eq!(read(json!({ name: address })), Err(InvalidDocument::Address), "{name}: {address}");
            }
        }
        assert_eq!(read(json!({ "jwks_uri": 7 })), Err(InvalidDocument::Malformed));
        assert_eq!(ProviderDocument::read(b"[]", ISSUER), Err(InvalidDocument::Malformed));
    }

    #[test]
    fn the_document_url_follows_from_the_issuer() {
        let place = |issuer| document_url(issuer).map(String::from);
        let expected = "https://login.example.com/tenant/.well-known/openid-configuration";
        assert_eq!(place(ISSUER).as_deref(), Ok(expected));
        assert_eq!(place("https://login.example.com/tenant/").as_deref(), Ok(expected));
        for bad in ["http://login.example.com", "https://", "login.example.com", "https://a.example/?x=1"] {
            assert_eq!(place(bad), Err(InvalidDocument::Address), "{bad}");
        }
    }
}
