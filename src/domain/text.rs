//! Checks of callers' texts: length in characters, control characters, and invisible characters that make one text look
//! like another. This module also parses quoted strings.

/// Returns whether `text` has more than `limit` characters. Counts only as far as needed.
pub fn is_longer(text: &str, limit: usize) -> bool {
    text.len() > limit && text.chars().nth(limit).is_some()
}

/// Returns the content of a quoted string (RFC 5322 3.2.4), and any other text unchanged.
pub fn unquoted(text: &str) -> String {
    let Some(inside) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut plain = String::with_capacity(inside.len());
    let mut characters = inside.chars();
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    plain
}

/// Returns whether `text` has a control character: C0 (TAB, CR and LF included), DEL or C1.
pub fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Returns whether `character` ends a line or changes the direction of text: U+2028, U+2029 and the bidirectional
/// controls of UAX #9. In an address they only serve to deceive.
pub const fn is_deceptive(character: char) -> bool {
    matches!(character, '\u{2028}' | '\u{2029}' | '\u{061c}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
