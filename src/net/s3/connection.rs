//! The HTTP client under the bucket: where it may connect to, and which failures leave the outcome of a call unknown.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolving};
use url::{Host, Url};

use super::S3Settings;
use crate::domain::network::Network;
use crate::engine::ports::{BucketErrorKind, LookupFailure, Requester};
use crate::net::dns::HostAddresses;
use crate::net::plain_error::plain_error;
use crate::net::tls;

/// Error: a plain http endpoint whose host is not this machine and not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plain http is only allowed to this machine and to the networks in [network] allow; {0} is not one of these")]
pub struct Forbidden(pub String);

/// The host's name did not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the host's name did not resolve: {0}")]
struct Unresolved(LookupFailure);

/// Returns whether plain http may be used to `address`.
fn is_local_or_allowed(address: IpAddr, allow: &[Network]) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || allow.iter().any(|network| network.contains(address))
}

/// Checks whether `endpoint` may be used, as far as that is known before its name is resolved.
///
/// # Errors
/// [`Forbidden`] if it is an address that plain http must not use.
pub fn may_speak_http(endpoint: &Url, allow: &[Network]) -> Result<(), Forbidden> {
    let address = match endpoint.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    let may = endpoint.scheme() != "http" || is_local_or_allowed(address, allow);
    if may { Ok(()) } else { Err(Forbidden(address.to_string())) }
}

pub(super) fn client(settings: &S3Settings, names: Arc<dyn HostAddresses>) -> Result<Client, reqwest::Error> {
    let is_plain = settings.endpoint.scheme() == "http";
    let allow = is_plain.then(|| settings.allow.clone());
    Client::builder()
        .tls_backend_preconfigured(tls::client_config(settings.roots.clone(), &["http/1.1"]))
        .https_only(!is_plain)
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .connect_timeout(settings.timeout)
        .dns_resolver(Names { names, allow })
        .build()
}

/// Classifies a request error: whether the request was certainly not sent.
pub(super) fn kind(error: &reqwest::Error) -> BucketErrorKind {
    if error.is_connect() { BucketErrorKind::Unreachable } else { BucketErrorKind::Unknown }
}

/// Returns the innermost cause, which the operator can act on. It never contains the URL.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let cause = plain_error(cause);
    if error.is_connect() { format!("no connection: {cause}") } else { cause }
}

struct Names {
    names: Arc<dyn HostAddresses>,
    /// Networks that plain http may reach besides this machine; `None` for https.
    allow: Option<Vec<Network>>,
}

impl reqwest::dns::Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, allow) = (Arc::clone(&self.names), self.allow.clone());
        Box::pin(async move {
            let mut found = names.addresses(name.as_str(), Requester::SERVICE).await.map_err(Unresolved)?;
            if let Some(allow) = allow {
                found.retain(|address| is_local_or_allowed(*address, &allow));
            }
            if found.is_empty() {
                return Err(Forbidden(name.as_str().to_owned()).into());
            }
            // Port 0 means the port of the URL.
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
