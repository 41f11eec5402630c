//! An HTTP client for hosts that strangers name: what fetches policies connects only where the guard permits.
//!
//! Webhooks have a way of their own ([`super::post`]), which is short because it is taken often.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::{Client, ClientBuilder};
use rustls::RootCertStore;
use tokio::time::timeout;

use super::post::{causes, word};
use crate::engine::ports::{LookupFailure, PostError};
use crate::net::dns::HostAddresses;
use crate::net::guard::Guard;
use crate::net::tls;

/// Header lines of an answer. Their bytes are bounded by hyper, to 408 KiB.
const HEADERS_MAX: usize = 100;

/// The name did not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the host's name did not resolve: {0}")]
pub(super) struct Unresolved(pub(super) LookupFailure);

/// The guard permits none of the host's addresses.
#[derive(Debug, thiserror::Error)]
#[error("no address of the host may be reached")]
struct Refused;

/// A client for hosts that strangers name: https alone, `roots` and `names` alone to trust, and one request for each
/// that is asked for, without redirect, proxy or second try.
pub(super) fn guarded(roots: RootCertStore, names: GuardedNames) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
        .https_only(true)
        .http1_only()
        .http1_max_headers(HEADERS_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .dns_resolver(names)
}

/// The word for `error`, which came before a whole status line.
pub(super) fn classify(error: &reqwest::Error) -> PostError {
    let has = |is: fn(&(dyn std::error::Error + 'static)) -> bool| causes(error).any(is);
    if has(|cause| cause.is::<Refused>()) {
        PostError::Blocked
    } else if has(|cause| cause.is::<Unresolved>()) {
        PostError::Dns
    } else {
        word(error, if error.is_connect() { PostError::Connect } else { PostError::Protocol })
    }
}

/// Whether the name was not even asked for, so many look-ups were on their way.
pub(super) fn was_unasked(error: &reqwest::Error) -> bool {
    let is_unasked = |cause: &Unresolved| cause.0 == LookupFailure::Unasked;
    causes(error).any(|cause| cause.downcast_ref().is_some_and(is_unasked))
}

/// The resolver inside the connector: only what the guard permits comes out of it.
pub(super) struct GuardedNames {
    pub(super) names: Arc<dyn HostAddresses>,
    pub(super) guard: Arc<Guard>,
    /// What a look-up may take.
    pub(super) patience: Duration,
}

impl reqwest::dns::Resolve for GuardedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, guard, patience) = (Arc::clone(&self.names), Arc::clone(&self.guard), self.patience);
        Box::pin(async move {
            let found = timeout(patience, names.addresses(name.as_str())).await;
            let silent = |_| LookupFailure::Temporary("no name server has answered in time".to_owned());
            let mut addresses = found.map_err(silent).flatten().map_err(Unresolved)?;
            addresses.retain(|address| guard.permits(*address));
            if addresses.is_empty() {
                return Err(Refused.into());
            }
            // Port 0 stands for the URL's.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
