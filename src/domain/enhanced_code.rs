//! Enhanced mail system status codes (RFC 3463) in SMTP replies and delivery reports. Both floors that parse them use
//! this file.

use std::fmt;

/// An enhanced mail system status code (RFC 3463). Each part has up to three digits: Microsoft uses 5.7.509.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnhancedCode {
    /// 2, 4 or 5.
    pub class: u8,
    /// Subject of the code.
    pub subject: u16,
    /// Detail of the subject.
    pub detail: u16,
}

impl EnhancedCode {
    /// Creates a code from its parts.
    pub const fn new(class: u8, subject: u16, detail: u16) -> Self {
        Self { class, subject, detail }
    }

    /// Returns the code at the start of a line's text, or in the form `(#5.1.1)` anywhere in it, as qmail writes it.
    pub fn find(text: &str) -> Option<Self> {
        let at_start = Self::split_from(text).map(|(code, _)| code);
        at_start.or_else(|| Self::split_from(text.split_once("(#")?.1).map(|(code, _)| code))
    }

    /// Returns the code at the start of `text`, after an optional `#`, and the rest.
    pub fn split_from(text: &str) -> Option<(Self, &str)> {
        let text = text.trim_start();
        let text = text.strip_prefix('#').unwrap_or(text);
        let (class, rest) = digits(text)?;
        let (subject, rest) = digits(rest.strip_prefix('.')?)?;
        let (detail, rest) = digits(rest.strip_prefix('.')?)?;
        // A fourth part would mean an IP address.
        if rest.starts_with(|next: char| next.is_alphanumeric() || next == '.') && !is_sentence_end(rest) {
            return None;
        }
        let class = u8::try_from(class).ok().filter(|class| matches!(class, 2 | 4 | 5))?;
        Some((Self { class, subject, detail }, rest))
    }
}

fn is_sentence_end(rest: &str) -> bool {
    rest.strip_prefix('.').is_some_and(|after| !after.starts_with(|next: char| next.is_ascii_digit()))
}

/// Returns a number of one to three digits at the start of `text`, and the rest.
fn digits(text: &str) -> Option<(u16, &str)> {
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if number.len() > 3 {
        return None;
    }
    Some((number.parse().ok()?, rest))
}

impl fmt::Display for EnhancedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.class, self.subject, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_split_from_the_following_text() {
        for (text, code, rest) in [
            ("5.1.1 no such user", "5.1.1", " no such user"),
            (" #5.7.509", "5.7.509", ""),
            ("4.4.7.", "4.4.7", "."),
            ("5.7.1: blocked", "5.7.1", ": blocked"),
        ] {
            let found = EnhancedCode::split_from(text).map(|(code, rest)| (code.to_string(), rest));
            assert_eq!(found, Some((code.to_owned(), rest)), "{text}");
        }
        for text in ["", "5", "5.1", "5.1.1.1", "3.1.1", "5.1234.1", "5.1.1x", "no 5.1.1"] {
            assert_eq!(EnhancedCode::split_from(text), None, "{text}");
        }
    }
}
