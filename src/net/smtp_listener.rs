//! Receives mail over TCP: drives [`ServerSession`] for every connection and asks the connection's
//! [`MailHandler`] what it decides.
//!
//! Connections are capped, in all and by address, and every wait has a deadline, so that no client can hold more
//! than its share. Used by `dev`'s receiver, by the bounce receiver on port 25 and by submission.

mod connection;
mod gate;
#[cfg(test)]
mod submission_tests;
#[cfg(test)]
mod tests;

pub use gate::Gate;

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
    Answer, LoginQuestion, LoginRule, ReceivedMessage, RecipientQuestion, Refused, SenderQuestion, ServerConfig,
};
use connection::Connection;

/// Pause of the accept loop when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Makes the handler of each connection.
pub trait MailService: Send + Sync + 'static {
    /// Returns the handler of a connection from `peer`; it is dropped when the connection ends.
    fn connected(&self, peer: SocketAddr) -> Box<dyn MailHandler>;
}

/// Decides about the mail of one connection. Questions are awaited within [`Deadlines::decision`].
pub trait MailHandler: Send + 'static {
    /// The login rule for this client, where it differs from the configured one.
    fn login_rule(&self) -> Option<LoginRule> {
        None
    }

    /// Notes that the connection is encrypted with this version of TLS, such as `TLSv1.3`.
    fn on_tls(&mut self, _version: &str) {}

    /// Checks the password of AUTH; 235 `2.7.0` is yes.
    fn on_login(&mut self, _question: LoginQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::new(502, "5.5.1", "Command not implemented")))
    }

    /// Whether mail from this sender is taken; 250 `2.1.0` is yes. Asked of submission only.
    fn on_sender(&mut self, _question: SenderQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::new(250, "2.1.0", "OK")))
    }

    /// Whether mail for this recipient is taken; 250 `2.1.5` is yes.
    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer>;

    /// Reserves memory for so many more bytes of a message; false where there is none left.
    fn reserve(&mut self, _bytes: usize) -> bool {
        true
    }

    /// Gives back the memory of the message.
    fn release(&mut self) {}

    /// Takes the message: with a positive answer it is ours, so it has to be kept durably before.
    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision>;

    /// Notes answers that the session gave without asking, and those to logins.
    fn on_refused(&mut self, _refused: &[Refused]) {}
}

/// Time limit of each wait.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For the next command (RFC 5321 4.5.3.2.7 asks for five minutes).
    pub command: Duration,
    /// For the next bytes of a message.
    pub data: Duration,
    /// For the client to take what is written to it.
    pub write: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the handler's decision; after it the client hears 451. Without one, decisions are waited for.
    pub decision: Option<Duration>,
    /// From connecting to a login, where mail needs one.
    pub login: Option<Duration>,
    /// For a whole message.
    pub message: Option<Duration>,
    /// The pause before the answer to a failed login.
    pub failed_login: Duration,
    /// For the session as a whole.
    pub session: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(300),
            data: Duration::from_secs(180),
            write: Duration::from_secs(60),
            handshake: Duration::from_secs(30),
            decision: Some(Duration::from_secs(60)),
            login: None,
            message: None,
            failed_login: Duration::from_secs(1),
            session: Duration::from_secs(3600),
        }
    }
}

/// The TLS mode of a listener.
#[derive(Clone)]
pub enum ListenerTls {
    /// Not at all.
    Off,
    /// After STARTTLS.
    StartTls(Arc<TlsSettings>),
    /// From the first byte (RFC 8314 3.3).
    Implicit(Arc<TlsSettings>),
}

/// A listener's settings.
#[derive(Clone)]
pub struct ListenerConfig {
    /// The settings of each session. Its `starttls` follows `tls`.
    pub session: ServerConfig,
    /// Connection limits; listeners may share them.
    pub gate: Gate,
    /// Time for which a client must keep silent before it is greeted; zero greets at once.
    pub greeting_pause: Duration,
    /// The deadlines.
    pub deadlines: Deadlines,
    /// The use of TLS.
    pub tls: ListenerTls,
}

/// A running listener. Dropping it stops it hard; [`shut_down`](Self::shut_down) does it gently.
pub struct SmtpListener {
    address: SocketAddr,
    stop: watch::Sender<Option<Duration>>,
    accepting: JoinHandle<()>,
}

impl SmtpListener {
    /// Binds `address` (port 0 lets the system choose) and begins to receive.
    ///
    /// # Errors
    /// Those of binding.
    pub async fn bind(address: SocketAddr, config: ListenerConfig, service: Arc<dyn MailService>) -> io::Result<Self> {
        Self::on(TcpListener::bind(address).await?, config, service)
    }

    /// Begins to receive on `listener`.
    ///
    /// # Errors
    /// Those of asking the socket for its address.
    pub fn on(listener: TcpListener, mut config: ListenerConfig, service: Arc<dyn MailService>) -> io::Result<Self> {
        config.session.starttls = matches!(config.tls, ListenerTls::StartTls(_));
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(None);
        let acceptor = Acceptor { listener, config: Arc::new(config), service, stopped };
        Ok(Self { address, stop, accepting: tokio::spawn(acceptor.run()) })
    }

    /// The address it listens at, with the port that the system chose.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nobody any more, sends idle clients away with 421, and gives a message that is being received up to
    /// `grace` to end.
    pub async fn shut_down(mut self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        // A panic of the accept loop is not worth another here: it is gone either way.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for SmtpListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The accept loop, which owns the tasks of all its connections.
struct Acceptor {
    listener: TcpListener,
    config: Arc<ListenerConfig>,
    service: Arc<dyn MailService>,
    stopped: watch::Receiver<Option<Duration>>,
}

impl Acceptor {
    async fn run(mut self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = self.stopped.changed() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer, &mut connections),
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection");
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
        let Some(pass) = self.config.gate.enter(peer.ip()) else {
            return match self.config.tls {
                ListenerTls::Implicit(_) => drop(stream),
                ListenerTls::Off | ListenerTls::StartTls(_) => turn_away(stream, &self.config.session.hostname),
            };
        };
        // Answers are small and each is waited for; without this they would wait for the client's delayed ACK.
        let _ = stream.set_nodelay(true);
        let connection =
            Connection::new(stream, peer, &self.config, self.service.connected(peer), self.stopped.clone());
        connections.spawn(async move {
            let _pass = pass;
            if let Err(error) = connection.run().await {
                tracing::debug!(%peer, %error, "an incoming session broke off");
            }
        });
    }
}

/// Says 421 to one connection too many, without a task or a wait for it: a fresh socket has room for one line, and
/// where it has not, closing says the same.
fn turn_away(stream: TcpStream, hostname: &str) {
    let mut line = Vec::new();
    Answer::new(421, "4.7.0", format!("{hostname} Too many connections, try again later")).write_to(&mut line);
    if let Ok(mut stream) = stream.into_std() {
        let _ = io::Write::write(&mut stream, &line);
    }
}
