//! The routes of messages and events (contract 3 and 4).

use hyper::StatusCode;
use serde_json::json;

use super::headers::{Header, QUOTA};
use super::operation::Operation;
use super::request;
use super::schema::Schema;
use super::shape::{FullShape as _, Shape as _};
use super::words::page;
use crate::base::id::{EventId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::{EventRecord, EventType};
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::engine::messages::Via;
use crate::engine::submit::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages::{IDEMPOTENCY_KEY_CHARACTERS, METADATA_FILTERS};
use crate::http::view::message::MessageView;
use crate::machine::transfer::Status;
use crate::store::row::message_index::METADATA_BYTES_MAX;

const MESSAGES: &str = "Messages";
const EVENTS: &str = "Events";
const ID: &str = "The message's identifier.";
const SAMPLE: &str = "msg_01M7XS2DXANT70XBRCN1YAAC4B";

/// Returns the description of a route of messages or events.
pub(super) fn operation(name: &str) -> Option<Operation> {
    Some(match name {
        "messages.create" => create(),
        "messages.list" => list(),
        "messages.show" => Operation::new(MESSAGES, "Get a message")
            .says("The message, its content while it is kept, and its timeline.")
            .at("id", MessageId::schema(), ID)
            .gives(StatusCode::OK, "The message.", MessageView::whole()),
        "messages.raw" => Operation::new(MESSAGES, "Download a message")
            .says("The message as it was signed, byte for byte.")
            .at("id", MessageId::schema(), ID)
            .gives_as("message/rfc822", "The message.", Schema::string())
            .fails([ApiError::ContentGone]),
        "messages.cancel" => Operation::new(MESSAGES, "Cancel a message")
            .says("Cancels a queued or deferred message, unless it is being sent.")
            .at("id", MessageId::schema(), ID)
            .gives(StatusCode::OK, "The canceled message.", MessageView::whole())
            .fails([ApiError::Conflict("The message is finished or is being sent. It can't be canceled.".to_owned())]),
        "events.list" => Operation::new(EVENTS, "List events")
            .says("Events of the account's messages in the last 30 days.")
            .query("message_id", Schema::string().example(SAMPLE), "Only events of this message.")
            .query("type", EventType::schema(), "Only events of this type.")
            .query("after", request::time(), "Only events recorded later.")
            .query("before", request::time(), "Only events recorded earlier.")
            .gives_page("EventPage", EventRecord::schema()),
        "messages.export" => exported(filtered(Operation::new(MESSAGES, "Export messages"))),
        "events.export" => exported(
            Operation::new(EVENTS, "Export events")
                .query("message_id", Schema::string().example(SAMPLE), "Only events of this message.")
                .query("type", EventType::schema(), "Only events of this type.")
                .query("after", request::time(), "Only events recorded later.")
                .query("before", request::time(), "Only events recorded earlier."),
        ),
        "events.stream" => stream(),
        _ => return None,
    })
}

fn create() -> Operation {
    let key = Schema::string().pattern("^[ -~]+$").length(1, IDEMPOTENCY_KEY_CHARACTERS);
    let key_says = "A key chosen by the caller, unique for each message, valid for 24 hours within the account. A \
        repeated request with the same body gets the first answer, and nothing is sent again.";
    let mut missing = Violations::of("text", "a body is required: give text, html, or both");
    missing.add("unsubscribe_ur", "unknown field");
    missing.hint("unsubscribe_ur is unknown; did you mean unsubscribe_url?");
    Operation::new(MESSAGES, "Send a message")
        .says(
            "Accepts one message to one recipient. The answer is 202 only after the message, its queue entry, its \
             event, the quota and the idempotency record are on disk. Events report the outcome.",
        )
        .header("Idempotency-Key", key.example("order-1001-receipt"), key_says)
        .takes(
            request::message(),
            &[
                (
                    "text",
                    json!({
                        "from": "hello@example.test",
                        "to": "you@example.org",
                        "subject": "Hello",
                        "text": "It works.",
                    }),
                ),
                (
                    "marketing",
                    json!({
                        "from": "offers@news.example.test",
                        "from_name": "Example Ltd",
                        "to": "you@example.org",
                        "subject": "News",
                        "text": "What is new.",
                        "html": "<p>What is new.</p>",
                        "unsubscribe_url": "https://news.example.test/unsubscribe?token=7f3a",
                        "metadata": { "campaign": "2026-11" },
                    }),
                ),
                (
                    "raw",
                    json!({
                        "from": "hello@example.test",
                        "to": "you@example.org",
                        "raw": "From: hello@example.test\r\nTo: you@example.org\r\nSubject: Hello\r\n\r\nIt works.\r\n",
                    }),
                ),
            ],
        )
        .gives(StatusCode::ACCEPTED, "Accepted: the message is durable and queued.", Answer::schema())
        .always(&QUOTA)
        .sometimes(&[Header::IdempotentReplay])
        .fails([
            ApiError::StreamForbidden(Stream::Marketing.to_string()),
            ApiError::IdempotencyMismatch,
            ApiError::IdempotencyInProgress,
            missing.into(),
            ApiError::DomainUnknown("elsewhere.example".to_owned()),
            ApiError::DomainUnverified("example.com".to_owned()),
            ApiError::RecipientSuppressed("bounce".to_owned()),
            ApiError::QuotaExceeded("hour", 1200),
            ApiError::StorageQuotaExceeded,
        ])
}

/// Adds the answer of an export, and the parameter for its format.
fn exported(operation: Operation) -> Operation {
    let format = Schema::words(["csv", "ndjson"].map(Into::into)).with("default", "csv");
    operation
        .says(
            "The records that match the filters, oldest first, of the 30 days before `before` or now. A wider range \
             is refused. A file has at most 1,000,000 rows: get the rest with `after` one millisecond before the last \
             row's time, and skip duplicate rows. The records are read in parts during the download. If the \
             connection ends before the body does, the file is incomplete. An account has at most four exports at \
             once. As CSV, the columns are the members of the record, nested ones dotted. `metadata` is JSON, and a \
             missing member is empty. Fields are data, not formulas: a field that begins with `=`, `+`, `-` or `@` is \
             written unchanged, so import the file as text into a spreadsheet.",
        )
        .query("format", format, "File format.")
        .gives_as("text/csv", "The file.", Schema::string())
        .or_as("application/x-ndjson", Schema::string())
        .always(&[Header::ContentDisposition])
        .fails([ApiError::Overloaded])
}

fn list() -> Operation {
    let since = <Option<Timestamp>>::schema()
        .example(())
        .says("Only with a `metadata` filter, which does not find earlier messages. Null if it covers all messages.");
    let page = page("MessagePage", MessageView::schema()).opened().optional("indexed_since", since);
    filtered(Operation::new(MESSAGES, "List messages").says("Filters combine."))
        .gives_page_of(page.named("MessagePage", "One page of a list, newest first."))
}

/// Adds the filters of messages.
fn filtered(operation: Operation) -> Operation {
    let header = Schema::string().example(format!("<{SAMPLE}@example.test>"));
    let value = Schema::string().length(0, METADATA_BYTES_MAX);
    let metadata = Schema::map(value).with("maxProperties", METADATA_FILTERS).example(json!({ "order": "10482" }));
    operation
        .query("to", request::address(), "Only messages to this address.")
        .query("from", request::address(), "Only messages from this address.")
        .query(
            "subject",
            Schema::string().example("hello"),
            "Only messages whose subject has words that start with each of these.",
        )
        .query(
            "message_id_header",
            header,
            "Only the message with this Message-ID, or those that a client submitted with it.",
        )
        .query("status", Status::schema(), "Only messages with this status.")
        .query("stream", Stream::schema(), "Only messages of this stream.")
        .query("via", Via::schema(), "Only messages submitted by this protocol.")
        .query("after", request::time(), "Only messages created later.")
        .query("before", request::time(), "Only messages created earlier.")
        .query_members("metadata", metadata, "Only messages with these metadata pairs, as in `metadata[order]=10482`.")
}

fn stream() -> Operation {
    let header = "The identifier of the last event received. The stream continues after it.";
    let query = "The same for clients that can't set headers. The header takes precedence.";
    let body = "Server-sent events: `id` is the event's identifier, `event` its type, `data` the event record as JSON.";
    Operation::new(EVENTS, "Follow events")
        .says("Events as they are recorded, for programs that cannot receive webhooks.")
        .header("Last-Event-ID", EventId::schema(), header)
        .query("last_event_id", EventId::schema(), query)
        .query("message_id", Schema::string().example(SAMPLE), "Only events of this message.")
        .query("type", EventType::schema(), "Only events of this type.")
        .gives_as(
            "text/event-stream",
            "The stream. It stays open until the client closes it.",
            Schema::anything().says(body),
        )
        .sometimes(&[Header::LastEventId])
        .fails([ApiError::Overloaded, ApiError::ShuttingDown])
}
