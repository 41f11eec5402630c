//! Strict query parsing: every parameter must be known, given once and valid. Otherwise the answer is a 422 that names
//! it (contract 1).

use std::str::FromStr;

use crate::domain::nearest::nearest;
use crate::domain::violation::Violations;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 100;

/// The decoded parameters of one request.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

/// The requested page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of rows.
    pub limit: usize,
    /// The opaque cursor, if given.
    pub cursor: Option<String>,
}

impl Query {
    /// Parses `raw`, which may only contain the parameters of `known`. Errors go to `violations`. A known name that
    /// ends with `[]` allows any name in the brackets.
    pub fn parse(raw: &str, known: &[&'static str], violations: &mut Violations) -> Self {
        let mut query = Self::default();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = decode(name, PlusMeaning::IsSpace) else {
                violations.add(name, "is not percent-encoded UTF-8");
                continue;
            };
            if !known.iter().any(|known| is_named(&name, known)) {
                if let Some(meant) = nearest(&name, known) {
                    violations.hint(format!("Did you mean {meant}?"));
                }
                violations.add(name, "unknown parameter");
                continue;
            }
            match decode(value, PlusMeaning::IsSpace) {
                None => violations.add(name, "is not percent-encoded UTF-8"),
                Some(_) if query.get(&name).is_some() => violations.add(name, "is given more than once"),
                Some(value) => query.0.push((name, value)),
            }
        }
        query
    }

    /// Returns the value of a parameter, if given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all parameters, names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the parsed value of a parameter.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&self, name: &str, violations: &mut Violations) -> Option<T> {
        violations.check(name, self.get(name)?.parse())
    }

    /// Parses `limit` and `cursor`.
    pub fn page(&self, violations: &mut Violations) -> Page {
        let limit = self.get("limit").map_or(Some(LIMIT_DEFAULT), |text| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|limit| digits && (1..=LIMIT_MAX).contains(limit))
        });
        if limit.is_none() {
            violations.add("limit", format!("must be a whole number from 1 to {LIMIT_MAX}"));
        }
        Page { limit: limit.unwrap_or(LIMIT_DEFAULT), cursor: self.get("cursor").map(str::to_owned) }
    }
}

/// Returns the name in the brackets of `metadata[order]`, where `name` is the part before them.
pub fn bracketed<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')
}

fn is_named(name: &str, known: &str) -> bool {
    known.strip_suffix("[]").map_or(name == known, |known| bracketed(name, known).is_some())
}

/// Meaning of a `+`: a space in queries and forms, itself in paths.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PlusMeaning {
    /// `application/x-www-form-urlencoded`.
    IsSpace,
    /// RFC 3986.
    IsPlus,
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hex digits or the bytes are not UTF-8.
pub fn decode(text: &str, plus: PlusMeaning) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digit = |at: usize| char::from(digits[at]).to_digit(16);
                u8::try_from(digit(0)? << 4 | digit(1)?).ok()?
            }
            b'+' if plus == PlusMeaning::IsSpace => b' ',
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["limit", "cursor", "email"];

    #[test]
    fn a_query_is_decoded_and_its_page_has_defaults() {
        let mut violations = Violations::new();
        let query = Query::parse("email=a%2Bb%40x.example&cursor=abc", &KNOWN, &mut violations);
        assert_eq!(query.get("email"), Some("a+b@x.example"));
        assert_eq!(query.page(&mut violations), Page { limit: 50, cursor: Some("abc".to_owned()) });
        assert!(violations.is_empty());
    }

    #[test]
    fn names_in_brackets_are_known_by_their_prefix() {
        let mut violations = Violations::new();
        let raw = "metadata[order]=10&metadata%5Ba%5Bb%5D=%3D&metadata[order]=11&metadata=1&metadata[x=1";
        let query = Query::parse(raw, &["metadata[]"], &mut violations);
        assert_eq!(query.pairs().collect::<Vec<_>>(), [("metadata[order]", "10"), ("metadata[a[b]", "=")]);
        assert_eq!(bracketed("metadata[a[b]", "metadata"), Some("a[b"));
        let fields: Vec<_> = violations.by_field().keys().map(String::as_str).collect();
        assert_eq!(fields, ["metadata", "metadata[order]", "metadata[x"]);
    }

    #[test]
    fn all_errors_of_a_query_are_reported_together() {
        let mut violations = Violations::new();
        let query = Query::parse("limt=1&cursor=a&cursor=b&email=%zz&limit=%2B5", &KNOWN, &mut violations);
        query.page(&mut violations);
        let fields: Vec<_> = violations.by_field().keys().map(String::as_str).collect();
        assert_eq!(fields, ["cursor", "email", "limit", "limt"]);
        assert_eq!(violations.hints(), ["Did you mean limit?"]);
        for bad in ["0", "101", "", "ten", "-1", "1.0"] {
            let mut violations = Violations::new();
            Query::parse(&format!("limit={bad}"), &KNOWN, &mut violations).page(&mut violations);
            assert!(violations.by_field().contains_key("limit"), "{bad}");
        }
    }
}
