//! SMTP listener over TCP: drives a `ServerSession` for every connection and asks the connection's [`MailHandler`]
//! for decisions.
//!
//! Connections are limited in all and per address, and every wait has a deadline. A connection that only waits for its
//! client ends if a new one needs its place. So no client can exceed its share. Used by `dev`'s receiver, by the bounce
//! receiver on port 25 and by submission.

mod connection;
#[cfg(test)]
mod eviction_tests;
mod gate;
mod progress;
mod stream;
#[cfg(test)]
mod submission_tests;
#[cfg(test)]
mod tests;

pub use gate::ConnectionCap;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::tls_settings::TlsSettings;
use crate::engine::ports::BoxFuture;
use crate::engine::smtp_submission::Decision;
use crate::smtp::server::{
    Answer, LoginQuestion, LoginRule, ReceivedMessage, RecipientQuestion, RefusedCommand, SenderQuestion, ServerConfig,
};
use connection::Connection;

/// Pause of the accept loop when the system has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Creates the handler of each connection.
pub trait MailService: Send + Sync + 'static {
    /// Returns the handler of a connection from `peer`; it is dropped when the connection ends.
    fn connected(&self, peer: SocketAddr) -> Box<dyn MailHandler>;
}

/// Decides about the mail of one connection. Each decision has the time limit [`Deadlines::decision`].
pub trait MailHandler: Send + 'static {
    /// Returns the login rule for this client, if it differs from the configured one.
    fn login_rule(&self) -> Option<LoginRule> {
        None
    }

    /// Notes that the connection is encrypted with this version of TLS, such as `TLSv1.3`.
    fn on_tls(&mut self, _version: &str) {}

    /// Checks the password of AUTH; 235 `2.7.0` accepts it.
    fn on_login(&mut self, _question: LoginQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::new(502, "5.5.1", "Command not implemented")))
    }

    /// Decides whether mail from this sender is accepted; 250 `2.1.0` accepts it. Called for submission only.
    fn on_sender(&mut self, _question: SenderQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::new(250, "2.1.0", "OK")))
    }

    /// Decides whether mail for this recipient is accepted; 250 `2.1.5` accepts it.
    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer>;

    /// Reserves memory for this many more bytes of a message; false if there is none left.
    fn reserve(&mut self, _bytes: usize) -> bool {
        true
    }

    /// Notes this many more received bytes of a message with memory.
    fn on_data(&mut self, _bytes: usize) {}

    /// Returns when the memory of the message has been given to another one.
    fn revoked(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Releases the memory of the message.
    fn release(&mut self) {}

    /// Takes the message. It must be durable before a positive answer, which makes us responsible for it.
    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision>;

    /// Notes answers that the session gave without calling the handler, and answers to logins.
    fn on_refused(&mut self, _refused: &[RefusedCommand]) {}
}

/// Time limit of each wait.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Next command (RFC 5321 4.5.3.2.7 asks for five minutes).
    pub command: Duration,
    /// Next bytes of a message.
    pub data: Duration,
    /// Writing to the client.
    pub write: Duration,
    /// TLS handshake.
    pub handshake: Duration,
    /// Time limit of the handler's decision. After it the client gets 451. `None` waits for every decision.
    pub decision: Option<Duration>,
    /// Time for a decision about a message that has a time limit, after which the connection may be closed in favour of
    /// a new one.
    pub deciding: Duration,
    /// Time from connecting to a login, if mail requires one.
    pub login: Option<Duration>,
    /// A whole message.
    pub message: Option<Duration>,
    /// Pause before the answer to a failed login.
    pub failed_login: Duration,
    /// The whole session.
    pub session: Duration,
    /// Time for a login or a transaction, after which the connection may be closed in favour of a new one.
    pub silent: Duration,
    /// Time for which the connection is read after the last answer, so that the answer arrives. Closing a socket with
    /// unread bytes resets the connection and may discard the answer.
    pub linger: Duration,
    /// Time for the next 20 KiB of a message, after which the connection may be closed in favour of a new one.
    pub stalled: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(300),
            data: Duration::from_secs(180),
            write: Duration::from_secs(60),
            handshake: Duration::from_secs(30),
            decision: Some(Duration::from_secs(60)),
            deciding: Duration::from_secs(2),
            login: None,
            message: None,
            failed_login: Duration::from_secs(1),
            session: Duration::from_secs(3600),
            silent: Duration::from_secs(2),
            stalled: Duration::from_secs(20),
            linger: Duration::from_secs(1),
        }
    }
}

/// The TLS mode of a listener.
#[derive(Clone)]
pub enum ListenerTls {
    /// No TLS.
    Off,
    /// TLS after STARTTLS.
    StartTls(Arc<TlsSettings>),
    /// TLS from the first byte (RFC 8314 3.3).
    Implicit(Arc<TlsSettings>),
}

/// A listener's settings.
#[derive(Clone)]
pub struct ListenerConfig {
    /// Settings of each session. Its `starttls` is set from `tls`.
    pub session: ServerConfig,
    /// Connection limits; listeners may share them.
    pub gate: ConnectionCap,
    /// Time for which a client must stay silent before the greeting; zero greets at once.
    pub greeting_pause: Duration,
    /// The deadlines.
    pub deadlines: Deadlines,
    /// The use of TLS.
    pub tls: ListenerTls,
}

/// A running listener. Dropping it aborts all connections; [`shut_down`](Self::shut_down) stops it gracefully.
pub struct SmtpListener {
    address: SocketAddr,
    stop: watch::Sender<Option<Duration>>,
    accepting: JoinHandle<()>,
}

impl SmtpListener {
    /// Binds `address` (port 0 lets the system choose) and starts to receive.
    ///
    /// # Errors
    /// Errors of binding.
    pub async fn bind(address: SocketAddr, config: ListenerConfig, service: Arc<dyn MailService>) -> io::Result<Self> {
        Self::on(TcpListener::bind(address).await?, config, service)
    }

    /// Starts to receive on `listener`.
    ///
    /// # Errors
    /// The socket's address can't be read.
    pub fn on(listener: TcpListener, mut config: ListenerConfig, service: Arc<dyn MailService>) -> io::Result<Self> {
        config.session.starttls = matches!(config.tls, ListenerTls::StartTls(_));
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(None);
        let acceptor = Acceptor { listener, config: Arc::new(config), service, stopped };
        Ok(Self { address, stop, accepting: tokio::spawn(acceptor.run()) })
    }

    /// Returns the bound address, with the port that the system chose.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, disconnects idle clients with 421, and gives a message that is being received up to `grace` to
    /// finish.
    pub async fn shut_down(mut self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        // If the accept loop panicked, it has ended too, so the error needs no handling.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for SmtpListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The accept loop. It owns the tasks of all its connections.
struct Acceptor {
    listener: TcpListener,
    config: Arc<ListenerConfig>,
    service: Arc<dyn MailService>,
    stopped: watch::Receiver<Option<Duration>>,
}

impl Acceptor {
    async fn run(mut self) {
        let mut connections = JoinSet::new();
        // Connections that lost their place need a moment to end.
        let most = self.config.gate.max().saturating_mul(2);
        loop {
            tokio::select! {
                _ = self.stopped.changed() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < most => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer, &mut connections),
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection; retrying shortly");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        let grace = self.stopped.borrow().unwrap_or_default();
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::info!("sessions aborted at shutdown");
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        let Some(place) = self.config.gate.enter(peer) else {
            return match self.config.tls {
                ListenerTls::Implicit(_) => drop(stream),
                ListenerTls::Off | ListenerTls::StartTls(_) => turn_away(stream, &self.config.session.hostname),
            };
        };
        // Answers are small and clients wait for each one. With Nagle's algorithm they would wait for the client's
        // delayed ACK.
        let _ = stream.set_nodelay(true);
        let handler = self.service.connected(peer);
        let connection = Connection::new(stream, peer, place, &self.config, handler, self.stopped.clone());
        connections.spawn(async move {
            if let Err(error) = connection.run().await {
                tracing::debug!(%peer, %error, "an incoming SMTP session failed");
            }
        });
    }
}

/// Refuses one connection with 421, without a task or a wait. The send buffer of a new socket has room for one line. If
/// it does not, the close has the same meaning.
fn turn_away(stream: TcpStream, hostname: &str) {
    let mut line = Vec::new();
    Answer::new(421, "4.7.0", format!("{hostname} Too many connections, try again later")).write_to(&mut line);
    if let Ok(mut stream) = stream.into_std() {
        let _ = io::Write::write(&mut stream, &line);
    }
}
