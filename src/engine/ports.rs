//! The ports: what the engine asks of the world. Floor `net` implements them with real sockets, tests with scripts.

mod bucket;
pub mod probe;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use url::Url;

use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::event::TlsFacts;
use crate::domain::hostname::DomainName;
use crate::machine::service_clock::{Doubt, Effect, Past, ServiceTime};
use crate::smtp::client::Login;
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Envelope, LoopCheck, Outcome};
use crate::smtp::tls_policy::{TlsFault, TlsRequirement};
use crate::smtp::tlsa::TlsaRecord;

pub use bucket::{
    Bucket, BucketError, BucketErrorKind, BucketOperation, BucketResult, BucketSettings, Creation, Expiry,
    OBJECT_BYTES_MAX, ObjectInfo, ObjectPage, Versioning,
};

/// A future behind a port.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Time. The real one reads the system's clocks; the virtual one stands still until it is advanced.
pub trait Clock: Send + Sync {
    /// The service's time, for stamps in the store and for timers.
    fn now(&self) -> Timestamp;

    /// The service's time, the time by which deadlines are judged, and the wall clock.
    fn time(&self) -> ServiceTime {
        self.now().into()
    }
    /// Time since some fixed moment, which never goes back: for the request rate and cache lifetimes.
    fn monotonic(&self) -> Duration;

    /// Resolves when `at` has come, or somewhat earlier: callers look at the clock again. Never later than a second
    /// after wall time was set forward.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        let wait = at.since(self.now()).min(WALL_TIME_RESYNC);
        Box::pin(tokio::time::sleep(wait))
    }

    /// Resolves when the wall clock is to be compared again, though nobody reads the time.
    fn next_comparison(&self) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(WALL_TIME_RESYNC))
    }

    /// Starts to follow the wall clock, from what the store remembers.
    fn start(&self, _past: Past) {}

    /// Accepts the wall clock as right, and returns whether it was doubtful.
    fn accept(&self) -> bool {
        false
    }

    /// The doubt about the wall clock, if there is one.
    fn doubt(&self) -> Option<Doubt> {
        None
    }

    /// The doubts that began and ended since the last call, in order. One caller handles them.
    fn changes(&self) -> Vec<Effect> {
        Vec::new()
    }

    /// The end of the doubt is recorded: the wall clock is followed again.
    fn recorded(&self) {}

    /// The ends of doubts returned by [`Clock::changes`] are settled: deadlines move on.
    fn settle(&self) {}
}

/// Maximum time for which a sleep trusts the wall clock, which may be set at any time.
const WALL_TIME_RESYNC: Duration = Duration::from_secs(1);

/// One mail server of a domain, with the addresses to try in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailHost {
    /// The server's name, without trailing dot.
    pub name: String,
    /// Its MX preference; 0 for an implicit MX.
    pub preference: u16,
    /// Its addresses that may be connected to; never empty.
    pub addresses: Vec<IpAddr>,
    /// The names at which its TLSA records may stand, in the order to ask. Empty unless DNSSEC vouches for the MX
    /// records (or that there are none) and for the addresses: otherwise DANE does not apply (RFC 7672 2.2).
    pub tlsa_names: Vec<String>,
}

/// Why no mail server of a domain can be named (contract 6).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteFailure {
    /// NXDOMAIN: permanent, 5.1.2.
    #[error("the domain does not exist")]
    NoSuchDomain,
    /// A null MX (RFC 7505): permanent, 5.1.10.
    #[error("the domain accepts no mail (null MX)")]
    NullMx,
    /// Every answer is an authoritative "no such host": permanent, 5.4.4.
    #[error("no mail server of the domain has an address")]
    NoHost,
    /// All addresses are of networks that must not be reached: permanent, 5.4.4 `blocked_destination`.
    #[error("the domain's mail servers have no address that may be reached")]
    BlockedDestination,
    /// The best server is ourselves: permanent, 5.4.6.
    #[error("the domain's mail loops back to this server")]
    Loop,
    /// Nothing is known at present (SERVFAIL, time-out): transient, 4.4.3.
    #[error("the domain could not be looked up: {0}")]
    Temporary(String),
    /// Nothing was asked, for too many look-ups are on their way: it says nothing about the domain, and is no attempt.
    #[error("too many look-ups at once")]
    Unasked,
}

/// Why a record could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupFailure {
    /// The name, or a record of this type at it, does not exist.
    #[error("no such record")]
    Absent,
    /// Nothing is known at present.
    #[error("the look-up failed: {0}")]
    Temporary(String),
    /// Nothing was asked, for too many look-ups are on their way: it says nothing about the name.
    #[error("too many look-ups at once")]
    Unasked,
}

/// Names. Every look-up is cached by TTL and bounded in time.
pub trait Resolve: Send + Sync {
    /// The mail servers of `domain`, in the order to try.
    fn mail_hosts<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>>;
    /// The TLSA records at `name`. Records without a valid DNSSEC signature are absent.
    fn tlsa<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>>;
    /// The TXT records at `name`, each with its strings joined.
    fn txt<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>>;
    /// The names of all mail servers of `domain`, in lower case and sorted: the site that it belongs to. Servers that
    /// can't be reached are among them, so that the site stays the same while they come and go.
    fn mail_exchanges<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<Vec<String>, RouteFailure>> {
        Box::pin(async move {
            let hosts = self.mail_hosts(domain).await?;
            let mut names: Vec<_> = hosts.into_iter().map(|host| host.name.to_ascii_lowercase()).collect();
            names.sort();
            Ok(names)
        })
    }
    /// The addresses of a host that the configuration names, such as a smarthost: no network is refused.
    fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>>;
    /// The TXT records at `name`, each with its strings joined; asked of the servers now, past the cache.
    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>>;
    /// The target of the CNAME at `name` without trailing dot; asked of the servers now, past the cache.
    fn cname_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>>;
    /// The names of the MX records at `name`, the best first, without trailing dot; a null MX has an empty name. Asked
    /// of the servers now, past the cache.
    fn mx_now<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Unasked) })
    }
    /// The names of an address (PTR) without trailing dot; asked of the servers now, past the cache.
    fn ptr_now(&self, _address: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Unasked) })
    }
}

/// One address of one mail server, and how to go there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server's name, for TLS and the timeline.
    pub host: Arc<str>,
    /// Where to connect.
    pub address: SocketAddr,
    /// The name to greet with.
    pub ehlo: Arc<str>,
    /// The address to connect from; the system's choice where absent.
    pub source: Option<IpAddr>,
    /// Time limit of each phase.
    pub deadlines: Deadlines,
    /// Whether a server that gives our own name is a loop.
    pub loop_check: LoopCheck,
    /// Required security of the session.
    pub tls: TlsRequirement,
    /// Submission settings, for a smarthost.
    pub submission: Option<Arc<Submission>>,
}

impl Target {
    /// Whether both are the same way to the same server, however it must be secured and however long it may take.
    pub fn is_same_server(&self, other: &Self) -> bool {
        *self == Self { tls: self.tls.clone(), deadlines: self.deadlines, ..other.clone() }
    }
}

/// Settings for handing mail to a smarthost (RFC 6409).
#[derive(Debug, Clone)]
pub struct Submission {
    /// Security of the connection. The certificate must verify for the server's name.
    pub security: Security,
    /// The login, where one is needed.
    pub login: Option<Login>,
}

/// Security of a connection to a smarthost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// By STARTTLS, which must succeed.
    StartTls,
    /// From the first byte (RFC 8314 3.3).
    Implicit,
    /// Not at all.
    Off,
}

/// Two are the same where they secure the connection alike for the same user: a session of one serves the other.
impl PartialEq for Submission {
    fn eq(&self, other: &Self) -> bool {
        let user = |submission: &Self| submission.login.as_ref().map(|login| login.username.clone());
        self.security == other.security && user(self) == user(other)
    }
}

impl Eq for Submission {}

/// The way to mail servers.
pub trait Transmit: Send + Sync {
    /// Opens a session: connection, greeting, EHLO, and STARTTLS where it is offered or required. Where that fails, the
    /// outcome says in which phase and how.
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>>;
}

/// A message's bytes, which take memory only once they are read.
pub trait Body: Send {
    /// Returns the number of items.
    fn size(&self) -> usize;
    /// Reads them all, within two minutes. None where they can't be had: the session is closed then.
    fn read(&mut self) -> BoxFuture<'_, Option<Bytes>>;
    /// Whether the block with the final dot may be written. Where not, the connection is closed without the dot.
    fn may_end(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// Bytes that are in memory.
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
    /// Transfers one message, whose bytes are read when the server is ready for them. Every phase has its deadline, so
    /// this ends.
    fn send<'a>(&'a mut self, envelope: &'a Envelope, body: &'a mut dyn Body) -> BoxFuture<'a, Outcome>;
    /// Returns the security of the connection, or the reason for its absence.
    fn tls(&self) -> Result<&TlsFacts, TlsFault>;
    /// Whether another message may be sent on it.
    fn is_reusable(&self) -> bool;
    /// Says QUIT and closes, without waiting long.
    fn quit(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Why a domain's MTA-STS policy could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct StsFetchFailure {
    /// Fault for reports: one of the MTA-STS faults of RFC 8460 4.3.
    pub fault: TlsFault,
    /// The same for people.
    pub why: String,
}

/// Why there is no text of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfetched {
    /// The domain's policy can't be had.
    Failed(StsFetchFailure),
    /// Nobody was asked, for too many look-ups are on their way: it says nothing about the domain.
    Unasked,
}

/// The way to the hosts of MTA-STS policies (RFC 8461 3.3).
pub trait PolicyHosts: Send + Sync {
    /// The text at `https://mta-sts.<domain>/.well-known/mta-sts.txt`, within a minute.
    fn sts_policy<'a>(&'a self, domain: &'a DomainName) -> BoxFuture<'a, Result<String, Unfetched>>;
}

/// One signed request to a webhook endpoint.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// The endpoint's https URL.
    pub url: url::Url,
    /// Header names and values; `Content-Type` and `User-Agent` among them.
    pub headers: Vec<(&'static str, String)>,
    /// The event's bytes.
    pub body: Bytes,
}

/// Failure of an attempt without a status (contract 5), by its name in the attempt log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The name did not resolve.
    Dns,
    /// No connection.
    Connect,
    /// No trustworthy TLS.
    Tls,
    /// Not within the 10 seconds.
    Timeout,
    /// Connection lost before the status line was whole.
    Reset,
    /// Not HTTP.
    Protocol,
    /// The address is of a network that must not be reached.
    Blocked,
    /// A status that is not 2xx.
    Status,
}

impl PostError {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Dns, Self::Connect, Self::Tls, Self::Timeout, Self::Reset, Self::Protocol, Self::Blocked, Self::Status];

    /// The name in the attempt log.
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
    /// Its https address.
    pub url: Url,
    /// The form.
    pub form: Option<Secret>,
    /// The `Authorization` header.
    pub authorization: Option<Secret>,
}

/// A provider's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// Its status.
    pub status: u16,
    /// Its body, all of it.
    pub body: Vec<u8>,
    /// The time for which it may be kept, where its headers say so.
    pub lifetime: Option<Duration>,
}

/// An identity provider on the network.
pub trait IdentityProvider: Send + Sync {
    /// Sends one request. No redirect is followed, and an answer that is too large is none.
    fn ask(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, PostError>>;
}

/// Outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostOutcome {
    /// The status, where a status line came.
    pub status: Option<u16>,
    /// The failure, absent for a 2xx.
    pub error: Option<PostError>,
    /// Duration of the request.
    pub duration: Duration,
    /// Address of the receiver that answered.
    pub peer: Option<IpAddr>,
    /// The first 4 KiB of the answer's body.
    pub body: Option<String>,
}

/// The way to webhook receivers. One call is one request; nothing is sent again inside it.
pub trait Post: Send + Sync {
    /// Sends the request and reads the answer, within 10 seconds in all, name resolution included.
    fn post(&self, request: WebhookRequest) -> BoxFuture<'_, PostOutcome>;
}
