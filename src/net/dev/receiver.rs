//! `dev`'s built-in receiver: both listeners, the simulator's decisions and the capture of what is taken.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::capture::Capture;
use super::routes::{DevRoutes, Scope};
use super::silent::SilentListener;
use super::simulator::Simulator;
use crate::engine::ports::BoxFuture;
use crate::net::smtp_listener::{Deadlines, ListenerConfig, MailHandler, SmtpListener};
use crate::smtp::server::{Answer, Path, ReceivedMessage, RecipientQuestion, ServerConfig};

const HOSTNAME: &str = "mx.simulator.test";
const GREETING: &str = "mx.simulator.test ESMTP ready";
/// Above contract 3's 20 MiB, so that whatever the service sends can be taken.
const SIZE_MAX: usize = 25 * 1024 * 1024;
/// All clients are our own on one address: the cap is there for accidents.
const CONNECTIONS_MAX: usize = 1024;
/// When `timeout` hangs up (contract 8).
const SILENCE: Duration = Duration::from_secs(2);

/// The running receiver.
pub struct DevReceiver {
    listener: SmtpListener,
    silent: SilentListener,
}

impl DevReceiver {
    /// Begins to receive at two loopback ports of the system's choice and to keep what comes in `capture`.
    ///
    /// # Errors
    /// Those of binding.
    pub async fn start(capture: Arc<Capture>) -> io::Result<Self> {
        let handler = Arc::new(CapturingHandler { capture, simulator: Simulator::new() });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = SmtpListener::bind(address, listener_config(), handler).await?;
        let silent = SilentListener::bind(GREETING, SILENCE).await?;
        Ok(Self { listener, silent })
    }

    /// How mail finds its way here.
    pub const fn routes(&self, scope: Scope) -> DevRoutes {
        DevRoutes::new(scope, self.listener.local_addr(), self.silent.local_addr())
    }

    /// Stops, giving a message that is coming in up to `grace`.
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
        },
        connections_max: CONNECTIONS_MAX,
        connections_max_per_address: CONNECTIONS_MAX,
        greeting_pause: Duration::ZERO,
        deadlines: Deadlines::default(),
        tls: None,
    }
}

struct CapturingHandler {
    capture: Arc<Capture>,
    simulator: Simulator,
}

impl MailHandler for CapturingHandler {
    fn on_recipient<'a>(&'a self, _: SocketAddr, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        let answer = self.simulator.answer(question.mail_from.as_ref(), &question.recipient);
        Box::pin(std::future::ready(answer))
    }

    fn on_message(&self, _: SocketAddr, message: ReceivedMessage) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let ReceivedMessage { mail_from, recipients, bytes, .. } = message;
            let sender = mail_from.as_ref().map(Path::to_string).unwrap_or_default();
            let rcpt_to = recipients.iter().map(Path::to_string).collect::<Vec<_>>().join(", ");
            let capture = Arc::clone(&self.capture);
            let kept = tokio::task::spawn_blocking(move || capture.keep(sender, rcpt_to, &bytes)).await;
            match kept.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                Ok(id) => {
                    self.simulator.taken(mail_from.as_ref(), &recipients);
                    Answer::new(250, "2.0.0", format!("Ok: captured as {id}"))
                }
                Err(error) => {
                    tracing::error!(%error, "a message could not be captured");
                    Answer::new(451, "4.3.0", "The message could not be kept, try again later")
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
