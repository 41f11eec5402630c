//! Drives the SMTP client machine over a socket: writes its output, passes received bytes to it, and enforces its
//! deadlines.

use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::plain_error::plain_error;
use crate::domain::event::TlsFacts;
use crate::engine::ports::{Body, BoxFuture, Session};
use crate::smtp::client::{Client, ClientAction};
use crate::smtp::outcome::{Ending, Envelope, Outcome, Phase};
use crate::smtp::tls_policy::TlsFault;
use crate::smtp::transcript::Transcript;

/// Read size in bytes: all answers of a pipelined exchange, with a margin.
const READ_BYTES: usize = 4 * 1024;
/// Time for which the reason is read from a server that closed the connection during a write.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The machine, the start of its clock, and its read buffer.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) client: Client,
    epoch: Instant,
    buffer: Box<[u8]>,
}

impl Driver {
    /// Creates a driver for `client`, which was created just now with time zero.
    pub(super) fn new(client: Client) -> Self {
        Self { client, epoch: Instant::now(), buffer: vec![0; READ_BYTES].into_boxed_slice() }
    }

    /// Returns the machine's time.
    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns the deadline of the machine's current request.
    pub(super) fn due(&self) -> Instant {
        self.epoch + self.client.due()
    }

    /// Writes and reads until the machine requests something else.
    pub(super) async fn drive<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S) {
        loop {
            match self.client.want() {
                ClientAction::Write => self.write(stream).await,
                ClientAction::Read => self.read(stream).await,
                ClientAction::Handshake | ClientAction::Body | ClientAction::Ready | ClientAction::Finished => return,
            }
        }
    }

    async fn write<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S) {
        let output = self.client.output();
        let written = timeout_at(self.due(), async {
            stream.write_all(output).await?;
            stream.flush().await
        });
        match written.await {
            Ok(Ok(())) => self.client.written(self.epoch.elapsed()),
            Ok(Err(fault)) => {
                let pending = timeout(LAST_WORDS, stream.read(&mut self.buffer)).await;
                let length = pending.ok().and_then(Result::ok).unwrap_or(0);
                self.client.write_failed(&self.buffer[..length], &plain_error(fault));
            }
            Err(_) => self.client.deadline_passed(),
        }
    }

    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) {
        match timeout_at(self.due(), stream.read(&mut self.buffer)).await {
            Ok(Ok(0)) => self.client.closed("the server closed the connection"),
            Ok(Ok(length)) => self.client.received(&self.buffer[..length], self.epoch.elapsed()),
            Ok(Err(fault)) => self.client.closed(&plain_error(fault)),
            Err(_) => self.client.deadline_passed(),
        }
    }
}

/// The connection under a session.
#[derive(Debug)]
pub(super) enum ClientStream {
    /// Clear text.
    Clear(TcpStream),
    /// Secured by STARTTLS.
    Secured(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Secured(stream) => stream.get_ref().0,
        }
    }

    /// Returns whether the server has sent something, or closed the connection, since the last answer. Does not wait.
    fn has_news(&self) -> bool {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        self.socket().poll_peek(&mut context, &mut ReadBuf::new(&mut byte)).is_ready()
    }
}

/// An open session.
#[derive(Debug)]
pub(super) struct SmtpSession {
    pub(super) driver: Driver,
    pub(super) wire: ClientStream,
}

impl SmtpSession {
    async fn drive(&mut self) {
        match &mut self.wire {
            ClientStream::Clear(socket) => self.driver.drive(socket).await,
            ClientStream::Secured(stream) => self.driver.drive(&mut **stream).await,
        }
    }

    async fn read_reset(&mut self) -> bool {
        self.drive().await;
        self.driver.client.is_reusable()
    }

    async fn transfer(&mut self, envelope: &Envelope, body: &mut dyn Body) -> Outcome {
        let now = self.driver.now();
        self.driver.client.begin(envelope, body.size(), now);
        self.drive().await;
        if self.driver.client.want() == ClientAction::Body {
            match body.read().await {
                Some(message) => self.driver.client.give_body(message, self.driver.now()),
                None => self.driver.client.body_missing(),
            }
            self.hand_over(body).await;
        }
        self.driver.client.take_outcome().unwrap_or_else(|| Outcome {
            phase: Phase::Rset,
            ending: Ending::Closed("the session had ended".to_owned()),
            peer: None,
            tls: None,
            transcript: Transcript::default(),
        })
    }

    /// Writes the message block by block, and asks `body` before the final dot.
    async fn hand_over(&mut self, body: &mut dyn Body) {
        while self.driver.client.want() == ClientAction::Write {
            if self.driver.client.is_at_dot() && !body.may_end().await {
                return self.driver.client.body_missing();
            }
            match &mut self.wire {
                ClientStream::Clear(socket) => self.driver.write(socket).await,
                ClientStream::Secured(stream) => self.driver.write(&mut **stream).await,
            }
        }
        self.drive().await;
    }

    async fn leave(mut self: Box<Self>) {
        let now = self.driver.now();
        self.driver.client.quit(now);
        self.drive().await;
        // The close_notify of TLS. No answer is expected.
        if let ClientStream::Secured(stream) = &mut self.wire {
            let _ = timeout_at(self.driver.due(), stream.shutdown()).await;
        }
    }
}

impl Session for SmtpSession {
    fn reset(&mut self) -> Option<BoxFuture<'_, bool>> {
        let now = self.driver.now();
        if self.driver.client.reset(now) { Some(Box::pin(self.read_reset())) } else { None }
    }

    fn send<'a>(&'a mut self, envelope: &'a Envelope, body: &'a mut dyn Body) -> BoxFuture<'a, Outcome> {
        Box::pin(self.transfer(envelope, body))
    }

    fn tls(&self) -> Result<&TlsFacts, TlsFault> {
        let client = &self.driver.client;
        client.tls().ok_or_else(|| client.fault_of_clear_text())
    }

    fn is_reusable(&self) -> bool {
        self.driver.client.is_reusable() && !self.wire.has_news()
    }

    fn quit(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(self.leave())
    }
}
