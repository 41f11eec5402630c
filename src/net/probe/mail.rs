//! Probes whether a mail server is reachable: connects and reads the greeting, nothing more.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

/// Maximum length of a reply line in bytes (RFC 5321 4.5.3.1.5).
const LINE_BYTES: usize = 512;

/// Returns the greeting of the server at `address` without its line end. Connects from `source`, if given.
///
/// # Errors
/// Errors of the connection; `TimedOut` after `max_wait`.
pub async fn greeting(address: SocketAddr, source: Option<IpAddr>, max_wait: Duration) -> io::Result<String> {
    timeout(max_wait, greeted(address, source)).await?
}

async fn greeted(address: SocketAddr, source: Option<IpAddr>) -> io::Result<String> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let mut stream = socket.connect(address).await?;
    let mut line = Vec::new();
    while line.len() < LINE_BYTES && !line.ends_with(b"\n") {
        match stream.read_u8().await {
            Ok(byte) => line.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    // QUIT is a courtesy; its answer does not matter.
    let _said = stream.write_all(b"QUIT\r\n").await;
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn listening(greeting: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting).await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn a_greeting_is_one_line_and_a_silent_server_times_out() {
        let address = listening(b"220 mx.test ESMTP\r\n250 more\r\n").await;
        let max_wait = Duration::from_secs(20);
        assert_eq!(greeting(address, None, max_wait).await.unwrap(), "220 mx.test ESMTP");
        let silent = listening(b"").await;
        let waited = greeting(silent, Some(IpAddr::from([127, 0, 0, 1])), Duration::from_millis(20)).await;
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
