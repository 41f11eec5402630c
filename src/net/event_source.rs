//! Client of `GET /v1/events/stream` (contract 4): follows a service's event log over the operator's socket or over the
//! API, for `postrider webhook listen`.
//!
//! It limits what it reads, though only our own services write it. It never reconnects: the caller knows the last
//! event, and when to try again.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, RequestBuilder, Response};
use tokio::time::timeout;
use url::Url;

use super::tls;
use crate::base::secret::Secret;

const PATH: &str = "/v1/events/stream";
/// Time limit for connecting and reading the head of the answer.
const OPENING: Duration = Duration::from_secs(10);
/// Maximum silence of a stream. A service sends something every 15 s, so a stream that is silent for longer is lost.
const SILENCE: Duration = Duration::from_secs(45);
/// Maximum size of one event in bytes, far above any record.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// Maximum number of bytes read of an error answer.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The interface over which the service is reached.
#[derive(Debug, Clone)]
pub enum EventSourceAddress {
    /// The operator's socket, for one account.
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The account whose events are followed.
        account: String,
    },
    /// The API.
    Api {
        /// Base URL.
        base: Url,
        /// A key with the scope `read`.
        key: Secret,
    },
}

/// Reasons why no event arrives.
#[derive(Debug, thiserror::Error)]
pub enum SourceFault {
    /// The connection failed or has ended.
    #[error("{0}")]
    Lost(String),
    /// The service answered with an error.
    #[error("the service answered with status {status}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The body, an error record.
        body: Bytes,
    },
}

/// One event as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEvent {
    /// Event ID, from which a later stream can continue.
    pub id: String,
    /// Event type.
    pub kind: String,
    /// The record, byte for byte as the service stores it.
    pub record: Bytes,
}

/// A service whose events can be followed.
pub struct EventSource {
    client: Client,
    address: EventSourceAddress,
}

impl EventSource {
    /// Creates a source for the service behind `address`. It trusts the system's roots.
    ///
    /// # Errors
    /// The HTTP client can't be created.
    pub fn new(address: EventSourceAddress) -> Result<Self, SourceFault> {
        let roots = tls::trusted_roots(None).map_err(|fault| SourceFault::Lost(fault.to_string()))?;
        let builder = Client::builder()
            .tls_backend_preconfigured(tls::client_config(roots, &["http/1.1"]))
            .http1_only()
            .redirect(reqwest::redirect::Policy::none());
        let builder = match &address {
            EventSourceAddress::Socket { path, .. } => builder.no_proxy().unix_socket(path.as_path()),
            EventSourceAddress::Api { .. } => builder,
        };
        let client = builder.build().map_err(|error| lost(&error))?;
        Ok(Self { client, address })
    }

    /// Starts to follow after the event `after`, or from now on.
    ///
    /// # Errors
    /// The stream can't be opened; the error says why.
    pub async fn open(&self, after: Option<&str>) -> Result<OpenStream, SourceFault> {
        let mut request = self.request()?;
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let answer = timeout(OPENING, request.send()).await;
        let response = answer.map_err(|_| SourceFault::Lost("no answer within 10 s".to_owned()))?;
        let response = response.map_err(|error| lost(&error))?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(refusal(response).await);
        }
        let place = response.headers().get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        Ok(OpenStream { response, lines: Lines::default(), place })
    }

    fn request(&self) -> Result<RequestBuilder, SourceFault> {
        Ok(match &self.address {
            EventSourceAddress::Socket { account, .. } => {
                self.client.get(format!("http://localhost{PATH}")).header("x-postrider-account", account)
            }
            EventSourceAddress::Api { base, key } => {
                let url = base.join(PATH).map_err(|error| SourceFault::Lost(error.to_string()))?;
                self.client.get(url).bearer_auth(key.expose_text())
            }
        })
    }
}

async fn refusal(mut response: Response) -> SourceFault {
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX {
        let Ok(Ok(Some(chunk))) = timeout(OPENING, response.chunk()).await else { break };
        body.extend_from_slice(&chunk);
    }
    SourceFault::Refused { status: response.status().as_u16(), body: body.into() }
}

/// The innermost cause has the most information.
fn lost(error: &reqwest::Error) -> SourceFault {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    SourceFault::Lost(cause.to_string())
}

/// An open stream.
pub struct OpenStream {
    response: Response,
    lines: Lines,
    place: Option<String>,
}

impl OpenStream {
    /// Returns the event ID after which the stream starts, for a stream that is lost before its first event.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// The stream has ended or is malformed.
    pub async fn next(&mut self) -> Result<SourceEvent, SourceFault> {
        loop {
            if let Some(event) = self.lines.event()? {
                return Ok(event);
            }
            let chunk = timeout(SILENCE, self.response.chunk()).await;
            let chunk = chunk.map_err(|_| SourceFault::Lost("no data for 45 s".to_owned()))?;
            let chunk = chunk.map_err(|error| lost(&error))?;
            self.lines.bytes.extend_from_slice(&chunk.ok_or_else(|| SourceFault::Lost("the stream ended".to_owned()))?);
        }
    }
}

/// Buffer for the part of the stream that is not a whole event yet (WHATWG HTML 9.2, as far as our services use it: LF
/// only, one `data` line per event).
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Number of `bytes` already searched.
    seen: usize,
    id: Option<String>,
    kind: Option<String>,
    record: Option<Bytes>,
}

impl Lines {
    /// Returns the first whole event in the buffer.
    fn event(&mut self) -> Result<Option<SourceEvent>, SourceFault> {
        while let Some(length) = self.bytes[self.seen..].iter().position(|byte| *byte == b'\n') {
            let line = self.seen..self.seen + length;
            self.seen = line.end + 1;
            if line.is_empty() {
                if let Some(event) = self.whole() {
                    self.bytes.drain(..self.seen);
                    self.seen = 0;
                    return Ok(Some(event));
                }
            } else {
                self.field(line);
            }
        }
        // Scanned bytes are dropped, so that comments use no memory.
        self.bytes.drain(..self.seen);
        self.seen = 0;
        if self.bytes.len() > EVENT_BYTES_MAX {
            return Err(SourceFault::Lost("the answer is not an event stream".to_owned()));
        }
        Ok(None)
    }

    fn field(&mut self, line: std::ops::Range<usize>) {
        let line = &self.bytes[line];
        let text = |value: &[u8]| Some(String::from_utf8_lossy(value).into_owned());
        if let Some(value) = line.strip_prefix(b"id: ") {
            self.id = text(value);
        } else if let Some(value) = line.strip_prefix(b"event: ") {
            self.kind = text(value);
        } else if let Some(value) = line.strip_prefix(b"data: ") {
            self.record = Some(Bytes::copy_from_slice(value));
        }
    }

    fn whole(&mut self) -> Option<SourceEvent> {
        let (id, kind, record) = (self.id.take(), self.kind.take(), self.record.take());
        Some(SourceEvent { id: id?, kind: kind?, record: record? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"retry: 3000\n: nothing new\nid: evt_1\nevent: queued\ndata: {\"a\":\"\xc3\xa4: b\"}\n\n\
        : nothing new\nid: evt_2\nevent: delivered\ndata: {}\n\n";

    fn events(lines: &mut Lines) -> Vec<SourceEvent> {
        std::iter::from_fn(|| lines.event().unwrap()).collect()
    }

    fn expected() -> Vec<SourceEvent> {
        let event = |id: &str, kind: &str, record: &'static str| SourceEvent {
            id: id.to_owned(),
            kind: kind.to_owned(),
            record: record.into(),
        };
        vec![event("evt_1", "queued", "{\"a\":\"\u{e4}: b\"}"), event("evt_2", "delivered", "{}")]
    }

    #[test]
    fn events_are_parsed_however_the_stream_is_split() {
        let mut whole = Lines { bytes: STREAM.to_vec(), ..Lines::default() };
        assert_eq!(events(&mut whole), expected());
        for size in 1..STREAM.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in STREAM.chunks(size) {
                lines.bytes.extend_from_slice(chunk);
                seen.extend(events(&mut lines));
            }
            assert_eq!(seen, expected(), "in pieces of {size}");
            assert_eq!(lines.bytes.len(), 0);
        }
    }

    #[test]
    fn an_endless_event_ends_the_stream() {
        let mut lines = Lines { bytes: vec![b'x'; EVENT_BYTES_MAX + 1], ..Lines::default() };
        assert!(lines.event().is_err());
    }
}
