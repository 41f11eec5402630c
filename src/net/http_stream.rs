//! The stream under an HTTP connection: it updates the connection's [`Activity`], replays the bytes that were read to
//! detect the protocol, and ends where its guard finds an invalid byte.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_activity::Activity;
use super::http_guard::{Guard, POISON};

/// Answer to a request head that does not arrive in time. It does not answer a request, so it lacks the headers and the
/// body of other answers (contract 1).
const SLOW_HEAD: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// Read size of a guarded stream.
const GUARDED_READ: usize = 16 * 1024;

/// A stream with activity tracking and a guard.
pub(super) struct TrackedStream<S> {
    inner: TokioIo<S>,
    /// Bytes to return first: those already read, or [`POISON`].
    ready: Bytes,
    guard: Option<Guard>,
    /// Whether reading has ended.
    is_over: bool,
    activity: Arc<Activity>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(inner: S, prefix: Bytes, activity: Arc<Activity>, guard: Option<Guard>) -> Self {
        let mut watched = Self { inner: TokioIo::new(inner), ready: Bytes::new(), guard, is_over: false, activity };
        let good = watched.judge(&prefix);
        watched.ready = if watched.is_over { [&prefix[..good], POISON].concat().into() } else { prefix };
        watched
    }

    /// Returns the number of valid bytes. After the first invalid byte hyper reads [`POISON`] and nothing more.
    fn judge(&mut self, bytes: &[u8]) -> usize {
        match self.guard.as_mut().map(|guard| guard.judge(bytes)) {
            None | Some(Ok(())) => bytes.len(),
            Some(Err(good)) => {
                self.ready = Bytes::from_static(POISON);
                self.is_over = true;
                good
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TrackedStream<S> {
    /// Reads bytes that the guard lets pass, and returns their number.
    fn read_guarded(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBufCursor<'_>) -> Poll<io::Result<usize>> {
        // The beginning of this head may have arrived with the previous request.
        if self.guard.as_ref().is_some_and(Guard::is_in_head) {
            self.activity.has_read();
        }
        let mut space = [MaybeUninit::uninit(); GUARDED_READ];
        let room = buffer.remaining().min(GUARDED_READ);
        let mut read = ReadBuf::uninit(&mut space[..room]);
        ready!(Pin::new(self.inner.inner_mut()).poll_read(cx, &mut read))?;
        self.activity.has_read();
        let good = self.judge(read.filled());
        buffer.put_slice(&read.filled()[..good]);
        Poll::Ready(Ok(good))
    }

    /// Sends 408 as far as the socket accepts it without waiting: the client has had its time.
    fn refuse(&mut self, cx: &mut Context<'_>) -> io::Error {
        let _taken = Pin::new(&mut self.inner).poll_write(cx, SLOW_HEAD);
        let _flushed = Pin::new(&mut self.inner).poll_flush(cx);
        io::ErrorKind::TimedOut.into()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.activity.is_expired() {
            return Poll::Ready(Err(self.refuse(cx)));
        }
        if self.ready.is_empty() && !self.is_over {
            if self.guard.is_none() {
                let poll = Pin::new(&mut self.inner).poll_read(cx, buffer);
                if poll.is_ready() {
                    self.activity.has_read();
                }
                return poll;
            }
            let good = ready!(self.read_guarded(cx, &mut buffer))?;
            if good > 0 || !self.is_over {
                return Poll::Ready(Ok(()));
            }
        }
        let length = self.ready.len().min(buffer.remaining());
        buffer.put_slice(&self.ready[..length]);
        self.ready.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for TrackedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.activity.has_written(&poll);
        poll
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.activity.has_written(&poll);
        poll
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
