//! Authenticator: decides who may make a request. Implemented by the state that the handlers share, and called by
//! [`super::service`] for each
//! request.

use std::future::Future;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};

use super::error::{ApiError, Unauthenticated};
use crate::base::id::AccountId;
use crate::domain::api_key::Scope;
use crate::net::http_client::Client;

/// The remaining requests.
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Answer of the rate limit to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Requests left in the window, this one taken off.
    pub left: u64,
    /// Seconds until the window is whole again.
    pub reset_s: u64,
    /// Seconds to wait, where this request is one too many.
    pub refused: Option<u64>,
}

impl Admission {
    /// The value of [`RATE_LIMIT`].
    pub(super) fn to_header(self) -> String {
        format!("\"key\";r={};t={}", self.left, self.reset_s)
    }
}

/// Authenticates requests. Implemented by the state that the handlers share.
pub trait Gate: Send + Sync + 'static {
    /// Author of a request: the key, its account, and its permissions.
    type Caller: Send + Sync + 'static;

    /// The caller that this key's text belongs to; none where it is unknown, revoked or expired.
    fn authenticate(&self, key: &str) -> impl Future<Output = Result<Option<Self::Caller>, ApiError>> + Send;

    /// The caller that a command on the operator's socket is, for the account that it names, if it names one.
    fn operator(&self, account: Option<&str>) -> impl Future<Output = Result<Self::Caller, ApiError>> + Send;

    /// The account that the caller acts for.
    fn account(&self, caller: &Self::Caller) -> AccountId;

    /// Whether a client may use the routes under `/dev`, by its own address.
    fn is_dev_client(&self, client: Client) -> bool {
        client.is_loopback()
    }

    /// Whether the caller has the scope.
    fn may(&self, caller: &Self::Caller, scope: Scope) -> bool;

    /// Refuses a change by a caller whose account is suspended.
    ///
    /// # Errors
    /// [`ApiError::AccountSuspended`], or the store's failure.
    fn check_suspension(&self, caller: &Self::Caller) -> Result<(), ApiError>;

    /// Refuses a change while another machine may own the log of the replica. May wait for the bucket's word.
    ///
    /// # Errors
    /// [`ApiError::ReplicaUnavailable`].
    fn check_replica(&self) -> impl Future<Output = Result<(), ApiError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Counts one request of the caller's.
    fn admit(&self, caller: &Self::Caller) -> Admission;
}

/// The token of `Authorization: Bearer <token>` (RFC 6750 2.1; the scheme's case does not matter, RFC 9110 11.1).
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let malformed = ApiError::Unauthenticated(Unauthenticated::Malformed);
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = given.next() else { return Err(ApiError::Unauthenticated(Unauthenticated::Missing)) };
    let (None, Ok(text)) = (given.next(), value.to_str()) else { return Err(malformed) };
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && is_token(token) => Ok(token),
        Some(_) | None => Err(malformed),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
