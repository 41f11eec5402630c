//! The URL for List-Unsubscribe (contract 3): absolute, http or https, and valid in a header without changes.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use url::Url;

use super::limits::UNSUBSCRIBE_URL_CHARACTERS;
use super::text::is_longer;

/// A checked unsubscribe URL: as given, and in the ASCII form for the header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnsubscribeUrl {
    as_given: String,
    wire: String,
}

/// Error: the text is not a URL for List-Unsubscribe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an absolute http or https URL of at most 2048 characters, without spaces or control characters")]
pub struct InvalidUnsubscribeUrl;

impl UnsubscribeUrl {
    /// Returns the URL as given.
    pub fn as_given(&self) -> &str {
        &self.as_given
    }

    /// Returns the URL in graphic ASCII without angle brackets.
    pub fn to_wire(&self) -> &str {
        &self.wire
    }

    /// Returns whether one-click unsubscription may be offered (RFC 8058 3.1 asks for https).
    pub fn is_https(&self) -> bool {
        self.wire.as_bytes()[..6].eq_ignore_ascii_case(b"https:")
    }
}

impl FromStr for UnsubscribeUrl {
    type Err = InvalidUnsubscribeUrl;
    fn from_str(text: &str) -> Result<Self, InvalidUnsubscribeUrl> {
        // The parser repairs `https:example.com` and drops tabs. The header must contain only the intended URL.
        let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
        let absolute = lower.starts_with("http://") || lower.starts_with("https://");
        let spaced = text.chars().any(|c| c.is_control() || c.is_whitespace());
        if !absolute || spaced || is_longer(text, UNSUBSCRIBE_URL_CHARACTERS) {
            return Err(InvalidUnsubscribeUrl);
        }
        let url = Url::parse(text).map_err(|_| InvalidUnsubscribeUrl)?;
        if url.host_str().is_none_or(str::is_empty)
            || text[lower.find("//").unwrap_or(0) + 2..].starts_with(['/', '\\'])
        {
            return Err(InvalidUnsubscribeUrl);
        }
        let plain = text.bytes().all(|c| c.is_ascii_graphic() && c != b'<' && c != b'>');
        let wire = if plain { text.to_owned() } else { String::from(url) };
        // Percent-encoding makes the URL longer. Non-ASCII in a fragment is encoded too, so all other bytes are
        // graphic.
        let fits = wire.bytes().all(|c| c.is_ascii_graphic() && c != b'<' && c != b'>');
        if fits { Ok(Self { as_given: text.to_owned(), wire }) } else { Err(InvalidUnsubscribeUrl) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_http_url_is_stored_as_given_and_written_in_ascii() {
        let url: UnsubscribeUrl = "HTTPS://Example.com/u?t=a%20b&c=<d>é".parse().unwrap();
        assert_eq!(url.as_given(), "HTTPS://Example.com/u?t=a%20b&c=<d>é");
        assert_eq!(url.to_wire(), "https://example.com/u?t=a%20b&c=%3Cd%3E%C3%A9");
        assert!(url.is_https());
        let plain: UnsubscribeUrl = "http://Example.com/U".parse().unwrap();
        assert_eq!(plain.to_wire(), "http://Example.com/U");
        assert!(!plain.is_https());
    }

    #[test]
    fn rejects_other_texts() {
        let long = format!("https://example.com/{}", "a".repeat(2029));
        for bad in [
            "",
            "example.com/u",
            "/u",
            "mailto:u@example.com",
            "ftp://example.com/",
            "javascript:alert(1)",
            "https:",
            "https://",
            "https:///path",
            "https:example.com",
            "https://exa mple.com/",
            "https://example.com/a b",
            "https://example.com/\r\nBcc: x",
            "https://example.com/\t",
            " https://example.com/",
            "https://[::1/",
            &long,
        ] {
            assert!(bad.parse::<UnsubscribeUrl>().is_err(), "{bad:?}");
        }
    }
}
