//! The headers of answers (contract 1 and 3). Each is a component of the document, referenced by the answers that have
//! it.

use serde_json::{Map, Value, json};

use super::schema::Schema;
use super::shape::Shape as _;
use crate::base::id::EventId;
use crate::machine::quota::Window;

/// A header of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    RequestId,
    CacheControl,
    RateLimit,
    RateLimitPolicy,
    Location,
    Link,
    QuotaWindow,
    QuotaLimit,
    QuotaRemaining,
    QuotaReset,
    IdempotentReplay,
    RetryAfter,
    WwwAuthenticate,
    Allow,
    ContentDisposition,
    LastEventId,
}

use Header::{
    Allow, CacheControl, ContentDisposition, IdempotentReplay, LastEventId, Link, Location, QuotaLimit, QuotaRemaining,
    QuotaReset, QuotaWindow, RateLimit, RateLimitPolicy, RequestId, RetryAfter, WwwAuthenticate,
};

/// Headers of every answer.
pub(super) const EVERY_ANSWER: [Header; 2] = [RequestId, CacheControl];
/// Headers of every answer to a valid key.
pub(super) const KNOWN_KEY: [Header; 2] = [RateLimit, RateLimitPolicy];
/// Quota headers (contract 3).
pub(super) const QUOTA: [Header; 4] = [QuotaWindow, QuotaLimit, QuotaRemaining, QuotaReset];

impl Header {
    const ALL: [Self; 16] = [
        RequestId,
        CacheControl,
        RateLimit,
        RateLimitPolicy,
        Location,
        Link,
        QuotaWindow,
        QuotaLimit,
        QuotaRemaining,
        QuotaReset,
        IdempotentReplay,
        RetryAfter,
        WwwAuthenticate,
        Allow,
        ContentDisposition,
        LastEventId,
    ];

    /// Returns the field name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            RequestId => "X-Request-Id",
            CacheControl => "Cache-Control",
            RateLimit => "RateLimit",
            RateLimitPolicy => "RateLimit-Policy",
            Location => "Location",
            Link => "Link",
            QuotaWindow => "X-Service-Quota-Window",
            QuotaLimit => "X-Service-Quota-Limit",
            QuotaRemaining => "X-Service-Quota-Remaining",
            QuotaReset => "X-Service-Quota-Reset",
            IdempotentReplay => "Idempotent-Replay",
            RetryAfter => "Retry-After",
            WwwAuthenticate => "WWW-Authenticate",
            Allow => "Allow",
            ContentDisposition => "Content-Disposition",
            LastEventId => "Last-Event-ID",
        }
    }

    const fn says(self) -> &'static str {
        match self {
            RequestId => "Request ID in the service's log; quote it to support.",
            CacheControl => "Caches must not store the answer.",
            RateLimit => "`r` requests remain for the key; in `t` seconds one more is available.",
            RateLimitPolicy => "`q` requests of one key in any `w` seconds.",
            Location => "The path of the new object.",
            Link => "The path of the next page; absent on the last.",
            QuotaWindow => "The window that is closest to exhaustion.",
            QuotaLimit => "The limit of that window.",
            QuotaRemaining => "Remaining messages in that window.",
            QuotaReset => "End of that window, in seconds since the epoch.",
            IdempotentReplay => "The message was already accepted with this key; nothing was sent now.",
            RetryAfter => "Seconds to wait before trying again.",
            WwwAuthenticate => "Authentication mechanisms.",
            Allow => "Methods that the path supports.",
            ContentDisposition => "Suggested file name.",
            LastEventId => "The event after which the stream starts.",
        }
    }

    fn schema(self) -> Schema {
        let text = |pattern: &str, example: &str| Schema::string().pattern(pattern).example(example);
        match self {
            RequestId => text("^[0-7][0-9A-HJKMNP-TV-Z]{25}$", "01M7XS2DXANT70XBRCN1YAAC4B"),
            CacheControl => text("^no-store$", "no-store"),
            RateLimit => text(r#"^"key";r=\d+;t=\d+$"#, "\"key\";r=599;t=60"),
            RateLimitPolicy => text(r#"^"key";q=\d+;w=60$"#, "\"key\";q=600;w=60"),
            Location => text("^/v1/", "/v1/messages/msg_01M7XS2DXANT70XBRCN1YAAC4B"),
            Link => text(r#"^</v1/[^>]*>; rel="next"$"#, "</v1/events?limit=50&cursor=AQZl>; rel=\"next\""),
            QuotaWindow => Schema::words([Window::Hour, Window::Day].map(|window| window.as_str().into())),
            QuotaLimit => Schema::count().example(10_000),
            QuotaRemaining => Schema::count().example(9_988),
            QuotaReset => Schema::count().example(1_795_190_400),
            IdempotentReplay => text("^true$", "true"),
            RetryAfter => Schema::count().with("minimum", 1).example(1),
            WwwAuthenticate => text("^Bearer$", "Bearer"),
            Allow => text("^[A-Z]+(, [A-Z]+)*$", "GET, HEAD, POST"),
            LastEventId => EventId::schema(),
            ContentDisposition => text("^attachment; ", "attachment; filename=\"suppressions.csv\""),
        }
    }
}

/// Returns the components of the document: each header as required, and as optional (`-Optional`).
pub(super) fn components() -> Map<String, Value> {
    Header::ALL.into_iter().flat_map(|header| [component(header, true), component(header, false)]).collect()
}

fn component(header: Header, required: bool) -> (String, Value) {
    let (says, schema) = (header.says(), header.schema().into_value());
    (key(header, required), json!({ "description": says, "required": required, "schema": schema }))
}

fn key(header: Header, required: bool) -> String {
    format!("{}{}", header.name(), if required { "" } else { "-Optional" })
}

/// Returns the `headers` member of an answer.
pub(super) fn sent(always: &[Header], sometimes: &[Header]) -> Value {
    let reference = |header: &Header, required| {
        let target = format!("#/components/headers/{}", key(*header, required));
        (header.name().to_owned(), json!({ "$ref": target }))
    };
    let always = always.iter().map(|header| reference(header, true));
    always.chain(sometimes.iter().map(|header| reference(header, false))).collect::<Map<_, _>>().into()
}
