//! The ports: traits through which the engine reaches the outside world. `net` implements them with sockets, tests
//! implement them with scripts.

mod bucket;
pub mod probe;
mod resolve;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use url::Url;

use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::event::TlsFacts;
use crate::domain::hostname::DomainName;
use crate::machine::service_clock::{ClockHistory, Doubt, Effect, ServiceTime};
use crate::smtp::client::Login;
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Envelope, LoopCheck, Outcome};
use crate::smtp::tls_policy::{TlsFault, TlsRequirement};

pub use bucket::{
    Bucket, BucketError, BucketErrorKind, BucketOperation, BucketResult, BucketSettings, Creation, Expiry,
    OBJECT_BYTES_MAX, ObjectInfo, ObjectPage, Versioning,
};
pub use resolve::{Family, LookupFailure, MAIL_HOSTS_MAX, MailHost, Requester, Resolve, RouteFailure};

/// A future behind a port.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A clock. The real clock reads the system's clocks. The virtual clock changes only when it is advanced.
pub trait Clock: Send + Sync {
    /// Returns the service's time, for timestamps in the store and for timers.
    fn now(&self) -> Timestamp;

    /// Returns the service's time, the time for deadlines, and the wall clock.
    fn time(&self) -> ServiceTime {
        self.now().into()
    }
    /// Returns the time since some fixed moment. It never decreases. Used for request rates and cache lifetimes.
    fn monotonic(&self) -> Duration;

    /// Resolves at `at` or somewhat earlier, so callers check the clock again. If the wall clock is set forward past
    /// `at`, it resolves within a second.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        let wait = at.since(self.now()).min(WALL_TIME_RESYNC);
        Box::pin(tokio::time::sleep(wait))
    }

    /// Resolves when the wall clock should be compared again, even without readers of the time.
    fn next_comparison(&self) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(WALL_TIME_RESYNC))
    }

    /// Starts to follow the wall clock, given the stored clock facts.
    fn start(&self, _past: ClockHistory) {}

    /// Accepts the wall clock as correct. Returns whether it was in doubt.
    fn accept(&self) -> bool {
        false
    }

    /// Returns the doubt about the wall clock, if there is one.
    fn doubt(&self) -> Option<Doubt> {
        None
    }

    /// Returns the doubts that began or ended since the last call, in order. Only one caller may handle them.
    fn changes(&self) -> Vec<Effect> {
        Vec::new()
    }

    /// Confirms that the end of the doubt is recorded, so the wall clock is followed again.
    fn recorded(&self) {}

    /// Confirms that the effects returned by [`Clock::changes`] are settled, so deadlines continue.
    fn settle(&self) {}
}

/// Maximum time that a sleep relies on the wall clock, since the wall clock may be set at any time.
const WALL_TIME_RESYNC: Duration = Duration::from_secs(1);

/// One address of one mail server, and the settings to connect with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server's name, for TLS and the timeline.
    pub host: Arc<str>,
    /// Address to connect to.
    pub address: SocketAddr,
    /// Name to send in EHLO.
    pub ehlo: Arc<str>,
    /// Source address; chosen by the system if `None`.
    pub source: Option<IpAddr>,
    /// Time limit of each phase.
    pub deadlines: Deadlines,
    /// Whether a server that greets with our own name counts as a loop.
    pub loop_check: LoopCheck,
    /// Required security of the session.
    pub tls: TlsRequirement,
    /// Submission settings, for a smarthost.
    pub submission: Option<Arc<Submission>>,
}

impl Target {
    /// Returns whether both connect to the same server from the same address, ignoring required security and time
    /// limits.
    pub fn is_same_server(&self, other: &Self) -> bool {
        *self == Self { tls: self.tls.clone(), deadlines: self.deadlines, ..other.clone() }
    }
}

/// Settings for submission to a smarthost (RFC 6409).
#[derive(Debug, Clone)]
pub struct Submission {
    /// Security of the connection. The certificate must verify for the server's name.
    pub security: Security,
    /// Credentials, if the smarthost needs them.
    pub login: Option<Login>,
}

/// Security of a connection to a smarthost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// STARTTLS, which must succeed.
    StartTls,
    /// TLS from the first byte (RFC 8314 3.3).
    Implicit,
    /// No TLS.
    Off,
}

/// Submissions are equal if a session of one can be reused for the other: same security, same user.
impl PartialEq for Submission {
    fn eq(&self, other: &Self) -> bool {
        let user = |submission: &Self| submission.login.as_ref().map(|login| login.username.clone());
        self.security == other.security && user(self) == user(other)
    }
}

impl Eq for Submission {}

/// Opens SMTP sessions with mail servers.
pub trait Transmit: Send + Sync {
    /// Opens a session: connection, greeting, EHLO, and STARTTLS if offered or required. Errors have phase and reason.
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>>;
}

/// The bytes of a message, which are loaded into memory only when read.
pub trait Body: Send {
    /// Returns the number of bytes.
    fn size(&self) -> usize;
    /// Reads all bytes, within two minutes. Returns `None` if they are not available. The session is then closed.
    fn read(&mut self) -> BoxFuture<'_, Option<Bytes>>;
    /// Returns whether the last block, with the final dot, may be written. If not, the connection closes without it.
    fn may_end(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// Bytes that are in memory already.
impl Body for Bytes {
    fn size(&self) -> usize {
        self.len()
    }

    fn read(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        let bytes = self.clone();
        Box::pin(async move { Some(bytes) })
    }
}

/// An open session with a mail server, for one message after another.
pub trait Session: Send {
    /// Sends an RSET before the next message, if the server takes no MAIL with it. Resolves to whether the session can
    /// still send. Then [`Session::send`] begins with MAIL in every session.
    fn reset(&mut self) -> Option<BoxFuture<'_, bool>> {
        None
    }
    /// Transfers one message, whose bytes are read when the server is ready. Every phase has a time limit.
    fn send<'a>(&'a mut self, envelope: &'a Envelope, body: &'a mut dyn Body) -> BoxFuture<'a, Outcome>;
    /// Returns the security of the connection, or the reason why it has none.
    fn tls(&self) -> Result<&TlsFacts, TlsFault>;
    /// Returns whether the session can send another message.
    fn is_reusable(&self) -> bool;
    /// Sends QUIT and closes, without waiting long.
    fn quit(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Failure to fetch a domain's MTA-STS policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct StsFetchFailure {
    /// Failure type for TLS reports: one of the MTA-STS failures of RFC 8460 4.3.
    pub fault: TlsFault,
    /// Explanation for people.
    pub why: String,
}

/// Reason why a policy's text was not fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfetched {
    /// The fetch failed.
    Failed(StsFetchFailure),
    /// Too many lookups are in flight, so no request was sent. It says nothing about the domain.
    Unasked,
}

/// Fetches MTA-STS policies from their hosts (RFC 8461 3.3).
pub trait PolicyHosts: Send + Sync {
    /// Returns the text at `https://mta-sts.<domain>/.well-known/mta-sts.txt`, within a minute.
    fn sts_policy<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<String, Unfetched>>;
}

/// One signed request to a webhook endpoint.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// The endpoint's https URL.
    pub url: url::Url,
    /// Header names and values, including `Content-Type` and `User-Agent`.
    pub headers: Vec<(&'static str, String)>,
    /// The event's bytes.
    pub body: Bytes,
    /// The share of queries for the lookup of its host.
    pub requester: Requester,
}

/// Failure of a webhook attempt (contract 5). Its name appears in the attempt log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The name did not resolve.
    Dns,
    /// The connection failed.
    Connect,
    /// The TLS handshake or the certificate check failed.
    Tls,
    /// No complete answer within 10 seconds.
    Timeout,
    /// The connection was lost before the status line was complete.
    Reset,
    /// The answer is not HTTP.
    Protocol,
    /// The address is in a blocked network.
    Blocked,
    /// A status that is not 2xx.
    Status,
}

impl PostError {
    /// All failures.
    pub const ALL: [Self; 8] =
        [Self::Dns, Self::Connect, Self::Tls, Self::Timeout, Self::Reset, Self::Protocol, Self::Blocked, Self::Status];

    /// Returns the name in the attempt log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::Blocked => "blocked",
            Self::Status => "status",
        }
    }
}

/// A request to an identity provider: a GET, or the POST of a form.
pub struct ProviderRequest {
    /// URL, always https.
    pub url: Url,
    /// Form. A request without a form is a GET.
    pub form: Option<Secret>,
    /// The `Authorization` header.
    pub authorization: Option<Secret>,
}

/// Answer of an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// HTTP status.
    pub status: u16,
    /// Complete body.
    pub body: Vec<u8>,
    /// Time for which the answer's headers allow caching.
    pub lifetime: Option<Duration>,
}

/// An identity provider on the network.
pub trait IdentityProvider: Send + Sync {
    /// Sends one request. Redirects are not followed, and an oversized answer is an error.
    fn ask(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, PostError>>;
}

/// Outcome of one webhook request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostOutcome {
    /// HTTP status, if a status line arrived.
    pub status: Option<u16>,
    /// Failure; `None` for a 2xx.
    pub error: Option<PostError>,
    /// Duration of the request.
    pub duration: Duration,
    /// Address of the receiver that answered.
    pub peer: Option<IpAddr>,
    /// The first 4 KiB of the answer's body.
    pub body: Option<String>,
}

/// Sends requests to webhook endpoints. One call is one request; the port never retries.
pub trait Post: Send + Sync {
    /// Sends the request and reads the answer, within 10 seconds in total, including name resolution.
    /// Sets `begun` right before the first byte of the request: until then, dropping the future prevents the request.
    fn post<'a>(&'a self, request: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome>;
}
