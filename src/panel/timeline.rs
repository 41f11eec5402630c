//! A message's timeline as its page tells it: every event with the receiver's answer as received, and a sentence of our
//! own beside it.

use super::attempts::of_delivery;
use super::door::Visit;
use super::event::Event;
use super::moment::{Moment, gap};
use super::parts::Badge;
use crate::base::id::EventId;
use crate::base::time::Timestamp;
use crate::domain::event::{Authenticated, Bounce, EventType, TlsFacts, TlsPolicy};
use crate::engine::messages::MessageRecord;
use crate::store::error::StoreError;
use crate::store::row::message::SmtpFacts;

/// One step, ready to be shown.
#[derive(Debug)]
pub(super) struct Step {
    /// When.
    pub(super) at: Moment,
    /// How long after the step before; empty for the first.
    pub(super) gap: String,
    /// What happened.
    pub(super) badge: Badge,
    /// The same in a sentence of ours.
    pub(super) sentence: String,
    /// Facts, name and value.
    pub(super) facts: Vec<(&'static str, String)>,
    /// The receiver's answer as received.
    pub(super) answer: Option<String>,
    /// What we make of it, and what to do.
    pub(super) advice: Option<String>,
    /// When it goes on.
    pub(super) next: Option<Moment>,
    /// What was said, where the attempt failed.
    pub(super) transcript: Option<String>,
    /// Whom webhooks told of it.
    pub(super) told: Vec<Told>,
}

/// A webhook's delivery of an event.
#[derive(Debug)]
pub(super) struct Told {
    /// To which address.
    pub(super) url: String,
    /// How far it is.
    pub(super) badge: Badge,
    /// Where its attempts are; none where its endpoint is gone.
    pub(super) path: Option<String>,
    /// What was answered last, and how often it was tried.
    pub(super) answer: String,
}

/// The steps of a timeline, oldest first.
///
/// # Errors
/// Those of the store.
pub(super) fn steps(visit: &Visit<'_>, record: &MessageRecord, events: &[Vec<u8>]) -> Result<Vec<Step>, StoreError> {
    let engine = &visit.api.engine;
    let mut transcripts = engine.transcripts(visit.account_id(), record.id)?;
    let mut before: Option<Timestamp> = None;
    let mut steps = Vec::with_capacity(events.len());
    for event in events.iter().filter_map(|bytes| Event::read(bytes)) {
        let at = event.at();
        let gap = before.map_or_else(String::new, |before| gap(before, at));
        before = Some(at);
        let id: Option<EventId> = event.id.parse().ok();
        let transcript = id.and_then(|id| transcripts.remove(&id));
        let told = id.map(|id| told(visit, id)).transpose()?.unwrap_or_default();
        steps.push(Step { gap, transcript, told, ..step(visit, record, event) });
    }
    Ok(steps)
}

fn step(visit: &Visit<'_>, record: &MessageRecord, event: Event) -> Step {
    let next = event.next_attempt_at.as_deref().and_then(|text| text.parse().ok());
    Step {
        at: visit.moment(event.at()),
        gap: String::new(),
        badge: Badge::of_event(event.kind),
        sentence: sentence(record, &event),
        facts: facts(&event),
        advice: event.bounce.as_ref().map(|bounce| bounce.advice.clone()).filter(|advice| !advice.is_empty()),
        answer: event.smtp_response,
        next: next.map(|at| visit.moment(at)),
        transcript: None,
        told: Vec::new(),
    }
}

/// The deliveries of an event, as the timeline's side tells them.
fn told(visit: &Visit<'_>, event: EventId) -> Result<Vec<Told>, StoreError> {
    let engine = &visit.api.engine;
    let mut told = Vec::new();
    for (delivery, last) in engine.deliveries_of(visit.account_id(), event)? {
        let (badge, endpoint) = (of_delivery(&delivery), delivery.row.endpoint);
        let row = engine.endpoint(visit.account_id(), endpoint)?;
        let answer = last.map(|row| row.status.map_or(row.error.unwrap_or_default(), |status| status.to_string()));
        let attempts = match delivery.row.state.attempts {
            0 => "not yet tried".to_owned(),
            1 => answer.unwrap_or_default(),
            many => format!("{}, attempt {many}", answer.unwrap_or_default()),
        };
        let path = row.is_some().then(|| format!("/webhooks/{endpoint}/deliveries/{}", delivery.id));
        let url = row.map_or_else(|| "a webhook that was deleted".to_owned(), |row| row.url);
        told.push(Told { url, badge, path, answer: attempts });
    }
    Ok(told)
}

fn sentence(record: &MessageRecord, event: &Event) -> String {
    let server = event.mx_host.as_deref().unwrap_or("the receiving server");
    let attempt = event.attempt.map(|number| format!(" at attempt {number}")).unwrap_or_default();
    match event.kind {
        EventType::Queued => injected(record.row.submission.as_deref()),
        EventType::Delivered => format!("{server} took the message{attempt}."),
        EventType::Deferred => match event.smtp_code {
            Some(_) => format!("{server} asked to come back later{attempt}."),
            None => format!("{server} could not be reached{attempt}; it is tried again."),
        },
        EventType::Bounced => match event.smtp_code {
            Some(_) => format!("{server} refused the message for good{attempt}."),
            None => "The message can't be delivered.".to_owned(),
        },
        EventType::Failed => "Given up: no server took it in time.".to_owned(),
        EventType::Complained => format!("{} called it spam; the address is suppressed.", record.row.to.as_given()),
        EventType::Suppressed => "Not sent: its address became suppressed.".to_owned(),
        EventType::Unsubscribed => format!("{} unsubscribed.", record.row.to.as_given()),
        EventType::Canceled => "Withdrawn before it was sent.".to_owned(),
    }
}

/// The submission of the message.
fn injected(submission: Option<&SmtpFacts>) -> String {
    let Some(facts) = submission else { return "Accepted, and on disk. Injected into the queue.".to_owned() };
    let tls = facts.tls_version.as_deref().unwrap_or("no TLS");
    format!(
        "Accepted by SMTP from {} ({tls}, key {}), and on disk. Injected into the queue.",
        facts.client_address, facts.key_prefix
    )
}

fn facts(event: &Event) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut tell = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    let code = event.smtp_code.map(|code| match &event.smtp_enhanced_code {
        Some(enhanced) => format!("{code} {enhanced}"),
        None => code.to_string(),
    });
    tell("SMTP code", code);
    let ip = event.mx_ip.as_ref().map(|ip| format!(" [{ip}]")).unwrap_or_default();
    tell("Destination server", event.mx_host.as_ref().map(|host| format!("{host}{ip}")));
    tell("Relay", event.relay.clone());
    tell("TLS", event.tls.as_ref().map(tls_words).or_else(|| event.mx_ip.as_ref().map(|_| "none".to_owned())));
    tell("Took", event.duration_ms.map(|millis| format!("{millis} ms")));
    if let Some(bounce) = &event.bounce {
        tell("Category", Some(category(bounce)));
        tell("Status", bounce.status.clone().filter(|status| Some(status) != event.smtp_enhanced_code.as_ref()));
        tell("Suppressed", bounce.suppressed.then(|| "the address is sent nothing more".to_owned()));
    }
    if let Some(complaint) = &event.complaint {
        tell("Report", complaint.feedback_type.clone());
        tell("Reported by", complaint.reporter.clone());
    }
    facts
}

/// What a failure is, and the rule that says so where that is not called the same.
fn category(bounce: &Bounce) -> String {
    let category = bounce.category.replace('_', " ");
    if bounce.rule.replace(['-', '_'], " ") == category { category } else { format!("{category} ({})", bounce.rule) }
}

/// How a connection was secured, in words.
pub(super) fn tls_words(tls: &TlsFacts) -> String {
    let proof = match tls.authenticated {
        Authenticated::None => "encrypted, server not proved",
        Authenticated::Pkix => "server proved by its certificate",
        Authenticated::Dane => "server proved by DANE",
    };
    let policy = match tls.policy {
        TlsPolicy::Opportunistic => "",
        TlsPolicy::MtaSts => ", as its MTA-STS policy asks",
        TlsPolicy::Dane => ", as its TLSA records ask",
    };
    format!("{} {} ({proof}{policy})", tls.version, tls.cipher)
}
