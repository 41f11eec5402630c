//! `GET /v1/events` (spec 4.3).

use super::listing::Listing;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::events::EventFilter;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// `GET /v1/events`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let account = call.caller.account;
    let mut violations = Violations::new();
    let listing = Listing::read(&call, "events", account, &["message_id", "type"], &mut violations);
    let kind = listing.parsed("type", &mut violations);
    violations.or(|| Some(()))?;
    let message = match listing.filter("message_id").map(str::parse) {
        Some(Ok(message)) => Some(message),
        // An unknown message has no events, and what is no identifier is as unknown as any other (contract 4).
        Some(Err(_)) => return Ok(listing.answer::<&[u8]>(&[], None)),
        None => None,
    };
    let Page { rows, next } = api.engine.events(account, EventFilter { message, kind }, listing.page)?;
    Ok(listing.answer(&rows, next))
}
