//! Addresses in reports: with a type, in brackets, in xtext (RFC 3461 4) or its Unicode form (RFC 6533 3).

use super::{FIELD_BYTES_MAX, text};

/// Parses the address of a Final-Recipient field.
pub(super) fn final_recipient(value: &str) -> Option<String> {
    recipient(value, str::to_owned)
}

/// Parses the address of an Original-Recipient field, which may still have the form of the sender's ORCPT parameter.
pub(super) fn original_recipient(value: &str) -> Option<String> {
    recipient(value, from_xtext)
}

/// Parses an address of the envelope, without its brackets; empty for the null sender.
pub(super) fn envelope(value: &str) -> String {
    let value = text::without_comments(value);
    text::clipped(bare(&value), FIELD_BYTES_MAX)
}

fn recipient(value: &str, decode: impl Fn(&str) -> String) -> Option<String> {
    let value = text::without_comments(value);
    let (kind, address) = text::typed(&value);
    let address = bare(address);
    if address.is_empty() {
        return None;
    }
    let address = match kind.as_deref() {
        None | Some("rfc822") => decode(address),
        Some("utf-8") => from_unicode_xtext(address),
        Some(kind) => format!("{kind}; {address}"),
    };
    text::filled(&address, FIELD_BYTES_MAX)
}

fn bare(address: &str) -> &str {
    let address = address.trim();
    address.strip_prefix('<').and_then(|inside| inside.strip_suffix('>')).unwrap_or(address).trim()
}

/// Decodes xtext if the text certainly is xtext. Many servers write the address decoded, and `bob+42@example.com` is a
/// valid address. So it is decoded only if each `+XX` is a character that xtext must encode.
fn from_xtext(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'+' {
            bytes.push(*first);
            continue;
        }
        let byte = match after {
            [high, low, ..] => xtext_digit(*high).zip(xtext_digit(*low)).map(|(high, low)| high << 4 | low),
            [] | [_] => None,
        };
        let must = |byte: &u8| matches!(byte, b'+' | b'=') || !byte.is_ascii_graphic();
        let Some(byte) = byte.filter(must) else { return text.to_owned() };
        bytes.push(byte);
        rest = &after[2..];
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Parses a digit of xtext, which is upper case.
fn xtext_digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

/// Decodes `\x{20AC}`. Invalid escapes stay as they are.
fn from_unicode_xtext(text: &str) -> String {
    const DIGITS_MAX: usize = 6;
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once("\\x{") {
        decoded.push_str(before);
        let head = &escape[..escape.floor_char_boundary(DIGITS_MAX + 1)];
        let digits = head.split_once('}').map(|(digits, _)| digits);
        let digits = digits.filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        let character = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        if let (Some(character), Some(digits)) = (character, digits) {
            decoded.push(character);
            rest = &escape[digits.len() + 1..];
        } else {
            decoded.push_str("\\x{");
            rest = escape;
        }
    }
    decoded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_recipient_in_every_form() {
        for (value, address) in [
            ("rfc822; bob@example.com", Some("bob@example.com")),
            ("RFC822;<bob@example.com> (Bob)", Some("bob@example.com")),
            ("bob@example.com", Some("bob@example.com")),
            ("rfc822;bob+2Bnews@example.com", Some("bob+news@example.com")),
            ("rfc822;bob+3Dc@example.com", Some("bob=c@example.com")),
            ("rfc822;bob+42@example.com", Some("bob+42@example.com")),
            ("rfc822;bob+news@example.com", Some("bob+news@example.com")),
            ("rfc822;bob+2Bnews+news@example.com", Some("bob+2Bnews+news@example.com")),
            ("rfc822;b+FF@example.com", Some("b+FF@example.com")),
            ("rfc822;b++2@example.com", Some("b++2@example.com")),
            ("rfc822;b+", Some("b+")),
            ("utf-8; jös@example.com", Some("jös@example.com")),
            ("utf-8; j\\x{F6}s@ex\\x{e4}mple.com", Some("jös@exämple.com")),
            ("UTF-8; \\x{D800}\\x{}\\x{41\\x{110000}", Some("\\x{D800}\\x{}\\x{41\\x{110000}")),
            ("x400; /C=de/A=a/S=bob/", Some("x400; /C=de/A=a/S=bob/")),
            ("rfc822;", None),
            ("rfc822; <>", None),
            ("(nobody)", None),
            ("", None),
        ] {
            assert_eq!(original_recipient(value).as_deref(), address, "{value}");
        }
        assert_eq!(final_recipient("rfc822;bob+2Bnews@example.com").as_deref(), Some("bob+2Bnews@example.com"));
    }

    #[test]
    fn parses_the_null_sender() {
        for (value, address) in [("<>", ""), (" <a@b.example> (c)", "a@b.example"), ("a@b.example", "a@b.example")] {
            assert_eq!(envelope(value), address);
        }
    }
}
