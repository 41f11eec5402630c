//! A message's header section as its fields, and the body behind it. The message has CRLF line ends only.

use memchr::memchr;

/// One header field with all its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'m> {
    /// Text before the colon; the whole line if there is none.
    pub(super) name: &'m [u8],
    /// Text after the colon, including folds and the last CRLF; absent if there is no colon.
    pub(super) value: Option<&'m [u8]>,
    /// The whole field, last CRLF included.
    pub(super) whole: &'m [u8],
}

impl Field<'_> {
    /// Whether the field has this name, in any case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The value without folds and outer white space (RFC 5322 2.2.3); what is not UTF-8 is replaced.
    pub(super) fn unfolded(&self) -> String {
        let value = String::from_utf8_lossy(self.value.unwrap_or_default());
        value.replace("\r\n", "").trim_matches([' ', '\t']).to_owned()
    }
}

/// The fields of `message` and its body: what follows the first empty line, nothing where there is none.
pub(super) fn split(message: &[u8]) -> (Vec<Field<'_>>, &[u8]) {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        if let Some(body) = rest.strip_prefix(b"\r\n") {
            return (fields, body);
        }
        let mut end = line_length(rest);
        while matches!(rest.get(end), Some(b' ' | b'\t')) {
            end += line_length(&rest[end..]);
        }
        let (whole, after) = rest.split_at(end);
        // Only the first line can carry the name: a colon further down belongs to a value, or to nothing.
        let first = &whole[..line_length(whole)];
        let colon = first.iter().position(|c| *c == b':');
        let name = colon.map_or(first, |place| &whole[..place]);
        fields.push(Field { name, value: colon.map(|place| &whole[place + 1..]), whole });
        rest = after;
    }
    (fields, &[])
}

/// Bytes of the header section with its empty line, found without reading its fields.
pub(super) fn header_length(message: &[u8]) -> usize {
    let mut length = 0;
    while length < message.len() {
        let line = line_length(&message[length..]);
        length += line;
        if line == b"\r\n".len() {
            break;
        }
    }
    length
}

/// Bytes of the first line, its line end included.
pub(super) fn line_length(text: &[u8]) -> usize {
    memchr(b'\n', text).map_or(text.len(), |place| place + 1)
}
