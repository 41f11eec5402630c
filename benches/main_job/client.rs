//! The load: kept connections with a minimal HTTP/1.1 client, all on one thread.
//!
//! A request is one buffer and one write. An answer is read into a reused buffer, and only its status and length are
//! parsed. A full HTTP client would use more CPU time than the server's own HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::body::MessageBodies;
use crate::smtp::SmtpSession;
use crate::tls::Tls;
use crate::{BenchError, Outcome};

/// Maximum time of an answer, even on a loaded machine.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
const ACCEPTED: u16 = 202;

/// Recipients: consecutive messages go to different sites below `domain`.
#[derive(Clone)]
pub(crate) struct Recipients {
    pub(crate) domain: String,
    pub(crate) sites: usize,
}

impl Recipients {
    pub(crate) fn of(&self, number: usize) -> String {
        format!("customer{number}@r{}.{}", number % self.sites, self.domain)
    }
}

/// Work that one client measures between its requests, after every second one. Half of the measurements then run while
/// the machine still handles the previous message, and half while it is idle.
pub(crate) type Beside = Box<dyn FnMut() -> Outcome<Duration> + Send>;

/// The protocol of the submissions.
#[derive(Clone)]
#[allow(dead_code, reason = "only the main job has all of them")]
pub(crate) enum Protocol {
    Http,
    Https(Tls),
    Smtps(Tls),
}

/// A kept connection of one client.
enum Client {
    Http(Connection),
    Smtp(Box<SmtpSession>),
}

/// One run of submissions.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Messages per request: the recipients of one SMTP transaction.
    pub(crate) each: usize,
    pub(crate) key: String,
    pub(crate) bodies: Arc<MessageBodies>,
    pub(crate) recipients: Recipients,
    pub(crate) clients: usize,
    /// Range of message numbers.
    pub(crate) numbers: std::ops::Range<usize>,
}

impl Load {
    /// Opens the connections, then sends all messages as fast as answers arrive. The first client also runs `measure`.
    ///
    /// # Errors
    /// The first answer that is not 202, with its body, or the first connection that broke.
    pub(crate) async fn send(self, mut measure: Option<Beside>) -> Outcome<Sent> {
        let mut connections = Vec::with_capacity(self.clients);
        for _ in 0..self.clients {
            connections.push(match &self.protocol {
                Protocol::Http => Client::Http(Connection::open(self.address).await?),
                Protocol::Https(tls) => Client::Http(Connection::open_tls(self.address, tls).await?),
                Protocol::Smtps(tls) => Client::Smtp(Box::new(SmtpSession::open(self.address, tls, &self.key).await?)),
            });
        }
        let next = Arc::new(AtomicUsize::new(self.numbers.start));
        let (mut latencies, mut beside) = (Vec::with_capacity(self.numbers.len()), Vec::new());
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for connection in connections {
            clients.spawn(one_client(connection, self.clone(), Arc::clone(&next), measure.take()));
        }
        while let Some(finished) = clients.join_next().await {
            let taken = finished??;
            latencies.extend(taken.answers);
            beside.extend(taken.beside);
        }
        let took = start.elapsed();
        let beside = (!beside.is_empty()).then(|| Latencies::of(beside));
        Ok(Sent { start, took, latencies: Latencies::of(latencies), beside })
    }

    fn write_request(&self, number: usize, body: &mut Vec<u8>, request: &mut Vec<u8>) {
        body.clear();
        self.bodies.write(number, &self.recipients.of(number), body);
        request.clear();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(body);
    }
}

/// Result of a [`Load`] whose messages were all accepted.
pub(crate) struct Sent {
    /// Time of the first request.
    pub(crate) start: Instant,
    /// Time from then to the last answer.
    pub(crate) took: Duration,
    pub(crate) latencies: Latencies,
    /// Measurements made between the requests.
    pub(crate) beside: Option<Latencies>,
}

/// Measurements of one client.
#[derive(Default)]
struct Taken {
    answers: Vec<Duration>,
    beside: Vec<Duration>,
}

async fn one_client(
    mut connection: Client,
    load: Load,
    next: Arc<AtomicUsize>,
    mut beside: Option<Beside>,
) -> Outcome<Taken> {
    let (mut body, mut request, mut taken) = (Vec::new(), Vec::new(), Taken::default());
    loop {
        let number = next.fetch_add(load.each, Ordering::Relaxed);
        if number >= load.numbers.end {
            return Ok(taken);
        }
        let start = match &mut connection {
            Client::Http(connection) => {
                load.write_request(number, &mut body, &mut request);
                let start = Instant::now();
                let answer = connection.exchange(&request).await?;
                if answer.status != ACCEPTED {
                    return Err(answer.fault("POST /v1/messages"));
                }
                start
            }
            Client::Smtp(session) => {
                let start = Instant::now();
                session.send(&load, number..load.numbers.end.min(number + load.each)).await?;
                start
            }
        };
        taken.answers.push(start.elapsed());
        if let Some(measure) = beside.as_mut().filter(|_| taken.answers.len().is_multiple_of(2)) {
            taken.beside.extend([measure()?, measure()?]);
        }
    }
}

/// Latencies, shortest first.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    fn of(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        Self(taken)
    }

    /// Returns the time that `share` of the requests did not exceed.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// An HTTP answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the answer as an error of `what`.
    pub(crate) fn fault(&self, what: &str) -> BenchError {
        format!("{what} answered {}: {}", self.status, String::from_utf8_lossy(&self.body)).into()
    }
}

/// A connection with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// One kept connection.
pub(crate) struct Connection {
    stream: Box<dyn Wire>,
    inbox: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: Box::new(stream), inbox: Vec::with_capacity(8192) })
    }

    /// Opens a connection with TLS.
    pub(crate) async fn open_tls(address: SocketAddr, tls: &Tls) -> Outcome<Self> {
        Ok(Self { stream: Box::new(tls.connect(address).await?), inbox: Vec::with_capacity(8192) })
    }

    /// Sends a request without a body and reads its answer.
    pub(crate) async fn ask(&mut self, method: &str, target: &str, key: &str) -> Outcome<Answer> {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n{length}\r\n");
        self.exchange(request.as_bytes()).await
    }

    /// Sends a complete request and reads its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Outcome<Answer> {
        let exchange = async {
            self.stream.write_all(request).await?;
            self.stream.flush().await?;
            self.answer().await
        };
        tokio::time::timeout(ANSWER_DEADLINE, exchange).await?
    }

    async fn answer(&mut self) -> Outcome<Answer> {
        let head_end = loop {
            if let Some(at) = self.inbox.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let (status, length) = parse_head(&self.inbox[..head_end])?;
        while self.inbox.len() < head_end + length {
            self.read_more().await?;
        }
        let body = self.inbox[head_end..head_end + length].to_vec();
        self.inbox.drain(..head_end + length);
        Ok(Answer { status, body })
    }

    async fn read_more(&mut self) -> Outcome<()> {
        match self.stream.read_buf(&mut self.inbox).await? {
            0 => Err("the server closed a kept connection".into()),
            _ => Ok(()),
        }
    }
}

/// Parses status and body length. Only answers with a Content-Length are supported.
fn parse_head(head: &[u8]) -> Outcome<(u16, usize)> {
    let head = std::str::from_utf8(head)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("an answer without a status")?.parse()?;
    for line in lines {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            return Ok((status, value.trim().parse()?));
        }
    }
    Err(format!("an answer without Content-Length: {head}").into())
}
