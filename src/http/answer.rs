//! Answer of a handler: a status, a body with its type, and headers of its own. The service adds those that every
//! answer carries (contract 1).

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::id::AccountId;
use crate::net::http_body::{Body, BodyStream};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer in the making.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
    account: Option<AccountId>,
    refusal: Option<&'static str>,
}

impl Answer {
    fn new(status: StatusCode, content_type: HeaderValue, body: Body) -> Self {
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(CONTENT_TYPE, content_type);
        Self { status, headers, body, account: None, refusal: None }
    }

    /// `value` as JSON. A value that can't be written (a map with keys that are no text) is a fault of ours: 500.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self::json_bytes(status, bytes),
            Err(error) => {
                tracing::error!(%error, "could not write an answer as JSON");
                Self::json_bytes(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Bytes::from_static(
                        b"{\"message\":\"Something went wrong on our side; try again.\",\"code\":\"internal\"}",
                    ),
                )
            }
        }
    }

    /// JSON that is already written, such as a stored event.
    pub fn json_bytes(status: StatusCode, json: impl Into<Bytes>) -> Self {
        Self::new(status, JSON, Body::Whole(json.into()))
    }

    /// Bytes of another type.
    pub fn bytes(status: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::new(status, HeaderValue::from_static(content_type), Body::Whole(bytes.into()))
    }

    /// A body that goes on, such as server-sent events.
    pub fn stream(status: StatusCode, content_type: &'static str, stream: BodyStream) -> Self {
        Self::new(status, HeaderValue::from_static(content_type), Body::Stream(stream))
    }

    /// 204.
    pub fn no_content() -> Self {
        let (status, headers) = (StatusCode::NO_CONTENT, HeaderMap::new());
        Self { status, headers, body: Body::empty(), account: None, refusal: None }
    }

    /// A page of a list (contract 1): rows of JSON that are already written, joined as they are, the cursor of the next
    /// page, which also becomes a `Link` to `path`, and further members.
    pub fn page<R: AsRef<[u8]>>(
        path: &str,
        limit: usize,
        rows: &[R],
        next_cursor: Option<&str>,
        members: &Map<String, Value>,
    ) -> Self {
        let length: usize = rows.iter().map(|row| row.as_ref().len() + 1).sum();
        let mut body = Vec::with_capacity(length + 128);
        body.extend_from_slice(b"{\"data\":[");
        for (place, row) in rows.iter().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            body.extend_from_slice(row.as_ref());
        }
        body.extend_from_slice(b"],\"next_cursor\":");
        // A cursor is base64url, but it stands in JSON: written by the serializer, it is right whatever it is.
        body.extend_from_slice(&serde_json::to_vec(&next_cursor).unwrap_or_else(|_| b"null".to_vec()));
        for (name, value) in members {
            body.extend_from_slice(format!(",{}:{value}", Value::from(name.as_str())).as_bytes());
        }
        body.push(b'}');
        let answer = Self::json_bytes(StatusCode::OK, body);
        match next_cursor {
            Some(cursor) => {
                answer.with_header(LINK, &format!("<{path}?limit={limit}&cursor={}>; rel=\"next\"", escape(cursor)))
            }
            None => answer,
        }
    }

    /// A page of a list whose rows are written now.
    pub fn page_of<T: Serialize>(path: &str, limit: usize, rows: &[T], next_cursor: Option<&str>) -> Self {
        let written: Result<Vec<_>, _> = rows.iter().map(serde_json::to_vec).collect();
        match written {
            Ok(rows) => Self::page(path, limit, &rows, next_cursor, &Map::new()),
            Err(_) => Self::json(StatusCode::OK, &rows),
        }
    }

    /// Sets a header. A value that is no header value (control characters) is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Adds a header beside those of the same name, such as a second cookie.
    #[must_use]
    pub fn and_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }

    /// Sets `Location`, which every 201 and 202 carries.
    #[must_use]
    pub fn with_location(self, path: &str) -> Self {
        self.with_header(LOCATION, path)
    }

    /// The status so far.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers so far.
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The answer to somebody who is signed in to `account`, which its memory is charged to.
    #[must_use]
    pub const fn for_account(mut self, account: AccountId) -> Self {
        self.account = Some(account);
        self
    }

    /// The answer of a refusal that a handler has written itself, to be counted by the machine word of its error.
    #[must_use]
    pub(super) const fn refused_as(mut self, code: &'static str) -> Self {
        self.refusal = Some(code);
        self
    }

    /// The machine word of [`Self::refused_as`].
    pub(super) const fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// The account of [`Self::for_account`].
    pub(super) const fn account(&self) -> Option<AccountId> {
        self.account
    }

    /// The bytes of the body that nothing but this answer holds: no static text, no part of a cache, no stream.
    pub(super) fn own_bytes(&mut self) -> Option<&mut Bytes> {
        match &mut self.body {
            Body::Whole(bytes) => Some(bytes).filter(|bytes| bytes.is_unique()),
            Body::Stream(_) => None,
        }
    }

    /// Puts the stream of a body that goes on into another one.
    pub(super) fn wrap_stream(&mut self, wrap: impl FnOnce(BodyStream) -> BodyStream) {
        self.body = match std::mem::replace(&mut self.body, Body::empty()) {
            Body::Stream(stream) => Body::Stream(wrap(stream)),
            whole @ Body::Whole(_) => whole,
        };
    }

    /// Whether the body goes on.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self.body, Body::Stream(_))
    }

    /// The answer as hyper sends it.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Percent-encodes what is not unreserved (RFC 3986 2.3), for a value in a query.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _written = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: &Answer) -> &str {
        match &answer.body {
            Body::Whole(bytes) => std::str::from_utf8(bytes).unwrap(),
            Body::Stream(_) => unreachable!("no stream here"),
        }
    }

    #[test]
    fn a_page_joins_stored_rows_and_links_to_the_next() {
        let rows = [b"{\"id\":1}".as_slice(), b"{\"id\":2}"];
        let members = Map::from_iter([("since".to_owned(), Value::from(3))]);
        let answer = Answer::page("/v1/events", 2, &rows, Some("a_b"), &members);
        assert_eq!(text(&answer), r#"{"data":[{"id":1},{"id":2}],"next_cursor":"a_b","since":3}"#);
        assert_eq!(answer.headers()[LINK], "</v1/events?limit=2&cursor=a_b>; rel=\"next\"");
        let last = Answer::page_of::<u8>("/v1/events", 2, &[], None);
        assert_eq!(text(&last), r#"{"data":[],"next_cursor":null}"#);
        assert!(last.headers().get(LINK).is_none());
    }
}
