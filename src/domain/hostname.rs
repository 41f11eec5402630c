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

    /// Returns whether this name is `parent` or below it.
    pub fn is_same_or_below(&self, parent: &Self) -> bool {
        let rest = self.0.strip_suffix(&*parent.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Returns the organizational domain by the whole public suffix list: the public suffix and one more label, such as
    /// `example.co.uk`. A public suffix itself is returned unchanged.
    ///
    /// DMARC alignment uses it. The private part of the list counts, so names below `github.io` are separate
    /// organizations. A suffix that the list does not know has one label. The DNS is not asked: the tree walk of RFC
    /// 9989 4.10 gives other results where names publish `psd=`.
    fn organizational(&self) -> &str {
        psl::domain_str(&self.0).unwrap_or(&self.0)
    }

    /// Returns the domain of the registrant, by the ICANN part of the public suffix list: the suffix of a registry and
    /// one more label. A suffix itself is returned unchanged.
    ///
    /// Limits by registrant use it, so all names below `duckdns.org` share them: names below a private suffix are often
    /// free, and one person can have many.
    pub fn registrant_domain(&self) -> &str {
        let mut suffix = psl::suffix(self.0.as_bytes());
        while let Some(private) = suffix.filter(|suffix| suffix.typ() == Some(psl::Type::Private)) {
            let parent = private.as_bytes().iter().position(|byte| *byte == b'.').map(|dot| dot + 1);
            suffix = parent.and_then(|start| psl::suffix(&private.as_bytes()[start..]));
        }
        let length = suffix.map_or(0, |suffix| suffix.as_bytes().len());
        let Some(above) = self.0.len().checked_sub(length + 1) else { return &self.0 };
        let start = self.0[..above].rfind('.').map_or(0, |dot| dot + 1);
        &self.0[start..]
    }

    /// Returns whether both names have the same organizational domain, which is relaxed alignment in DMARC.
    pub fn is_aligned_with(&self, other: &Self) -> bool {
        self.organizational() == other.organizational()
    }
}

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
    fn the_organizational_domain_is_one_label_below_the_public_suffix() {
        let names = [
            ("example.com", "example.com"),
            ("a.b.example.com", "example.com"),
            ("example.co.uk", "example.co.uk"),
            ("a.b.example.me.uk", "example.me.uk"),
            ("mail.example.com.au", "example.com.au"),
            // Private suffixes.
            ("example.github.io", "example.github.io"),
            ("a.b.example.github.io", "example.github.io"),
            // A wildcard rule and its exception.
            ("a.b.example.ck", "b.example.ck"),
            ("a.www.ck", "www.ck"),
            // Unknown suffixes have one label.
            ("a.co.example", "co.example"),
            ("a.b.com.unknown-suffix", "com.unknown-suffix"),
            // Internationalised suffixes.
            ("a.例子.公司.cn", "xn--fsqu00a.xn--55qx5d.cn"),
            ("a.bücher.рф", "xn--bcher-kva.xn--p1ai"),
        ];
        for (name, organizational) in names {
            assert_eq!(name.parse::<DomainName>().unwrap().organizational(), organizational, "{name}");
        }
    }

    #[test]
    fn a_public_suffix_is_its_own_organizational_domain() {
        for suffix in ["co.uk", "github.io", "example.ck", "公司.cn"] {
            let suffix = suffix.parse::<DomainName>().unwrap();
            assert_eq!(suffix.organizational(), suffix.as_str());
        }
    }

    #[test]
    fn private_suffixes_are_not_registrants() {
        for (name, registrant) in [
            ("a.b.example.com", "example.com"),
            ("a.example.co.uk", "example.co.uk"),
            ("co.uk", "co.uk"),
            ("one.duckdns.org", "duckdns.org"),
            ("a.two.duckdns.org", "duckdns.org"),
            ("duckdns.org", "duckdns.org"),
            ("shop.example.uk.com", "uk.com"),
            ("b.s3.dualstack.us-east-1.amazonaws.com", "amazonaws.com"),
            ("a.b.example.ck", "b.example.ck"),
            ("a.b.com.unknown-suffix", "com.unknown-suffix"),
        ] {
            assert_eq!(name.parse::<DomainName>().unwrap().registrant_domain(), registrant, "{name}");
        }
    }

    #[test]
    fn names_of_one_registrant_are_aligned() {
        let aligned = |a: &str, b: &str| a.parse::<DomainName>().unwrap().is_aligned_with(&b.parse().unwrap());
        assert!(aligned("mail.example.co.uk", "news.example.co.uk"));
        assert!(!aligned("one.co.uk", "two.co.uk"));
        assert!(!aligned("one.github.io", "two.github.io"));
        assert!(!aligned("one.github.io", "github.io"));
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
