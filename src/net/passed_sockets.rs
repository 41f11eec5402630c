//! Sockets that a supervisor has opened for us (systemd.socket(5), `LISTEN_FDS`). Ports below 1024 then need no
//! privilege, and clients that connect during a restart wait in the kernel's queue.
//!
//! The configuration still says where to listen. A socket that was passed for that address is used instead of a new
//! one.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// The passed sockets that are not in use yet.
#[derive(Debug, Default)]
pub struct PassedSockets(Mutex<Vec<std::net::TcpListener>>);

impl PassedSockets {
    /// Returns the sockets passed to this process. Call it once, at the start: it removes the environment variables.
    ///
    /// # Errors
    /// One of them is not a listening TCP socket.
    pub fn to_process() -> io::Result<Self> {
        let mut handed = ListenFd::from_env();
        let sockets: io::Result<Vec<_>> = (0..handed.len()).map(|at| handed.take_tcp_listener(at)).collect();
        Ok(Self(Mutex::new(sockets?.into_iter().flatten().collect())))
    }

    /// Returns the addresses of unused sockets that are not among `wanted`.
    pub fn beside(&self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        let addresses = self.open().iter().filter_map(|socket| socket.local_addr().ok()).collect::<Vec<_>>();
        addresses.into_iter().filter(|address| !wanted.contains(address)).collect()
    }

    /// Returns a socket that listens at `address`: the passed one, or else a new one.
    ///
    /// # Errors
    /// Errors of binding.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        match self.take(address) {
            Some(socket) => {
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket)
            }
            None => TcpListener::bind(address).await,
        }
    }

    fn take(&self, address: SocketAddr) -> Option<std::net::TcpListener> {
        let mut open = self.open();
        let at = open.iter().position(|socket| socket.local_addr().is_ok_and(|own| own == address))?;
        Some(open.swap_remove(at))
    }

    fn open(&self) -> MutexGuard<'_, Vec<std::net::TcpListener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_passed_socket_is_used_instead_of_a_new_one() {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let handed = PassedSockets(Mutex::new(vec![socket]));
        assert_eq!(handed.beside(&[elsewhere]), [address]);
        assert!(handed.beside(&[address]).is_empty());
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_ne!(handed.listen(free).await.unwrap().local_addr().unwrap(), address);
        let taken = handed.listen(address).await.unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        assert!(handed.beside(&[]).is_empty());
        assert!(handed.listen(address).await.is_err(), "a socket is returned only once");
    }
}
