//! One accepted connection: carries octets between the socket and the session, and questions to the handler.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{ListenerConfig, MailHandler};
use crate::engine::ports::BoxFuture;
use crate::smtp::server::{Answer, Awaiting, ServerAction, ServerSession};

const READ_OCTETS: usize = 16 * 1024;
/// How long a client is listened to after the last answer, so that the answer reaches it: closing a socket with
/// unread octets in it resets the connection and may take the answer away.
const LINGER: Duration = Duration::from_secs(1);
/// How much of its talk is heard out.
const LINGER_OCTETS: usize = 1024 * 1024;

/// A connection and all that it needs to be served.
pub(super) struct Connection {
    wire: Wire,
    peer: SocketAddr,
    session: ServerSession,
    config: Arc<ListenerConfig>,
    handler: Arc<dyn MailHandler>,
    stopped: watch::Receiver<Option<Duration>>,
    ends_at: Instant,
    buffer: Vec<u8>,
}

/// The connection's octets, before and after STARTTLS.
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How a wait for octets ended.
enum Heard {
    Octets(usize),
    Closed,
    Nothing,
    Stopped,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        config: &Arc<ListenerConfig>,
        handler: &Arc<dyn MailHandler>,
        stopped: watch::Receiver<Option<Duration>>,
    ) -> Self {
        Self {
            wire: Wire::Plain(stream),
            peer,
            session: ServerSession::new(config.session.clone()),
            config: Arc::clone(config),
            handler: Arc::clone(handler),
            stopped,
            ends_at: Instant::now() + config.deadlines.session,
            buffer: vec![0; READ_OCTETS],
        }
    }

    /// Serves the connection to its end.
    pub(super) async fn run(mut self) -> io::Result<()> {
        self.wait_to_greet().await?;
        loop {
            match self.session.next_action() {
                ServerAction::Write(octets) => self.write(&octets).await?,
                ServerAction::Read(awaiting) => {
                    if !self.read(awaiting).await? {
                        return Ok(());
                    }
                }
                ServerAction::AskRecipient(question) => {
                    let answer = self.decided(self.handler.on_recipient(self.peer, &question)).await;
                    self.session.answer_recipient(&answer);
                }
                ServerAction::TakeMessage(message) => {
                    let answer = self.decided(self.handler.on_message(self.peer, message)).await;
                    self.session.answer_message(&answer);
                }
                ServerAction::StartTls => self = self.secured().await?,
                ServerAction::Close => return self.close().await,
            }
        }
    }

    /// A client that speaks within the pause is an early talker, and the session greets it accordingly.
    async fn wait_to_greet(&mut self) -> io::Result<()> {
        let pause = self.config.greeting_pause;
        if !pause.is_zero()
            && let Ok(read) = timeout(pause, self.wire.read(&mut self.buffer)).await
        {
            let count = read?;
            self.session.receive(&self.buffer[..count]);
        }
        Ok(())
    }

    async fn decided(&self, decision: BoxFuture<'_, Answer>) -> Answer {
        timeout(self.config.deadlines.decision, decision).await.unwrap_or_else(|_| {
            tracing::warn!(peer = %self.peer, "no decision about incoming mail in time");
            Answer::new(451, "4.3.0", "Try again later")
        })
    }

    async fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        let written = async {
            match &mut self.wire {
                Wire::Plain(stream) => stream.write_all(octets).await,
                Wire::Tls(stream) => {
                    stream.write_all(octets).await?;
                    stream.flush().await
                }
            }
        };
        timeout(self.config.deadlines.write, written).await?
    }

    /// Reads for the session; false where the client is gone.
    async fn read(&mut self, awaiting: Awaiting) -> io::Result<bool> {
        match self.hear(awaiting).await? {
            Heard::Octets(count) => self.session.receive(&self.buffer[..count]),
            Heard::Closed => return Ok(false),
            Heard::Nothing => self.leave("4.4.2", "Waited too long"),
            Heard::Stopped => self.leave("4.3.2", "Shutting down"),
        }
        Ok(true)
    }

    fn leave(&mut self, enhanced: &'static str, reason: &str) {
        let text = format!("{} {reason}", self.config.session.hostname);
        self.session.end(&Answer::new(421, enhanced, text));
    }

    async fn hear(&mut self, awaiting: Awaiting) -> io::Result<Heard> {
        let patience = match awaiting {
            Awaiting::Command => self.config.deadlines.command,
            Awaiting::Data => self.config.deadlines.data,
        };
        let deadline = (Instant::now() + patience).min(self.ends_at);
        let stops = awaiting == Awaiting::Command;
        tokio::select! {
            biased;
            // A message that has begun is read to its end; between commands a shutdown is told.
            _ = self.stopped.wait_for(Option::is_some), if stops => Ok(Heard::Stopped),
            // Before the octets: a client that never pauses does not outlive its session's deadline.
            () = tokio::time::sleep_until(deadline) => Ok(Heard::Nothing),
            read = self.wire.read(&mut self.buffer) => match read? {
                0 => Ok(Heard::Closed),
                count => Ok(Heard::Octets(count)),
            },
        }
    }

    async fn secured(mut self) -> io::Result<Self> {
        let (Wire::Plain(stream), Some(tls)) = (self.wire, &self.config.tls) else {
            return Err(io::Error::other("STARTTLS without a certificate or for a second time"));
        };
        let accepted = TlsAcceptor::from(tls.current()).accept(stream);
        let stream = timeout(self.config.deadlines.handshake, accepted).await??;
        self.wire = Wire::Tls(Box::new(stream));
        self.session.tls_established();
        Ok(self)
    }

    async fn close(mut self) -> io::Result<()> {
        let heard_out = async {
            self.wire.shut_down().await?;
            let mut heard = 0;
            while heard < LINGER_OCTETS {
                match self.wire.read(&mut self.buffer).await? {
                    0 => break,
                    count => heard += count,
                }
            }
            Ok(())
        };
        timeout(LINGER, heard_out).await.unwrap_or(Ok(()))
    }
}

impl Wire {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer).await,
            Self::Tls(stream) => stream.read(buffer).await,
        }
    }

    async fn shut_down(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }
}
