//! A part of the event log as a file of JSON lines, newest first: the bytes that were written once, read a few at a
//! time as the client takes them, so that a month of events costs the memory of one step.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::base::id::{AccountId, Ulid};
use crate::domain::session::SessionKey;
use crate::engine::Engine;
use crate::engine::events::EventFilter;
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;

/// Events that are read at once.
const STEP: usize = 200;

/// The body.
pub(super) struct EventExport {
    engine: Arc<Engine>,
    account: AccountId,
    /// The session of whoever asks: the file ends with it.
    session: SessionKey,
    filter: EventFilter,
    next: Next,
}

/// Where the file goes on.
enum Next {
    Newest,
    Before(Ulid),
    End,
}

impl EventExport {
    /// The events of an account that a filter lets through.
    pub(super) const fn new(engine: Arc<Engine>, account: AccountId, session: SessionKey, filter: EventFilter) -> Self {
        Self { engine, account, session, filter, next: Next::Newest }
    }

    fn step(&mut self) -> Result<Option<Bytes>, StoreError> {
        let before = match self.next {
            Next::Newest => None,
            Next::Before(id) => Some(id),
            Next::End => return Ok(None),
        };
        if !self.engine.is_signed_in(&self.session)? {
            return Ok(None);
        }
        let page = self.engine.events(self.account, self.filter, PageRequest { before, limit: STEP })?;
        self.next = page.next.map_or(Next::End, Next::Before);
        let mut lines = Vec::with_capacity(page.rows.iter().map(|event| event.len() + 1).sum());
        for event in &page.rows {
            lines.extend_from_slice(event);
            lines.push(b'\n');
        }
        Ok(Some(lines.into()))
    }
}

impl Body for EventExport {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match self.step() {
            Ok(Some(lines)) => Some(Ok(Frame::data(lines))),
            Ok(None) => None,
            Err(error) => {
                tracing::error!(%error, "the store failed an export of events");
                self.next = Next::End;
                Some(Err(io::Error::other("the store failed")))
            }
        })
    }
}
