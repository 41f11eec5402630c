//! The event log: `GET /v1/events` (contract 4) and `GET /v1/events/stream` (contract 4).

use hyper::StatusCode;
use hyper::header::HeaderName;

use super::listing::Listing;
use crate::base::id::EventId;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::events::EventFilter;
use crate::engine::follow::FollowRefusal;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::event_stream::EventStream;
use crate::http::route::Call;
use crate::http::state::Api;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Makes nginx and similar proxies forward each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `GET /v1/events`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let account = call.caller.account;
    let mut violations = Violations::new();
    let listing = Listing::read(&call, "events", account, &["message_id", "type", "after", "before"], &mut violations);
    let kind = listing.parsed("type", &mut violations);
    let after = listing.parsed("after", &mut violations);
    let before = listing.parsed("before", &mut violations);
    violations.or(|| Some(()))?;
    let message = match listing.filter("message_id").map(str::parse) {
        Some(Ok(message)) => Some(message),
        // An unknown message has no events, and a malformed identifier counts as unknown (contract 4).
        Some(Err(_)) => return Ok(listing.answer::<&[u8]>(&[], None)),
        None => None,
    };
    let Page { rows, next } = api.engine.events(account, EventFilter { message, kind, after, before }, listing.page)?;
    Ok(listing.answer(&rows, next))
}

/// `GET /v1/events/stream`. The `Last-Event-ID` of the answer is the start position, for a client that is disconnected
/// before its first event.
pub(in crate::http) async fn stream(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["type", "message_id", "last_event_id"], &mut violations);
    let kind = query.parsed("type", &mut violations);
    let filter = match query.get("message_id").map(str::parse) {
        Some(Ok(message)) => Some(EventFilter { message: Some(message), kind, ..EventFilter::default() }),
        // A malformed identifier counts as unknown: no event will match.
        Some(Err(_)) => None,
        None => Some(EventFilter { kind, ..EventFilter::default() }),
    };
    let given = last_event_id(&call, &mut violations);
    // The header is newer than the parameter: clients send it when they reconnect to the same URL.
    let after = query.parsed("last_event_id", &mut violations);
    let after: Option<EventId> = violations.or(|| Some(given.or(after)))?;
    let follower = api.engine.follow(&call.caller, filter, after).map_err(refused)?;
    let place = follower.place();
    let answer = followed(EventStream::new(follower));
    Ok(match place {
        Some(place) => answer.with_header(LAST_EVENT_ID, &place.to_string()),
        None => answer,
    })
}

/// Returns the answer with the body `stream`.
pub(crate) fn followed(stream: EventStream) -> Answer {
    let answer = Answer::stream(StatusCode::OK, "text/event-stream", Box::pin(stream));
    answer.with_header(ACCEL_BUFFERING, "no")
}

/// Parses the header's identifier, if there is one.
pub(crate) fn last_event_id<C>(call: &Call<C>, violations: &mut Violations) -> Option<EventId> {
    let mut given = call.headers.get_all(&LAST_EVENT_ID).iter();
    let text = given.next()?.to_str().unwrap_or("");
    if given.next().is_some() {
        violations.add("Last-Event-ID", "is given more than once");
    }
    violations.check("Last-Event-ID", text.parse())
}

/// Returns the API's error for a refusal to follow.
pub(crate) fn refused(refusal: FollowRefusal) -> ApiError {
    match refusal {
        FollowRefusal::Full => ApiError::Overloaded,
        FollowRefusal::Ending => ApiError::ShuttingDown,
        FollowRefusal::Failed(error) => error.into(),
    }
}
