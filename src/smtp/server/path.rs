//! The path of MAIL and RCPT (RFC 5321 4.1.2, RFC 6531 3.3): `<local@domain>`, from the command line.
//!
//! Read more generously than `domain::address`, since a receiver has to take what other servers call an address,
//! but never so that a space, a bracket or a control character passes outside of quotes.

use std::fmt;

/// One mailbox as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    local: String,
    domain: String,
}

/// The text is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidPath;

impl Path {
    /// The local part, quotes included.
    pub fn local(&self) -> &str {
        &self.local
    }

    /// The domain or address literal; empty for the bare `<Postmaster>` of RFC 5321 4.5.1.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Whether it needs SMTPUTF8.
    pub(super) fn is_ascii(&self) -> bool {
        self.local.is_ascii() && self.domain.is_ascii()
    }

    /// Reads a path in angle brackets at the start of `text`: the path, none for `<>`, and what follows it.
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
        Ok((Some(Self { local: local.to_owned(), domain: domain.to_owned() }), rest))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.local)?;
        if self.domain.is_empty() { Ok(()) } else { write!(f, "@{}", self.domain) }
    }
}

/// A source route is taken and ignored (RFC 5321 appendix C).
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

/// The length of the quoted string at the start of `text`, its quotes included.
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

/// atext and the dot, plus what RFC 6531 3.3 adds.
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
    fn mailboxes_of_every_legal_kind_are_read() {
        for inner in ["a@b.example", "\"a> b\\\"@\"@b.example", "a+b=c@[192.0.2.1]", "Postmaster", "дом@пример.example"]
        {
            assert_eq!(mailbox(&format!("<{inner}>")).as_deref(), Some(inner));
        }
        assert_eq!(mailbox("<@relay.example,@two.example:a@b.example>").as_deref(), Some("a@b.example"));
        assert_eq!(Path::read("<> SIZE=5"), Ok((None, " SIZE=5")));
    }

    #[test]
    fn what_is_no_path_is_refused() {
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
