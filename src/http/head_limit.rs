//! The size limit of a request's head.

use hyper::http::request::Parts;

/// Maximum number of fields. Hyper enforces it for HTTP/1; its HTTP/2 has no such limit.
const HEADERS_MAX: usize = 100;

/// Returns whether the head has more than `most` bytes or too many fields. Hyper checks its limits between reads, so
/// one read may exceed them. This check is exact.
pub(super) fn is_too_large(head: &Parts, most: usize) -> bool {
    let line = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    head.headers.len() > HEADERS_MAX || line + fields > most
}
