//! The path of MAIL and RCPT (RFC 5321 4.1.2, RFC 6531 3.3): `<local@domain>`, from the command line.
//!
//! Parsing is more lenient than `domain::address`, since a receiver must accept the addresses of other servers. But
//! spaces, brackets and control characters are never accepted outside of quotes.

use std::fmt;

/// One mailbox as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    /// Position of the `@` before the domain.
    at: Option<usize>,
}

/// Error: the text is not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidPath;

impl Path {
    /// Returns the local part, including quotes.
    pub fn local(&self) -> &str {
        self.at.map_or(&self.text, |at| &self.text[..at])
    }

    /// Returns the domain or address literal; empty for the bare `<Postmaster>` of RFC 5321 4.5.1.
    pub fn domain(&self) -> &str {
        self.at.map_or("", |at| &self.text[at + 1..])
    }

    /// Returns whether the path is ASCII. Otherwise it needs SMTPUTF8.
    pub(super) fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }

    /// Returns the whole path as the client wrote it, without its brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Parses the path of a submission client: any text in angle brackets. Returns the path (`None` for `<>`) and the
    /// text after it. Brackets inside a quoted string belong to the path.
    pub(super) fn read_any(text: &str) -> Result<(Option<Self>, &str), InvalidPath> {
        let inner = text.strip_prefix('<').ok_or(InvalidPath)?;
        let end = closing_bracket(inner).or_else(|| inner.find('>')).ok_or(InvalidPath)?;
        let (path, rest) = (&inner[..end], &inner[end + 1..]);
        let given = (!path.is_empty()).then(|| Self { text: path.to_owned(), at: path.rfind('@') });
        Ok((given, rest))
    }

    /// Parses a path in angle brackets at the start of `text`. Returns the path (`None` for `<>`) and the text after
    /// it.
    pub(super) fn read(text: &str) -> Result<(Option<Self>, &str), InvalidPath> {
        let inner = text.strip_prefix('<').ok_or(InvalidPath)?;
        if let Some(rest) = inner.strip_prefix('>') {
            return Ok((None, rest));
        }
        let mailbox = without_route(inner)?;
        let local_length = local_length(mailbox)?;
        let (local, rest) = mailbox.split_at(local_length);
        let (domain, rest) = match rest.strip_prefix('@') {
            Some(rest) => read_domain(rest)?,
            None if local.eq_ignore_ascii_case("postmaster") => ("", rest),
            None => return Err(InvalidPath),
        };
        let rest = rest.strip_prefix('>').ok_or(InvalidPath)?;
        if domain.is_empty() {
            return Ok((Some(Self { text: local.to_owned(), at: None }), rest));
        }
        Ok((Some(Self { text: format!("{local}@{domain}"), at: Some(local.len()) }), rest))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the position of the first `>` outside of a quoted string.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.char_indices().find_map(|(place, c)| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '>' if !is_quoted => return Some(place),
            _ => {}
        }
        None
    })
}

/// Removes a source route, which is accepted and ignored (RFC 5321 appendix C).
fn without_route(text: &str) -> Result<&str, InvalidPath> {
    if !text.starts_with('@') {
        return Ok(text);
    }
    let (route, mailbox) = text.split_once(':').ok_or(InvalidPath)?;
    let is_route = route.split(',').all(|hop| hop.strip_prefix('@').is_some_and(is_host));
    if is_route { Ok(mailbox) } else { Err(InvalidPath) }
}

fn local_length(text: &str) -> Result<usize, InvalidPath> {
    let length = if text.starts_with('"') {
        quoted_length(text)?
    } else {
        text.find(|c: char| !is_local(c)).unwrap_or(text.len())
    };
    if length == 0 { Err(InvalidPath) } else { Ok(length) }
}

/// Returns the length of the quoted string at the start of `text`, including its quotes.
fn quoted_length(text: &str) -> Result<usize, InvalidPath> {
    let mut escaped = false;
    for (place, c) in text.char_indices().skip(1) {
        match c {
            _ if c.is_control() => return Err(InvalidPath),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok(place + 1),
            _ => {}
        }
    }
    Err(InvalidPath)
}

fn read_domain(text: &str) -> Result<(&str, &str), InvalidPath> {
    let end = text.find('>').ok_or(InvalidPath)?;
    let (domain, rest) = text.split_at(end);
    let is_literal = domain.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).is_some_and(|inner| {
        !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-".contains(&b))
    });
    if is_literal || is_host(domain) { Ok((domain, rest)) } else { Err(InvalidPath) }
}

fn is_host(name: &str) -> bool {
    let is_label_char = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || !c.is_ascii() && !c.is_control();
    !name.is_empty() && name.split('.').all(|label| !label.is_empty() && label.chars().all(is_label_char))
}

/// Returns whether the character is atext, a dot, or one of the additions of RFC 6531 3.3.
fn is_local(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c) || !c.is_ascii() && !c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(text: &str) -> Option<String> {
        let (path, rest) = Path::read(text).ok()?;
        assert_eq!(rest, "");
        path.map(|path| path.to_string())
    }

    #[test]
    fn parses_every_legal_kind_of_mailbox() {
        for inner in ["a@b.example", "\"a> b\\\"@\"@b.example", "a+b=c@[192.0.2.1]", "Postmaster", "дом@пример.example"]
        {
            assert_eq!(mailbox(&format!("<{inner}>")).as_deref(), Some(inner));
        }
        assert_eq!(mailbox("<@relay.example,@two.example:a@b.example>").as_deref(), Some("a@b.example"));
        assert_eq!(Path::read("<> SIZE=5"), Ok((None, " SIZE=5")));
    }

    #[test]
    fn a_submission_client_may_write_any_path() {
        for (text, local, domain) in [
            ("wordpress", "wordpress", ""),
            ("root@localhost", "root", "localhost"),
            ("a b@c d", "a b", "c d"),
            ("\"a>b@\"@c", "\"a>b@\"", "c"),
            ("a@", "a", ""),
        ] {
            let written = format!("<{text}> SIZE=5");
            let (path, rest) = Path::read_any(&written).unwrap();
            let path = path.unwrap();
            assert_eq!((path.local(), path.domain(), path.as_str(), rest), (local, domain, text, " SIZE=5"));
        }
        assert_eq!(Path::read_any("<\"a> SIZE=5").unwrap().0.unwrap().as_str(), "\"a");
        assert_eq!(Path::read_any("<>"), Ok((None, "")));
        for text in ["a@b", "<a@b", ""] {
            assert_eq!(Path::read_any(text), Err(InvalidPath), "{text}");
        }
    }

    #[test]
    fn rejects_other_texts() {
        for text in [
            "a@b",
            "<a@b",
            "<a>",
            "<@b>",
            "<a b@c>",
            "<a@b c>",
            "<a@b..c>",
            "<\"a@b>",
            "<\"a\u{7}\"@b>",
            "<a@[x y]>",
            "",
        ] {
            assert_eq!(Path::read(text), Err(InvalidPath), "{text}");
        }
    }
}
