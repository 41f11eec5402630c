//! The client's Message-ID in a message that gets one of ours. It is added to References, so that the thread stays
//! complete (RFC 5322 3.6.4).

use super::super::section::Field;
use crate::domain::limits::LINE_BYTES;

/// Returns whether `id` is one msg-id in angle brackets that every mail program accepts.
pub(super) fn is_valid(id: &str) -> bool {
    let inner = id.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let Some((left, right)) = inner.and_then(|inner| inner.rsplit_once('@')) else { return false };
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'<' | b'>' | b'(' | b')' | b','))
    };
    is_plain(left) && is_plain(right) && !right.contains('"') && id.len() < LINE_BYTES
}

/// Returns the field References with the client's Message-ID at its end, built from In-Reply-To if there is none.
/// `None` if the client gave no valid Message-ID, or if it is already there.
pub(super) fn references(fields: &[Field<'_>]) -> Option<Vec<u8>> {
    let find = |name: &str| fields.iter().find(|field| field.is(name));
    let id = find("Message-ID").map(Field::unfolded).filter(|id| is_valid(id))?;
    if let Some(references) = find("References") {
        let ids = references.unfolded();
        if ids.ends_with(&id) {
            return None;
        }
        let whole = references.whole.strip_suffix(b"\r\n").unwrap_or(references.whole);
        let separator: &[u8] = if ids.is_empty() { b" " } else { b"\r\n " };
        let whole = if ids.is_empty() { b"References:" } else { whole };
        return Some([whole, separator, id.as_bytes(), b"\r\n"].concat());
    }
    let answered = find("In-Reply-To").map(Field::unfolded).unwrap_or_default();
    let mut ids: Vec<&str> = answered.split_ascii_whitespace().filter(|id| is_valid(id)).collect();
    ids.push(&id);
    Some([b"References: ", ids.join("\r\n ").as_bytes(), b"\r\n"].concat())
}
