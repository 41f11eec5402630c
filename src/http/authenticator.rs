//! Authenticator: decides who may make a request. The state of the handlers implements it, and [`super::service`] calls
//! it for each request.

use std::future::Future;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};

use super::error::{ApiError, Unauthenticated};
use crate::base::id::AccountId;
use crate::domain::api_key::Scope;
use crate::net::http_client::Client;

/// Header with the remaining requests.
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Result of the rate limit for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Number of requests left in the window, after this one.
    pub left: u64,
    /// Seconds until the whole window is available again.
    pub reset_s: u64,
    /// Seconds to wait, if this request exceeds the limit.
    pub refused: Option<u64>,
}

impl Admission {
    /// Returns the value of [`RATE_LIMIT`].
    pub(super) fn to_header(self) -> String {
        format!("\"key\";r={};t={}", self.left, self.reset_s)
    }
}

/// Authenticates requests. Implemented by the state of the handlers.
pub trait Authenticator: Send + Sync + 'static {
    /// Author of a request: the key, its account, and its permissions.
    type Caller: Send + Sync + 'static;

    /// Returns the caller of this key; `None` if the key is unknown, revoked or expired.
    fn authenticate(&self, key: &str) -> impl Future<Output = Result<Option<Self::Caller>, ApiError>> + Send;

    /// Returns the caller for a command on the operator's socket, for the given account, if any.
    fn operator(&self, account: Option<&str>) -> impl Future<Output = Result<Self::Caller, ApiError>> + Send;

    /// Returns the account that the caller acts for.
    fn account(&self, caller: &Self::Caller) -> AccountId;

    /// Returns whether a client may use the routes under `/dev`, by its own address.
    fn is_dev_client(&self, client: Client) -> bool {
        client.is_loopback()
    }

    /// Returns whether the caller has the scope.
    fn may(&self, caller: &Self::Caller, scope: Scope) -> bool;

    /// Refuses changes by a caller whose account is suspended.
    ///
    /// # Errors
    /// [`ApiError::AccountSuspended`]; store errors.
    fn check_suspension(&self, caller: &Self::Caller) -> Result<(), ApiError>;

    /// Refuses changes while another machine may own the log of the replica. May wait for the bucket's answer.
    ///
    /// # Errors
    /// [`ApiError::ReplicaUnavailable`].
    fn check_replica(&self) -> impl Future<Output = Result<(), ApiError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Counts one request of the caller.
    fn admit(&self, caller: &Self::Caller) -> Admission;
}

/// Returns the token of `Authorization: Bearer <token>` (RFC 6750 2.1; the scheme is case-insensitive, RFC 9110 11.1).
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
