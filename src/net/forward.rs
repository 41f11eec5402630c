//! Requests to a program under development, for `postrider webhook listen`: to whatever address its developer names,
//! in clear too, so never for the URLs of customers. One call is one request.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Client;
use url::Url;

use super::tls;

/// What an endpoint has, too (contract 5).
const DEADLINE: Duration = Duration::from_secs(10);

/// The way to one program.
pub struct Forward {
    client: Client,
    url: Url,
}

impl Forward {
    /// The way to the program at `url`.
    ///
    /// # Errors
    /// Why no client can be made.
    pub fn to(url: Url) -> Result<Self, String> {
        let roots = tls::trusted_roots(None).map_err(|fault| fault.to_string())?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(DEADLINE)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, url })
    }

    /// The status of the program's answer.
    ///
    /// # Errors
    /// Why there is none, in the words of the innermost cause.
    pub async fn post(&self, headers: &[(&'static str, String)], body: Bytes) -> Result<u16, String> {
        let request = self.client.post(self.url.clone()).body(body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let answer = request.send().await.map_err(|error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            cause.to_string()
        })?;
        Ok(answer.status().as_u16())
    }
}
