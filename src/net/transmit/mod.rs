//! Mail sessions over TCP: implements the engine's [`Transmit`] with the SMTP client machine.
//!
//! Without a policy, TLS is opportunistic: STARTTLS is used if it is offered, with any certificate. A server whose TLS
//! turns out to be broken is tried again in clear text at once, and only in clear text for the next hour. Under a
//! policy, a session either meets it or fails.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::broken_tls::BrokenTls;
use super::mail_tls::MailTls;
use super::plain_error::plain_error;
use super::smtp_session::{ClientStream, Driver, SmtpSession};
use crate::engine::ports::{BoxFuture, Session, Target, Transmit};
use crate::smtp::client::{Client, ClientAction, Settings, StartTls};
use crate::smtp::outcome::{Ending, Outcome, Phase};
use crate::smtp::tls_policy::{TlsFault, TlsRequirement};
use crate::smtp::transcript::Transcript;

mod submit;

/// Opens sessions with mail servers.
#[derive(Debug)]
pub struct Transmitter {
    tls: MailTls,
    broken: BrokenTls,
}

impl Transmitter {
    /// Creates a transmitter that verifies certificates against `roots`. Without roots no certificate verifies, which
    /// the opportunistic policy allows.
    ///
    /// # Errors
    /// TLS can't be set up at all.
    pub fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        Ok(Self { tls: MailTls::new(roots)?, broken: BrokenTls::default() })
    }

    async fn open(&self, target: &Target) -> Result<Box<dyn Session>, Outcome> {
        match target.tls {
            TlsRequirement::Opportunistic => self.open_somehow(target).await,
            TlsRequirement::Pkix | TlsRequirement::Dane(_) => self.open_with(target, StartTls::Required).await,
        }
    }

    async fn open_somehow(&self, target: &Target) -> Result<Box<dyn Session>, Outcome> {
        if self.broken.has(&target.host, Instant::now()) {
            return self.open_with(target, StartTls::Never).await;
        }
        match self.open_with(target, StartTls::WhereOffered).await {
            Err(outcome) if is_broken_tls(&outcome) => {
                tracing::info!(host = %target.host, ending = ?outcome.ending, "TLS failed; sending unencrypted");
                self.broken.add(&target.host, Instant::now());
                self.open_with(target, StartTls::Never).await
            }
            opened => opened,
        }
    }

    async fn open_with(&self, target: &Target, starttls: StartTls) -> Result<Box<dyn Session>, Outcome> {
        self.open_over(target, starttls, &self.tls.config).await
    }

    /// Opens a session in clear text, and secures it with `config` as `starttls` requires.
    async fn open_over(
        &self,
        target: &Target,
        starttls: StartTls,
        config: &Arc<ClientConfig>,
    ) -> Result<Box<dyn Session>, Outcome> {
        let mut socket = dial(target).await.map_err(|ending| failed_to_connect(target, ending))?;
        let mut driver = Driver::new(Client::new(settings(target, starttls), Duration::ZERO));
        driver.drive(&mut socket).await;
        let wire = match driver.client.want() {
            ClientAction::Handshake => self.secure(&mut driver, socket, target, config).await,
            ClientAction::Ready
            | ClientAction::Body
            | ClientAction::Finished
            | ClientAction::Read
            | ClientAction::Write => Some(ClientStream::Clear(socket)),
        };
        opened(driver, wire, target)
    }

    /// Performs the handshake and continues to the second EHLO. On failure the machine has the outcome.
    async fn secure(
        &self,
        driver: &mut Driver,
        socket: TcpStream,
        target: &Target,
        config: &Arc<ClientConfig>,
    ) -> Option<ClientStream> {
        let name = server_name(target);
        if target.tls == TlsRequirement::Pkix && !matches!(name, ServerName::DnsName(_)) {
            // The address comes from DNS, which such a policy does not trust.
            let why = format!("{} is not a name that a certificate can prove", target.host);
            driver.client.untrusted(TlsFault::CertificateHostMismatch, &why);
            return None;
        }
        let connector = TlsConnector::from(Arc::clone(config));
        let mut stream: TlsStream<TcpStream> =
            match timeout_at(driver.due(), connector.connect(name.clone(), socket)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(fault)) => {
                    driver.client.handshake_failed(&plain_error(fault));
                    return None;
                }
                Err(_) => {
                    driver.client.deadline_passed();
                    return None;
                }
            };
        let facts = match self.tls.facts(stream.get_ref().1, &name, &target.tls) {
            Ok(facts) => facts,
            Err((fault, why)) => {
                driver.client.untrusted(fault, &why);
                return None;
            }
        };
        let now = driver.now();
        driver.client.secured(facts, now);
        driver.drive(&mut stream).await;
        Some(ClientStream::Secured(Box::new(stream)))
    }
}

impl Transmit for Transmitter {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        match &target.submission {
            Some(submission) => Box::pin(self.submit(target, submission.security)),
            None => Box::pin(self.open(target)),
        }
    }
}

/// Returns whether TLS was the only cause of the failure. With TLS 1.3 a server's alert arrives only after the
/// handshake, in place of its answer to EHLO.
const fn is_broken_tls(outcome: &Outcome) -> bool {
    match (outcome.phase, &outcome.ending) {
        (
            _,
            Ending::PolicyFailed { .. }
            | Ending::Answered(_)
            | Ending::Loop
            | Ending::TooLarge { .. }
            | Ending::NeedsSmtpUtf8,
        ) => false,
        (Phase::StartTls, _) => true,
        (Phase::Ehlo, Ending::Closed(_)) => outcome.tls.is_some(),
        (_, Ending::TlsFailed(_)) => true,
        (_, Ending::Unreachable(_) | Ending::Unusable(_)) => false,
        (_, Ending::TimedOut | Ending::Closed(_) | Ending::Unreadable(_)) => false,
    }
}

fn settings(target: &Target, starttls: StartTls) -> Settings {
    Settings {
        ehlo: target.ehlo.clone(),
        peer: Some(target.address.ip()),
        deadlines: target.deadlines,
        loop_check: target.loop_check,
        starttls,
        login: target.submission.as_ref().and_then(|submission| submission.login.clone()),
    }
}

/// Returns the name that the certificate must match. A server without a valid name is verified by its address.
fn server_name(target: &Target) -> ServerName<'static> {
    let by_address = || ServerName::IpAddress(target.address.ip().into());
    ServerName::try_from(target.host.to_string()).unwrap_or_else(|_| by_address())
}

async fn dial(target: &Target) -> Result<TcpStream, Ending> {
    let socket = socket(target.address, target.source)?;
    match timeout(target.deadlines.connect, connect(socket, target.address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(fault)) => Err(Ending::Unreachable(plain_error(fault))),
        Err(_) => Err(Ending::TimedOut),
    }
}

/// Creates a socket for `address`, bound to `source` if given.
fn socket(address: SocketAddr, source: Option<IpAddr>) -> Result<TcpSocket, Ending> {
    let made = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = made.map_err(|fault| Ending::Unreachable(plain_error(fault)))?;
    let Some(source) = source else { return Ok(socket) };
    match socket.bind(SocketAddr::new(source, 0)) {
        Ok(()) => Ok(socket),
        Err(fault) => Err(Ending::Unusable(format!("cannot send from {source}: {}", plain_error(fault)))),
    }
}

async fn connect(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = socket.connect(address).await?;
    // Each write is a whole step of the dialogue, so Nagle's algorithm would only add delay.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the session, or the outcome that the machine has recorded.
#[expect(clippy::result_large_err, reason = "there is one for each session, and it is moved once")]
fn opened(mut driver: Driver, wire: Option<ClientStream>, target: &Target) -> Result<Box<dyn Session>, Outcome> {
    match (driver.client.take_outcome(), wire) {
        (None, Some(wire)) => Ok(Box::new(SmtpSession { driver, wire })),
        (Some(outcome), _) => Err(outcome),
        (None, None) => Err(failed_to_connect(target, Ending::TlsFailed("no handshake".to_owned()))),
    }
}

fn failed_to_connect(target: &Target, ending: Ending) -> Outcome {
    unopened(target, Phase::Connect, ending)
}

/// Returns the outcome of a session that could not be opened.
fn unopened(target: &Target, phase: Phase, ending: Ending) -> Outcome {
    let mut transcript = Transcript::default();
    transcript.ended(&ending);
    Outcome { phase, ending, peer: Some(target.address.ip()), tls: None, transcript }
}

#[cfg(test)]
mod tests;
