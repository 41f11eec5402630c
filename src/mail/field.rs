//! Writes whole header fields: name, value, folds, CRLF. Values were checked before and contain no CR or LF.
//!
//! Used instead of lettre. Its encoder leaves a word of 998 characters on one line with its name, over the limit of RFC
//! 5322 2.1.1. It also panics on a control character in a display name.

use super::encoded;
use super::mailbox;

/// Line length in bytes after which a line is folded if possible (RFC 5322 2.1.1 recommends at most 78).
const FOLD_BYTES: usize = 76;
/// Maximum size in bytes of a word that is written without encoding, so that name and word stay below 998.
const WORD_BYTES_MAX: usize = 900;

/// Meaning of `=?` in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EncodedWordMeaning {
    /// Literal: the recipient sees the text unchanged.
    Literal,
    /// The caller may have used any form, such as an encoded word.
    Callers,
}

/// Appends a field whose value needs no folding.
pub(super) fn plain(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends an unstructured field (RFC 5322 3.6.5), folded at spaces, or as encoded words if it is not plain.
pub(super) fn unstructured(out: &mut Vec<u8>, name: &str, value: &str, meaning: EncodedWordMeaning) {
    let value = if meaning == EncodedWordMeaning::Callers { value.trim_matches(' ') } else { value };
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    if is_plain(value, meaning) {
        out.push(b' ');
        folded(out, name.len() + 2, value);
    } else {
        // Some parsers keep the space of a fold right behind the colon as a part of the value.
        let fits = name.len() + ": ".len() <= encoded::COLUMN_MAX;
        out.extend_from_slice(if fits { b" " } else { b"\r\n " });
        encoded::words(out, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a field with one mailbox: display name and address (RFC 5322 3.4).
pub(super) fn mailbox(out: &mut Vec<u8>, name: &str, display: Option<&str>, address: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    name_and_address(out, display, address);
    out.extend_from_slice(b"\r\n");
}

/// Appends a custom field. A non-ASCII Reply-To is split into mailboxes, since addresses must not be encoded as words.
pub(super) fn custom(out: &mut Vec<u8>, name: &str, value: &str) {
    let structured = name.eq_ignore_ascii_case("Reply-To") && !value.is_ascii();
    let Some(list) = structured.then(|| mailbox::list(value)).flatten() else {
        return unstructured(out, name, value, EncodedWordMeaning::Callers);
    };
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    for (place, entry) in list.iter().enumerate() {
        if place > 0 {
            out.extend_from_slice(b",\r\n ");
        }
        name_and_address(out, entry.display.as_deref(), &entry.address.to_wire());
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `<url>`. White space inside the brackets is ignored (RFC 2369 2), so a long URL may be folded.
pub(super) fn bracketed_url(out: &mut Vec<u8>, name: &str, url: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": <");
    for (place, piece) in url.as_bytes().chunks(WORD_BYTES_MAX).enumerate() {
        if place > 0 {
            out.extend_from_slice(b"\r\n ");
        }
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(b">\r\n");
}

fn name_and_address(out: &mut Vec<u8>, display: Option<&str>, address: &str) {
    let Some(display) = display.filter(|text| !text.trim().is_empty()) else {
        return out.extend_from_slice(address.as_bytes());
    };
    let ascii = display.bytes().all(|c| c == b' ' || c.is_ascii_graphic());
    if ascii && !display.contains("=?") {
        encoded::quoted(out, display);
    } else {
        encoded::words(out, display);
    }
    let line = out.iter().rev().take_while(|c| **c != b'\n').count();
    out.extend_from_slice(if line + address.len() > FOLD_BYTES { b"\r\n <" } else { b" <" });
    out.extend_from_slice(address.as_bytes());
    out.push(b'>');
}

fn is_plain(value: &str, meaning: EncodedWordMeaning) -> bool {
    let printable = value.bytes().all(|c| c == b' ' || c.is_ascii_graphic());
    let framed = value.starts_with(' ') || value.ends_with(' ');
    let misread = meaning == EncodedWordMeaning::Literal && value.contains("=?");
    printable && !framed && !misread && words(value).all(|word| word.len() <= WORD_BYTES_MAX)
}

fn folded(out: &mut Vec<u8>, mut column: usize, value: &str) {
    for (place, word) in words(value).enumerate() {
        if place > 0 {
            let folds = column + 1 + word.len() > FOLD_BYTES;
            out.extend_from_slice(if folds { b"\r\n " } else { b" " });
            column = if folds { 1 } else { column + 1 };
        }
        out.extend_from_slice(word.as_bytes());
        column += word.len();
    }
}

/// Splits a value at single spaces. Runs of spaces stay inside a piece, so that folding never makes a line of only
/// white space, and unfolding restores the exact text.
fn words(value: &str) -> impl Iterator<Item = &str> {
    let bytes = value.as_bytes();
    let mut start = 0;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let lone =
            |place: usize| bytes[place] == b' ' && bytes[place - 1] != b' ' && bytes.get(place + 1) != Some(&b' ');
        let end = (start.max(1)..bytes.len()).find(|place| *place > start && lone(*place)).unwrap_or(bytes.len());
        let word = &value[start..end];
        done = end == bytes.len();
        start = end + 1;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_value_begins_on_the_line_of_its_name_and_no_line_is_too_long() {
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        for (name, value) in [("X-Campaign", "spring ü"), ("Subject", "𝒳𝒴 ".repeat(40).as_str()), ("X-Long", &long)]
        {
            let mut out = Vec::new();
            unstructured(&mut out, name, value, EncodedWordMeaning::Callers);
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(&format!("{name}: =?UTF-8?")), "{text}");
            assert!(text.lines().all(|line| line.len() <= FOLD_BYTES), "{text}");
        }
    }
}
