//! An account's events as Server-Sent Events (contract 4): the body of `GET /v1/events/stream`, and of the panel's
//! stream.
//!
//! Created by the handler, driven by the connection: the next page is read once the client has taken the previous one.
//! Comments and the `retry` hint have no blank line after them, since some clients treat every blank line as an event.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::engine::follow::{FollowedEvent, Follower, FollowerUpdate};

/// First line of a stream: the reconnect delay of clients in milliseconds.
const OPENING: &[u8] = b"retry: 3000\n";
const HEARTBEAT: &[u8] = b": nothing new\n";

/// Returns whether the client may continue, in addition to the follower's check of its key.
type StreamAccess = Box<dyn Fn() -> bool + Send>;

/// State of a stream: the follower, and the condition under which it continues.
struct StreamState {
    follower: Follower,
    is_allowed: StreamAccess,
}

/// Result of one step: the bytes to send and the next state; `None` at the end.
type StreamStep = io::Result<Option<(StreamState, Bytes)>>;

/// The body.
pub(crate) struct EventStream {
    step: Pin<Box<dyn Future<Output = StreamStep> + Send>>,
}

impl EventStream {
    /// Creates the stream of `follower`'s events.
    pub(super) fn new(follower: Follower) -> Self {
        Self::while_allowed(follower, || true)
    }

    /// Creates a stream that ends once `is_allowed` returns false. It is checked before each event is sent.
    pub(crate) fn while_allowed(follower: Follower, is_allowed: impl Fn() -> bool + Send + 'static) -> Self {
        let stream = StreamState { follower, is_allowed: Box::new(is_allowed) };
        Self { step: Box::pin(async { Ok(Some((stream, Bytes::from_static(OPENING)))) }) }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (next, frame) = match ready!(self.step.as_mut().poll(cx)) {
            Ok(Some((stream, bytes))) => (Some(stream), Some(Ok(Frame::data(bytes)))),
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error))),
        };
        self.step = match next {
            Some(stream) => Box::pin(step(stream)),
            None => Box::pin(async { Ok(None) }),
        };
        Poll::Ready(frame)
    }
}

async fn step(mut stream: StreamState) -> StreamStep {
    let update = stream.follower.next().await.map_err(|error| {
        tracing::error!(%error, "event stream failed because of the store; its client can reconnect");
        io::Error::other("the store failed")
    })?;
    if !(stream.is_allowed)() {
        return Ok(None);
    }
    Ok(match update {
        FollowerUpdate::Events(events) => Some((stream, written(&events))),
        FollowerUpdate::Quiet => Some((stream, Bytes::from_static(HEARTBEAT))),
        FollowerUpdate::End => None,
    })
}

/// Formats events. A record is JSON without line ends, so it is one `data` line.
fn written(events: &[FollowedEvent]) -> Bytes {
    let mut text = Vec::with_capacity(events.iter().map(|event| event.record.len() + 64).sum());
    for FollowedEvent { id, kind, record } in events {
        text.extend_from_slice(format!("id: {id}\nevent: {kind}\ndata: ").as_bytes());
        text.extend_from_slice(record);
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}
