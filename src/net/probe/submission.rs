//! Probes a submission listener as a client would: greeting, TLS, certificate, and whether AUTH is offered in clear
//! text. It does not log in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::net::plain_error::plain_error;
use crate::net::tls;

/// Maximum size of one answer in bytes.
const ANSWER_BYTES: usize = 8 * 1024;

/// A listener to probe.
pub struct SubmissionHost<'a> {
    /// The name that the server's certificate must match.
    pub name: &'a str,
    /// Address of the listener.
    pub address: SocketAddr,
    /// Whether TLS starts with the first byte.
    pub is_implicit: bool,
}

/// The fault of a listener.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionFault {
    /// The connection fails.
    #[error("cannot connect to {0}: {1}")]
    Unreachable(SocketAddr, String),
    /// The listener sends no greeting, or an answer that is not SMTP.
    #[error("{0} does not answer as an SMTP server: {1}")]
    NotSmtp(SocketAddr, String),
    /// The listener does not offer STARTTLS.
    #[error("{0} does not offer STARTTLS")]
    NoTls(SocketAddr),
    /// The listener offers AUTH before STARTTLS.
    #[error("{0} offers AUTH without TLS")]
    ClearAuth(SocketAddr),
    /// The handshake failed, or the certificate does not verify.
    #[error("TLS with {0} failed: {1}")]
    Tls(SocketAddr, String),
}

/// Probes `host`, whose certificate must verify against `roots`.
///
/// # Errors
/// The first error found.
pub async fn look(host: &SubmissionHost<'_>, roots: RootCertStore, max_wait: Duration) -> Result<(), SubmissionFault> {
    let silent = || SubmissionFault::NotSmtp(host.address, format!("no answer within {} s", max_wait.as_secs()));
    let connecting = timeout(max_wait, TcpStream::connect(host.address)).await;
    let stream = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let stream = stream.map_err(|error| SubmissionFault::Unreachable(host.address, plain_error(error)))?;
    timeout(max_wait, talk(host, stream, roots)).await.map_err(|_| silent())?
}

async fn talk(host: &SubmissionHost<'_>, mut stream: TcpStream, roots: RootCertStore) -> Result<(), SubmissionFault> {
    if host.is_implicit {
        let mut stream = secured(host, stream, roots).await?;
        return expect(host, &mut stream, "", "220").await.map(drop);
    }
    expect(host, &mut stream, "", "220").await?;
    let offered = expect(host, &mut stream, "EHLO doctor.invalid\r\n", "250").await?;
    let offers = |keyword: &str| offered.lines().any(|line| line.get(4..).is_some_and(|text| is(text, keyword)));
    if offers("AUTH") {
        return Err(SubmissionFault::ClearAuth(host.address));
    }
    if !offers("STARTTLS") {
        return Err(SubmissionFault::NoTls(host.address));
    }
    expect(host, &mut stream, "STARTTLS\r\n", "220").await?;
    let mut stream = secured(host, stream, roots).await?;
    expect(host, &mut stream, "EHLO doctor.invalid\r\n", "250").await.map(drop)
}

/// Returns whether a line of the EHLO answer names this extension.
fn is(text: &str, keyword: &str) -> bool {
    text.split(' ').next().is_some_and(|first| first.eq_ignore_ascii_case(keyword))
}

async fn secured(
    host: &SubmissionHost<'_>,
    stream: TcpStream,
    roots: RootCertStore,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, SubmissionFault> {
    let fault = |why: String| SubmissionFault::Tls(host.address, why);
    let name = ServerName::try_from(host.name.to_owned()).map_err(|error| fault(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(tls::client_config(roots, &[])));
    connector.connect(name, stream).await.map_err(|error| fault(plain_error(error)))
}

/// Sends `line` and reads a whole answer, which must begin with `code`.
async fn expect<S: AsyncRead + AsyncWrite + Unpin>(
    host: &SubmissionHost<'_>,
    stream: &mut S,
    line: &str,
    code: &str,
) -> Result<String, SubmissionFault> {
    let fault = |why: String| SubmissionFault::NotSmtp(host.address, why);
    stream.write_all(line.as_bytes()).await.map_err(|error| fault(plain_error(error)))?;
    let answer = answer(stream).await.map_err(|error| fault(plain_error(error)))?;
    if answer.starts_with(code) { Ok(answer) } else { Err(fault(answer.trim_end().to_owned())) }
}

/// Reads the lines of an answer. The last line has no hyphen after its code.
async fn answer<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<String> {
    let (mut text, mut line) = (Vec::new(), 0);
    while text.len() < ANSWER_BYTES {
        text.push(stream.read_u8().await?);
        if text.ends_with(b"\n") {
            if text.get(line + 3) != Some(&b'-') {
                break;
            }
            line = text.len();
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Probes a server that sends these answers, one per line that it reads.
    async fn found(answers: &'static [&'static str]) -> SubmissionFault {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in answers {
                stream.write_all(answer.as_bytes()).await.unwrap();
                let _ = stream.read(&mut [0; 512]).await;
            }
        });
        let host = SubmissionHost { name: "mail.example.com", address, is_implicit: false };
        look(&host, RootCertStore::empty(), Duration::from_secs(20)).await.unwrap_err()
    }

    #[tokio::test]
    async fn each_listener_fault_has_its_own_error() {
        assert!(matches!(found(&["554 no\r\n"]).await, SubmissionFault::NotSmtp(..)));
        assert!(matches!(found(&["220 hi\r\n", "250-a\r\n250 SIZE 1\r\n"]).await, SubmissionFault::NoTls(_)));
        let clear = found(&["220 hi\r\n", "250-a\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n"]).await;
        assert!(matches!(clear, SubmissionFault::ClearAuth(_)));
        let broken = found(&["220 hi\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n", "nonsense\r\n"]).await;
        assert!(matches!(broken, SubmissionFault::Tls(..)));
    }
}
