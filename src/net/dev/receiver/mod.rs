//! The built-in mail receiver of `dev`: two listeners, the simulator's decisions, and the capture of accepted mail.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::capture::Capture;
use super::reporter::{Kind, Reporter, Subject};
use super::routes::{DevRoutes, Scope};
use super::silent::SilentListener;
use super::simulator::{self, HOSTNAME, Outcome, Simulator};
use crate::engine::ports::BoxFuture;
use crate::engine::smtp_submission::Decision;
use crate::net::smtp_listener::{
    ConnectionCap, Deadlines, ListenerConfig, ListenerTls, MailHandler, MailService, SmtpListener,
};
use crate::smtp::server::{Answer, Path, ReceivedMessage, RecipientQuestion, ServerConfig, ServerKind};

const GREETING: &str = "mx.simulator.test ESMTP ready";
/// Maximum size of a message in bytes: above contract 3's 20 MiB, so that everything the service sends is accepted.
const SIZE_MAX: usize = 25 * 1024 * 1024;
/// Connection limit. All clients are this process, on one address, so the limit only guards against accidents.
const CONNECTIONS_MAX: usize = 1024;
/// Time after which `timeout` hangs up (contract 8).
const SILENCE: Duration = Duration::from_secs(2);

/// The running receiver.
pub struct DevReceiver {
    listener: SmtpListener,
    silent: SilentListener,
}

impl DevReceiver {
    /// Starts to receive at two loopback ports that the system chooses. Mail is stored in `capture`, and `reporter`
    /// sends the later reports of the simulator.
    ///
    /// # Errors
    /// Errors of binding.
    pub async fn start(capture: Arc<Capture>, reporter: Arc<Reporter>) -> io::Result<Self> {
        let service = Arc::new(Capturing { capture, simulator: Simulator::new(), reporter });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = SmtpListener::bind(address, listener_config(), Arc::new(service)).await?;
        let silent = SilentListener::bind(GREETING, SILENCE).await?;
        Ok(Self { listener, silent })
    }

    /// Returns the routes that lead mail to this receiver.
    pub const fn routes(&self, scope: Scope) -> DevRoutes {
        DevRoutes::new(scope, self.listener.local_addr(), self.silent.local_addr())
    }

    /// Stops. A message that is being received gets up to `grace` to finish.
    pub async fn shut_down(self, grace: Duration) {
        self.listener.shut_down(grace).await;
    }
}

fn listener_config() -> ListenerConfig {
    ListenerConfig {
        session: ServerConfig {
            hostname: HOSTNAME.to_owned(),
            greeting: GREETING.to_owned(),
            size_max: SIZE_MAX,
            recipients_max: 100,
            errors_max: 20,
            refusals_max: None,
            starttls: false,
            kind: ServerKind::Inbound,
        },
        gate: ConnectionCap::new(CONNECTIONS_MAX, CONNECTIONS_MAX),
        greeting_pause: Duration::ZERO,
        deadlines: Deadlines::default(),
        tls: ListenerTls::Off,
    }
}

struct Capturing {
    capture: Arc<Capture>,
    simulator: Simulator,
    reporter: Arc<Reporter>,
}

impl Capturing {
    /// Sends the report that the simulator makes later about mail to `recipient`.
    async fn report_on(&self, sender: &str, recipient: &Path, message: &[u8]) {
        let kind = match simulator::outcome_of(recipient.local(), recipient.domain()) {
            Some(Ok(Outcome::Complained)) => Kind::Complaint,
            Some(Ok(Outcome::LateBounce)) => Kind::LateBounce,
            Some(_) | None => return,
        };
        let turn = self.reporter.turn().await;
        let subject = Subject { mail_from: sender, recipient: &recipient.to_string(), message };
        self.reporter.report(turn, kind, &subject);
    }
}

/// The handler of one connection. All handlers share one state.
struct CapturingHandler(Arc<Capturing>);

impl MailService for Arc<Capturing> {
    fn connected(&self, _: SocketAddr) -> Box<dyn MailHandler> {
        Box::new(CapturingHandler(Self::clone(self)))
    }
}

impl MailHandler for CapturingHandler {
    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        let answer = self.0.simulator.answer(question.mail_from.as_ref(), &question.recipient);
        Box::pin(std::future::ready(answer))
    }

    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(async move {
            let ReceivedMessage { mail_from, recipients, bytes, .. } = message;
            let sender = mail_from.as_ref().map(Path::to_string).unwrap_or_default();
            let rcpt_to = recipients.iter().map(Path::to_string).collect::<Vec<_>>().join(", ");
            let (capture, bytes) = (Arc::clone(&self.0.capture), Arc::new(bytes));
            let (from, message) = (sender.clone(), Arc::clone(&bytes));
            let kept = tokio::task::spawn_blocking(move || capture.keep(from, rcpt_to, &message)).await;
            let answer = match kept.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                Ok(id) => {
                    self.0.simulator.taken(mail_from.as_ref(), &recipients);
                    for recipient in &recipients {
                        self.0.report_on(&sender, recipient, &bytes).await;
                    }
                    Answer::new(250, "2.0.0", format!("Ok: captured as {id}"))
                }
                Err(error) => {
                    tracing::error!(%error, "could not capture a message; the sender will retry");
                    Answer::new(451, "4.3.0", "The message could not be stored, try again later")
                }
            };
            Decision::Answer(answer)
        })
    }
}

#[cfg(test)]
mod tests;
