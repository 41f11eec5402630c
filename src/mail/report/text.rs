//! Helpers for the text of report fields: unfolding, comments, types, and limits on the length of results.

use super::super::section::Field;

/// Maximum number of bytes read of a field's value; every stored value is shorter.
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Returns the lines of a field's value without surrounding white space. Empty ones are skipped.
pub(super) fn lines(field: &Field<'_>) -> Vec<String> {
    let value = field.value.unwrap_or_default();
    let value = String::from_utf8_lossy(&value[..value.len().min(VALUE_BYTES_MAX)]);
    value.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Returns a field's value in one line: each fold is one space.
pub(super) fn unfolded(field: &Field<'_>) -> String {
    lines(field).join(" ")
}

/// Returns the first field with this name, in any case, that has a value.
pub(super) fn first<'f, 'm>(fields: &'f [Field<'m>], name: &str) -> Option<&'f Field<'m>> {
    fields.iter().find(|field| field.is(name) && field.value.is_some())
}

/// Returns the value of the first field with this name, in one line.
pub(super) fn value_of(fields: &[Field<'_>], name: &str) -> Option<String> {
    first(fields, name).map(unfolded)
}

/// Removes comments (RFC 5322 3.2.2), except for parentheses in quotes. An unclosed comment extends to the end.
pub(super) fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut depth, mut is_quoted) = (0_usize, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let escaped = characters.next();
                if depth == 0 {
                    kept.push(character);
                    kept.extend(escaped);
                }
            }
            '(' if !is_quoted => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            _ => {
                is_quoted ^= character == '"';
                kept.push(character);
            }
        }
    }
    kept.trim().to_owned()
}

/// Splits a typed value (RFC 3464 2.1.2): returns the text before the first semicolon in lower case, if it is a type
/// such as `rfc822` or `dns`, and the rest.
pub(super) fn typed(text: &str) -> (Option<String>, &str) {
    const TYPE_BYTES_MAX: usize = 64;
    let Some((kind, rest)) = text.split_once(';') else { return (None, text.trim()) };
    let kind = kind.trim();
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if kind.is_empty() || kind.len() > TYPE_BYTES_MAX || !kind.chars().all(is_token) {
        return (None, text.trim());
    }
    (Some(kind.to_ascii_lowercase()), rest.trim())
}

/// Returns the name of a server without its type, comments and trailing dot; `None` if the result is empty.
pub(super) fn server_name(value: &str) -> Option<String> {
    let value = without_comments(value);
    let (_, name) = typed(&value);
    filled(name.trim_end_matches('.'), super::FIELD_BYTES_MAX)
}

/// Returns the cleaned and clipped text; `None` if it is empty.
pub(super) fn filled(text: &str, bytes_max: usize) -> Option<String> {
    let text = clipped(text, bytes_max);
    (!text.is_empty()).then_some(text)
}

/// Returns the text up to a maximum size, with control characters other than LF replaced and surrounding white space
/// removed.
pub(super) fn clipped(text: &str, bytes_max: usize) -> String {
    let mut kept = String::new();
    for character in text.trim().chars() {
        let character = match character {
            '\t' => ' ',
            '\n' => '\n',
            other if other.is_control() => char::REPLACEMENT_CHARACTER,
            other => other,
        };
        if kept.len() + character.len_utf8() > bytes_max {
            break;
        }
        kept.push(character);
    }
    kept.truncate(kept.trim_end().len());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_comments_at_any_position() {
        for (text, kept) in [
            ("5.1.1 (bad (nested) address)", "5.1.1"),
            ("(a) failed (b)", "failed"),
            ("dns; mx.example (192.0.2.1)", "dns; mx.example"),
            ("rfc822; \"a(b)\"@example.net", "rfc822; \"a(b)\"@example.net"),
            ("a (b \\) c) d", "a  d"),
            ("a (open", "a"),
            ("a) b", "a) b"),
            ("\\", "\\"),
            ("(\\", ""),
        ] {
            assert_eq!(without_comments(text), kept, "{text}");
        }
    }

    #[test]
    fn a_type_is_one_word_before_a_semicolon() {
        for (text, kind, rest) in [
            ("RFC822;a@b.example", Some("rfc822"), "a@b.example"),
            ("x-postfix ; a; b", Some("x-postfix"), "a; b"),
            ("a@b.example", None, "a@b.example"),
            ("<a@b.example>; c", None, "<a@b.example>; c"),
            ("two words; c", None, "two words; c"),
            (";c", None, ";c"),
        ] {
            assert_eq!(typed(text), (kind.map(str::to_owned), rest), "{text}");
        }
    }

    #[test]
    fn clips_between_characters_and_removes_control_characters() {
        assert_eq!(clipped(" a\tb\u{1b}[2J\nc\0 ", 99), "a b\u{fffd}[2J\nc\u{fffd}");
        assert_eq!(clipped("äöü", 5), "äö");
        assert_eq!(clipped("ab   cd", 4), "ab");
        assert_eq!(filled(" \t ", 9), None);
    }
}
