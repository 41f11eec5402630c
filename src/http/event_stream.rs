//! An account's events as Server-Sent Events (contract 4): the body of `GET /v1/events/stream`.
//!
//! Made by the events handler, driven by the connection: the next page is read when the client has taken the one
//! before. Comments and the `retry` hint are lines without a blank one behind them, since some readers take every blank
//! line for an event.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::engine::follow::{Followed, Follower, Told};

/// How long a client should wait before it comes again, in milliseconds.
const OPENING: &[u8] = b"retry: 3000\n";
const HEARTBEAT: &[u8] = b": nothing new\n";

/// What one step gives: the bytes to send, with the follower for the next step; nothing at the end.
type Stepped = io::Result<Option<(Follower, Bytes)>>;

/// The body.
pub(super) struct EventStream {
    step: Pin<Box<dyn Future<Output = Stepped> + Send>>,
}

impl EventStream {
    /// The stream of what `follower` is told.
    pub(super) fn new(follower: Follower) -> Self {
        Self { step: Box::pin(async { Ok(Some((follower, Bytes::from_static(OPENING)))) }) }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (next, told) = match ready!(self.step.as_mut().poll(cx)) {
            Ok(Some((follower, bytes))) => (Some(follower), Some(Ok(Frame::data(bytes)))),
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error))),
        };
        self.step = match next {
            Some(follower) => Box::pin(step(follower)),
            None => Box::pin(async { Ok(None) }),
        };
        Poll::Ready(told)
    }
}

async fn step(mut follower: Follower) -> Stepped {
    let told = follower.next().await.map_err(|error| {
        tracing::error!(%error, "the store failed an event stream");
        io::Error::other("the store failed")
    })?;
    Ok(match told {
        Told::Events(events) => Some((follower, written(&events))),
        Told::Quiet => Some((follower, Bytes::from_static(HEARTBEAT))),
        Told::End => None,
    })
}

/// The events as the format has them; a record is JSON without line ends, so it is one `data` line.
fn written(events: &[Followed]) -> Bytes {
    let mut text = Vec::with_capacity(events.iter().map(|event| event.record.len() + 64).sum());
    for Followed { id, kind, record } in events {
        text.extend_from_slice(format!("id: {id}\nevent: {kind}\ndata: ").as_bytes());
        text.extend_from_slice(record);
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}
