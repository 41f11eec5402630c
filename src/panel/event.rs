//! An event, parsed from its stored JSON, for the timeline and for lists.

use jiff::tz::TimeZone;
use serde::Deserialize;

use super::components::{Badge, excerpt};
use super::timestamp::{Days, Moment};
use crate::base::time::Timestamp;
use crate::domain::event::{Bounce, Complaint, EventType, TlsFacts};

/// An event as the panel shows it.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: EventType,
    pub(super) message_id: String,
    pub(super) to: String,
    pub(super) subject: Option<String>,
    #[serde(default)]
    pub(super) stream: String,
    pub(super) created_at: String,
    pub(super) attempt: Option<u32>,
    pub(super) smtp_code: Option<u16>,
    pub(super) smtp_enhanced_code: Option<String>,
    pub(super) smtp_response: Option<String>,
    pub(super) mx_host: Option<String>,
    pub(super) mx_ip: Option<String>,
    pub(super) relay: Option<String>,
    pub(super) tls: Option<TlsFacts>,
    pub(super) duration_ms: Option<u64>,
    pub(super) next_attempt_at: Option<String>,
    pub(super) bounce: Option<Bounce>,
    pub(super) complaint: Option<Complaint>,
}

impl Event {
    /// Parses an event. Returns `None` if its bytes are damaged; the page then skips it, and the log has an error.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes)
            .inspect_err(|error| tracing::error!(%error, "could not read an event; the page omits it"))
            .ok()
    }

    /// Returns the time of the event.
    pub(super) fn at(&self) -> Timestamp {
        self.created_at.parse().unwrap_or(Timestamp::ZERO)
    }

    /// Returns the recipient's domain.
    pub(super) fn receiver(&self) -> String {
        self.to.rsplit_once('@').map_or_else(|| self.to.clone(), |(_, domain)| domain.to_lowercase())
    }

    /// Returns the receiver's response, or our description if there was none.
    pub(super) fn answer(&self) -> &str {
        let ours = self.bounce.as_ref().map(|bounce| bounce.advice.as_str());
        self.smtp_response.as_deref().or(ours).unwrap_or_default()
    }
}

/// An event in a list.
pub(super) struct EventLine {
    /// Day heading, if this line is the first of its day.
    pub(super) day: Option<String>,
    /// Time of the event.
    pub(super) at: Moment,
    /// Type of the event.
    pub(super) badge: Badge,
    /// Path of the message page.
    pub(super) path: String,
    /// Recipient of the message.
    pub(super) to: String,
    /// Subject of the message.
    pub(super) subject: Option<String>,
    /// Attempt number, or an empty string if there was no attempt.
    pub(super) attempt: String,
    /// Beginning of the response.
    pub(super) answer: String,
}

impl EventLine {
    /// Converts events to list lines, in the same order.
    pub(super) fn list(events: Vec<Event>, zone: &TimeZone, now: Timestamp) -> Vec<Self> {
        let mut days = Days::new(now);
        let line = |event| {
            let line = Self::new(event, zone);
            Self { day: days.begin(&line.at), ..line }
        };
        events.into_iter().map(line).collect()
    }

    fn new(event: Event, zone: &TimeZone) -> Self {
        Self {
            day: None,
            at: Moment::new(event.at(), zone.clone()),
            badge: Badge::of_event(event.kind),
            path: format!("/messages/{}", event.message_id),
            attempt: event.attempt.map(|number| number.to_string()).unwrap_or_default(),
            answer: excerpt(event.answer(), &event.to),
            to: event.to,
            subject: event.subject,
        }
    }
}
