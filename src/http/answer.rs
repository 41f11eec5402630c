//! Answer of a handler: a status, a body with its type, and headers. The service adds the headers that every answer has
//! (contract 1).

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::id::AccountId;
use crate::net::http_body::{Body, BodyStream};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer that is being built.
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

    /// Returns `value` as JSON. If it can't be serialised (a map with keys that are not strings), the answer is 500.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self::json_bytes(status, bytes),
            Err(error) => {
                tracing::error!(%error, "could not write an answer as JSON; answering 500");
                Self::json_bytes(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Bytes::from_static(b"{\"message\":\"Internal error. Try again.\",\"code\":\"internal\"}"),
                )
            }
        }
    }

    /// Returns JSON that is already serialised, such as a stored event.
    pub fn json_bytes(status: StatusCode, json: impl Into<Bytes>) -> Self {
        Self::new(status, JSON, Body::Whole(json.into()))
    }

    /// Returns a body of another type.
    pub fn bytes(status: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::new(status, HeaderValue::from_static(content_type), Body::Whole(bytes.into()))
    }

    /// Returns a streamed body, such as server-sent events.
    pub fn stream(status: StatusCode, content_type: &'static str, stream: BodyStream) -> Self {
        Self::new(status, HeaderValue::from_static(content_type), Body::Stream(stream))
    }

    /// Returns 204.
    pub fn no_content() -> Self {
        let (status, headers) = (StatusCode::NO_CONTENT, HeaderMap::new());
        Self { status, headers, body: Body::empty(), account: None, refusal: None }
    }

    /// Returns a page of a list (contract 1): serialised rows, joined unchanged, the cursor of the next page, which
    /// also becomes a `Link` to `path`, and further members.
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
        // A cursor is base64url, but the serializer escapes it correctly in any case.
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

    /// Returns a page of a list, and serialises its rows.
    pub fn page_of<T: Serialize>(path: &str, limit: usize, rows: &[T], next_cursor: Option<&str>) -> Self {
        let written: Result<Vec<_>, _> = rows.iter().map(serde_json::to_vec).collect();
        match written {
            Ok(rows) => Self::page(path, limit, &rows, next_cursor, &Map::new()),
            Err(_) => Self::json(StatusCode::OK, &rows),
        }
    }

    /// Sets a header. An invalid value (control characters) is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Adds a header to those of the same name, such as a second cookie.
    #[must_use]
    pub fn and_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }

    /// Sets `Location`, which every 201 and 202 has.
    #[must_use]
    pub fn with_location(self, path: &str) -> Self {
        self.with_header(LOCATION, path)
    }

    /// Returns the status.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Marks the answer as one to a user signed in to `account`, to which its memory is charged.
    #[must_use]
    pub const fn for_account(mut self, account: AccountId) -> Self {
        self.account = Some(account);
        self
    }

    /// Marks the answer as a refusal that the handler has written itself. It is counted under this error code.
    #[must_use]
    pub(super) const fn refused_as(mut self, code: &'static str) -> Self {
        self.refusal = Some(code);
        self
    }

    /// Returns the error code of [`Self::refused_as`].
    pub(super) const fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// Returns the account of [`Self::for_account`].
    pub(super) const fn account(&self) -> Option<AccountId> {
        self.account
    }

    /// Returns the bytes of the body that only this answer holds: not static text, a part of a cache, or a stream.
    pub(super) fn own_bytes(&mut self) -> Option<&mut Bytes> {
        match &mut self.body {
            Body::Whole(bytes) => Some(bytes).filter(|bytes| bytes.is_unique()),
            Body::Stream(_) => None,
        }
    }

    /// Wraps the stream of a streamed body.
    pub(super) fn wrap_stream(&mut self, wrap: impl FnOnce(BodyStream) -> BodyStream) {
        self.body = match std::mem::replace(&mut self.body, Body::empty()) {
            Body::Stream(stream) => Body::Stream(wrap(stream)),
            whole @ Body::Whole(_) => whole,
        };
    }

    /// Returns whether the body is a stream.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self.body, Body::Stream(_))
    }

    /// Converts the answer to a request of this method and identifier for hyper, with the headers that every answer
    /// has (contract 1).
    pub(super) fn into_response(self, method: &Method, request_id: &str) -> Response<Body> {
        let mut response = Response::new(self.body);
        let length = response.body().length();
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, NO_STORE);
        }
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert(REQUEST_ID, id);
        }
        if *method == Method::HEAD {
            if let Some(length) = length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986 2.3), for a query value.
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
