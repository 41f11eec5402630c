//! The SMTP receiver of bounces and complaints: turns the engine's decisions into SMTP replies, within the limits of
//! contract 6.
//!
//! It accepts mail only for our own mailboxes, answers 250 only after the engine has committed, and never sends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::smtp_listener::{
    ConnectionCap, Deadlines, ListenerConfig, ListenerTls, MailHandler, MailService, SmtpListener,
};
use super::tls_settings::TlsSettings;
use crate::domain::network::Network;
use crate::engine::ports::BoxFuture;
use crate::engine::receive::{Mailbox, MailboxRefusal, ReceiveError, Receiver};
use crate::engine::smtp_submission::Decision;
use crate::smtp::server::{Answer, Path, ReceivedMessage, RecipientQuestion, ServerConfig, ServerKind};
use crate::store::error::StoreError;

/// Maximum size of a message in bytes. A report with the returned message has some KiB.
const SIZE_MAX: usize = 1024 * 1024;
/// Maximum number of recipients of a message. A report has one.
const RECIPIENTS_MAX: usize = 10;
/// Number of faulty commands after which a client is disconnected.
const ERRORS_MAX: u32 = 20;
/// Number of refused recipients after which a client is disconnected.
const REFUSALS_MAX: u32 = 100;
/// Maximum number of connections over all listeners. Each may hold one message in memory.
const CONNECTIONS_MAX: usize = 100;
/// Maximum number of connections of one IPv4 address or one IPv6 /64. A Postfix opens 20 at once.
const CONNECTIONS_MAX_PER_ADDRESS: usize = 25;
/// Maximum duration of a session.
const SESSION: Duration = Duration::from_secs(600);

/// Returns the settings of one session.
pub fn session_config(hostname: &str) -> ServerConfig {
    ServerConfig {
        hostname: hostname.to_owned(),
        greeting: format!("{hostname} ESMTP"),
        size_max: SIZE_MAX,
        recipients_max: RECIPIENTS_MAX,
        errors_max: ERRORS_MAX,
        refusals_max: Some(REFUSALS_MAX),
        starttls: true,
        kind: ServerKind::Inbound,
    }
}

/// Returns the settings of the listeners. Their clones share one connection count.
pub fn listener_config(hostname: &str, tls: Arc<TlsSettings>) -> ListenerConfig {
    ListenerConfig {
        session: session_config(hostname),
        gate: ConnectionCap::new(CONNECTIONS_MAX, CONNECTIONS_MAX_PER_ADDRESS),
        greeting_pause: Duration::ZERO,
        deadlines: Deadlines { session: SESSION, ..Deadlines::default() },
        tls: ListenerTls::StartTls(tls),
    }
}

/// Starts to receive on `socket`.
///
/// # Errors
/// The socket's address can't be read.
pub fn listen(socket: TcpListener, config: ListenerConfig, receiver: Arc<Receiver>) -> io::Result<SmtpListener> {
    SmtpListener::on(socket, config, Arc::new(BounceService(receiver)))
}

/// Handles the sessions of the listeners.
pub struct BounceService(pub Arc<Receiver>);

impl MailService for BounceService {
    fn connected(&self, peer: SocketAddr) -> Box<dyn MailHandler> {
        Box::new(Handler { receiver: Arc::clone(&self.0), client: Network::of_site(peer.ip()) })
    }
}

struct Handler {
    receiver: Arc<Receiver>,
    client: Network,
}

impl Handler {
    fn mailbox(&self, path: &Path) -> Result<Mailbox, Answer> {
        match self.receiver.mailbox(path.local(), path.domain()) {
            Ok(Ok(mailbox)) => Ok(mailbox),
            Ok(Err(MailboxRefusal::Host)) => Err(Answer::new(550, "5.7.1", "Relaying denied")),
            Ok(Err(MailboxRefusal::Mailbox)) => Err(Answer::new(550, "5.1.1", "No such mailbox here")),
            Ok(Err(MailboxRefusal::Expired)) => {
                Err(Answer::new(550, "5.1.1", "This return path has expired: its message is too old"))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    async fn take(&self, message: ReceivedMessage) -> Decision {
        if !self.receiver.engine().may_accept().await {
            return Decision::Answer(Answer::replica_unavailable());
        }
        let mailboxes: Result<Vec<_>, _> = message.recipients.iter().map(|path| self.mailbox(path)).collect();
        let mailboxes = match mailboxes {
            Ok(mailboxes) => mailboxes,
            Err(answer) => return Decision::Answer(answer),
        };
        Decision::Answer(match self.receiver.receive(self.client, &mailboxes, message.bytes).await {
            Ok(_) => Answer::new(250, "2.0.0", "Taken"),
            Err(ReceiveError::HeaderTooLarge) => Answer::new(552, "5.3.4", "The header section is larger than 64 KiB"),
            // The report may be committed already, and a committed report is never refused.
            Err(ReceiveError::Failed(StoreError::InDoubt)) => return Decision::CloseWithoutAnswer,
            Err(ReceiveError::Failed(error)) => failed(&error),
        })
    }
}

/// Returns a temporary failure. Nothing is lost: the sending server keeps the message and tries again.
fn failed(error: &StoreError) -> Answer {
    match error {
        StoreError::Closed => Answer::new(421, "4.3.2", "Shutting down, try again later"),
        error => {
            tracing::error!(%error, "could not record a returned message; its sender will retry");
            Answer::new(451, "4.3.0", "The message could not be stored, try again later")
        }
    }
}

impl MailHandler for Handler {
    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if !self.receiver.engine().may_accept().await {
                return Answer::replica_unavailable();
            }
            let answer = self.mailbox(&question.recipient).err();
            answer.unwrap_or_else(|| Answer::new(250, "2.1.5", "OK"))
        })
    }

    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(self.take(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls;

    #[test]
    fn connections_are_limited_to_25_per_address_and_100_in_total() {
        let settings = TlsSettings::new(tls::self_signed("mx.test").unwrap());
        let gate = listener_config("mx.test", Arc::new(settings)).gate;
        let of = |network: u8, host: u8| gate.enter(([192, 0, network, host], 25).into());
        let first: Vec<_> = (0..26).filter_map(|_| of(2, 1)).collect();
        assert_eq!(first.len(), 25);
        let others: Vec<_> = (0..100).filter_map(|host| of(3, host)).collect();
        assert_eq!(others.len(), 75);
    }

    #[test]
    fn a_message_that_was_not_committed_gets_a_temporary_failure() {
        for (error, code) in [(StoreError::Closed, 421), (StoreError::Full, 451), (StoreError::Panicked, 451)] {
            assert_eq!(failed(&error).code(), code, "{error}");
        }
    }
}
