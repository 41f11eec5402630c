//! Temporary credentials from the endpoints of containers and instances (IMDSv2). Both are on this machine or
//! link-local, and use plain http. Answers are limited in size and time.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use rustls::RootCertStore;
use serde::Deserialize;
use url::{Host, Url};

use super::{Credentials, NoCredentials};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::net::tls;

/// Time limit of one whole request.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time limit of connecting. A missing endpoint must not delay the start.
const CONNECTING: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 64 << 10;
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const TOKEN_SECONDS_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// Addresses besides loopback at which containers get their credentials without TLS (ECS, EKS).
const CONTAINER_ADDRESSES: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// HTTP client for the endpoints that give credentials of a role.
pub(super) struct RoleEndpoints(Client);

/// Credentials in the answer format of both kinds of endpoints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl RoleEndpoints {
    pub(super) fn new(roots: RootCertStore) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECTING)
            .timeout(DEADLINE)
            .build()?;
        Ok(Self(client))
    }

    /// Returns the container's credentials. Sends `token`, if given.
    pub(super) async fn of_container(
        &self,
        endpoint: &str,
        token: Option<&Secret>,
    ) -> Result<Credentials, NoCredentials> {
        let url: Url = endpoint.parse().map_err(|_| failed(endpoint, "it is not a URL"))?;
        if !may_ask(&url) {
            return Err(failed(endpoint, "it must be https, on this machine, or a container endpoint"));
        }
        let mut request = self.0.get(url);
        if let Some(token) = token {
            request = request.header("authorization", token.expose_text());
        }
        read(&ask(endpoint, request).await?).map_err(|why| failed(endpoint, why))
    }

    /// Returns the credentials of the instance's role.
    pub(super) async fn of_instance(&self, endpoint: &str) -> Result<Credentials, NoCredentials> {
        let endpoint = endpoint.trim_end_matches('/');
        let request = self.0.put(format!("{endpoint}/latest/api/token")).header(TOKEN_SECONDS_HEADER, "300");
        let token = text(&ask(endpoint, request).await?);
        let get = |path: &str| self.0.get(format!("{endpoint}{path}")).header(TOKEN_HEADER, &token);
        let roles = text(&ask(endpoint, get(ROLES)).await?);
        let role = roles.lines().next().filter(|role| !role.is_empty()).ok_or_else(|| {
            failed(endpoint, "the instance has no role; give it one, or set replica.credentials_file")
        })?;
        read(&ask(endpoint, get(&format!("{ROLES}{role}"))).await?).map_err(|why| failed(endpoint, why))
    }
}

fn may_ask(url: &Url) -> bool {
    if url.scheme() == "https" {
        return true;
    }
    let is_permitted =
        |address: IpAddr| address.is_loopback() || CONTAINER_ADDRESSES.iter().any(|known| known.parse() == Ok(address));
    match url.host() {
        Some(Host::Ipv4(address)) => is_permitted(address.into()),
        Some(Host::Ipv6(address)) => is_permitted(address.into()),
        Some(Host::Domain(_)) | None => false,
    }
}

async fn ask(endpoint: &str, request: RequestBuilder) -> Result<Vec<u8>, NoCredentials> {
    let mut answer = request.send().await.map_err(|error| failed(endpoint, &root_cause(&error)))?;
    if !answer.status().is_success() {
        return Err(failed(endpoint, &format!("it answered {}", answer.status().as_u16())));
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| failed(endpoint, &root_cause(&error)))? {
        if body.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(failed(endpoint, "its answer is larger than 64 KiB"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().to_owned()
}

fn read(body: &[u8]) -> Result<Credentials, &'static str> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| "its answer contains no credentials")?;
    let expires_at = match answer.expiration {
        Some(text) => Some(text.parse::<Timestamp>().map_err(|_| "its answer has a malformed Expiration")?),
        None => None,
    };
    Ok(Credentials {
        access_key_id: answer.access_key_id,
        secret: Secret::new(answer.secret_access_key),
        session_token: answer.token.map(Secret::new),
        expires_at,
    })
}

/// Returns the innermost cause, without the URL that reqwest prepends.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn failed(endpoint: &str, why: &str) -> NoCredentials {
    NoCredentials(format!("no credentials from {endpoint}: {why}"))
}
