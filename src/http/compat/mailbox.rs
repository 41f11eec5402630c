//! A mailbox in the notation of other services' clients: an address, or `Name <address>`.

use crate::domain::text::unquoted;
use crate::mail::read::decoded_text;

/// A parsed mailbox. The address is not validated yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox {
    /// Display name, without quotes and with encoded words decoded.
    pub(super) name: Option<String>,
    /// Text in place of the address.
    pub(super) address: String,
}

impl Mailbox {
    /// Parses a mailbox. Returns `None` if a comma separates two addresses.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if split(text).iter().filter(|entry| entry.contains('@')).count() > 1 {
            return None;
        }
        let text = text.trim();
        let bracket = text.ends_with('>').then(|| text.rfind('<')).flatten();
        let Some(start) = bracket else { return Some(Self { name: None, address: text.to_owned() }) };
        let name = decoded_text(&unquoted(text[..start].trim()));
        let address = text[start + 1..text.len() - 1].trim().to_owned();
        Some(Self { name: Some(name).filter(|name| !name.trim().is_empty()), address })
    }

    /// Returns the mailbox in header notation.
    pub(super) fn to_header(&self) -> String {
        let Self { name, address } = self;
        match name {
            Some(name) => format!("\"{}\" <{address}>", name.replace('\\', "\\\\").replace('"', "\\\"")),
            None => address.clone(),
        }
    }

    /// Returns the mailbox for people. The name is quoted only if it is ambiguous otherwise.
    pub(super) fn to_text(&self) -> String {
        match &self.name {
            Some(name) if !name.contains(['"', ',', '<', '>', '@', '(', ')', ':', ';', '\\']) => {
                format!("{name} <{}>", self.address)
            }
            _ => self.to_header(),
        }
    }
}

/// Splits a list at commas, except inside quotes and angle brackets.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut entries, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped, mut angled) = (false, false, false);
    for (place, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' if !quoted => angled = true,
            '>' if !quoted => angled = false,
            ',' if !quoted && !angled => {
                entries.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    entries.push(text[start..].trim());
    entries.retain(|entry| !entry.is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_an_address_with_an_optional_name() {
        for (given, name, address) in [
            ("a@example.com", None, "a@example.com"),
            (" <a@example.com> ", None, "a@example.com"),
            ("Ann Lee <a@example.com>", Some("Ann Lee"), "a@example.com"),
            (r#""Lee, Ann \"x\"" <a@example.com>"#, Some("Lee, Ann \"x\""), "a@example.com"),
            ("Acme, Inc. <a@example.com>", Some("Acme, Inc."), "a@example.com"),
            ("=?utf-8?q?J=C3=B6rg?= <a@example.com>", Some("Jörg"), "a@example.com"),
            (r#""a,b@c"@example.com"#, None, r#""a,b@c"@example.com"#),
            ("nobody", None, "nobody"),
            ("Ann <>", Some("Ann"), ""),
        ] {
            let read = Mailbox { name: name.map(str::to_owned), address: address.to_owned() };
            assert_eq!(Mailbox::parse(given), Some(read), "{given}");
        }
    }

    #[test]
    fn two_addresses_are_not_a_mailbox() {
        for given in ["a@example.com, b@example.net", "Ann <a@example.com>,Bob <b@example.net>", "a@b.cc,a@b.cc"] {
            assert_eq!(Mailbox::parse(given), None, "{given}");
        }
        assert_eq!(split("\"Lee, Ann\" <a@b.cc>, c@d.ee,"), ["\"Lee, Ann\" <a@b.cc>", "c@d.ee"]);
    }

    #[test]
    fn a_name_with_special_characters_is_quoted_in_a_header() {
        let mailbox = Mailbox { name: Some("Lee, \"Ann\"".to_owned()), address: "a@example.com".to_owned() };
        assert_eq!(mailbox.to_header(), r#""Lee, \"Ann\"" <a@example.com>"#);
        assert_eq!(mailbox.to_text(), mailbox.to_header());
        let plain = Mailbox { name: Some("Acme Inc.".to_owned()), ..mailbox };
        assert_eq!(plain.to_text(), "Acme Inc. <a@example.com>");
    }
}
