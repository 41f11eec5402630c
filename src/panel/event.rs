//! An event as the panel reads it back from the bytes that were written once, for the timeline and for lists.

use jiff::tz::TimeZone;
use serde::Deserialize;

use super::components::{Badge, shortened};
use super::timestamp::{Days, Moment};
use crate::base::time::Timestamp;
use crate::domain::event::{Bounce, Complaint, EventType, TlsFacts};

/// An event.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: EventType,
    pub(super) message_id: String,
    pub(super) to: String,
    pub(super) subject: Option<String>,
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
    /// Reads an event; none where its bytes are damaged, which is ours to look into and no reason to show nothing.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).inspect_err(|error| tracing::error!(%error, "could not read an event")).ok()
    }

    /// When it was.
    pub(super) fn at(&self) -> Timestamp {
        self.created_at.parse().unwrap_or(Timestamp::ZERO)
    }

    /// The recipient's domain.
    pub(super) fn receiver(&self) -> String {
        self.to.rsplit_once('@').map_or_else(|| self.to.clone(), |(_, domain)| domain.to_lowercase())
    }

    /// The receiver's answer; where none answered, what we make of that.
    pub(super) fn answer(&self) -> &str {
        let ours = self.bounce.as_ref().map(|bounce| bounce.advice.as_str());
        self.smtp_response.as_deref().or(ours).unwrap_or_default()
    }
}

/// An event in a list.
pub(super) struct EventLine {
    /// The day that begins with this line.
    pub(super) day: Option<String>,
    /// When.
    pub(super) at: Moment,
    /// Type of the event.
    pub(super) badge: Badge,
    /// Where its message is.
    pub(super) path: String,
    /// To whom the message was.
    pub(super) to: String,
    /// Subject of the message.
    pub(super) subject: Option<String>,
    /// The attempt's number; empty where there was none.
    pub(super) attempt: String,
    /// The beginning of the answer.
    pub(super) answer: String,
}

impl EventLine {
    /// The lines of events in their order, at this moment.
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
            answer: shortened(event.answer()),
            to: event.to,
            subject: event.subject,
        }
    }
}
