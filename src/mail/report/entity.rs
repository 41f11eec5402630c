//! One MIME entity (RFC 2045 2.4), a message or a part: its fields, its content type, and its direct parts. It parses
//! nested parts only on request, so a message nested a thousand times costs as much as a flat one.

use std::borrow::Cow;

use super::super::content_type;
use super::super::section::{self, Field};
use super::{HEADER_BYTES_MAX, PARTS_MAX, text, transfer_encoding};

/// Maximum number of lines of a header section. A message with more is an attack.
const HEADER_LINES_MAX: usize = 1000;

/// A message or a part of one.
pub(in crate::mail) struct Entity<'m> {
    /// Header section.
    pub(super) fields: Vec<Field<'m>>,
    body: &'m [u8],
    /// The value of the entity's Content-Type without comments; empty if it has none.
    content_type: String,
}

impl<'m> Entity<'m> {
    /// Parses `bytes`, which have CRLF line ends; `None` if the header section is too long, or contradicts itself about
    /// the content.
    pub(in crate::mail) fn read(bytes: &'m [u8]) -> Option<Self> {
        let header = &bytes[..section::header_length(bytes)];
        let is_ended = |c: &&u8| **c == b'\n';
        if header.len() > HEADER_BYTES_MAX || header.iter().filter(is_ended).count() > HEADER_LINES_MAX {
            return None;
        }
        let (fields, body) = section::split(bytes);
        let mut content_types = fields.iter().filter(|field| field.is("Content-Type"));
        let content_type = content_types.next().map(text::unfolded).unwrap_or_default();
        if content_types.next().is_some() {
            return None;
        }
        let content_type = text::without_comments(&content_type);
        Some(Self { fields, body, content_type })
    }

    /// Returns the value of the entity's first field with this name, in one line.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        text::value_of(&self.fields, name)
    }

    /// Returns the part's media type in lower case; the default is `text/plain` (RFC 2045 5.2).
    pub(in crate::mail) fn media_type(&self) -> String {
        let named = self.content_type.split(';').next().unwrap_or_default();
        let named: String = named.chars().filter(|c| !c.is_whitespace()).collect();
        if named.is_empty() { "text/plain".to_owned() } else { named.to_ascii_lowercase() }
    }

    /// Returns a parameter of its Content-Type.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let value = content_type::parameter(self.content_type.as_bytes(), name)?;
        Some(String::from_utf8_lossy(&value).trim().to_owned())
    }

    /// Returns the part's decoded content with CRLF line ends, up to a maximum size.
    pub(super) fn content(&self, length_max: usize) -> Cow<'m, [u8]> {
        let encoding = self.value("Content-Transfer-Encoding").unwrap_or_default();
        transfer_encoding::decoded(self.body, &text::without_comments(&encoding), length_max)
    }

    /// Returns the part's decoded content byte for byte, up to a maximum size.
    pub(in crate::mail) fn bytes(&self, bytes_max: usize) -> Cow<'m, [u8]> {
        let encoding = self.value("Content-Transfer-Encoding").unwrap_or_default();
        transfer_encoding::decoded_bytes(self.body, &text::without_comments(&encoding), bytes_max)
    }

    /// Returns the part's direct parts, the last of which may be incomplete; empty if it has no boundary or too many
    /// parts.
    pub(in crate::mail) fn parts(&self) -> Vec<&'m [u8]> {
        let boundary = self.parameter("boundary").filter(|boundary| !boundary.is_empty());
        let Some(boundary) = boundary.filter(|_| self.media_type().starts_with("multipart/")) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        let mut open = None;
        let mut place = 0;
        while place < self.body.len() {
            let length = section::line_length(&self.body[place..]);
            let delimiter = delimiter(&self.body[place..place + length], boundary.as_bytes());
            if let (Some(_), Some(start)) = (delimiter, open) {
                parts.push(without_line_end(&self.body[start..place]));
            }
            place += length;
            match delimiter {
                Some(Delimiter::Next) => open = Some(place),
                Some(Delimiter::Last) => return bounded(parts),
                None => {}
            }
            if parts.len() > PARTS_MAX {
                break;
            }
        }
        parts.extend(open.map(|start| &self.body[start..]));
        bounded(parts)
    }
}

fn bounded(parts: Vec<&[u8]>) -> Vec<&[u8]> {
    if parts.len() > PARTS_MAX { Vec::new() } else { parts }
}

/// A line between parts (RFC 2046 5.1.1).
#[derive(Clone, Copy)]
enum Delimiter {
    Next,
    Last,
}

fn delimiter(line: &[u8], boundary: &[u8]) -> Option<Delimiter> {
    let tail = line.strip_prefix(b"--")?.strip_prefix(boundary)?;
    match tail.trim_ascii_end() {
        b"" => Some(Delimiter::Next),
        b"--" => Some(Delimiter::Last),
        _ => None,
    }
}

/// Removes the line end before a delimiter, which belongs to the delimiter.
fn without_line_end(part: &[u8]) -> &[u8] {
    part.strip_suffix(b"\r\n").unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(body: &str) -> Vec<String> {
        let message = format!("Content-Type: multipart/mixed; boundary=\"b b\"\r\n\r\n{body}");
        let entity = Entity::read(message.as_bytes()).unwrap();
        entity.parts().into_iter().map(|part| String::from_utf8(part.to_vec()).unwrap()).collect()
    }

    #[test]
    fn splits_parts_at_their_delimiters() {
        assert_eq!(parts("x\r\n--b b\r\n1\r\n--b b \t\r\n2\r\n\r\n--b b--\r\n3"), ["1", "2\r\n"]);
        assert_eq!(parts("--b b\r\n1\r\n--b bc\r\n --b b\r\n--b b"), ["1\r\n--b bc\r\n --b b", ""]);
        assert_eq!(parts("--b b\r\ncut o"), ["cut o"]);
        assert_eq!(parts("--b b--\r\n--b b\r\n1"), [""; 0]);
        assert_eq!(parts(&"--b b\r\n".repeat(PARTS_MAX)).len(), PARTS_MAX);
        assert_eq!(parts(&"--b b\r\n".repeat(PARTS_MAX + 1)).len(), 0);
    }

    #[test]
    fn parses_the_media_type() {
        fn of(head: &str) -> Option<Entity<'_>> {
            Entity::read(head.as_bytes())
        }
        assert_eq!(of("").unwrap().media_type(), "text/plain");
        assert_eq!(of("Content-Type: (a) Multipart / Report (b);\r\n x=y").unwrap().media_type(), "multipart/report");
        assert_eq!(of("content-type: a/b;\r\n\tX=\" y \"").unwrap().parameter("x").as_deref(), Some("y"));
        assert!(of("Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n").is_none());
        assert!(of(&format!("A: {}\r\n\r\n", "x".repeat(HEADER_BYTES_MAX))).is_none());
        assert!(of(&"A:\r\n".repeat(HEADER_LINES_MAX)).is_some());
        assert!(of(&"A:\r\n".repeat(HEADER_LINES_MAX + 1)).is_none());
    }
}
