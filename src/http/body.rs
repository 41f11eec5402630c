//! Reading a request's body under its limits: how large one may be, how slow, and how much all of them may hold
//! together (contract 1). Called by the service before any handler sees the request.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::ApiError;
use crate::net::http_listener::Connection;

/// A refused body of this many bytes is read before the answer, a larger one beside it.
const DISCARD_INLINE: u64 = 64 * 1024;
const DISCARD_INLINE_WAIT: Duration = Duration::from_secs(1);
/// Room made before a body of announced length has shown that it comes.
const FIRST_ROOM: usize = 64 * 1024;

/// The limits of one body.
#[derive(Debug, Clone)]
pub struct BodyLimits {
    /// The most bytes that are taken (`limits.body_bytes`).
    pub bytes: usize,
    /// How long a body may be slower than `rate`.
    pub grace: Duration,
    /// Bytes a second that must come after `grace`.
    pub rate: usize,
    /// How long a body may take at any rate.
    pub whole: Duration,
    /// How long a refused body is read on, so that its sender sees the answer and not a reset.
    pub discard: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            bytes: 26_214_400,
            grace: Duration::from_secs(10),
            rate: 1024,
            whole: Duration::from_secs(600),
            discard: Duration::from_secs(30),
        }
    }
}

impl BodyLimits {
    /// When a body that began at `start` and has brought `received` bytes is too slow.
    fn deadline(&self, start: Instant, received: usize) -> Instant {
        let earned = Duration::from_secs((received / self.rate.max(1)) as u64);
        start + (self.grace + earned).min(self.whole)
    }
}

/// The bytes that all bodies in flight may hold together.
#[derive(Debug)]
pub struct BodyBudget(AtomicUsize);

impl BodyBudget {
    /// A budget of `bytes`.
    pub const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    fn take(&self, bytes: usize) -> Result<(), ApiError> {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        taken.map(|_| ()).map_err(|_| ApiError::Overloaded)
    }
}

/// A body and the part of the budget that it holds until it is dropped.
#[derive(Debug)]
pub struct ReadBody {
    /// The bytes as sent.
    pub bytes: Bytes,
    _held: Held,
}

#[derive(Debug)]
struct Held {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl Held {
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Relaxed);
    }
}

impl ReadBody {
    /// No body.
    pub fn none(budget: &Arc<BodyBudget>) -> Self {
        Self { bytes: Bytes::new(), _held: Held { budget: Arc::clone(budget), bytes: 0 } }
    }
}

/// Whether `headers` announce a body that the route takes: `accepts` without a type at all, and without an encoding.
///
/// # Errors
/// [`ApiError::UnsupportedMediaType`].
pub fn check_type(headers: &HeaderMap, accepts: &[&str]) -> Result<(), ApiError> {
    let encoding = headers.get_all(CONTENT_ENCODING).iter();
    if encoding.into_iter().any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(ApiError::UnsupportedMediaType("Send the body without a Content-Encoding.".to_owned()));
    }
    let fits = headers.get_all(CONTENT_TYPE).iter().all(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        accepts.iter().any(|accepted| essence.eq_ignore_ascii_case(accepted.as_bytes()))
    });
    if fits {
        Ok(())
    } else {
        Err(ApiError::UnsupportedMediaType(format!("Send the body as Content-Type: {}.", accepts.join(" or "))))
    }
}

/// The whole of `body`.
///
/// # Errors
/// [`ApiError::PayloadTooLarge`] as soon as that is known, [`ApiError::RequestTimeout`] where it comes too slowly or
/// ends early, [`ApiError::InvalidJson`] where its chunks are malformed, [`ApiError::Overloaded`] where all bodies
/// together hold too much.
pub async fn read(body: &mut Incoming, limits: &BodyLimits, budget: &Arc<BodyBudget>) -> Result<ReadBody, ApiError> {
    let too_large = || ApiError::PayloadTooLarge(limits.bytes);
    let announced = body.size_hint().exact().map(usize::try_from);
    let announced = announced.transpose().map_err(|_| too_large())?.unwrap_or(0);
    if announced > limits.bytes {
        return Err(too_large());
    }
    let start = Instant::now();
    let mut held = Held { budget: Arc::clone(budget), bytes: 0 };
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    loop {
        // The frame is asked for before the timer is set, so a body that is there costs no timer.
        let frame = timeout_at(limits.deadline(start, held.bytes), body.frame()).await;
        let data = match frame.map_err(|_| ApiError::RequestTimeout)? {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(fault)) => return Err(unreadable(&fault)),
            None => break,
        };
        if held.bytes + data.len() > limits.bytes {
            return Err(too_large());
        }
        held.grow(data.len())?;
        // Most bodies come in one piece and are handed on as they are.
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            joined.reserve(announced.min(FIRST_ROOM).max(first.len() + data.len()));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&data);
    }
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    Ok(ReadBody { bytes, _held: held })
}

/// A body that ends early came too slowly; one that is not framed as it says will not be better the next time.
fn unreadable(fault: &hyper::Error) -> ApiError {
    let cause = fault.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match cause {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            ApiError::InvalidJson("The request's body is not chunked as its Transfer-Encoding says.".to_owned())
        }
        Some(_) | None => ApiError::RequestTimeout,
    }
}

/// Takes what is left of a refused body off the wire. A connection that is closed over unread bytes is reset, and the
/// sender, still writing, would never see the answer.
pub async fn discard(mut body: Incoming, limits: &BodyLimits, connection: &Arc<Connection>) {
    if body.size_hint().exact().is_some_and(|length| length <= DISCARD_INLINE) {
        let _read = timeout(DISCARD_INLINE_WAIT, drain(&mut body, limits.bytes)).await;
        return;
    }
    // Bounded in time and bytes, and over with the connection whose body it is.
    let (busy, patience, most) = (connection.busy(), limits.discard, limits.bytes.saturating_mul(2));
    tokio::spawn(async move {
        let _read = timeout(patience, drain(&mut body, most)).await;
        drop(busy);
    });
}

async fn drain(body: &mut Incoming, most: usize) {
    let mut left = most;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn typed(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_type_is_taken_with_parameters_or_absent_and_refused_otherwise() {
        let json = ["application/json"];
        assert!(check_type(&HeaderMap::new(), &json).is_ok());
        assert!(check_type(&typed("Application/JSON; charset=utf-8"), &json).is_ok());
        for bad in ["text/plain", "", "application/json-patch+json", "application/jsonx"] {
            assert!(check_type(&typed(bad), &json).is_err(), "{bad}");
        }
        let gzip = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert!(check_type(&gzip, &json).is_err());
    }

    #[test]
    fn a_body_earns_time_by_its_bytes_up_to_a_whole() {
        let limits = BodyLimits::default();
        let start = Instant::now();
        assert_eq!(limits.deadline(start, 0), start + Duration::from_secs(10));
        assert_eq!(limits.deadline(start, 5 * 1024), start + Duration::from_secs(15));
        assert_eq!(limits.deadline(start, limits.bytes), start + limits.whole);
    }

    #[test]
    fn what_bodies_hold_together_is_bounded_and_given_back() {
        let budget = Arc::new(BodyBudget::new(10));
        let mut one = Held { budget: Arc::clone(&budget), bytes: 0 };
        let mut other = Held { budget: Arc::clone(&budget), bytes: 0 };
        assert!(one.grow(8).is_ok());
        assert_eq!(other.grow(3), Err(ApiError::Overloaded));
        drop(one);
        assert!(other.grow(10).is_ok());
    }
}
