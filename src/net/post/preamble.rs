//! Limit on the bytes that a receiver sends before the final head of its answer: interim answers (RFC 9110 15.2), which
//! hyper skips without a limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of interim answers to one request.
const INTERIM_MAX: usize = 16;
/// Maximum number of bytes before the final head.
const BYTES_MAX: usize = 64 * 1024;

/// Error: the receiver sent too much before the final head of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the receiver sent more than {INTERIM_MAX} interim answers or 64 KiB before its answer")]
pub(super) struct PreambleTooLong;

/// Counts bytes and interim answers before the final head of the answer to the current request.
#[derive(Debug, Default)]
pub(super) struct Preamble {
    is_awaited: AtomicBool,
    bytes: AtomicUsize,
    interim: AtomicUsize,
}

impl Preamble {
    /// Starts a request.
    pub(super) fn begin(&self) {
        self.bytes.store(0, Relaxed);
        self.interim.store(0, Relaxed);
        self.is_awaited.store(true, Relaxed);
    }

    /// Counts an interim answer.
    pub(super) fn count_interim(&self) {
        self.interim.fetch_add(1, Relaxed);
    }

    /// Ends the preamble: the final head arrived, or the request failed.
    ///
    /// # Errors
    /// Too much was sent before the final head.
    pub(super) fn end(&self) -> Result<(), PreambleTooLong> {
        self.is_awaited.store(false, Relaxed);
        if self.interim.load(Relaxed) > INTERIM_MAX { Err(PreambleTooLong) } else { Ok(()) }
    }

    /// Returns the number of bytes that may still be read before the final head. Unlimited after it.
    fn left(&self) -> usize {
        match (self.is_awaited.load(Relaxed), self.interim.load(Relaxed) > INTERIM_MAX) {
            (false, _) => usize::MAX,
            (true, true) => 0,
            (true, false) => BYTES_MAX.saturating_sub(self.bytes.load(Relaxed)),
        }
    }
}

/// A stream that stops reading when the preamble is too long.
pub(super) struct HeadLimited<S> {
    stream: S,
    preamble: Arc<Preamble>,
}

impl<S> HeadLimited<S> {
    pub(super) const fn new(stream: S, preamble: Arc<Preamble>) -> Self {
        Self { stream, preamble }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadLimited<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.preamble.left();
        if left == 0 {
            return Poll::Ready(Err(io::Error::other(PreambleTooLong)));
        }
        if left >= into.remaining() {
            let before = into.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(context, into);
            self.preamble.bytes.fetch_add(into.filled().len() - before, Relaxed);
            return read;
        }
        let mut part = ReadBuf::new(into.initialize_unfilled_to(left));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let length = part.filled().len();
        into.advance(length);
        self.preamble.bytes.fetch_add(length, Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadLimited<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
