//! The answers at the final dot. Each contains the problem, its subject and the remedy.

use sha2::{Digest as _, Sha256};

use super::failed;
use super::recipient::{check_suppression, quota_exhausted, storage_full, suppressed};
use crate::domain::address::Address;
use crate::engine::submit::SubmitError;
use crate::engine::{Caller, Engine};
use crate::mail::submitted::Unsubmitted;
use crate::smtp::server::Answer;
use crate::store::op::admission::Refusal;

/// Maximum number of lines of one answer: some clients fail at fifty.
const LINES_MAX: usize = 10;

/// Returns the hash of an idempotency key for one recipient. It never equals a hash of the API, whose keys don't
/// contain NUL.
pub(super) fn key_hash(key: &str, to: &Address) -> [u8; 32] {
    Sha256::digest([b"smtp\0", key.as_bytes(), b"\0", to.match_key().as_bytes()].concat()).into()
}

/// Returns the identifier in the body of a 202.
pub(super) fn id_of(answer: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct AnswerId {
        id: String,
    }
    serde_json::from_slice(answer).map(|AnswerId { id }| id).unwrap_or_default()
}

/// Returns the answer to an invalid message.
pub(super) fn unsubmitted(fault: &Unsubmitted) -> Answer {
    let violations = match fault {
        Unsubmitted::HeaderTooLong => {
            return Answer::new(552, "5.3.4", "The header section is too long: the limit is 64 KiB");
        }
        Unsubmitted::TooLong => return Answer::new(552, "5.3.4", "The message is too large: the limit is 20 MiB"),
        Unsubmitted::Invalid(violations) => violations,
    };
    let sentences = violations.by_field().iter().flat_map(|(field, sentences)| {
        let name = if field == "message" { "The message" } else { field };
        sentences.iter().map(move |sentence| match sentence.split(' ').next() {
            Some("must" | "has" | "is" | "gives" | "cannot" | "makes") => format!("{name} {sentence}"),
            Some(_) | None => format!("{name}: {sentence}"),
        })
    });
    let mut lines = sentences.take(LINES_MAX);
    let first = lines.next().unwrap_or_else(|| "The message is not valid".to_owned());
    lines.fold(Answer::new(550, "5.6.0", first), Answer::and)
}

/// Returns the answer if the total size of all copies is too large.
pub(super) fn copies_too_large() -> Answer {
    Answer::copies_too_large()
}

/// Returns the answer if the first message with an idempotency key is still in progress.
pub(super) fn in_progress() -> Answer {
    let text = "A message with this X-Service-Idempotency-Key is being accepted: try again in 1 second";
    Answer::new(451, "4.3.0", text)
}

/// Returns the answer if the domain was changed repeatedly.
pub(super) fn domain_changed() -> Answer {
    Answer::new(451, "4.3.0", "The sending domain is being changed: try again in 1 second")
}

/// Returns the answer to an error of the idempotency check.
pub(super) fn of_error(error: &SubmitError, to: &Address) -> Answer {
    match error {
        SubmitError::Failed(error) => failed(error),
        SubmitError::Refused(_) => mismatch(to),
        SubmitError::Full | SubmitError::InProgress | SubmitError::Invalid(_) => in_progress(),
    }
}

fn mismatch(to: &Address) -> Answer {
    let text = format!("X-Service-Idempotency-Key was used for another message to <{to}>: use a new key");
    Answer::new(550, "5.7.1", text)
}

/// Returns the answer to a refusal of the message to one recipient.
pub(super) fn of_refusal(engine: &Engine, caller: &Caller, from: &str, refusal: &Refusal, to: &Address) -> Answer {
    let text = match refusal {
        Refusal::IdempotencyMismatch => return mismatch(to),
        Refusal::RecipientSuppressed => {
            // The suppression may have been removed meanwhile.
            let found = check_suppression(engine, caller, to, &to.match_key());
            return found.err().unwrap_or_else(|| suppressed(to, "listed"));
        }
        Refusal::QuotaExhausted(exhausted) => return quota_exhausted(*exhausted),
        Refusal::StorageExhausted => return storage_full(),
        Refusal::DomainChanged => return domain_changed(),
        Refusal::DomainUnknown => format!(
            "From is at {from}, which is not a domain of this account: add and verify the domain, or send from a \
             verified one"
        ),
        Refusal::DomainUnverified => {
            format!("From is at {from}, which is not verified: publish its DNS records and verify the domain")
        }
        Refusal::StreamForbidden { stream } => {
            let own = caller.key.as_ref().and_then(|key| key.stream);
            let own = own.map(|stream| stream.to_string()).unwrap_or_default();
            format!("{from} is a {stream} domain, and this key may send {own} mail only: use another key or domain")
        }
        Refusal::UnsubscribeUrlMissing => format!(
            "{from} is a marketing domain, which needs an https URL in List-Unsubscribe: add the header, or send from \
             a transactional domain"
        ),
    };
    Answer::new(550, "5.7.1", text)
}
