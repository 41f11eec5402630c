//! The receivers: one https listener in a separate process. The path of a request decides the answer.
//!
//! `/take` answers at once, `/timed` also records the age of the event, `/hang` never answers. The parent sends a line
//! on standard input and gets a line of JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::Outcome;

/// The authority's certificate, in the folder that parent and child share.
pub(crate) const ROOTS: &str = "roots.pem";
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// Requests seen so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Requests that were answered.
    pub(crate) taken: usize,
    /// Requests that never get an answer.
    pub(crate) hanging: usize,
    /// Milliseconds from an event's `created_at` to its arrival at `/timed`.
    pub(crate) ages_ms: Vec<u64>,
}

/// The child process.
pub(crate) struct Receivers {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// URL, as `https://127.0.0.1:port`.
    pub(crate) url: String,
}

impl Receivers {
    /// Starts them; their authority is in `folder`.
    pub(crate) fn start(folder: &Path) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--receive")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asks = child.stdin.take().ok_or("no pipe for requests")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no pipe for answers")?);
        let mut port = String::new();
        answers.read_line(&mut port)?;
        let url = format!("https://127.0.0.1:{}", port.trim());
        Ok(Self { child, asks, answers, url })
    }

    /// Returns the requests seen so far.
    pub(crate) fn seen(&mut self) -> Outcome<Seen> {
        writeln!(self.asks)?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Main function of the child: serves until its parent has ended.
pub(crate) fn run(folder: &Path) -> Outcome<()> {
    let acceptor = authority(folder)?;
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    println_flushed(&listener.local_addr()?.port().to_string())?;
    runtime.spawn(serve(listener, acceptor, Arc::clone(&seen)));
    for line in std::io::stdin().lines() {
        line?;
        let text = serde_json::to_string(&*seen.lock().unwrap_or_else(PoisonError::into_inner))?;
        println_flushed(&text)?;
    }
    Ok(())
}

fn println_flushed(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn authority(folder: &Path) -> Outcome<TlsAcceptor> {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    std::fs::write(folder.join(ROOTS), certified.cert.pem())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Mutex<Seen>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        // An aborted connection, for example of a killed client, does not affect others.
        tokio::spawn(async move { receive(stream, acceptor, &seen).await.is_ok() });
    }
}

async fn receive(stream: TcpStream, acceptor: TlsAcceptor, seen: &Mutex<Seen>) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut inbox = Vec::with_capacity(8192);
    loop {
        let Some((head, body)) = whole(&inbox) else {
            if stream.read_buf(&mut inbox).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let (is_hang, is_timed) = (inbox.starts_with(b"POST /hang"), inbox.starts_with(b"POST /timed"));
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if is_hang {
                seen.hanging += 1;
            } else {
                seen.taken += 1;
            }
            if is_timed {
                seen.ages_ms.extend(age_ms(&inbox[head..head + body]));
            }
        }
        if !is_hang {
            stream.write_all(ANSWER).await?;
        }
        inbox.drain(..head + body);
    }
}

/// Returns the lengths of head and body, once both are complete.
fn whole(inbox: &[u8]) -> Option<(usize, usize)> {
    let head = inbox.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&inbox[..head]).ok()?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()?;
    (inbox.len() >= head + length).then_some((head, length))
}

fn age_ms(record: &[u8]) -> Option<u64> {
    let record: Value = serde_json::from_slice(record).ok()?;
    let created: jiff::Timestamp = record["created_at"].as_str()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let then = u64::try_from(created.as_millisecond()).ok()?;
    Some(u64::try_from(now.as_millis()).ok()?.saturating_sub(then))
}
