//! Webhook delivery attempts as pages show them: the receiver's response, or the reason why there was none.

use super::components::Badge;
use super::page_guard::Visit;
use super::timestamp::Moment;
use crate::engine::deliveries::DeliveryRecord;
use crate::engine::ports::PostError;
use crate::machine::delivery::Status;
use crate::machine::endpoint::State;
use crate::store::row::delivery::AttemptRow;

/// One attempt, as pages show it.
#[derive(Debug)]
pub(super) struct AttemptLine {
    /// Start of the attempt.
    pub(super) at: Moment,
    /// Result of the attempt.
    pub(super) badge: Badge,
    /// Response status, or the failure in a few words.
    pub(super) result: String,
    /// Explanation; empty if none is needed.
    pub(super) words: &'static str,
    /// Duration.
    pub(super) took: String,
    /// IP address of the receiver that responded.
    pub(super) peer: Option<String>,
    /// Beginning of the response body.
    pub(super) body: Option<String>,
}

impl AttemptLine {
    /// Converts a stored attempt.
    pub(super) fn new(visit: &Visit<'_>, row: AttemptRow) -> Self {
        let error = row.error.as_deref();
        let badge = match error {
            None => Badge::new("succeeded", "good", "check"),
            Some(_) => Badge::new("failed", "bad", "cross"),
        };
        let words = error.map_or("", |error| words(error, row.status));
        let result = row.status.map_or_else(|| summary(words).to_owned(), |status| status.to_string());
        Self {
            at: visit.moment(row.at),
            badge,
            // Words without a remedy would repeat the result.
            words: if words.trim_end_matches('.') == result { "" } else { words },
            result,
            took: format!("{} ms", row.duration_ms),
            peer: row.peer,
            body: row.response_body.filter(|body| !body.is_empty()),
        }
    }
}

/// Returns an explanation without its remedy and full stop.
fn summary(words: &str) -> &str {
    words.split(':').next().unwrap_or_default().trim_end_matches('.')
}

/// Explains a failure and its remedy.
fn words(error: &str, status: Option<u16>) -> &'static str {
    let Some(error) = PostError::ALL.into_iter().find(|known| known.as_str() == error) else { return "" };
    match error {
        PostError::Dns => "DNS lookup failed: check the host name in the URL and its DNS records.",
        PostError::Connect => "Connection failed: check that the receiver runs and its firewall admits this server.",
        PostError::Tls => "TLS failed: check the certificate and its chain.",
        PostError::Timeout => "Timed out (10 s): respond first, work later.",
        PostError::Reset => "Connection closed early: see the receiver's log.",
        PostError::Protocol => "Not HTTP: check the port in the URL.",
        PostError::Blocked => "Private address blocked: the operator can allow it in `network.allow`.",
        PostError::Status => match status {
            Some(300..=399) => "Redirect: use the final URL.",
            Some(401 | 403) => "Access denied.",
            Some(404 | 405 | 410) => "No POST handler.",
            Some(500..=599) => "Receiver error: see its log.",
            Some(_) | None => "Not a 2xx.",
        },
    }
}

/// Returns the badge of a delivery.
pub(super) const fn of_delivery(record: &DeliveryRecord) -> Badge {
    match record.status() {
        Status::Pending => Badge::new("pending", "calm", "clock"),
        Status::Held => Badge::new("held", "wait", "lock"),
        Status::Delivered => Badge::new("delivered", "good", "check"),
        Status::Failed => Badge::new("failed", "bad", "cross"),
    }
}

/// Returns the badge of an endpoint.
pub(super) const fn of_endpoint(state: &State) -> Badge {
    match state {
        State::Enabled { failures: 0 } => Badge::new("Enabled", "good", "check"),
        State::Enabled { .. } => Badge::new("Enabled, failing", "wait", "warn"),
        State::DisabledByHand { .. } => Badge::new("Paused", "calm", "stop"),
        State::DisabledByFailures { .. } => Badge::new("Disabled after repeated failures", "bad", "cross"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_an_explanation() {
        for error in PostError::ALL {
            assert!(!words(error.as_str(), Some(500)).is_empty(), "{}", error.as_str());
        }
        assert!(words("status", Some(302)).contains("Redirect"));
        assert_eq!(words("nonsense", None), "");
    }

    #[test]
    fn a_failure_without_a_response_is_summed_up_in_words() {
        let of = |error: PostError| summary(words(error.as_str(), None));
        assert_eq!(of(PostError::Dns), "DNS lookup failed");
        let has_remedy = |error: &PostError| words(error.as_str(), None).contains(": ");
        assert!(PostError::ALL.iter().all(|error| *error == PostError::Status || has_remedy(error)));
        assert_eq!((of(PostError::Tls), of(PostError::Timeout)), ("TLS failed", "Timed out (10 s)"));
    }
}
