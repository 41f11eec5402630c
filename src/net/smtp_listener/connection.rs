//! One accepted connection: moves bytes between socket and session, and passes the session's requests to the handler.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::gate::Place;
use super::progress::Progress;
use super::stream::ServerStream;
use super::{Deadlines, ListenerConfig, ListenerTls, MailHandler};
use crate::engine::ports::BoxFuture;
use crate::engine::smtp_submission::Decision;
use crate::smtp::server::{
    Answer, AwaitedInput, LoginQuestion, ReceivedMessage, RecipientQuestion, SenderQuestion, ServerAction,
    ServerConfig, ServerKind, ServerSession,
};

const READ_BYTES: usize = 16 * 1024;
/// Maximum number of bytes read and discarded after the last answer.
const LINGER_BYTES: usize = 1024 * 1024;
/// Time to write the last answer on a connection that lost its place.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection and everything needed to serve it.
pub(super) struct Connection {
    wire: ServerStream,
    peer: SocketAddr,
    place: Place,
    progress: Progress,
    is_evicted: bool,
    session: ServerSession,
    config: Arc<ListenerConfig>,
    handler: Box<dyn MailHandler>,
    stopped: watch::Receiver<Option<Duration>>,
    began: Instant,
    message: Option<Incoming>,
    buffer: Vec<u8>,
}

/// The message that is being received.
struct Incoming {
    began: Instant,
    /// Number of received bytes, stored or not.
    received: usize,
    /// Number of bytes with reserved memory.
    reserved: usize,
}

/// Result of a wait for bytes.
enum ReadResult {
    Bytes(usize),
    Closed,
    Nothing,
    Stopped,
    /// A new connection needs the place.
    Evicted,
    /// Another account needs the memory of the message.
    Revoked,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        place: Place,
        config: &Arc<ListenerConfig>,
        handler: Box<dyn MailHandler>,
        stopped: watch::Receiver<Option<Duration>>,
    ) -> Self {
        let rules = session_config(&config.session, &*handler);
        let session = match config.tls {
            ListenerTls::Implicit(_) => ServerSession::inside_tls(rules),
            ListenerTls::Off | ListenerTls::StartTls(_) => ServerSession::new(rules),
        };
        Self {
            wire: ServerStream::Plain(stream),
            peer,
            place,
            progress: Progress::new(Instant::now()),
            is_evicted: false,
            session,
            config: Arc::clone(config),
            handler,
            stopped,
            began: Instant::now(),
            message: None,
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn run(mut self) -> io::Result<()> {
        if matches!(self.config.tls, ListenerTls::Implicit(_)) {
            self = self.encrypted().await?;
        }
        self.wait_to_greet().await?;
        loop {
            // Thousands of pipelined commands may be here already, and other connections wait for this thread.
            tokio::task::consume_budget().await;
            let action = self.session.next_action();
            let refused = self.session.take_refused();
            if !refused.is_empty() {
                self.handler.on_refused(&refused);
            }
            match action {
                ServerAction::Write(bytes) => self.write(&bytes).await?,
                ServerAction::Read(awaiting) => {
                    if !self.read(awaiting).await? {
                        return Ok(());
                    }
                }
                ServerAction::CheckLogin(question) => self.log_in(question).await,
                ServerAction::AskSender(question) => self.ask_sender(question).await,
                ServerAction::AskRecipient(question) => self.ask_recipient(&question).await,
                ServerAction::AskData(size) => self.ask_for_memory(size),
                ServerAction::TakeMessage(message) => {
                    let decision = self.decide(message).await;
                    self.end_message();
                    match decision {
                        Some(Decision::Answer(answer)) => {
                            if answer.is_positive() {
                                self.progress.achieved(Instant::now());
                            }
                            self.session.answer_message(&answer);
                        }
                        Some(Decision::CloseWithoutAnswer) => self.session.abandon(),
                        None => self.leave_evicted(),
                    }
                }
                ServerAction::StartTls => {
                    self = self.encrypted().await?;
                    self.session.tls_established();
                }
                ServerAction::Close => return self.close().await,
            }
        }
    }

    /// Checks a login. The answer to a failed one is delayed, so that guessing is slow.
    async fn log_in(&mut self, question: LoginQuestion) {
        let answer = decided(&self.config, self.handler.on_login(question)).await;
        let answer = answer.unwrap_or_else(|| self.undecided());
        if answer.is_positive() {
            self.progress.achieved(Instant::now());
        } else {
            self.place.waits(self.progress.evictable_at(&self.config.deadlines));
            let pause = tokio::time::sleep(self.config.deadlines.failed_login);
            if self.place.unless_evicted(pause).await.is_err() {
                return self.leave_evicted();
            }
            self.place.works();
        }
        self.session.answer_login(&answer);
    }

    /// Lets the handler decide about a message. `None` if another connection took the place. That is possible only if
    /// decisions have a time limit: they may wait for a stranger's name server, and the client tries again.
    async fn decide(&mut self, message: ReceivedMessage) -> Option<Decision> {
        let Deadlines { decision: limit, deciding, .. } = self.config.deadlines;
        let Some(limit) = limit else { return Some(self.handler.on_message(message).await) };
        self.place.waits(Instant::now() + deciding);
        let decision = self.place.unless_evicted(timeout(limit, self.handler.on_message(message))).await;
        self.place.works();
        decision.ok().map(|in_time| in_time.unwrap_or_else(|_| Decision::Answer(self.undecided())))
    }

    async fn ask_sender(&mut self, question: SenderQuestion) {
        let answer = decided(&self.config, self.handler.on_sender(question)).await;
        let answer = answer.unwrap_or_else(|| self.undecided());
        self.session.answer_sender(&answer);
    }

    async fn ask_recipient(&mut self, question: &RecipientQuestion) {
        let answer = decided(&self.config, self.handler.on_recipient(question)).await;
        let answer = answer.unwrap_or_else(|| self.undecided());
        self.session.answer_recipient(&answer);
    }

    /// Reserves memory for the declared size before the message arrives. Undeclared bytes are reserved as they arrive.
    fn ask_for_memory(&mut self, size: usize) {
        if self.handler.reserve(size) {
            self.message = Some(Incoming { began: Instant::now(), received: 0, reserved: size });
            self.session.answer_data(None);
        } else {
            let text = "Too many messages in progress, try again later";
            self.session.answer_data(Some(&Answer::new(451, "4.3.2", text)));
        }
    }

    /// Takes bytes of a message. Every stored byte has reserved memory.
    fn receive_data(&mut self, count: usize) {
        let size_max = self.config.session.size_max;
        if let Some(message) = &mut self.message {
            message.received += count;
            if message.received <= size_max {
                self.progress.received(count, Instant::now());
            }
            let wanted = message.received.min(size_max);
            let more = wanted.saturating_sub(message.reserved);
            if more > 0 && self.handler.reserve(more) {
                message.reserved += more;
            } else if more > 0 {
                self.drop_message();
            }
            self.handler.on_data(count);
        }
        self.session.receive(&self.buffer[..count]);
    }

    /// Discards the message that is being received, whose memory is gone. Its end is answered with a refusal.
    fn drop_message(&mut self) {
        self.session.drop_message();
        self.handler.release();
        if let Some(message) = &mut self.message {
            message.reserved = usize::MAX;
        }
    }

    fn end_message(&mut self) {
        if self.message.take().is_some() {
            self.handler.release();
        }
    }

    /// Waits for the greeting pause. A client that sends bytes in it is an early talker, and the session's greeting
    /// says so.
    async fn wait_to_greet(&mut self) -> io::Result<()> {
        let pause = self.config.greeting_pause;
        if !pause.is_zero() {
            self.place.waits(self.progress.evictable_at(&self.config.deadlines));
            let read = self.place.unless_evicted(timeout(pause, self.wire.read(&mut self.buffer))).await?;
            self.place.works();
            if let Ok(count) = read {
                self.session.receive(&self.buffer[..count?]);
            }
        }
        Ok(())
    }

    fn undecided(&self) -> Answer {
        tracing::warn!(peer = %self.peer, "accepting a returned message timed out; its sender will retry");
        Answer::new(451, "4.3.0", "Try again later")
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.wire.write(bytes);
        if self.is_evicted {
            return timeout(FAREWELL, written).await?;
        }
        self.place.waits(self.progress.evictable_at(&self.config.deadlines));
        let written = self.place.unless_evicted(timeout(self.config.deadlines.write, written)).await?;
        self.place.works();
        written?
    }

    /// Reads for the session; false if the client has disconnected.
    async fn read(&mut self, awaiting: AwaitedInput) -> io::Result<bool> {
        if awaiting == AwaitedInput::Command {
            self.end_message();
        }
        match self.read_or_wait(awaiting).await? {
            ReadResult::Bytes(count) if awaiting == AwaitedInput::Data => self.receive_data(count),
            ReadResult::Bytes(count) => self.session.receive(&self.buffer[..count]),
            ReadResult::Closed => return Ok(false),
            ReadResult::Nothing => self.leave("4.4.2", "Waited too long"),
            ReadResult::Stopped => self.leave("4.3.2", "Shutting down"),
            ReadResult::Evicted => self.leave_evicted(),
            ReadResult::Revoked => self.drop_message(),
        }
        Ok(true)
    }

    /// Ends the session because a new connection has its place.
    fn leave_evicted(&mut self) {
        self.is_evicted = true;
        self.leave("4.7.0", "Too many connections, try again later");
    }

    fn leave(&mut self, enhanced: &'static str, reason: &str) {
        let text = format!("{} {reason}", self.config.session.hostname);
        self.session.end(&Answer::new(421, enhanced, text));
    }

    async fn read_or_wait(&mut self, awaiting: AwaitedInput) -> io::Result<ReadResult> {
        let deadline = self.deadline(awaiting);
        let stops = awaiting == AwaitedInput::Command;
        self.progress.in_transaction(self.session.recipients(), self.session.is_receiving(), Instant::now());
        self.place.waits(self.progress.evictable_at(&self.config.deadlines));
        let read = tokio::select! {
            biased;
            // A message that has begun is read to its end; a shutdown only interrupts waits for a command.
            _ = self.stopped.wait_for(Option::is_some), if stops => Ok(ReadResult::Stopped),
            // The deadline is checked before the read: a client that never pauses must not outlive its session's
            // deadline.
            () = tokio::time::sleep_until(deadline) => Ok(ReadResult::Nothing),
            () = self.place.evicted() => Ok(ReadResult::Evicted),
            () = self.handler.revoked(), if awaiting == AwaitedInput::Data => Ok(ReadResult::Revoked),
            read = self.wire.read(&mut self.buffer) => match read? {
                0 => Ok(ReadResult::Closed),
                count => Ok(ReadResult::Bytes(count)),
            },
        };
        self.place.works();
        read
    }

    /// Returns the earliest deadline of the wait: silence, session, message or login.
    fn deadline(&self, awaiting: AwaitedInput) -> Instant {
        let deadlines = &self.config.deadlines;
        let silence = match awaiting {
            AwaitedInput::Command => deadlines.command,
            AwaitedInput::Data => deadlines.data,
        };
        let message = self.message.as_ref().and_then(|message| Some(message.began + deadlines.message?));
        let login = deadlines.login.filter(|_| !self.session.is_logged_in()).map(|login| self.began + login);
        let all = [Some(Instant::now() + silence), Some(self.began + deadlines.session), message, login];
        all.into_iter().flatten().min().unwrap_or(self.began)
    }

    /// Performs the TLS handshake.
    async fn encrypted(mut self) -> io::Result<Self> {
        let (ListenerTls::StartTls(tls) | ListenerTls::Implicit(tls)) = &self.config.tls else {
            return Err(io::Error::other("STARTTLS without a certificate"));
        };
        let ServerStream::Plain(stream) = self.wire else { return Err(io::Error::other("STARTTLS inside TLS")) };
        let accepted = TlsAcceptor::from(tls.current()).accept(stream);
        let Deadlines { handshake, login, .. } = self.config.deadlines;
        let end = Instant::now() + handshake;
        let end = login.map_or(end, |login| end.min(self.began + login));
        self.place.waits(self.progress.evictable_at(&self.config.deadlines));
        let stream = self.place.unless_evicted(timeout_at(end, accepted)).await???;
        self.place.works();
        let version = stream.get_ref().1.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown");
        // rustls writes TLSv1_3.
        self.handler.on_tls(&version.replace('_', "."));
        self.wire = ServerStream::Tls(Box::new(stream));
        Ok(self)
    }

    async fn close(mut self) -> io::Result<()> {
        let drained = async {
            self.wire.shut_down().await?;
            let mut count_read = 0;
            while count_read < LINGER_BYTES {
                match self.wire.read(&mut self.buffer).await? {
                    0 => break,
                    count => count_read += count,
                }
            }
            Ok(())
        };
        // The session is over, so a new client may have the place at once.
        self.place.waits(Instant::now());
        self.place.unless_evicted(timeout(self.config.deadlines.linger, drained)).await?.unwrap_or(Ok(()))
    }
}

/// Returns the decision, if it is made in time.
async fn decided<T>(config: &ListenerConfig, decision: BoxFuture<'_, T>) -> Option<T> {
    match config.deadlines.decision {
        Some(deadline) => timeout(deadline, decision).await.ok(),
        None => Some(decision.await),
    }
}

/// Returns the configuration of a session, with the login rule of its client.
fn session_config(config: &ServerConfig, handler: &dyn MailHandler) -> ServerConfig {
    let mut config = config.clone();
    if let (ServerKind::Submission(rules), Some(login)) = (&mut config.kind, handler.login_rule()) {
        rules.login = login;
    }
    config
}
