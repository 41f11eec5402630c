//! Domain names, as lower-case A-labels (RFC 5890).
//!
//! A [`DomainName`] can be used in SMTP, in storage keys and in comparisons without changes: parsing converted
//! internationalised names into A-labels.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};

/// A checked domain name in the form for SMTP, storage and comparisons: lower-case A-labels, no trailing dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DomainName(String);

/// Reason why a text is not a domain name for mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomainName {
    /// The text is empty.
    #[error("the domain is empty")]
    Empty,
    /// An address literal such as `[192.0.2.1]`, or a bare IP address.
    #[error("the domain must be a name; IP addresses are not accepted")]
    Literal,
    /// A name with a trailing dot.
    #[error("the domain must not end with a dot")]
    TrailingDot,
    /// A name without a dot.
    #[error("the domain must have at least two labels, such as example.com")]
    SingleLabel,
    /// Any other name that RFC 1035 or IDNA refuses.
    #[error("the domain is not a valid domain name")]
    Malformed,
}

impl DomainName {
    /// Returns the name, such as `xn--bcher-kva.example`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is `parent` or below it.
    pub fn is_same_or_below(&self, parent: &Self) -> bool {
        let rest = self.0.strip_suffix(&*parent.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Returns the name that a registrant pays for, judged by the last labels: two of them, or three below a category
    /// of a country such as `co.uk`. Names below an unknown public suffix share one result.
    ///
    /// Limits by registrant use it. The DNS is not asked: a registrant can declare each of its names an organisation
    /// of its own (RFC 9989 4.7, `psd=n`).
    pub fn registrable(&self) -> &str {
        let mut dots = self.0.rmatch_indices('.').map(|(place, _)| place);
        let (Some(last), Some(second)) = (dots.next(), dots.next()) else { return &self.0 };
        let (country, category) = (&self.0[last + 1..], &self.0[second + 1..last]);
        let has_category = country.len() == 2 && COUNTRY_CATEGORIES.contains(&category);
        let before = if has_category { dots.next() } else { Some(second) };
        before.map_or(&self.0, |dot| &self.0[dot + 1..])
    }
}

/// Labels below which countries register names, such as `co` in `co.uk`.
const COUNTRY_CATEGORIES: [&str; 20] = [
    "ac", "asso", "co", "com", "ed", "edu", "gob", "gov", "govt", "gouv", "gv", "ltd", "mil", "ne", "net", "nom", "or",
    "org", "plc", "sch",
];

impl FromStr for DomainName {
    type Err = InvalidDomainName;
    fn from_str(text: &str) -> Result<Self, InvalidDomainName> {
        if text.is_empty() {
            return Err(InvalidDomainName::Empty);
        }
        if text.starts_with('[') || text.parse::<Ipv4Addr>().is_ok() {
            return Err(InvalidDomainName::Literal);
        }
        if text.ends_with('.') {
            return Err(InvalidDomainName::TrailingDot);
        }
        // DnsLength::Verify limits labels to 63 bytes and the name to 253 (RFC 1035 2.3.4), STD3 the characters to
        // letters, digits and hyphens. `--` inside a label is allowed: such names are registered.
        let name = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
            .map_err(|_| InvalidDomainName::Malformed)?
            .into_owned();
        let Some((_, top)) = name.rsplit_once('.') else { return Err(InvalidDomainName::SingleLabel) };
        // A top-level domain is never all digits (RFC 3696 2), so this is a misspelt IP address.
        if top.bytes().all(|c| c.is_ascii_digit()) {
            return Err(InvalidDomainName::Literal);
        }
        Ok(Self(name))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_as_lower_case_a_labels() {
        for (given, kept) in [
            ("Example.COM", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("XN--bcher-KVA.example", "xn--bcher-kva.example"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("r3---sn-x.example.com", "r3---sn-x.example.com"),
            ("1.2.example", "1.2.example"),
        ] {
            assert_eq!(given.parse::<DomainName>().unwrap().as_str(), kept);
        }
    }

    #[test]
    fn the_registrable_name_has_two_labels_or_three_below_a_category_of_a_country() {
        for (name, registrable) in [
            ("example.com", "example.com"),
            ("a.b.example.com", "example.com"),
            ("example.de", "example.de"),
            ("mx.example.de", "example.de"),
            ("co.uk", "co.uk"),
            ("example.co.uk", "example.co.uk"),
            ("a.b.example.co.uk", "example.co.uk"),
            ("mail.example.com.au", "example.com.au"),
            ("a.co.example", "co.example"),
            ("a.b.com.example", "com.example"),
        ] {
            assert_eq!(name.parse::<DomainName>().unwrap().registrable(), registrable, "{name}");
        }
    }

    #[test]
    fn rejects_other_names_with_the_reason() {
        use InvalidDomainName as Why;
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "abcdefg.".repeat(32));
        for (given, why) in [
            ("", Why::Empty),
            ("[192.0.2.1]", Why::Literal),
            ("[IPv6:::1]", Why::Literal),
            ("192.0.2.1", Why::Literal),
            ("10.0.0.256", Why::Literal),
            ("example.com.", Why::TrailingDot),
            ("localhost", Why::SingleLabel),
            (".example.com", Why::Malformed),
            ("example..com", Why::Malformed),
            ("exa mple.com", Why::Malformed),
            ("exa_mple.com", Why::Malformed),
            ("-a.example", Why::Malformed),
            ("a-.example", Why::Malformed),
            ("a\r\nb.example", Why::Malformed),
            ("a\u{202e}b.example", Why::Malformed),
            ("xn--a\u{0}.example", Why::Malformed),
            (&long_label, Why::Malformed),
            (&long_name, Why::Malformed),
        ] {
            assert_eq!(given.parse::<DomainName>(), Err(why), "{given:?}");
        }
    }
}
