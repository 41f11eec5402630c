//! The client's end of the operator's Unix socket: one HTTP/1.1 request on a connection of its own.
//!
//! Used by the commands, which wait for nothing else, so the call blocks.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The most bytes of an answer: far more than a page of the longest list has.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One request.
#[derive(Debug, Clone)]
pub struct AdminRequest {
    /// Its method.
    pub method: Method,
    /// Its path, with the query.
    pub path: String,
    /// The account that it concerns, where it concerns one.
    pub account: Option<String>,
    /// Its body, which is JSON, where it has one.
    pub body: Option<Vec<u8>>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminReply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
}

/// Asks whoever listens at `socket` and waits for the answer, for `deadline` in all.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` where nobody listens, `PermissionDenied` where this user may not connect,
/// `TimedOut`, and whatever breaks a connection.
pub fn ask(socket: &Path, request: AdminRequest, deadline: Duration) -> io::Result<AdminReply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(deadline, exchange(socket, request)).await? })
}

async fn exchange(socket: &Path, request: AdminRequest) -> io::Result<AdminReply> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the sender; what goes wrong in it, the sender tells.
    tokio::spawn(connection);
    let answer = sender.send_request(encode(request)?).await.map_err(io::Error::other)?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(io::Error::other)?;
    Ok(AdminReply { status, body: body.to_bytes() })
}

fn encode(request: AdminRequest) -> io::Result<Request<Full<Bytes>>> {
    let mut head = Request::builder().method(request.method).uri(request.path).header("host", "localhost");
    if let Some(account) = request.account {
        head = head.header("x-postrider-account", account);
    }
    if request.body.is_some() {
        head = head.header("content-type", "application/json");
    }
    head.body(Full::from(request.body.unwrap_or_default())).map_err(io::Error::other)
}
