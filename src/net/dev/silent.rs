//! The simulator's `timeout`: sends a greeting, then nothing more, and hangs up after a while.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Maximum number of open silent connections. Further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 256;

/// The silent listener. It ends when it is dropped, since no client can lose anything.
pub(super) struct SilentListener {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl SilentListener {
    /// Listens at a loopback port that the system chooses. Each connection is closed after `max_wait` of real time.
    pub(super) async fn bind(greeting: &str, max_wait: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let greeting = format!("220 {greeting}\r\n").into();
        Ok(Self { address, accepting: tokio::spawn(accept(listener, greeting, max_wait)) })
    }

    pub(super) const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SilentListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, greeting: Arc<str>, max_wait: Duration) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let greeting = Arc::clone(&greeting);
        connections.spawn(async move {
            let _permit = permit;
            // Errors are ignored: no answer is sent either way.
            let _ = tokio::time::timeout(max_wait, keep_silent(stream, &greeting)).await;
        });
    }
}

/// Reads and discards the client's bytes, so that the close is orderly and not a reset.
async fn keep_silent(mut stream: TcpStream, greeting: &str) -> io::Result<()> {
    stream.write_all(greeting.as_bytes()).await?;
    let mut ignored = [0; 4096];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
