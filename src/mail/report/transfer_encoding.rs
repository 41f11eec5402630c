//! Decodes Content-Transfer-Encoding (RFC 2045 6) in the parts of a report. RFC 6522 and RFC 3464 require 7bit, but
//! gateways encode nevertheless. Invalid data is skipped or kept, since the result is only read and never passed on.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes `body` to at most `length_max` bytes with CRLF line ends.
pub(super) fn decoded<'b>(body: &'b [u8], encoding: &str, length_max: usize) -> Cow<'b, [u8]> {
    match decoded_bytes(body, encoding, length_max) {
        Cow::Borrowed(bytes) => with_crlf(bytes),
        Cow::Owned(bytes) => Cow::Owned(with_crlf(&bytes).into_owned()),
    }
}

/// Decodes `body` to at most `bytes_max` bytes, byte for byte, for content that is not text.
pub(super) fn decoded_bytes<'b>(body: &'b [u8], encoding: &str, bytes_max: usize) -> Cow<'b, [u8]> {
    match encoding.to_ascii_lowercase().as_str() {
        "base64" => Cow::Owned(base64(body, bytes_max)),
        "quoted-printable" => Cow::Owned(quoted_printable(body, bytes_max)),
        _ => Cow::Borrowed(&body[..body.len().min(bytes_max)]),
    }
}

/// Replaces each lone LF in `bytes` by CRLF.
pub(in crate::mail) fn with_crlf(bytes: &[u8]) -> Cow<'_, [u8]> {
    let is_lone = |place: usize| bytes[place] == b'\n' && (place == 0 || bytes[place - 1] != b'\r');
    if !(0..bytes.len()).any(is_lone) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for (place, byte) in bytes.iter().enumerate() {
        if is_lone(place) {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    Cow::Owned(out)
}

fn base64(body: &[u8], length_max: usize) -> Vec<u8> {
    let is_of_alphabet = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    let text = body.iter().take_while(|c| **c != b'=').copied().filter(is_of_alphabet);
    let mut text: Vec<u8> = text.take(length_max.div_ceil(3) * 4).collect();
    if text.len() % 4 == 1 {
        // One character has six bits, less than a byte.
        text.pop();
    }
    let mut bytes = LENIENT.decode(text).unwrap_or_default();
    bytes.truncate(length_max);
    bytes
}

fn quoted_printable(body: &[u8], length_max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while let (Some(first), true) = (rest.first(), out.len() < length_max) {
        let taken = match (first, rest) {
            (b'=', [_, b'\r', b'\n', ..]) => 3,
            (b'=', [_, b'\n', ..]) => 2,
            (b'=', [_, high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    3
                }
                (_, _) => {
                    out.push(b'=');
                    1
                }
            },
            (_, _) => {
                out.push(*first);
                1
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str, encoding: &str) -> String {
        String::from_utf8(decoded(body.as_bytes(), encoding, 1000).into_owned()).unwrap()
    }

    #[test]
    fn decodes_every_encoding() {
        assert_eq!(text("QWN0aW9uOiBm\r\nYWlsZWQK", "BASE64"), "Action: failed\r\n");
        assert_eq!(text("QWN0a W9uOg==QUFB", "base64"), "Action:");
        assert_eq!(text("QWN0aW9uOgQ", "base64"), "Action:\u{4}");
        assert_eq!(text("Action=3A fai=\r\nled=\n!=3D=xy=", "Quoted-Printable"), "Action: failed!==xy=");
        assert_eq!(text("a\nb\r\nc\n", "7bit"), "a\r\nb\r\nc\r\n");
        assert_eq!(text("a=3Db", "x-unknown"), "a=3Db");
    }

    #[test]
    fn decodes_up_to_the_requested_length() {
        assert_eq!(decoded(b"QWN0aW9uOiBm", "base64", 4).as_ref(), b"Acti");
        assert_eq!(decoded(b"=41=42=43", "quoted-printable", 2).as_ref(), b"AB");
        assert_eq!(decoded(b"abc", "8bit", 2).as_ref(), b"ab");
    }
}
