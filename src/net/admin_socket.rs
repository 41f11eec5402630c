//! Client of the operator's Unix socket: one HTTP/1.1 request per connection.
//!
//! The command-line commands use it. They have nothing else to do, so the calls block.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Maximum size of an answer in bytes, far more than a page of the longest list.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Maximum time without bytes during a download.
const SILENCE: Duration = Duration::from_secs(60);

/// One request to the operator's socket.
#[derive(Debug, Clone)]
pub struct AdminRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Account ID, if the request concerns an account.
    pub account: Option<String>,
    /// JSON body, if any.
    pub body: Option<Vec<u8>>,
}

/// One answer of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminReply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// Sends a request to the service at `socket` and waits at most `deadline` for the whole answer.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if no service listens, `PermissionDenied` if this user may not connect,
/// `TimedOut`, and the errors of the connection.
pub fn ask(socket: &Path, request: AdminRequest, deadline: Duration) -> io::Result<AdminReply> {
    runtime()?.block_on(async {
        timeout(deadline, async {
            let answer = exchange(socket, request).await?;
            let status = answer.status().as_u16();
            Ok(AdminReply { status, body: whole(answer.into_body()).await? })
        })
        .await?
    })
}

/// Answer to a request for a large download.
pub enum DownloadResponse {
    /// A successful answer, whose bytes are still to be read.
    Download(Download),
    /// An answer with an error status.
    Refused(AdminReply),
}

/// The body of a download, of any length, read as it arrives.
pub struct Download {
    runtime: Runtime,
    body: Incoming,
    chunk: Bytes,
}

/// Starts a download. `deadline` applies to the head of the answer only.
///
/// # Errors
/// Errors of [`ask`].
pub fn download(socket: &Path, request: AdminRequest, deadline: Duration) -> io::Result<DownloadResponse> {
    let runtime = runtime()?;
    let answer = runtime.block_on(async { timeout(deadline, exchange(socket, request)).await? })?;
    let status = answer.status();
    if !status.is_success() {
        let body = runtime.block_on(async { timeout(deadline, whole(answer.into_body())).await? })?;
        return Ok(DownloadResponse::Refused(AdminReply { status: status.as_u16(), body }));
    }
    Ok(DownloadResponse::Download(Download { runtime, body: answer.into_body(), chunk: Bytes::new() }))
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let next = self.runtime.block_on(async { timeout(SILENCE, self.body.frame()).await })?;
            let Some(frame) = next else { return Ok(0) };
            // Trailers are ignored.
            self.chunk = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
        }
        let length = self.chunk.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.chunk.split_to(length));
        Ok(length)
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn whole(body: Incoming) -> io::Result<Bytes> {
    Ok(Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(io::Error::other)?.to_bytes())
}

async fn exchange(socket: &Path, request: AdminRequest) -> io::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // The task ends with the sender, which reports the connection's errors.
    tokio::spawn(connection);
    sender.send_request(encode(request)?).await.map_err(io::Error::other)
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
