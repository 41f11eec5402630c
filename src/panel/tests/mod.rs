//! Tests of the panel over the real routes, pages, engine and store, on a loopback connection. The test browser keeps
//! its cookies and reports the origin of its forms.

mod alerts;
mod audit;
mod bodies;
mod checklist;
mod dmarc;
mod domains;
mod empty_results;
mod escaping;
mod explaining;
mod following;
mod kept_forms;
mod keys;
mod markup;
mod message_page;
mod oidc;
mod opening;
mod operators;
mod page_contents;
mod providers;
mod queue;
mod records;
mod restore_hold;
mod searching;
mod sent_once;
mod settings;
mod setup;
mod signing_in;
mod smtp;
mod suppressions;
mod throttling;
mod users;
mod webhooks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::form_urlencoded;

use crate::base::entropy::SeededEntropy;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::domain::event::AttemptFacts;
use crate::domain::stream::Stream;
use crate::domain::submission::Submission;
use crate::domain::user::Role;
use crate::engine::empty_resolver::NoNames;
use crate::engine::ports::Clock;
use crate::engine::settings::Settings;
use crate::engine::{Caller, Engine};
use crate::http::router::Router;
use crate::http::service::{HttpService, ServiceLimits};
use crate::http::state::Api;
use crate::http::{api, dev};
use crate::net::http_listener::{HttpLimits, HttpServer};
use crate::store::Store;
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::open::StoreEnvironment;

/// 2023-11-14T22:13:20Z.
const START_MS: u64 = 1_700_000_000_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Transcript of every attempt.
const TRANSCRIPT: &str = "> RCPT TO:<bob@example.com>\n< 550 <script>no</script>\n";
const EMAIL: &str = "ann@example.test";

#[derive(Clone)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Relaxed))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
}

/// A service with one account, its owner, and a verified domain.
struct World {
    engine: Arc<Engine>,
    clock: SetClock,
    account: AccountId,
    password: String,
    address: SocketAddr,
    _server: HttpServer<HttpService<Api>>,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::at("http://panel.test").await
    }

    /// Creates a world with this public URL.
    async fn at(public_url: &str) -> Self {
        Self::with(Settings { public_url: Arc::new(public_url.to_owned().into()), ..Settings::for_tests() }).await
    }

    async fn with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = SetClock(Arc::new(AtomicU64::new(START_MS)));
        let entropy = Arc::new(SeededEntropy::new(7));
        let wall = clock.clone();
        let surroundings = StoreEnvironment { now: Arc::new(move || wall.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let engine = Engine::new(store, Arc::new(clock.clone()), entropy.clone(), Arc::new(NoNames), settings);
        let engine = Arc::new(engine);
        let limits = ServiceLimits::default();
        let budgets = Arc::clone(&limits.budgets);
        let state = Arc::new(Api::new(Arc::clone(&engine), Arc::default(), 26_214_400, budgets, None));
        let rows = api::routes().into_iter().chain(dev::routes()).chain(super::routes());
        let router = Router::new(rows).unwrap();
        let service = HttpService::new(state, router, Arc::new(clock.clone()), entropy, limits);
        let service = service.with_error_page(super::error_page);
        let mut server = HttpServer::new(Arc::new(service), HttpLimits::default());
        let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
        let account = engine.create_account("Acme".parse().unwrap(), None, engine.settings.quota).await.unwrap().id;
        engine.create_verified_domain(account, "example.test".parse().unwrap(), Stream::Transactional).await.unwrap();
        let made = engine.create_user(account, EMAIL.parse().unwrap(), Role::Owner).await.unwrap();
        let password = made.1.expose().to_owned();
        Self { engine, clock, account, password, address, _server: server, _directory: directory }
    }

    fn advance(&self, by: Duration) {
        self.clock.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Relaxed);
    }

    fn browser(&self) -> Browser {
        Browser { address: self.address, cookies: BTreeMap::new(), origin: Origin::Own }
    }

    /// Returns a browser in which the owner is signed in.
    async fn owner(&self) -> Browser {
        let mut browser = self.browser();
        let reply = browser.sign_in(EMAIL, &self.password).await;
        assert_eq!((reply.status, reply.location()), (303, "/"), "{}", reply.body);
        browser
    }

    /// Returns a browser of a read-only user.
    async fn viewer(&self) -> Browser {
        self.user_of(Role::Viewer).await
    }

    /// Returns a browser in which a user of this role is signed in.
    async fn user_of(&self, role: Role) -> Browser {
        let email = format!("val.{role}@example.test");
        let made = self.engine.create_user(self.account, email.parse().unwrap(), role).await;
        let mut browser = self.browser();
        assert_eq!(browser.sign_in(&email, made.unwrap().1.expose()).await.status, 303);
        browser
    }

    /// Sends a message with these members over the default ones.
    async fn send(&self, members: serde_json::Value) -> MessageId {
        self.send_as(&Caller { account: self.account, key: None }, members).await
    }

    /// Sends a message as another caller.
    async fn send_as(&self, caller: &Caller, members: serde_json::Value) -> MessageId {
        let mut body = serde_json::json!({
            "from": "shop@example.test", "to": "bob@example.com", "subject": "Your order", "text": "Thank you."
        });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        let object = body.as_object().unwrap().clone();
        let submission = Submission::lift(object, self.engine.submission_limits()).unwrap();
        let accepted = self.engine.submit(caller, submission, None).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&accepted.answer).unwrap();
        answer["id"].as_str().unwrap().parse().unwrap()
    }

    /// Records the end of a message's delivery attempt.
    async fn settle(&self, message: MessageId, end: TransferEnd, facts: AttemptFacts) {
        let due = self.engine.message(self.account, message).unwrap().unwrap().transfer.due.unwrap();
        let (account, random, others, provider) = (self.account, [0; 4], Vec::new(), None);
        let transcript = Some(TRANSCRIPT.to_owned());
        let op = SettleTransfer { account, message, due, end, facts, random, others, provider, transcript };
        self.engine.store.commit(op).await.unwrap();
    }
}

/// Origin that a browser reports for its forms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A page of the panel, reported by `Sec-Fetch-Site`.
    Own,
    /// The origin in these header lines.
    Lines(&'static str),
}

/// The `User-Agent` field of the test browser.
const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

/// A minimal browser.
struct Browser {
    address: SocketAddr,
    cookies: BTreeMap<String, String>,
    origin: Origin,
}

/// A response of the panel.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn location(&self) -> &str {
        self.header("location")
    }

    /// Returns the text between `before` and the next `after`.
    fn between(&self, before: &str, after: &str) -> &str {
        let rest = self.body.split_once(before).map_or("", |(_, rest)| rest);
        rest.split_once(after).map_or(rest, |(text, _)| text)
    }

    /// Returns the value of a hidden field.
    fn hidden(&self, name: &str) -> String {
        self.between(&format!("name=\"{name}\" value=\""), "\"").replace("&#38;", "&").replace("&#34;", "\"")
    }

    /// Returns the body of a chunked response.
    fn unchunked(&self) -> String {
        let (mut text, mut rest) = (String::new(), self.body.as_str());
        while let Some((size, after)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap();
            text.push_str(&after[..size]);
            rest = &after[size + 2..];
            if size == 0 {
                break;
            }
        }
        text
    }

    fn shows(&self, text: &str) -> bool {
        self.body.contains(text)
    }
}

impl Browser {
    async fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, "", "").await
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Reply {
        let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let origin = match self.origin {
            Origin::Own => "Sec-Fetch-Site: same-origin\r\n",
            Origin::Lines(lines) => lines,
        };
        let headers = format!("Content-Type: application/x-www-form-urlencoded\r\n{origin}");
        self.ask("POST", path, &headers, &body).await
    }

    /// Sends a form with a file.
    async fn upload(&mut self, path: &str, parts: &[(&str, &str)]) -> Reply {
        let part = |(name, text): &(&str, &str)| {
            format!("--b0\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\r\n{text}\r\n")
        };
        let body = format!("{}--b0--\r\n", parts.iter().map(part).collect::<String>());
        let headers = "Content-Type: multipart/form-data; boundary=b0\r\nSec-Fetch-Site: same-origin\r\n";
        self.ask("POST", path, headers, &body).await
    }

    async fn sign_in(&mut self, email: &str, password: &str) -> Reply {
        self.post("/login", &[("email", email), ("password", password)]).await
    }

    async fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: panel.test\r\nAccept: text/html,*/*;q=0.8\r\nUser-Agent: {AGENT}\r\n\
             Cookie: {}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        for (_, cookie) in headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let reply = Reply { status, headers, body: body.to_owned() };
        let is_page =
            body.starts_with("<!doctype html>") && !reply.header("content-security-policy").contains("sandbox");
        if let Some(imbalance) = is_page.then(|| markup::first_imbalance(body)).flatten() {
            panic!("{method} {path}: {imbalance}\n{body}");
        }
        reply
    }
}
