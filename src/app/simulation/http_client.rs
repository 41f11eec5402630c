//! One HTTP request over a stream in memory: a real client on one end, the service's real connection on the other.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use super::service::Service;

/// Capacity of the stream in each direction, in bytes.
const IN_FLIGHT: usize = 16 * 1024;

/// A request of a tenant.
pub(super) struct Request<'a> {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) key: &'a str,
    pub(super) idempotency: Option<&'a str>,
    /// Body; `null` for none.
    pub(super) body: Value,
}

/// Sends a request and returns the answer's status and body. Dropping the future closes the connection.
pub(super) async fn send(service: &Arc<Service>, request: Request<'_>) -> Option<(u16, Value)> {
    let (ours, theirs) = tokio::io::duplex(IN_FLIGHT);
    // The service detects that its client is gone.
    tokio::spawn(service.http.serve_stream(theirs));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.ok()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let mut built = hyper::Request::builder()
        .method(request.method)
        .uri(request.path)
        .header("host", "mail.example.com")
        .header("authorization", format!("Bearer {}", request.key))
        .header("x-postmark-server-token", request.key);
    if let Some(key) = request.idempotency {
        built = built.header("idempotency-key", key);
    }
    let body = match &request.body {
        Value::Null => Bytes::new(),
        body => {
            built = built.header("content-type", "application/json");
            Bytes::from(body.to_string())
        }
    };
    let response = sender.send_request(built.body(Full::new(body)).ok()?).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}
