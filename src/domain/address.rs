//! One mailbox address (RFC 5321 4.1.2), without display name.
//!
//! Postrider has its own parser, so that it accepts exactly the addresses of contract 3: dot-strings and quoted local
//! parts, UTF-8 in both (RFC 6531 3.3), and no address literals. Answers and events show the address as given. SMTP,
//! the storage and all comparisons use the domain's A-label.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::hostname::{DomainName, InvalidDomainName};
use super::limits::{ADDRESS_BYTES, LOCAL_PART_BYTES};
use super::text::{is_deceptive, unquoted};

/// A checked address: as given, and in the form for SMTP and comparisons.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    as_given: String,
    local: String,
    domain: DomainName,
}

/// Reason why a text is not one mailbox address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// No `@` outside quotes.
    #[error("must be an email address, such as name@example.com")]
    NoAt,
    /// A display name, angle brackets, or a list.
    #[error("must be one bare address, without a display name, angle brackets or further addresses")]
    NotBare,
    /// The address has over 254 bytes.
    #[error("must be at most 254 bytes long")]
    TooLong,
    /// The part before the `@` has over 64 bytes.
    #[error("the part before the @ must be at most 64 bytes long")]
    LocalTooLong,
    /// The local part is not a dot-string or a quoted string.
    #[error("the part before the @ is not valid; only a quoted one may have spaces or special characters")]
    Local,
    /// A control character, line or paragraph separator, or bidirectional control.
    #[error("must not have control characters, line separators or bidirectional controls")]
    Control,
    /// The domain is invalid.
    #[error(transparent)]
    Domain(#[from] InvalidDomainName),
}

impl Address {
    /// Returns the address as given, which answers and events show.
    pub fn as_given(&self) -> &str {
        &self.as_given
    }

    /// Returns the local part as given, with its quotes.
    pub fn local(&self) -> &str {
        &self.local
    }

    /// Returns the domain as lower-case A-label.
    pub const fn domain(&self) -> &DomainName {
        &self.domain
    }

    /// Returns the form for SMTP and header fields: local part as given, domain as A-label.
    pub fn to_wire(&self) -> String {
        format!("{}@{}", self.local, self.domain)
    }

    /// Returns the form for suppression and search: local part in lower case and without unnecessary quotes (`"john"`
    /// and `john` are equal by RFC 5321 4.1.2), domain as A-label. Dots and plus tags are kept (contract 6).
    pub fn match_key(&self) -> String {
        format!("{}@{}", local_key(&self.local), self.domain)
    }

    /// Returns whether an address with these parts has the same [`Self::match_key`]. The domain is an A-label.
    pub fn matches(&self, local: &str, domain: &str) -> bool {
        self.domain.as_str() == domain && local_key(&self.local) == local_key(local)
    }

    /// Returns whether the receiver's server must support SMTPUTF8 (RFC 6531): the local part is not ASCII. The domain
    /// never needs it, because it is sent as A-label.
    pub fn needs_smtputf8(&self) -> bool {
        !self.local.is_ascii()
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if text.len() > ADDRESS_BYTES {
            return Err(InvalidAddress::TooLong);
        }
        if text.chars().any(|c| c.is_control() || is_deceptive(c)) {
            return Err(InvalidAddress::Control);
        }
        let (local, domain) = split(text)?;
        if local.len() > LOCAL_PART_BYTES {
            return Err(InvalidAddress::LocalTooLong);
        }
        let domain: DomainName = domain.parse()?;
        // The A-label may be longer than the given domain, and the limit applies to it.
        if local.len() + 1 + domain.as_str().len() > ADDRESS_BYTES {
            return Err(InvalidAddress::TooLong);
        }
        Ok(Self { as_given: text.to_owned(), local: local.to_owned(), domain })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_given)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_given)
    }
}

/// Returns the local part in lower case and without unnecessary quotes.
fn local_key(local: &str) -> String {
    let plain = unquoted(local);
    if is_dot_string(&plain) { plain.to_lowercase() } else { local.to_lowercase() }
}

/// Splits the text into local part and domain. The local part is checked, the domain not yet.
fn split(text: &str) -> Result<(&str, &str), InvalidAddress> {
    if let Some(inside) = text.strip_prefix('"') {
        let end = 1 + quoted_length(inside).ok_or(InvalidAddress::Local)?;
        let (local, rest) = text.split_at(end);
        // `"John" <j@example.com>` also begins like a quoted local part.
        return Ok((local, rest.strip_prefix('@').ok_or(InvalidAddress::NotBare)?));
    }
    if text.contains(['<', '>', ',', ';']) {
        return Err(InvalidAddress::NotBare);
    }
    let (local, domain) = text.split_once('@').ok_or(InvalidAddress::NoAt)?;
    if is_dot_string(local) { Ok((local, domain)) } else { Err(InvalidAddress::Local) }
}

/// Returns the length of a quoted string up to and including its closing quote; `inside` begins after the opening one.
fn quoted_length(inside: &str) -> Option<usize> {
    let mut characters = inside.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Some(place + 1),
            // quoted-pairSMTP is a backslash and a printable ASCII character; RFC 6531 adds none.
            '\\' => {
                characters.next().filter(|(_, c)| c.is_ascii())?;
            }
            _ => {}
        }
    }
    None
}

/// Returns whether the text is atoms joined by single dots (RFC 5321 4.1.2 Dot-string, RFC 6531 3.3).
fn is_dot_string(local: &str) -> bool {
    local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character))
}

fn is_atom_character(character: char) -> bool {
    if character.is_ascii() {
        character.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(character)
    } else {
        !character.is_whitespace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_given_and_sent_with_its_a_label() {
        let address: Address = "José.Pérez+News@Bücher.Example".parse().unwrap();
        assert_eq!(address.as_given(), "José.Pérez+News@Bücher.Example");
        assert_eq!(address.to_wire(), "José.Pérez+News@xn--bcher-kva.example");
        assert_eq!(address.match_key(), "josé.pérez+news@xn--bcher-kva.example");
        assert!(address.needs_smtputf8());
        assert!(!"jose@bücher.example".parse::<Address>().unwrap().needs_smtputf8());
    }

    #[test]
    fn every_rfc_5321_mailbox_with_a_domain_name_is_accepted() {
        for good in [
            "a@b.co",
            "o'reilly+tag@example.com",
            "!#$%&'*+-/=?^_`{|}~@example.com",
            r#""john doe"@example.com"#,
            r#""a@b"@example.com"#,
            r#""a\"b\\c"@example.com"#,
            r#"" "@example.com"#,
            r#""<x>,y;z"@example.com"#,
            "用户@例え.テスト",
        ] {
            assert_eq!(good.parse::<Address>().unwrap().as_given(), good);
        }
        let longest = format!("{}@{}{}.com", "a".repeat(64), "abcdefg.".repeat(23), "b");
        assert!(longest.len() <= 254 && longest.parse::<Address>().is_ok());
    }

    #[test]
    fn unnecessary_quoting_does_not_bypass_a_suppression() {
        for given in ["john@example.com", r#""john"@example.com"#, r#""jo\hn"@EXAMPLE.com"#, "JOHN@example.com"] {
            assert_eq!(given.parse::<Address>().unwrap().match_key(), "john@example.com");
        }
        assert_ne!("jo.hn@example.com".parse::<Address>().unwrap().match_key(), "john@example.com");
    }

    #[test]
    fn rejects_everything_but_one_bare_mailbox_with_the_reason() {
        use InvalidAddress as Why;
        let long_local = format!("{}@example.com", "a".repeat(65));
        let long = format!("a@{}.example", "abcdefg.".repeat(40));
        // 14 labels of 7 bytes become 13 each as A-labels: the address exceeds 254 bytes, the domain does not exceed
        // 253.
        let grows = format!("{}@{}example.com", "a".repeat(60), "bücher.".repeat(14));
        for (given, why) in [
            ("", Why::NoAt),
            ("name", Why::NoAt),
            ("@example.com", Why::Local),
            (".a@example.com", Why::Local),
            ("a.@example.com", Why::Local),
            ("a..b@example.com", Why::Local),
            ("a b@example.com", Why::Local),
            ("a\u{a0}b@example.com", Why::Local),
            (" a@example.com", Why::Local),
            ("a(comment)@example.com", Why::Local),
            ("a\"b@example.com", Why::Local),
            ("\"a@example.com", Why::Local),
            (r#""a\"@example.com"#, Why::Local),
            (r#""a"b@example.com"#, Why::NotBare),
            ("John <a@example.com>", Why::NotBare),
            (r#""John" <a@example.com>"#, Why::NotBare),
            ("<a@example.com>", Why::NotBare),
            ("a@example.com,b@example.com", Why::NotBare),
            ("a@example.com;", Why::NotBare),
            ("@hop.example:a@example.com", Why::Local),
            ("a@b@example.com", Why::Domain(InvalidDomainName::Malformed)),
            ("a@example.com ", Why::Domain(InvalidDomainName::Malformed)),
            ("a@", Why::Domain(InvalidDomainName::Empty)),
            ("a@[192.0.2.1]", Why::Domain(InvalidDomainName::Literal)),
            ("a@[IPv6:::1]", Why::Domain(InvalidDomainName::Literal)),
            ("a@localhost", Why::Domain(InvalidDomainName::SingleLabel)),
            ("a@example.com.", Why::Domain(InvalidDomainName::TrailingDot)),
            ("a@example.com\r\nRCPT TO:<b@example.com>", Why::Control),
            ("a@example.com\n", Why::Control),
            ("a\0@example.com", Why::Control),
            ("\"a\tb\"@example.com", Why::Control),
            ("a\u{85}@example.com", Why::Control),
            ("a\u{2028}@example.com", Why::Control),
            ("a\u{2029}@example.com", Why::Control),
            ("a\u{202e}b@example.com", Why::Control),
            ("\"\u{2066}\"@example.com", Why::Control),
            (&long_local, Why::LocalTooLong),
            (&long, Why::TooLong),
            (&grows, Why::TooLong),
        ] {
            assert_eq!(given.parse::<Address>(), Err(why), "{given:?}");
        }
    }
}
