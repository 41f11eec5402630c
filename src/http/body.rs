//! Reads a request's body under its limits: size, rate, and the holder's share of the memory (contract 1). The service
//! calls it before the handler.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use tokio::time::{Instant, timeout, timeout_at};

use super::body_budget::{BodyBudgets, BudgetHolder, Charge};
use super::error::ApiError;
use super::route::{ANY_TYPE, BodySize};
use crate::machine::pace::Pace;
use crate::net::http_listener::Connection;

/// Maximum size of a form in bytes.
pub const FORM_BYTES: usize = 64 * 1024;
/// Maximum size in bytes of JSON that is not a message.
pub const JSON_BYTES: usize = 256 * 1024;
/// Maximum size of a list or a file in bytes.
pub const UPLOAD_BYTES: usize = 25 * 1024 * 1024;

/// A refused body up to this size in bytes is read before the answer, a larger one concurrently.
const DISCARD_INLINE: u64 = 64 * 1024;
const DISCARD_INLINE_WAIT: Duration = Duration::from_secs(1);
/// Capacity allocated for a body of announced length before its bytes arrive.
const FIRST_ROOM: usize = 64 * 1024;

/// The limits of one body.
#[derive(Debug, Clone)]
pub struct BodyLimits {
    /// Maximum size of a message in bytes (`limits.body_bytes`).
    pub message_bytes: usize,
    /// The window over which `rate` is measured.
    pub window: Duration,
    /// Minimum rate in bytes per second, in every window.
    pub rate: usize,
    /// Time limit of a whole body.
    pub whole: Duration,
    /// Time for which a small unauthenticated body is not charged.
    pub uncharged: Duration,
    /// Time for which a refused body is read and discarded, so that the client sees the answer and not a reset.
    pub discard: Duration,
    /// Maximum pause of the client meanwhile.
    pub discard_pause: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            message_bytes: UPLOAD_BYTES,
            window: Duration::from_secs(20),
            rate: 1024,
            whole: Duration::from_secs(600),
            uncharged: Duration::from_secs(5),
            discard: Duration::from_secs(30),
            discard_pause: Duration::from_secs(2),
        }
    }
}

impl BodyLimits {
    /// Returns the maximum number of bytes of a body of this size.
    pub const fn most(&self, size: BodySize) -> usize {
        match size {
            BodySize::Form => FORM_BYTES,
            BodySize::Json => JSON_BYTES,
            BodySize::Upload => UPLOAD_BYTES,
            BodySize::Message => self.message_bytes,
        }
    }
}

/// A body. Its bytes, and every clone and slice of them, hold their part of the budget until they are dropped.
#[derive(Debug)]
pub struct ReadBody {
    /// The bytes as sent.
    pub bytes: Bytes,
}

impl ReadBody {
    /// Returns an empty body.
    pub const fn none() -> Self {
        Self { bytes: Bytes::new() }
    }
}

/// Checks that `headers` announce a body that the route accepts: a type of `accepts` or none, and no content encoding.
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
        accepts == ANY_TYPE || accepts.iter().any(|accepted| essence.eq_ignore_ascii_case(accepted.as_bytes()))
    });
    if fits {
        Ok(())
    } else {
        Err(ApiError::UnsupportedMediaType(format!("Send the body as Content-Type: {}.", accepts.join(" or "))))
    }
}

/// Reads the whole `body` of at most `most` bytes, charged to `holder`.
///
/// # Errors
/// - [`ApiError::PayloadTooLarge`] as soon as that is known.
/// - [`ApiError::RequestTimeout`] if the body arrives too slowly or ends early.
/// - [`ApiError::InvalidJson`] if its chunks are malformed.
/// - [`ApiError::Overloaded`] if its holder, or all bodies together, hold too much.
pub async fn read(
    body: &mut Incoming,
    most: usize,
    limits: &BodyLimits,
    budgets: &Arc<BodyBudgets>,
    holder: BudgetHolder,
) -> Result<ReadBody, ApiError> {
    let announced = body.size_hint().exact().map(usize::try_from);
    let announced = announced.transpose().map_err(|_| ApiError::PayloadTooLarge(most))?.unwrap_or(0);
    if announced > most {
        return Err(ApiError::PayloadTooLarge(most));
    }
    let mut charge = Charge::new(budgets, holder);
    let mut progress = Progress { start: Instant::now(), pace: Pace::new(limits.rate, limits.window), limits };
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(data) = progress.next(body, &mut charge).await? {
        if charge.received() + data.len() > most {
            return Err(ApiError::PayloadTooLarge(most));
        }
        charge.grow(data.len())?;
        // Most bodies arrive in one piece, which is passed on without a copy.
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
    Ok(ReadBody { bytes: charge.hold(bytes) })
}

/// Rate at which a body arrives.
struct Progress<'l> {
    start: Instant,
    pace: Pace,
    limits: &'l BodyLimits,
}

impl Progress<'_> {
    /// Returns the next piece; `None` at the end.
    async fn next(&mut self, body: &mut Incoming, charge: &mut Charge) -> Result<Option<Bytes>, ApiError> {
        loop {
            let too_slow = self.start + self.pace.deadline().min(self.limits.whole);
            let charged_from = charge.is_free().then(|| self.start + self.limits.uncharged);
            let wake = charged_from.map_or(too_slow, |from| from.min(too_slow));
            // Polls the frame before it sets the timer, so that a body that has arrived costs no timer.
            let data = match timeout_at(wake, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(fault))) => return Err(unreadable(&fault)),
                Ok(None) => return Ok(None),
                Err(_) if wake == too_slow => return Err(ApiError::RequestTimeout),
                Err(_) => {
                    charge.settle()?;
                    continue;
                }
            };
            self.pace.received(data.len(), self.start.elapsed());
            return Ok(Some(data));
        }
    }
}

/// Returns the error for an unreadable body. One that ended early can be retried; malformed framing can't.
fn unreadable(fault: &hyper::Error) -> ApiError {
    let cause = fault.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match cause {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            ApiError::InvalidJson("The chunked encoding of the request body is malformed.".to_owned())
        }
        Some(_) | None => ApiError::RequestTimeout,
    }
}

/// Reads and discards the rest of a refused body. Closing a connection with unread bytes resets it, and the client,
/// still writing, would never see the answer.
pub async fn discard(mut body: Incoming, limits: &BodyLimits, connection: &Arc<Connection>) {
    if body.size_hint().exact().is_some_and(|length| length <= DISCARD_INLINE) {
        let _read = timeout(DISCARD_INLINE_WAIT, drain(&mut body, UPLOAD_BYTES, DISCARD_INLINE_WAIT)).await;
        return;
    }
    // Reading the rest of the body is limited in time and bytes, and ends with the connection. The answer has been
    // sent, so the connection may be closed in favour of others.
    let (lingering, max_wait, pause) = (connection.linger(), limits.discard, limits.discard_pause);
    let most = limits.message_bytes.saturating_mul(2);
    tokio::spawn(async move {
        let _read = timeout(max_wait, drain(&mut body, most, pause)).await;
        drop(lingering);
    });
}

async fn drain(body: &mut Incoming, most: usize, pause: Duration) {
    let mut left = most;
    while let Ok(Some(Ok(frame))) = timeout(pause, body.frame()).await {
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
    fn a_content_type_is_accepted_with_parameters_or_absent() {
        let json = ["application/json"];
        assert!(check_type(&HeaderMap::new(), &json).is_ok());
        assert!(check_type(&typed("Application/JSON; charset=utf-8"), &json).is_ok());
        for bad in ["text/plain", "", "application/json-patch+json", "application/jsonx"] {
            assert!(check_type(&typed(bad), &json).is_err(), "{bad}");
        }
        assert!(check_type(&typed("application/x-www-form-urlencoded"), ANY_TYPE).is_ok());
        let gzip = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert!(check_type(&gzip, &json).is_err());
    }
}
