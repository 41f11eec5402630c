//! Encoded words (RFC 2047) and extended parameters (RFC 2231): non-ASCII text in a header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Size in bytes of a line's content without the frame of its encoded word, `=?UTF-8?Q?` and `?=`: 76 in all (RFC 2047
/// 2).
const LINE_CONTENT_BYTES: usize = 76 - 12;
/// Maximum column at which the first word may begin. It is shortened to fit its line; from this column on, one escaped
/// character of 4 bytes still fits.
pub(super) const COLUMN_MAX: usize = LINE_CONTENT_BYTES - 4 * "=F0".len();
/// Size of one section of a parameter in bytes, so that its line stays below 78.
const SECTION_BYTES: usize = 50;

/// Appends `text` as encoded words, one per line, so that no line has more than 76 bytes (RFC 2047 2).
pub(super) fn words(out: &mut Vec<u8>, text: &str) {
    // Every further line begins with a space.
    let column = out.iter().rev().take_while(|c| **c != b'\n').count().min(COLUMN_MAX);
    let q_bytes: usize = text.bytes().map(|c| if is_q_safe(c) { 1 } else { 3 }).sum();
    if q_bytes <= text.len().div_ceil(3) * 4 {
        let cost = |c: char| if is_q_safe_char(c) { 1 } else { 3 * c.len_utf8() };
        each_chunk(text, [column, 1].map(|column| LINE_CONTENT_BYTES - column), cost, |place, chunk| {
            begin(out, place, b"=?UTF-8?Q?");
            for c in chunk.bytes() {
                match c {
                    b' ' => out.push(b'_'),
                    c if is_q_safe(c) => out.push(c),
                    c => escape(out, b'=', c),
                }
            }
            out.extend_from_slice(b"?=");
        });
    } else {
        let base64_bytes = |column| (LINE_CONTENT_BYTES - column) / 4 * 3;
        each_chunk(text, [column, 1].map(base64_bytes), char::len_utf8, |place, chunk| {
            begin(out, place, b"=?UTF-8?B?");
            out.extend_from_slice(STANDARD.encode(chunk).as_bytes());
            out.extend_from_slice(b"?=");
        });
    }
}

fn begin(out: &mut Vec<u8>, place: usize, prefix: &[u8]) {
    if place > 0 {
        out.extend_from_slice(b"\r\n ");
    }
    out.extend_from_slice(prefix);
}

/// Returns whether a byte needs no escape in a Q word, even inside a phrase (RFC 2047 5 (3)). The space becomes `_`.
const fn is_q_safe(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'!' | b'*' | b'+' | b'-' | b'/' | b' ')
}

fn is_q_safe_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_q_safe)
}

fn escape(out: &mut Vec<u8>, mark: u8, c: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[mark, HEX[usize::from(c >> 4)], HEX[usize::from(c & 15)]]);
}

/// Splits `text` into pieces of whole characters and passes each to `take` with its index. `limits` are the maximum
/// costs of the first piece and of every further one.
fn each_chunk(text: &str, limits: [usize; 2], cost: impl Fn(char) -> usize, mut take: impl FnMut(usize, &str)) {
    let (mut start, mut spent, mut count) = (0, 0, 0);
    for (place, character) in text.char_indices() {
        if spent + cost(character) > limits[usize::from(count > 0)] {
            take(count, &text[start..place]);
            (start, spent, count) = (place, 0, count + 1);
        }
        spent += cost(character);
    }
    take(count, &text[start..]);
}

/// Returns a parameter on separate lines, beginning with `;`: quoted if it is plain ASCII, else extended (RFC 2231 4).
pub(super) fn parameter(name: &str, value: &str) -> String {
    let mut out = Vec::new();
    if value.bytes().all(|c| c == b' ' || c.is_ascii_graphic()) {
        out.extend_from_slice(format!(";\r\n {name}=").as_bytes());
        quoted(&mut out, value);
        return String::from_utf8(out).unwrap_or_default();
    }
    let cost = |c: char| if is_attribute_char(c) { 1 } else { 3 * c.len_utf8() };
    let sectioned = value.chars().map(cost).sum::<usize>() > SECTION_BYTES;
    each_chunk(value, [SECTION_BYTES; 2], cost, |place, chunk| {
        let section = if sectioned { format!("*{place}") } else { String::new() };
        let charset = if place == 0 { "UTF-8''" } else { "" };
        out.extend_from_slice(format!(";\r\n {name}{section}*={charset}").as_bytes());
        for c in chunk.bytes() {
            if is_attribute_char(char::from(c)) { out.push(c) } else { escape(&mut out, b'%', c) }
        }
    });
    String::from_utf8(out).unwrap_or_default()
}

/// Returns whether the character is a safe attribute-char (RFC 2231 7).
fn is_attribute_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// Appends `text` as a quoted string (RFC 5322 3.2.4).
pub(super) fn quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.bytes() {
        if matches!(c, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(c);
    }
    out.push(b'"');
}
