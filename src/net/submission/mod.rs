//! SMTP submission over TCP: the limits of its listeners, and the state that their connections share.
//!
//! `app` creates one [`Submission`] for all listeners. Each connection has a handler ([`handler`]) that calls the
//! engine's session. Throttles, connections per key and memory are counted here, over all connections.

mod failed_logins;
mod handler;
mod logins;
mod memory;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::secret::Secret;
use crate::domain::limits::MESSAGE_BYTES;
use crate::engine::Engine;
use crate::net::smtp_listener::{ConnectionCap, Deadlines, ListenerConfig, ListenerTls, MailHandler, MailService};
use crate::smtp::server::{LoginRule, ServerConfig, ServerKind, SubmissionRules};
use failed_logins::FailedLogins;
use handler::Handler;
use logins::Logins;
use memory::Memory;

/// Maximum size in bytes of all copies of one message together.
const COPIES_BYTES_MAX: usize = 200 << 20;
/// Number of faulty commands after which the session of a logged-in client ends.
const ERRORS_MAX: u32 = 20;
/// Time limit of one message.
const MESSAGE: Duration = Duration::from_secs(30 * 60);
/// Time limit of one session.
const SESSION: Duration = Duration::from_secs(3600);

/// The configured limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmissionLimits {
    /// Maximum number of connections in all.
    pub connections: usize,
    /// Maximum number of connections of one IPv4 address or one IPv6 /64.
    pub connections_per_address: usize,
    /// Maximum number of connections on which one key has logged in.
    pub connections_per_key: usize,
    /// Maximum number of recipients of one transaction.
    pub recipients: usize,
    /// Time limit from connecting to the login.
    pub login: Duration,
    /// Time limit between two commands.
    pub idle: Duration,
    /// Maximum number of failed logins of one address in the throttle's window.
    pub failed_logins: usize,
}

impl Default for SubmissionLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_address: 50,
            connections_per_key: 50,
            recipients: 100,
            login: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            failed_logins: 10,
        }
    }
}

/// State that all submission connections share.
pub struct Submission {
    engine: Arc<Engine>,
    hostname: String,
    limits: SubmissionLimits,
    gate: ConnectionCap,
    logins: Logins,
    failed_logins: FailedLogins,
    memory: Arc<Mutex<Memory>>,
}

/// Settings of `dev`'s listener, where some clients may skip the login.
pub struct DevAccess {
    /// The key of sessions without a login.
    pub key: Secret,
    /// Returns whether a client at this address may send without a login.
    pub may_skip_login: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl Submission {
    /// Creates the submission service of `engine`, announced as `hostname`.
    pub fn new(engine: Arc<Engine>, hostname: &str, limits: SubmissionLimits) -> Arc<Self> {
        let memory = Arc::new(Mutex::new(Memory::new(Arc::clone(&engine.clock))));
        Arc::new(Self {
            engine,
            hostname: hostname.to_owned(),
            gate: ConnectionCap::new(limits.connections, limits.connections_per_address),
            logins: Logins::new(limits.connections_per_key, limits.connections),
            failed_logins: FailedLogins::new(limits.failed_logins),
            memory,
            limits,
        })
    }

    /// Returns the configuration of a listener. All of them share one connection count.
    pub fn listener_config(&self, tls: ListenerTls) -> ListenerConfig {
        self.config(tls, LoginRule::InsideTls, Some(self.limits.login))
    }

    /// Returns the configuration of `dev`'s listener, which requires no login.
    pub fn dev_listener_config(&self) -> ListenerConfig {
        self.config(ListenerTls::Off, LoginRule::Optional, None)
    }

    fn config(&self, tls: ListenerTls, login: LoginRule, login_deadline: Option<Duration>) -> ListenerConfig {
        ListenerConfig {
            session: ServerConfig {
                hostname: self.hostname.clone(),
                greeting: format!("{} ESMTP Postrider", self.hostname),
                size_max: MESSAGE_BYTES,
                recipients_max: self.limits.recipients,
                errors_max: ERRORS_MAX,
                refusals_max: None,
                starttls: false,
                kind: ServerKind::Submission(SubmissionRules { login, total_max: COPIES_BYTES_MAX }),
            },
            gate: self.gate.clone(),
            greeting_pause: Duration::ZERO,
            deadlines: Deadlines {
                command: self.limits.idle,
                decision: None,
                login: login_deadline,
                message: Some(MESSAGE),
                session: SESSION,
                ..Deadlines::default()
            },
            tls,
        }
    }
}

/// The service of one listener.
pub struct SubmissionService {
    /// State that all connections share.
    pub submission: Arc<Submission>,
    /// Set for `dev`'s listener.
    pub dev: Option<Arc<DevAccess>>,
}

impl MailService for SubmissionService {
    fn connected(&self, peer: SocketAddr) -> Box<dyn MailHandler> {
        Box::new(Handler::new(Arc::clone(&self.submission), self.dev.clone(), peer.ip().to_canonical()))
    }
}
