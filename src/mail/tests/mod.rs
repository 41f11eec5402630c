//! Tests of whole messages: their form, valid lines for every input, and signatures that verify.

mod complaining;
mod composing;
mod rewriting;
mod signing;
mod verifying;

use serde_json::{Value, json};

use super::compose::{ComposeFacts, ComposedMessage, compose};
use crate::base::id::{MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::header::HeaderValue;
use crate::domain::submission::{Submission, SubmissionLimits};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;

const AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn facts() -> ComposeFacts<'static> {
    ComposeFacts { message_id: MessageId(Ulid::new(AT, [7; 10])), at: AT, hosted_unsubscribe: None }
}

fn lift(body: Value) -> Result<Submission, Violations> {
    let Value::Object(object) = body else { panic!("an object") };
    let limits = SubmissionLimits::at(AT, std::time::Duration::from_secs(48 * 3600));
    Submission::lift(object, limits)
}

/// Returns the message of a valid submission with `changes` applied.
fn composed(changes: Value) -> ComposedMessage {
    let mut body = json!({"from": "a@example.com", "to": "b@example.net"});
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    let message = compose(&lift(body).unwrap(), &facts()).unwrap();
    assert_lines(&message);
    message
}

fn text_of(message: &ComposedMessage) -> &str {
    std::str::from_utf8(&message.bytes).unwrap()
}

/// Asserts only CRLF line ends, an ended last line, and no line over 998 bytes (RFC 5322 2.1.1).
fn assert_lines(message: &ComposedMessage) {
    let bytes = &message.bytes;
    assert!(bytes.ends_with(b"\r\n"));
    for line in bytes[..bytes.len() - 2].split(|c| *c == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.contains(&b'\r') && line.len() <= 998, "{:?}", String::from_utf8_lossy(line));
    }
    let lone = bytes.iter().enumerate().any(|(place, c)| *c == b'\n' && (place == 0 || bytes[place - 1] != b'\r'));
    assert!(!lone && !bytes.contains(&0));
}
