//! The URL of a webhook endpoint, checked by contract 5: https, no credentials, no fragment, and no forbidden literal
//! address or local name.
//!
//! The caller passes a function that decides which addresses may be reached, so this file stays pure. Floor `net`
//! checks a host *name* at every connection; only literal addresses can be checked here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// Maximum length of a URL in characters.
pub const URL_CHARS_MAX: usize = 2048;

/// A checked webhook URL: as given, and parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookUrl {
    as_given: String,
    url: Url,
}

/// Error: the text is not a valid webhook URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebhookUrl {
    /// The URL is over [`URL_CHARS_MAX`].
    #[error("must be at most 2048 characters")]
    TooLong,
    /// White space or control characters, which parsers handle in different ways.
    #[error("must not contain white space or control characters; percent-encode them")]
    Spaces,
    /// A backslash. Some parsers treat it as a slash and would find another host in the URL.
    #[error("must not contain a backslash; percent-encode it as %5C")]
    Backslash,
    /// The scheme is missing, or is not `https`.
    #[error("must be an absolute https URL, such as https://example.com/hooks")]
    NotHttps,
    /// The URL is only `https://`, without a host.
    #[error("must name a host")]
    NoHost,
    /// A text that can't be parsed.
    #[error("must be a valid URL")]
    Unreadable,
    /// A user name or a password.
    #[error("must not contain a user name or password; requests are signed instead")]
    Credentials,
    /// A fragment. Servers never see it.
    #[error("must not contain a fragment (`#`)")]
    Fragment,
    /// `localhost`, or a name below it.
    #[error("must not point at localhost")]
    Localhost,
    /// A literal address in a network that must not be reached.
    #[error("must not point at an address that is private, local or otherwise not public")]
    Address,
}

impl InvalidWebhookUrl {
    /// Returns whether URLs of programs under development have this error, so that a hint about another command is
    /// added.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::NotHttps | Self::Localhost | Self::Address)
    }
}

impl WebhookUrl {
    /// Checks `text`. `permits` decides whether a literal address may be reached.
    ///
    /// # Errors
    /// The first rule of contract 5 that it violates.
    pub fn parse(text: &str, permits: impl Fn(IpAddr) -> bool) -> Result<Self, InvalidWebhookUrl> {
        Self::of_schemes(&["https://"], text, permits)
    }

    /// Checks `text` for a program under development: http is allowed too.
    ///
    /// # Errors
    /// The errors of [`Self::parse`].
    pub fn parse_local(text: &str, permits: impl Fn(IpAddr) -> bool) -> Result<Self, InvalidWebhookUrl> {
        Self::of_schemes(&["https://", "http://"], text, permits)
    }

    fn of_schemes(schemes: &[&str], text: &str, permits: impl Fn(IpAddr) -> bool) -> Result<Self, InvalidWebhookUrl> {
        use InvalidWebhookUrl as Fault;
        if text.chars().count() > URL_CHARS_MAX {
            return Err(Fault::TooLong);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Fault::Spaces);
        }
        if text.contains('\\') {
            return Err(Fault::Backslash);
        }
        // Check the text itself: the parser would repair `https:example.com` and `https:\\example.com`.
        let Some(rest) = stripped(text, schemes) else { return Err(Fault::NotHttps) };
        if rest.is_empty() || rest.starts_with(['/', '?', '#', ':']) {
            return Err(Fault::NoHost);
        }
        let url = Url::parse(text).map_err(|_| Fault::Unreadable)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Fault::Credentials);
        }
        if url.fragment().is_some() {
            return Err(Fault::Fragment);
        }
        check_host(&url, permits)?;
        Ok(Self { as_given: text.to_owned(), url })
    }

    /// Returns the URL as given.
    pub fn as_str(&self) -> &str {
        &self.as_given
    }

    /// Returns the parsed URL, with its host in normal form.
    pub const fn url(&self) -> &Url {
        &self.url
    }
}

/// Returns the text after one of the schemes.
fn stripped<'t>(text: &'t str, schemes: &[&str]) -> Option<&'t str> {
    schemes.iter().find_map(|scheme| {
        let (given, rest) = text.split_at_checked(scheme.len())?;
        given.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Checks the host. The parser has already converted every spelling of an IPv4 address (decimal, octal, hexadecimal,
/// short) into one.
fn check_host(url: &Url, permits: impl Fn(IpAddr) -> bool) -> Result<(), InvalidWebhookUrl> {
    let address = match url.host() {
        None => return Err(InvalidWebhookUrl::NoHost),
        Some(Host::Ipv4(v4)) => IpAddr::V4(v4),
        Some(Host::Ipv6(v6)) => IpAddr::V6(v6),
        Some(Host::Domain(name)) => {
            let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            if is_localhost(name) && !loopback.into_iter().any(permits) {
                return Err(InvalidWebhookUrl::Localhost);
            }
            return Ok(());
        }
    };
    if permits(address) { Ok(()) } else { Err(InvalidWebhookUrl::Address) }
}

/// Returns whether a name is `localhost` or below it, which is loopback (RFC 6761 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_given)
    }
}

/// Restores a URL from a stored row. Scheme and address were checked when the row was written, and are checked again at
/// every connection.
impl TryFrom<String> for WebhookUrl {
    type Error = InvalidWebhookUrl;
    fn try_from(text: String) -> Result<Self, InvalidWebhookUrl> {
        Self::parse_local(&text, |_| true)
    }
}

impl From<WebhookUrl> for String {
    fn from(url: WebhookUrl) -> Self {
        url.as_given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<WebhookUrl, InvalidWebhookUrl> {
        WebhookUrl::parse(text, |address| !address.to_canonical().is_loopback())
    }

    #[test]
    fn a_public_https_url_is_stored_as_written() {
        for text in [
            "https://example.com",
            "HTTPS://Example.com:8443/hook?a=b",
            "https://203.0.113.9/",
            "https://b\u{fc}cher.example/",
        ] {
            assert_eq!(parse(text).unwrap().as_str(), text);
        }
        assert_eq!(parse("https://Example.com").unwrap().url().as_str(), "https://example.com/");
    }

    #[test]
    fn each_rule_has_its_own_error() {
        use InvalidWebhookUrl as Fault;
        for (text, fault) in [
            ("http://example.com/", Fault::NotHttps),
            ("ftp://example.com/", Fault::NotHttps),
            ("example.com/hook", Fault::NotHttps),
            ("https:example.com", Fault::NotHttps),
            ("https:\\\\example.com", Fault::Backslash),
            ("https://example.com\\@evil.example/", Fault::Backslash),
            ("https://example.com/a\\b", Fault::Backslash),
            ("", Fault::NotHttps),
            ("https://", Fault::NoHost),
            ("https:///hook", Fault::NoHost),
            ("https://:443/", Fault::NoHost),
            ("https://exa mple.com/", Fault::Spaces),
            ("https://example.com/\n", Fault::Spaces),
            ("https://[::1/", Fault::Unreadable),
            ("https://example.com:99999/", Fault::Unreadable),
            ("https://user@example.com/", Fault::Credentials),
            ("https://a:secret@example.com/", Fault::Credentials),
            ("https://example.com/#part", Fault::Fragment),
            ("https://example.com/#", Fault::Fragment),
            ("https://localhost/", Fault::Localhost),
            ("https://LOCALHOST./", Fault::Localhost),
            ("https://app.localhost:8443/", Fault::Localhost),
        ] {
            assert_eq!(parse(text).unwrap_err(), fault, "{text}");
        }
    }

    #[test]
    fn a_url_is_at_most_2048_characters() {
        let base = "https://example.com/";
        let longest = format!("{base}{}", "a".repeat(URL_CHARS_MAX - base.len()));
        assert!(parse(&longest).is_ok());
        assert_eq!(parse(&format!("{longest}a")).unwrap_err(), InvalidWebhookUrl::TooLong);
    }

    #[test]
    fn a_private_address_is_detected_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "017700000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "\u{ff11}27.0.0.1",
            "127\u{3002}0\u{3002}0\u{3002}1",
            "%3127.0.0.1",
        ] {
            assert_eq!(parse(&format!("https://{host}/")).unwrap_err(), InvalidWebhookUrl::Address, "{host}");
        }
    }

    #[test]
    fn allowed_networks_are_accepted() {
        for text in ["https://127.0.0.1:9443/hook", "https://localhost:9443/hook"] {
            assert!(WebhookUrl::parse(text, |_| true).is_ok());
        }
    }
}
