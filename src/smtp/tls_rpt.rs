//! Destinations of TLS reports for a domain (RFC 8460 3), from the TXT records at `_smtp._tls.<domain>`.
//!
//! The engine reads them before it reports. The texts are untrusted: a record that does not follow the RFC exactly is
//! ignored, and so are unusable destinations of a valid record.

use std::collections::BTreeSet;
use std::fmt;

use crate::domain::address::Address;
use crate::domain::webhook_url::WebhookUrl;

/// Maximum number of destinations of one domain. More would let a domain make reporters send mail to many others.
pub const DESTINATIONS_MAX: usize = 4;

/// Destination of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Mail to this address.
    Mail(Address),
    /// POST to this URL. The network guard checks its host when the connection is made.
    Https(WebhookUrl),
}

impl Destination {
    /// Parses one URI, in which `!`, `,` and `;` are percent-encoded (RFC 8460 3).
    fn read(uri: &str) -> Option<Self> {
        let (scheme, rest) = uri.split_once(':')?;
        if scheme.eq_ignore_ascii_case("https") {
            return WebhookUrl::parse(uri, |_| true).ok().map(Self::Https);
        }
        let address = rest.split('?').next().filter(|_| scheme.eq_ignore_ascii_case("mailto"))?;
        percent_decoded(address)?.parse().ok().map(Self::Mail)
    }
}

/// The stored form, equal for equal destinations.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(address) => write!(f, "mailto:{}", address.to_wire()),
            Self::Https(url) => f.write_str(url.url().as_str()),
        }
    }
}

/// Returns the destinations in `texts`, the TXT records at `_smtp._tls.<domain>`; empty if there is no valid record, or
/// more than one.
pub fn destinations(texts: &[String]) -> Vec<Destination> {
    let mut records = texts.iter().filter_map(|text| text.strip_prefix("v=TLSRPTv1")).filter(|rest| is_separated(rest));
    let (Some(only), None) = (records.next(), records.next()) else { return Vec::new() };
    let mut fields = only.split(';').filter_map(|field| field.split_once('='));
    let Some((_, uris)) = fields.find(|(name, _)| name.trim() == "rua") else { return Vec::new() };
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for destination in uris.split(',').filter_map(|uri| Destination::read(uri.trim())) {
        if found.len() < DESTINATIONS_MAX && names.insert(destination.to_string()) {
            found.push(destination);
        }
    }
    found
}

/// Returns whether the version ends here: `TLSRPTv10` is another version.
fn is_separated(rest: &str) -> bool {
    rest.trim_start_matches([' ', '\t']).starts_with(';')
}

/// Decodes percent-encoding (RFC 3986 2.1); `None` if it is malformed.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        decoded.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        decoded.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(texts: &[&str]) -> Vec<String> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        destinations(&texts).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parses_addresses_and_urls_in_order() {
        let record = "v=TLSRPTv1; rua=mailto:Reports@Example.com , https://tls.example.net/v1?of=a%2Cb;";
        assert_eq!(named(&[record]), ["mailto:Reports@example.com", "https://tls.example.net/v1?of=a%2Cb"]);
        assert_eq!(named(&["v=TLSRPTv1;rua=MAILTO:a%2Bb%40c@x.example?subject=hi"]), [""; 0], "two at signs");
        assert_eq!(named(&["v=TLSRPTv1 ; x=1; rua=mailto:a%2bb@x.example?subject=hi"]), ["mailto:a+b@x.example"]);
        assert_eq!(named(&["spf", "v=TLSRPTv1;rua=mailto:a@x.example", "v=TLSRPTv2;"]), ["mailto:a@x.example"]);
    }

    #[test]
    fn no_valid_record_or_several_give_no_destination() {
        let one = "v=TLSRPTv1; rua=mailto:a@x.example";
        for texts in [
            &[][..],
            &[one, one],
            &["v=TLSRPTv1"],
            &["v=TLSRPTv10; rua=mailto:a@x.example"],
            &["V=TLSRPTv1; rua=mailto:a@x.example"],
            &["v=TLSRPTv1, rua=mailto:a@x.example"],
            &["v=TLSRPTv1; rua"],
            &["v=TLSRPTv1; RUA=mailto:a@x.example"],
            &["rua=mailto:a@x.example; v=TLSRPTv1"],
        ] {
            assert_eq!(named(texts), [""; 0], "{texts:?}");
        }
    }

    #[test]
    fn skips_unusable_and_repeated_destinations() {
        for odd in [
            "mailto:",
            "mailto:nobody",
            "mailto:a@",
            "mailto:a%2@x.example",
            "mailto:a%+1@x.example",
            "mailto:a%0D%0Ab@x.example",
            "mailto:a@x.example%00",
            "mailto:%FF@x.example",
            "mailto:a@[192.0.2.1]",
            "http://x.example/",
            "https:x.example",
            "https://user@x.example/",
            "ftp://x.example/",
            "a@x.example",
        ] {
            let record = format!("v=TLSRPTv1; rua={odd},mailto:b@x.example,mailto:b@X.example");
            assert_eq!(named(&[&record]), ["mailto:b@x.example"], "{odd}");
        }
        let many: Vec<_> = (0..50).map(|n| format!("mailto:a{n}@x.example")).collect();
        assert_eq!(named(&[&format!("v=TLSRPTv1; rua={}", many.join(","))]).len(), DESTINATIONS_MAX);
    }

    proptest! {
        #[test]
        fn the_parser_never_panics(text in ".{0,80}", uri in "(mailto|https):[%a-f0-9@./é]{0,40}") {
            named(&[&text]);
            named(&[&format!("v=TLSRPTv1; rua={uri}")]);
        }
    }
}
