//! Header section of the original message, as returned in a report.

use super::super::section;
use super::entity::Entity;
use super::{FIELD_BYTES_MAX, HEADER_BYTES_MAX, text};

/// Media types of returned messages, complete or only their header sections (RFC 6522 3, RFC 6533 5).
const RETURNED: [&str; 4] = ["message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"];

/// The header section of a returned message, with CRLF line ends, at most [`HEADER_BYTES_MAX`]; empty if the report
/// returns nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReturnedHeader {
    section: Vec<u8>,
}

impl ReturnedHeader {
    /// Returns the first part of a report that is a returned message.
    pub(super) fn find(parts: &[Entity<'_>]) -> Self {
        let Some(part) = parts.iter().find(|part| RETURNED.contains(&part.media_type().as_str())) else {
            return Self::default();
        };
        let content = part.content(HEADER_BYTES_MAX + 1);
        match section::header_length(&content) {
            length if length > HEADER_BYTES_MAX => Self::default(),
            length => Self { section: content[..length].to_vec() },
        }
    }

    /// Returns the value of the first field with this name, in any case, in one line, at most [`FIELD_BYTES_MAX`]
    /// bytes.
    pub fn get(&self, name: &str) -> Option<String> {
        self.all(name).into_iter().next()
    }

    /// Returns the values of all fields with this name, in order and in the form of [`Self::get`].
    pub fn all(&self, name: &str) -> Vec<String> {
        self.fields()
            .into_iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }

    /// Returns all fields in order: names and values, each in one line and at most [`FIELD_BYTES_MAX`] bytes.
    pub fn fields(&self) -> Vec<(String, String)> {
        let (fields, _) = section::split(&self.section);
        let named = fields.iter().filter(|field| field.value.is_some());
        let name = |name: &[u8]| text::clipped(&String::from_utf8_lossy(name), FIELD_BYTES_MAX);
        named.map(|field| (name(field.name), text::clipped(&text::unfolded(field), FIELD_BYTES_MAX))).collect()
    }

    /// Returns the raw section, against which a signature in it can be verified.
    pub fn section(&self) -> &[u8] {
        &self.section
    }
}
