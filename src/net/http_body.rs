//! The body of an answer: a complete buffer, or a stream (server-sent events).
//!
//! An enum instead of a boxed trait, because nearly every answer is a few hundred bytes and needs no extra allocation.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A stream of body frames of unknown length.
pub type BodyStream = Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = io::Error> + Send>>;

/// Body of an answer.
pub enum Body {
    /// A complete body; empty after its only frame was read.
    Whole(Bytes),
    /// Frames that arrive over time. An error closes the connection, so that no client mistakes a part for the whole.
    Stream(BodyStream),
}

impl Body {
    /// Returns an empty body.
    pub const fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// Returns the length in bytes, if known.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Whole(bytes) => Some(bytes.len()),
            Self::Stream(_) => None,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(stream) => stream.size_hint(),
        }
    }
}
