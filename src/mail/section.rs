//! Splits a message into header fields and body. The message has only CRLF line ends.

use memchr::memchr;

/// One header field with all its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'m> {
    /// Text before the colon; the whole line if there is none.
    pub(super) name: &'m [u8],
    /// Text after the colon, including folds and the last CRLF; absent if there is no colon.
    pub(super) value: Option<&'m [u8]>,
    /// The whole field, including the last CRLF.
    pub(super) whole: &'m [u8],
}

impl Field<'_> {
    /// Returns whether the field has this name, in any case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the value without folds and surrounding white space (RFC 5322 2.2.3). Invalid UTF-8 is replaced.
    pub(super) fn unfolded(&self) -> String {
        let value = String::from_utf8_lossy(self.value.unwrap_or_default());
        value.replace("\r\n", "").trim_matches([' ', '\t']).to_owned()
    }
}

/// Returns the fields of `message` and its body: the bytes after the first empty line, or nothing.
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
        // Only the first line contains the name: a colon further down belongs to a value.
        let first = &whole[..line_length(whole)];
        let colon = first.iter().position(|c| *c == b':');
        let name = colon.map_or(first, |place| &whole[..place]);
        fields.push(Field { name, value: colon.map(|place| &whole[place + 1..]), whole });
        rest = after;
    }
    (fields, &[])
}

/// Returns the size of the header section with its empty line, in bytes, without parsing its fields.
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

/// Returns the length of the first line in bytes, including its line end.
pub(super) fn line_length(text: &[u8]) -> usize {
    memchr(b'\n', text).map_or(text.len(), |place| place + 1)
}
