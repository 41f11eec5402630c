//! Fetches a domain's MTA-STS policy (RFC 8461 3.3) as any sender would: over HTTPS, without redirects.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::RootCertStore;

use crate::net::tls;

/// Maximum size of a policy in bytes (RFC 8461 3.3).
const POLICY_BYTES: usize = 64 << 10;

/// The host of a domain's policy.
#[derive(Debug)]
pub struct PolicyHost<'a> {
    /// The policy's domain.
    pub domain: &'a str,
    /// The addresses of its policy host.
    pub addresses: &'a [IpAddr],
    /// The policy host's port; 443 except in tests.
    pub port: u16,
}

/// Fetches the policy's text.
///
/// # Errors
/// The reason why the policy can't be fetched, as a sentence.
pub async fn fetch(host: &PolicyHost<'_>, roots: RootCertStore, max_wait: Duration) -> Result<String, String> {
    let name = format!("mta-sts.{}", host.domain);
    let addresses: Vec<_> = host.addresses.iter().map(|address| SocketAddr::new(*address, host.port)).collect();
    let client = Client::builder()
        .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
        .https_only(true)
        .redirect(Policy::none())
        .no_proxy()
        .timeout(max_wait)
        .resolve_to_addrs(&name, &addresses)
        .build()
        .map_err(|error| failure_text(&error))?;
    let url = format!("https://{name}:{}/.well-known/mta-sts.txt", host.port);
    let mut answer = client.get(&url).send().await.map_err(|error| failure_text(&error))?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(format!("{url} answered {}", answer.status()));
    }
    let mut policy = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| failure_text(&error))? {
        policy.extend_from_slice(&chunk);
        if policy.len() > POLICY_BYTES {
            return Err(format!("{url} is longer than {POLICY_BYTES} bytes"));
        }
    }
    String::from_utf8(policy).map_err(|_| format!("{url} is not UTF-8"))
}

/// Returns the innermost cause: the outer ones only say that sending failed.
fn failure_text(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
