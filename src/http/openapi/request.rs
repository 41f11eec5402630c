//! Schemas of requests: the rules of contract 2, 3, 5 and 6, with the numbers of `domain::limits`.
//!
//! The handlers parse members one by one, to report all violations at once, so there is no type to derive these from.
//! The tests of `openapi` compare both. Optional members may be null, which counts as absent.

use serde_json::json;

use super::schema::Schema;
use super::shape::Shape as _;
use crate::domain::account::RetentionDays;
use crate::domain::api_key::Scope;
use crate::domain::event::EventType;
use crate::domain::limits;
use crate::domain::stream::Stream;
use crate::domain::webhook_url::URL_CHARS_MAX;
use crate::http::handlers::LABEL_CHARACTERS;

/// No control characters: C0, DEL or C1.
const NO_CONTROL: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
const HEADERS_SAY: &str = "Custom headers, at most 16 KiB in total. Names must differ in more than case. Not allowed: \
    From, To, Cc, Bcc, Resent-Bcc, Sender, Subject, Date, Message-ID, MIME-Version, Content-*, DKIM-Signature, ARC-*, \
    Received, Return-Path, Authentication-Results, Feedback-ID, CFBL-Address, CFBL-Feedback-ID, X-Service-*, and \
    List-Unsubscribe, List-Unsubscribe-Post if unsubscribe_url is set. Reply-To is allowed.";
const RAW_SAYS: &str = "A whole RFC 5322 message as text or base64, instead of text, html, subject, headers, \
    from_name and attachments. from and to stay required and form the envelope. The message must have one From \
    address, at the domain of from.";

/// A mailbox. `idn-email`, since local parts and domains may be international (RFC 6531).
pub(super) fn address() -> Schema {
    Schema::string().format("idn-email").length(3, limits::ADDRESS_BYTES)
}

/// A time with any UTC offset.
pub(super) fn time() -> Schema {
    Schema::string().format("date-time")
}

fn line(characters: usize) -> Schema {
    Schema::string().pattern(NO_CONTROL).length(0, characters)
}

fn body() -> Schema {
    Schema::string().pattern(r"^[^\u0000]*$").length(0, limits::BODY_BYTES)
}

/// A name given by the account.
fn label() -> Schema {
    Schema::string().pattern(NO_CONTROL).length(1, LABEL_CHARACTERS)
}

/// The body of POST /v1/messages (contract 3).
pub(super) fn message() -> Schema {
    let unsubscribe_url = Schema::string().pattern(r"^[hH][tT][tT][pP][sS]?://[^\s]+$");
    let attachments = Schema::array(attachment()).with("maxItems", limits::ATTACHMENTS_COUNT);
    let object = Schema::object()
        .member("from", address().says("The sender: any mailbox at a verified domain of the account."))
        .member("to", address().says("The recipient."))
        .optional("from_name", line(limits::FROM_NAME_CHARACTERS).or_null().says("The sender's display name."))
        .optional(
            "subject",
            line(limits::SUBJECT_CHARACTERS)
                .or_null()
                .says("The subject. Without one, the message has no Subject header."),
        )
        .optional("text", body().or_null().says("The plain text, at most 5 MiB. An empty string counts as absent."))
        .optional("html", body().or_null().says("The HTML, at most 5 MiB. An empty string counts as absent."))
        .optional("headers", headers().or_null().says(HEADERS_SAY))
        .optional(
            "unsubscribe_url",
            unsubscribe_url
                .length(0, limits::UNSUBSCRIBE_URL_CHARACTERS)
                .or_null()
                .says("The unsubscribe URL: required on the marketing stream. Sets List-Unsubscribe."),
        )
        .optional("attachments", attachments.or_null().says("Files. A file with a content_id is inline."))
        .optional(
            "metadata",
            metadata().or_null().says("Your own data, shown in the record and in events, but not sent."),
        )
        .optional(
            "expires_at",
            time().or_null().says("End of delivery attempts: at least 60 s ahead, at most the queue lifetime."),
        )
        .optional("raw", Schema::string().with("minLength", 1).or_null().says(RAW_SAYS));
    object.closed().named("SendRequest", "A message to send. A body is required: text, html or both, or raw.")
}

fn headers() -> Schema {
    let names = Schema::string().pattern("^[!-9;-~]+$").length(1, limits::HEADER_NAME_CHARACTERS);
    let values = Schema::map(line(limits::HEADER_VALUE_CHARACTERS));
    values.with("propertyNames", names.into_value()).with("maxProperties", limits::HEADERS_COUNT)
}

fn metadata() -> Schema {
    let names = Schema::string().length(1, limits::METADATA_KEY_CHARACTERS);
    let values = Schema::map(Schema::string().length(0, limits::METADATA_VALUE_CHARACTERS));
    values.with("propertyNames", names.into_value()).with("maxProperties", limits::METADATA_COUNT)
}

fn attachment() -> Schema {
    let content = Schema::string()
        .with("contentEncoding", "base64")
        .pattern("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$");
    let content_id = Schema::string().pattern("^<?[!-;=?-~]+>?$").length(1, limits::CONTENT_ID_CHARACTERS + 2);
    let content_type = Schema::string().pattern("^[!-~ ]+/[!-~ ]+$").length(3, limits::CONTENT_TYPE_CHARACTERS);
    let filename = Schema::string().pattern(r"^[^/\\\u0000-\u001f\u007f-\u009f]+$");
    let object = Schema::object()
        .member("filename", filename.length(1, limits::FILENAME_CHARACTERS).says("The file's name, without a path."))
        .member("content", content.says("The file, in base64 with padding and without line breaks."))
        .optional("content_type", content_type.or_null().says("Media type (default: application/octet-stream)."))
        .optional("content_id", content_id.or_null().says("Identifier for cid: links, with or without brackets."));
    object.closed().named("Attachment", "A file to send.")
}

/// The body of POST /v1/keys.
pub(super) fn new_key() -> Schema {
    let scopes = Schema::array(Scope::schema()).with("minItems", 1);
    let object = Schema::object()
        .member("name", label().says("A name for the key. It can't be blank."))
        .optional("stream", Stream::schema().or_null().says("The only stream that it may use; both by default."))
        .optional(
            "scopes",
            scopes.or_null().says("The key's scopes; all if absent. A key can't grant a scope that it lacks."),
        )
        .optional("expires_at", time().or_null().says("Expiry time; without one the key does not expire."));
    object.closed().named("NewApiKeyRequest", "An API key to create.")
}

/// The body of PATCH /v1/keys/{id}.
pub(super) fn key_change() -> Schema {
    let object = Schema::object().optional("name", label().or_null().says("The new name. It can't be blank."));
    object.closed().named("ApiKeyChange", "Changes of an API key. Missing members stay unchanged.")
}

/// The body of PATCH /v1/settings.
pub(super) fn settings_change() -> Schema {
    let days = Schema::count().within(1, RetentionDays::MAX.into());
    let object = Schema::object()
        .optional("name", label().or_null().says("The account's name, not all white space."))
        .optional("time_zone", Schema::string().or_null().says("An IANA time zone, such as Europe/Vienna."))
        .optional(
            "content_retention_days",
            days.or_null().says("Days that the content of new messages is kept. Existing messages don't change."),
        )
        .optional(
            "hosted_unsubscribe",
            Schema::boolean()
                .or_null()
                .says("Whether the list headers name a hosted link instead of the message's `unsubscribe_url`."),
        )
        .optional(
            "keep_message_id",
            Schema::boolean().or_null().says("Whether messages submitted by SMTP keep a valid Message-ID."),
        );
    object.closed().named("SettingsChange", "Changes of the settings. Missing members stay unchanged.")
}

/// The body of POST /v1/domains.
pub(super) fn new_domain() -> Schema {
    let name = Schema::string().length(3, 253).says("The domain. International names are stored as A-labels.");
    let object = Schema::object()
        .member("name", name)
        .member("stream", Stream::schema().says("The stream of all its messages."));
    object.closed().named("NewDomainRequest", "A sending domain to add.")
}

/// The body of PATCH /v1/domains/{id}.
pub(super) fn domain_change() -> Schema {
    let rotation_days = Schema::count().within(0, u64::from(*limits::ROTATION_DAYS.end())).says(
        "Days between rotations of the DKIM keys: 0 for none, else 30 to 730. A schedule needs a standby pair of keys.",
    );
    let object = Schema::object()
        .optional("stream", Stream::schema().or_null().says("The domain's new stream."))
        .optional("dkim_rotation_days", rotation_days);
    object.closed().named("DomainChange", "Changes of a domain. Missing members stay unchanged.")
}

fn webhook_url() -> Schema {
    let says =
        "The URL that gets events by POST: https, without credentials or fragment, and not at a private address.";
    Schema::string().pattern(r"^[hH][tT][tT][pP][sS]://[^\s]+$").length(0, URL_CHARS_MAX).says(says)
}

fn event_types() -> Schema {
    let types = Schema::array(EventType::schema()).with("minItems", 1);
    types.or_null().says("The types to receive; all if absent.")
}

fn description() -> Schema {
    line(LABEL_CHARACTERS).or_null().says("Free text. It can't be blank.")
}

/// The body of POST /v1/webhooks.
pub(super) fn new_webhook() -> Schema {
    let object = Schema::object()
        .member("url", webhook_url())
        .optional("events", event_types())
        .optional("description", description());
    object.closed().named("NewWebhookRequest", "A webhook endpoint to register.")
}

/// The body of PATCH /v1/webhooks/{id}.
pub(super) fn webhook_change() -> Schema {
    let enabled = Schema::boolean().or_null().says("`true` re-enables it and releases its held deliveries.");
    let object = Schema::object()
        .optional("enabled", enabled)
        .optional("url", webhook_url().or_null())
        .optional("events", event_types().says("The types to receive; null for all."))
        .optional("description", description());
    object.closed().named("WebhookChange", "Changes of a webhook endpoint. Missing members stay unchanged.")
}

/// The body of POST /v1/webhooks/{id}/replay.
pub(super) fn replay() -> Schema {
    let only_failed = Schema::boolean().or_null().says("Only events whose latest delivery to the endpoint failed.");
    let object = Schema::object()
        .member("since", time().says("Only events from this time on."))
        .optional("only_failed", only_failed);
    object.closed().named("ReplayRequest", "The events to deliver again.")
}

/// The body of POST /v1/suppressions.
pub(super) fn new_suppression() -> Schema {
    let object = Schema::object()
        .member("email", address().says("The address."))
        .optional("note", line(LABEL_CHARACTERS).or_null().says("Free text. It can't be blank."));
    object.closed().named("NewSuppressionRequest", "An address to suppress.")
}

/// An import as comma-separated values.
pub(super) fn csv() -> Schema {
    let says = "A header line with columns from email, reason, created_at and note, then one line per address.";
    Schema::string().says(says).example("email,reason,created_at,note\r\ngone@example.org,bounce,,old list\r\n")
}

/// An import as JSON lines.
pub(super) fn json_lines() -> Schema {
    let says = "One JSON object per line, with email and optionally reason, created_at and note.";
    Schema::string().says(says).example(format!("{}\n", json!({"email": "gone@example.org", "reason": "bounce"})))
}
