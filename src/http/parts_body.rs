//! A body that is produced in parts, each after the client has taken the previous one.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};

/// The source of the parts.
pub(crate) trait PartSource: Sized + Send + 'static {
    /// Produces the next part; `None` at the end. An error ends the connection, so that the client does not mistake an
    /// incomplete body for a complete one.
    fn next(self) -> impl Future<Output = io::Result<Option<(Self, Bytes)>>> + Send;
}

type Step<P> = Pin<Box<dyn Future<Output = io::Result<Option<(P, Bytes)>>> + Send>>;

/// The body.
pub(crate) struct PartsBody<P>(Step<P>);

impl<P: PartSource> PartsBody<P> {
    /// Creates a body that starts with `first` and continues with `parts`.
    pub(crate) fn new(first: Bytes, parts: P) -> Self {
        Self(Box::pin(async { Ok(Some((parts, first))) }))
    }
}

impl<P: PartSource> Body for PartsBody<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let (next, part) = match ready!(self.0.as_mut().poll(cx)) {
            Ok(Some((parts, bytes))) => (Some(parts), Some(Ok(Frame::data(bytes)))),
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error))),
        };
        self.0 = match next {
            Some(parts) => Box::pin(parts.next()),
            None => Box::pin(async { Ok(None) }),
        };
        Poll::Ready(part)
    }
}
