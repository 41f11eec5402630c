//! Tests over real loopback connections: a toy API behind the real listener, and a client that writes raw bytes, so
//! that malformed requests can be sent too.

mod api;
mod checks;
mod http2;
mod limits;
mod listeners;
mod smuggling;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::answer::Answer;
use super::error::ApiError;
use super::route::{Access, BodySize, Call, Route};
use super::router::Router;
use super::service::{Admission, Authenticator, HttpService, ServiceLimits};
use crate::base::entropy::SeededEntropy;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;
use crate::engine::ports::Clock;
use crate::net::http_listener::{HttpLimits, HttpServer};

struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[derive(Default)]
struct Toy {
    entered: Notify,
    released: Notify,
}

/// The text of the key: `all`, `other`, `reader`, `spent` and `suspended` are known, each with a separate account.
struct ToyCaller(String);

impl Authenticator for Toy {
    type Caller = ToyCaller;

    async fn authenticate(&self, key: &str) -> Result<Option<ToyCaller>, ApiError> {
        Ok(["all", "other", "reader", "spent", "suspended"].contains(&key).then(|| ToyCaller(key.to_owned())))
    }

    async fn operator(&self, account: Option<&str>) -> Result<ToyCaller, ApiError> {
        Ok(ToyCaller(format!("operator of {}", account.unwrap_or("nobody"))))
    }

    fn account(&self, caller: &ToyCaller) -> AccountId {
        AccountId(Ulid([caller.0.as_bytes()[0]; 16]))
    }

    fn may(&self, caller: &ToyCaller, scope: Scope) -> bool {
        caller.0 != "reader" || scope == Scope::Read
    }

    fn check_suspension(&self, caller: &ToyCaller) -> Result<(), ApiError> {
        if caller.0 == "suspended" { Err(ApiError::AccountSuspended("unpaid".to_owned())) } else { Ok(()) }
    }

    fn admit(&self, caller: &ToyCaller) -> Admission {
        if caller.0 == "spent" {
            return Admission { left: 0, reset_s: 60, refused: Some(7) };
        }
        Admission { left: 599, reset_s: 1, refused: None }
    }
}

async fn create(_: &Toy, call: Call<ToyCaller>) -> Result<Answer, ApiError> {
    let body = call.json()?;
    Ok(Answer::json(StatusCode::ACCEPTED, &body).with_location("/v1/messages/1"))
}

async fn make(_: &Toy, call: Call<ToyCaller>) -> Result<Answer, ApiError> {
    Ok(Answer::json(StatusCode::OK, &call.json()?))
}

async fn show(_: &Toy, call: Call<ToyCaller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    call.query(&["limit"], &mut violations);
    violations.or(|| Some(()))?;
    Ok(Answer::json(StatusCode::OK, &format!("{} for {}", call.param("id"), call.caller.0)))
}

async fn large(_: &Toy, _: Call<ToyCaller>) -> Result<Answer, ApiError> {
    Ok(Answer::bytes(StatusCode::OK, "text/plain", vec![b'x'; 20_000]))
}

async fn fail(_: &Toy, _: Call<ToyCaller>) -> Result<Answer, ApiError> {
    panic!("a secret detail")
}

async fn wait(toy: &Toy, _: Call<()>) -> Result<Answer, ApiError> {
    toy.entered.notify_one();
    toy.released.notified().await;
    Ok(Answer::no_content())
}

async fn health(_: &Toy, _: Call<()>) -> Result<Answer, ApiError> {
    Ok(Answer::bytes(StatusCode::OK, "text/plain", "ok\n"))
}

fn router() -> Router<Toy> {
    let routes = [
        Route::open(Method::GET, "/healthz", "health", |state, call| Box::pin(health(state, call))),
        Route::open(Method::GET, "/wait", "wait", |state, call| Box::pin(wait(state, call))),
        Route::new(Method::GET, "/dev/mail", "dev", Access::Loopback(|state, call| Box::pin(health(state, call)))),
        Route::new(Method::GET, "/queue", "queue", Access::Operator(|state, call| Box::pin(health(state, call)))),
        Route::open(Method::POST, "/form", "form", |state, call| Box::pin(health(state, call)))
            .with_size(BodySize::Form),
        Route::key(Method::POST, "/v1/keys", "keys.create", |state, call| Box::pin(make(state, call))),
        Route::key(Method::GET, "/v1/large", "large", |state, call| Box::pin(large(state, call))),
        Route::key(Method::GET, "/v1/panic", "panic", |state, call| Box::pin(fail(state, call))),
        Route::scoped(Method::POST, "/v1/messages", "messages.create", Scope::Send, |state, call| {
            Box::pin(create(state, call))
        })
        .with_size(BodySize::Message),
        Route::scoped(Method::GET, "/v1/messages/{id}", "messages.show", Scope::Read, |state, call| {
            Box::pin(show(state, call))
        }),
    ];
    Router::new(routes).unwrap()
}

/// Creates a server without a listener, and its state.
fn server(http: HttpLimits, limits: ServiceLimits) -> (HttpServer<HttpService<Toy>>, Arc<Toy>) {
    let toy = Arc::new(Toy::default());
    let entropy = Arc::new(SeededEntropy::new(1));
    let service = HttpService::new(Arc::clone(&toy), router(), Arc::new(StillClock), entropy, limits);
    (HttpServer::new(Arc::new(service), http), toy)
}

/// Creates a server without TLS on a free port.
async fn listening(http: HttpLimits, limits: ServiceLimits) -> (HttpServer<HttpService<Toy>>, SocketAddr) {
    let (mut server, _) = server(http, limits);
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    (server, address)
}

async fn connected() -> (HttpServer<HttpService<Toy>>, Client<TcpStream>) {
    let (server, address) = listening(HttpLimits::default(), ServiceLimits::default()).await;
    (server, Client::open(address).await)
}

/// An answer as read from the wire.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["code"].as_str().unwrap().to_owned()
    }
}

/// A client that writes raw bytes.
struct Client<S> {
    stream: S,
    unread: Vec<u8>,
}

impl Client<TcpStream> {
    async fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn over(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends a request with this key, these header lines and this body, and reads the answer.
    async fn ask(&mut self, line: &str, key: &str, headers: &str, body: &str) -> Reply {
        let key = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.write(format!("{line} HTTP/1.1\r\nHost: test\r\n{key}{length}{headers}\r\n{body}")).await;
        if line.starts_with("HEAD") { self.read_head().await } else { self.read().await }
    }

    async fn get(&mut self, path: &str, key: &str) -> Reply {
        self.ask(&format!("GET {path}"), key, "", "").await
    }

    async fn post(&mut self, body: &str) -> Reply {
        self.ask("POST /v1/messages", "all", "Content-Type: application/json\r\n", body).await
    }

    async fn fill(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).await.unwrap_or(0);
        self.unread.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// Returns whether the server has closed the connection without sending anything more.
    async fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && !self.fill().await
    }

    async fn read_head(&mut self) -> Reply {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            assert!(self.fill().await, "closed within an answer: {:?}", String::from_utf8_lossy(&self.unread));
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Reply { status, headers, body: String::new() }
    }

    async fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            while !self.unread.windows(2).any(|two| two == b"\r\n") {
                assert!(self.fill().await, "closed within a body");
            }
            let end = self.unread.windows(2).position(|two| two == b"\r\n").unwrap();
            let line = String::from_utf8(self.unread.drain(..end + 2).collect()).unwrap();
            let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
            while self.unread.len() < length + 2 {
                assert!(self.fill().await, "closed within a chunk");
            }
            body.extend(self.unread.drain(..length + 2).take(length));
            if length == 0 {
                return body;
            }
        }
    }

    async fn read(&mut self) -> Reply {
        let mut reply = self.read_head().await;
        // Lists end. An event stream never ends, and a backup is not text.
        let is_list = ["text/csv", "application/x-ndjson"].iter().any(|t| reply.header("content-type").starts_with(t));
        if reply.header("transfer-encoding") == "chunked" && is_list {
            reply.body = String::from_utf8(self.read_chunks().await).unwrap();
            return reply;
        }
        let length: usize = reply.header("content-length").parse().unwrap_or(0);
        while self.unread.len() < length {
            assert!(self.fill().await, "closed within a body");
        }
        reply.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        reply
    }
}
