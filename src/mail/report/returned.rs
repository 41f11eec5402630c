//! What a report returns of the message that it is about: its header section.

use super::super::section;

/// The header section of a returned message, with CRLF line ends, at most [`super::HEADER_OCTETS_MAX`]; empty where
/// the report returns nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Returned {
    section: Vec<u8>,
}

impl Returned {
    /// The first field of this name, in any case: its value unfolded, at most [`super::FIELD_OCTETS_MAX`] octets.
    pub fn get(&self, name: &str) -> Option<String> {
        self.all(name).next()
    }

    /// The values of all fields of this name, as [`Self::get`] has them, from the first.
    pub fn all(&self, name: &str) -> impl Iterator<Item = String> {
        section::split(&self.section).0.into_iter().filter(move |field| field.is(name)).map(|field| field.unfolded())
    }

    /// The section as it was returned: a signature that it carries can be checked against it.
    pub fn section(&self) -> &[u8] {
        &self.section
    }
}
