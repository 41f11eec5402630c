//! Requests to a program under development, for `postrider webhook listen`: to any address its developer names, over
//! plain http too, so never for the URLs of customers. One call is one request. `postrider health --url` uses it too.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Client;
use url::Url;

use super::tls;

/// Time limit of a request: the same as for an endpoint (contract 5).
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum number of bytes of an answer that [`get`] reads.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Requests `url` and returns the answer's status and the beginning of its body. The whole call takes at most
/// `deadline`.
///
/// # Errors
/// There is no answer. The error is the innermost cause.
pub async fn get(url: Url, deadline: Duration) -> Result<(u16, Bytes), String> {
    let mut answer = client(deadline)?.get(url).send().await.map_err(|error| innermost(&error))?;
    let status = answer.status().as_u16();
    let mut body = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        body.extend_from_slice(&part);
        if body.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    Ok((status, body.into()))
}

fn client(deadline: Duration) -> Result<Client, String> {
    let roots = tls::trusted_roots(None).map_err(|fault| fault.to_string())?;
    Client::builder()
        .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(deadline)
        .build()
        .map_err(|error| error.to_string())
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// HTTP client for one program.
pub struct Forward {
    client: Client,
    url: Url,
}

impl Forward {
    /// Creates a client for the program at `url`.
    ///
    /// # Errors
    /// The client can't be created.
    pub fn to(url: Url) -> Result<Self, String> {
        Ok(Self { client: client(DEADLINE)?, url })
    }

    /// Posts a request and returns the status of the answer.
    ///
    /// # Errors
    /// There is no answer. The error is the innermost cause.
    pub async fn post(&self, headers: &[(&'static str, String)], body: Bytes) -> Result<u16, String> {
        let request = self.client.post(self.url.clone()).body(body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let answer = request.send().await.map_err(|error| innermost(&error))?;
        Ok(answer.status().as_u16())
    }
}
