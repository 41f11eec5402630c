//! Timeline of a message as its page shows it: every event with the receiver's response as received, and our own
//! explanation.

use std::mem;

use super::attempts::of_delivery;
use super::components::Badge;
use super::endpoint_name::in_one_line;
use super::event::Event;
use super::page_guard::Visit;
use super::paging;
use super::timestamp::{Moment, gap};
use super::wording;
use crate::base::id::EventId;
use crate::base::time::Timestamp;
use crate::domain::event::{Authenticated, Bounce, EventType, TlsFacts, TlsPolicy};
use crate::engine::messages::MessageRecord;
use crate::machine::delivery::Status as DeliveryStatus;
use crate::store::error::StoreError;
use crate::store::row::message::SmtpFacts;

/// One step of the timeline.
#[derive(Debug)]
pub(super) struct Step {
    /// Time of the event.
    pub(super) at: Moment,
    /// Time since the previous step. Empty for the first step.
    pub(super) gap: String,
    /// The type of the event.
    kind: EventType,
    /// Badge of the event type.
    pub(super) badge: Badge,
    /// Explanation in a sentence.
    pub(super) sentence: String,
    /// Facts as names and values.
    pub(super) facts: Vec<(&'static str, String)>,
    /// The receiver's response as received.
    pub(super) answer: Option<String>,
    /// Explanation and remedy.
    pub(super) advice: Option<String>,
    /// Time of the next attempt.
    pub(super) next: Option<Moment>,
    /// Transcript of a failed attempt.
    pub(super) transcript: Option<String>,
    /// Webhook deliveries of the event.
    pub(super) deliveries: Vec<WebhookLine>,
    /// The connection in one line. Empty if no server was contacted.
    pub(super) wire: String,
    /// Page of the suppression that the event made, or because of which the message was not sent.
    pub(super) suppression: Option<String>,
    /// The following attempts with the same response, which are folded into this step.
    pub(super) repeats: Vec<Step>,
}

impl Step {
    /// Summarises the webhook deliveries: `2 of 3 delivered`.
    pub(super) fn delivered_of(&self) -> String {
        let delivered = self.deliveries.iter().filter(|line| line.is_delivered).count();
        format!("{delivered} of {} delivered", self.deliveries.len())
    }

    /// Whether this step is a deferral with the same response as `other`.
    fn repeats(&self, other: &Self) -> bool {
        self.kind == EventType::Deferred
            && other.kind == EventType::Deferred
            && self.answer.is_some()
            && self.answer == other.answer
    }
}

/// A webhook delivery of an event.
#[derive(Debug)]
pub(super) struct WebhookLine {
    /// URL of the endpoint.
    pub(super) url: String,
    /// Status.
    pub(super) badge: Badge,
    /// Whether the delivery succeeded.
    is_delivered: bool,
    /// Page of the delivery. `None` if its endpoint was deleted.
    pub(super) path: Option<String>,
    /// Last response, and the number of attempts.
    pub(super) answer: String,
}

/// Returns the steps of a timeline, oldest first.
///
/// # Errors
/// Store errors.
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
        let deliveries = id.map(|id| deliveries_of(visit, id)).transpose()?.unwrap_or_default();
        steps.push(Step { gap, transcript, deliveries, ..step(visit, record, event) });
    }
    Ok(folded(steps))
}

/// Folds each run of deferrals with the same response. The first and the last of a run stay. The first contains the
/// others, and keeps the webhook deliveries of all.
fn folded(steps: Vec<Step>) -> Vec<Step> {
    let mut kept: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        if let [.., first, middle] = kept.as_mut_slice()
            && middle.repeats(first)
            && step.repeats(middle)
        {
            first.deliveries.append(&mut middle.deliveries);
            first.repeats.push(mem::replace(middle, step));
        } else {
            kept.push(step);
        }
    }
    kept
}

fn step(visit: &Visit<'_>, record: &MessageRecord, event: Event) -> Step {
    let next = event.next_attempt_at.as_deref().and_then(|text| text.parse().ok());
    Step {
        at: visit.moment(event.at()),
        gap: String::new(),
        kind: event.kind,
        badge: Badge::of_event(event.kind),
        wire: wire(&event),
        suppression: suppression(record, &event),
        repeats: Vec::new(),
        sentence: sentence(record, &event),
        facts: facts(&event),
        advice: event.bounce.as_ref().map(|bounce| bounce.advice.clone()).filter(|advice| !advice.is_empty()),
        answer: event.smtp_response,
        next: next.map(|at| visit.moment(at)),
        transcript: None,
        deliveries: Vec::new(),
    }
}

fn suppression(record: &MessageRecord, event: &Event) -> Option<String> {
    let suppresses = matches!(event.kind, EventType::Suppressed | EventType::Complained | EventType::Unsubscribed);
    let is_suppressed = suppresses || event.bounce.as_ref().is_some_and(|bounce| bounce.suppressed);
    is_suppressed.then(|| paging::address("/suppressions", &[("email", record.row.to.as_given())]))
}

/// Returns the webhook deliveries of an event for the timeline.
fn deliveries_of(visit: &Visit<'_>, event: EventId) -> Result<Vec<WebhookLine>, StoreError> {
    let engine = &visit.api.engine;
    let mut lines = Vec::new();
    for (delivery, last) in engine.deliveries_of(visit.account_id(), event)? {
        let (badge, endpoint) = (of_delivery(&delivery), delivery.row.endpoint);
        let is_delivered = delivery.status() == DeliveryStatus::Delivered;
        let row = engine.endpoint(visit.account_id(), endpoint)?;
        let answer = last.map(|row| row.status.map_or(row.error.unwrap_or_default(), |status| status.to_string()));
        let attempts = match delivery.row.state.attempts {
            0 => "not yet tried".to_owned(),
            1 => answer.unwrap_or_default(),
            many => format!("{}, attempt {many}", answer.unwrap_or_default()),
        };
        let path = row.is_some().then(|| format!("/webhooks/{endpoint}/deliveries/{}", delivery.id));
        let url = row.map_or_else(|| "a deleted webhook".to_owned(), |row| in_one_line(visit, &row));
        lines.push(WebhookLine { url, badge, is_delivered, path, answer: attempts });
    }
    Ok(lines)
}

fn sentence(record: &MessageRecord, event: &Event) -> String {
    let server = event.mx_host.as_deref().unwrap_or("the receiving server");
    let attempt = event.attempt.map(|number| format!(" (attempt {number})")).unwrap_or_default();
    let on_attempt = event.attempt.map(|number| format!(" on attempt {number}")).unwrap_or_default();
    match event.kind {
        EventType::Queued => injected(record.row.submission.as_deref()),
        EventType::Delivered => format!("Delivered to {server}{on_attempt}."),
        EventType::Deferred => match event.smtp_code {
            Some(_) => format!("{server} deferred it{attempt}."),
            None => format!("Could not reach {server}{attempt}; will retry."),
        },
        EventType::Bounced => match event.smtp_code {
            Some(_) => format!("{server} rejected it{attempt}."),
            None => "Undeliverable.".to_owned(),
        },
        EventType::Failed => "Expired: no server accepted it in time.".to_owned(),
        EventType::Complained => "Marked as spam; address suppressed.".to_owned(),
        EventType::Suppressed => "Not sent: address suppressed.".to_owned(),
        EventType::Unsubscribed => format!("{} unsubscribed.", record.row.to.as_given()),
        EventType::Canceled => "Canceled.".to_owned(),
    }
}

/// Describes the submission of the message.
fn injected(submission: Option<&SmtpFacts>) -> String {
    let Some(facts) = submission else { return "Accepted and queued.".to_owned() };
    let tls = facts.tls_version.as_deref().unwrap_or("no TLS");
    format!("Accepted by SMTP from {} ({tls}, key {}) and queued.", facts.client_address, facts.key_prefix)
}

/// Describes the connection in one line: reply code, server, TLS, duration, relay.
fn wire(event: &Event) -> String {
    let code = event.smtp_code.map(|code| match &event.smtp_enhanced_code {
        Some(enhanced) => format!("{code} {enhanced}"),
        None => code.to_string(),
    });
    let ip = event.mx_ip.as_ref().map(|ip| format!(" [{ip}]")).unwrap_or_default();
    let server = event.mx_host.as_ref().map(|host| format!("{host}{ip}"));
    let tls = event.tls.as_ref().map(tls_words).or_else(|| event.mx_ip.as_ref().map(|_| "no TLS".to_owned()));
    let duration = event.duration_ms.map(|millis| format!("{millis} ms"));
    let parts = [server, code, tls, duration, event.relay.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn facts(event: &Event) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    if let Some(bounce) = &event.bounce {
        add("Category", Some(category(bounce)));
        add("Status", bounce.status.clone().filter(|status| Some(status) != event.smtp_enhanced_code.as_ref()));
    }
    if let Some(complaint) = &event.complaint {
        add("Report", complaint.feedback_type.clone());
        add("Reported by", complaint.reporter.clone());
    }
    facts
}

/// Returns the category of a failure, and the rule that decided it unless both have the same name.
fn category(bounce: &Bounce) -> String {
    let words = wording::category(&bounce.category);
    let is_same = bounce.rule.replace('-', "_") == bounce.category;
    if is_same { words } else { format!("{words} ({})", bounce.rule) }
}

/// Describes the security of a connection.
pub(super) fn tls_words(tls: &TlsFacts) -> String {
    let proof = match tls.authenticated {
        Authenticated::None => "certificate not verified",
        Authenticated::Pkix => "certificate verified",
        Authenticated::Dane => "certificate verified by DANE",
    };
    let policy = match tls.policy {
        TlsPolicy::Opportunistic => "",
        TlsPolicy::MtaSts => ", required by MTA-STS",
        TlsPolicy::Dane => ", required by DANE",
    };
    format!("{} {} ({proof}{policy})", tls.version, tls.cipher)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn step(kind: EventType, answer: &str, hook: &str) -> Step {
        let hook = WebhookLine {
            url: hook.to_owned(),
            badge: Badge::of_event(kind),
            is_delivered: true,
            path: None,
            answer: String::new(),
        };
        Step {
            at: Moment::new(Timestamp::ZERO, TimeZone::UTC),
            gap: String::new(),
            kind,
            badge: Badge::of_event(kind),
            sentence: String::new(),
            facts: Vec::new(),
            answer: Some(answer.to_owned()),
            advice: None,
            suppression: None,
            next: None,
            transcript: None,
            deliveries: vec![hook],
            wire: String::new(),
            repeats: Vec::new(),
        }
    }

    #[test]
    fn repeated_deferrals_are_folded_and_keep_their_webhook_deliveries() {
        let deferred = |answer, hook| step(EventType::Deferred, answer, hook);
        let run = ["b", "c", "d", "e"].map(|hook| deferred("450 busy", hook));
        let mut steps = vec![step(EventType::Queued, "", "a")];
        steps.extend(run);
        steps.extend([deferred("451 later", "f"), step(EventType::Delivered, "250 ok", "g")]);
        let folded = folded(steps);
        let shown: Vec<_> = folded
            .iter()
            .map(|step| (step.repeats.len(), step.deliveries.iter().map(|line| line.url.as_str()).collect::<String>()))
            .collect();
        let expected = [(0, "a"), (2, "bcd"), (0, "e"), (0, "f"), (0, "g")];
        assert_eq!(shown, expected.map(|(repeated, hooks)| (repeated, hooks.to_owned())));
        assert_eq!(folded[1].delivered_of(), "3 of 3 delivered");
    }
}
