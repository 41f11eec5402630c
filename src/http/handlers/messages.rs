//! Messages: sending, showing, canceling and listing them (contract 3).

use std::fmt::Display;
use std::str::FromStr;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName};
use serde_json::Map;
use sha2::{Digest as _, Sha256};

use super::id;
use super::listing::Listing;
use crate::base::id::{AccountId, MessageId};
use crate::domain::address::Address;
use crate::domain::subject_words::wanted;
use crate::domain::submission::Submission;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::listing::Page;
use crate::engine::messages::{MessageFilter, MessageRecord};
use crate::engine::submit::SubmitError;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::json::canonical_hash;
use crate::http::query::bracketed;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::message::{ContentView, MessageView};
use crate::machine::quota::QuotaView;
use crate::store::error::OpError;
use crate::store::op::accept::Accepted;
use crate::store::op::admission::{IdempotencyClaim, Refusal};
use crate::store::op::cancel::CancelRefusal;
use crate::store::op::suppression;
use crate::store::row::message_index::METADATA_BYTES_MAX;
use crate::store::schema;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Maximum number of characters of an Idempotency-Key.
pub(in crate::http) const IDEMPOTENCY_KEY_CHARACTERS: usize = 255;
const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
const QUOTA_WINDOW: HeaderName = HeaderName::from_static("x-service-quota-window");
const QUOTA_LIMIT: HeaderName = HeaderName::from_static("x-service-quota-limit");
const QUOTA_REMAINING: HeaderName = HeaderName::from_static("x-service-quota-remaining");
const QUOTA_RESET: HeaderName = HeaderName::from_static("x-service-quota-reset");

/// `POST /v1/messages`.
pub(in crate::http) async fn create(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (submission, claim) = match read(api, &call)? {
        MessageRequest::Before(accepted) => return Ok(accepted_answer(accepted)),
        MessageRequest::Now(submission, claim) => (*submission, claim),
    };
    let (from, to) = (submission.from.clone(), submission.to.clone());
    let accepted = api.engine.submit(&call.caller, submission, claim).await;
    match accepted.map_err(|error| not_accepted(api, &call.caller, error, &from, &to)) {
        Ok(accepted) => Ok(accepted_answer(accepted)),
        Err(error @ ApiError::QuotaExceeded(..)) => Ok(with_quota_of(api, &call.caller, error.answer())),
        Err(error) => Err(error),
    }
}

/// Returns the 202 for this message, or for the one accepted before.
fn accepted_answer(accepted: Accepted) -> Answer {
    let location = location(&accepted.answer);
    let mut answer = Answer::json_bytes(StatusCode::ACCEPTED, accepted.answer);
    if let Some(location) = location {
        answer = answer.with_location(&location);
    }
    answer = with_quota(answer, &accepted.quota);
    if accepted.is_replay { marked_as_replay(answer) } else { answer }
}

/// Marks the answer as a replay.
pub(in crate::http) fn marked_as_replay(answer: Answer) -> Answer {
    answer.with_header(IDEMPOTENT_REPLAY, "true")
}

/// Result of reading a request.
enum MessageRequest {
    /// A message that was accepted before with this key and this body.
    Before(Accepted),
    /// A new message.
    Now(Box<Submission>, Option<IdempotencyClaim>),
}

/// Parses the body and the Idempotency-Key, and reports the violations of both together.
fn read(api: &Api, call: &Call<Caller>) -> Result<MessageRequest, ApiError> {
    let body = call.json()?;
    let mut violations = Violations::new();
    let key_hash = idempotency_key(&call.headers, &mut violations);
    let claim = key_hash.map(|key_hash| IdempotencyClaim { key_hash, body_hash: canonical_hash(&body) });
    let engine = &api.engine;
    if let Some(claim) = claim.as_ref().filter(|_| violations.is_empty())
        && let Ok(Some(accepted)) = engine.accepted_before(call.caller.account, claim)
    {
        return Ok(MessageRequest::Before(accepted));
    }
    let submission = match Submission::lift_with(body, engine.submission_limits(), crate::mail::raw::faults) {
        Ok(submission) => Some(submission),
        Err(faults) => {
            violations.absorb(faults);
            None
        }
    };
    Ok(violations.or(|| Some(MessageRequest::Now(Box::new(submission?), claim)))?)
}

/// Returns the SHA-256 of the key, if there is one: 1 to 255 printable ASCII characters, given once.
pub(in crate::http) fn idempotency_key(headers: &HeaderMap, violations: &mut Violations) -> Option<[u8; 32]> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = given.next()?.as_bytes();
    let fits = (1..=IDEMPOTENCY_KEY_CHARACTERS).contains(&key.len()) && key.iter().all(|c| matches!(c, b' '..=b'~'));
    if !fits {
        let fault = format!("must be 1 to {IDEMPOTENCY_KEY_CHARACTERS} printable ASCII characters");
        violations.add("Idempotency-Key", fault);
    }
    if given.next().is_some() {
        violations.add("Idempotency-Key", "is given more than once");
    }
    Some(Sha256::digest(key).into())
}

/// Returns the path of the message. Its identifier comes from the answer, which in a replay is that of the first
/// request.
fn location(answer: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct AnswerId<'a> {
        id: &'a str,
    }
    let named: AnswerId<'_> = serde_json::from_slice(answer).ok()?;
    Some(format!("/v1/messages/{}", named.id))
}

/// Adds the quota headers of contract 3.
pub(in crate::http) fn with_quota(answer: Answer, quota: &QuotaView) -> Answer {
    let (window, view) = quota.tightest();
    answer
        .with_header(QUOTA_WINDOW, window.as_str())
        .with_header(QUOTA_LIMIT, &view.limit.to_string())
        .with_header(QUOTA_REMAINING, &view.remaining.to_string())
        .with_header(QUOTA_RESET, &view.reset.to_string())
}

/// Adds the caller's current quota to the answer, unless it can't be read.
pub(in crate::http) fn with_quota_of(api: &Api, caller: &Caller, answer: Answer) -> Answer {
    let quota = api.account_of(caller).and_then(|account| Ok(api.engine.quota(&account)?));
    match quota {
        Ok(quota) => with_quota(answer, &quota),
        Err(_) => answer,
    }
}

/// Returns the reason and the time of an address's suppression.
fn suppression_reason(api: &Api, caller: &Caller, match_key: &str) -> Result<String, ApiError> {
    let key = schema::named(caller.account, match_key.as_bytes());
    let row = suppression::find(&api.engine.store.snapshot()?, caller.account, &key)?;
    Ok(row.map_or_else(|| "listed".to_owned(), |row| format!("{} since {}", row.reason.as_str(), row.created_at)))
}

/// Returns the error for a message from and to these addresses that was not accepted.
pub(crate) fn not_accepted(api: &Api, caller: &Caller, error: SubmitError, from: &Address, to: &Address) -> ApiError {
    match error {
        SubmitError::Refused(Refusal::RecipientSuppressed) => {
            suppression_reason(api, caller, &to.match_key()).map_or_else(|error| error, ApiError::RecipientSuppressed)
        }
        error => refused(error, caller, from.domain().as_str()),
    }
}

/// Returns the error of an unusable idempotency key.
pub(in crate::http) fn key_refused(error: SubmitError) -> ApiError {
    match error {
        SubmitError::Invalid(violations) => violations.into(),
        SubmitError::InProgress => ApiError::IdempotencyInProgress,
        SubmitError::Full => ApiError::StorageFull,
        SubmitError::Failed(error) => error.into(),
        SubmitError::Refused(Refusal::IdempotencyMismatch) => ApiError::IdempotencyMismatch,
        SubmitError::Refused(_) => ApiError::Overloaded,
    }
}

fn refused(error: SubmitError, caller: &Caller, domain: &str) -> ApiError {
    let refusal = match error {
        SubmitError::Invalid(violations) => return violations.into(),
        SubmitError::InProgress => return ApiError::IdempotencyInProgress,
        SubmitError::Full => return ApiError::StorageFull,
        SubmitError::Failed(error) => return error.into(),
        SubmitError::Refused(refusal) => refusal,
    };
    match refusal {
        Refusal::IdempotencyMismatch => ApiError::IdempotencyMismatch,
        Refusal::DomainUnknown => ApiError::DomainUnknown(domain.to_owned()),
        Refusal::StreamForbidden { .. } => {
            let own = caller.key.as_ref().and_then(|key| key.stream);
            ApiError::StreamForbidden(own.map(|stream| stream.to_string()).unwrap_or_default())
        }
        Refusal::UnsubscribeUrlMissing => {
            Violations::of("unsubscribe_url", "is required on the marketing stream").into()
        }
        Refusal::DomainUnverified => ApiError::DomainUnverified(domain.to_owned()),
        Refusal::RecipientSuppressed => ApiError::RecipientSuppressed("listed".to_owned()),
        Refusal::QuotaExhausted(exhausted) => {
            ApiError::QuotaExceeded(exhausted.window.as_str(), exhausted.retry_after_secs)
        }
        Refusal::StorageExhausted => ApiError::StorageQuotaExceeded,
        // The message's domain changed repeatedly during the request. A retry is useful.
        Refusal::DomainChanged => ApiError::Overloaded,
    }
}

/// `GET /v1/messages/{id}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let record = find(api, &call)?;
    Ok(Answer::json_bytes(StatusCode::OK, record_json(api, call.caller.account, &record).await?))
}

/// `POST /v1/messages/{id}/cancel`.
pub(in crate::http) async fn cancel(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    find(api, &call)?;
    call.no_members()?;
    cancel_now(api, &call).await?;
    let record = find(api, &call)?;
    Ok(Answer::json_bytes(StatusCode::OK, record_json(api, call.caller.account, &record).await?))
}

/// Cancels the message in the path.
pub(in crate::http) async fn cancel_now(api: &Api, call: &Call<Caller>) -> Result<MessageId, ApiError> {
    let id = id(call)?;
    let canceled = api.engine.cancel(&call.caller, id).await;
    canceled.map(|()| id).map_err(|stop| match stop {
        OpError::Refused(CancelRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(CancelRefusal::TooLate) => {
            ApiError::Conflict("The message is finished or is being sent. It can't be canceled.".to_owned())
        }
        OpError::Failed(error) => error.into(),
    })
}

/// Returns the whole record as JSON. The panel shows the same bytes.
pub(crate) async fn record_json(api: &Api, account: AccountId, record: &MessageRecord) -> Result<Vec<u8>, ApiError> {
    let row = record.row.clone();
    let list_fields = record.row.list_fields();
    let read = move |signed| ContentView::of(signed, &row, list_fields);
    let content = api.content(account, record, read).await?;
    let events = api.engine.timeline(account, record.id)?;
    let view = MessageView::alone(record, content.as_ref(), api.engine.clock.time().expiry);
    view.with_events(&events).map_err(|error| {
        tracing::error!(%error, "could not write a message as JSON; answering 500");
        ApiError::Internal
    })
}

/// `GET /v1/messages/{id}/raw`.
pub(in crate::http) async fn raw(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let record = find(api, &call)?;
    let signed = api.signed_message(call.caller.account, &record).await?;
    let signed = signed.ok_or(ApiError::ContentGone)?;
    Ok(Answer::bytes(StatusCode::OK, "message/rfc822", signed))
}

/// Returns the message in the path.
pub(in crate::http) fn find(api: &Api, call: &Call<Caller>) -> Result<MessageRecord, ApiError> {
    api.engine.message(call.caller.account, id(call)?)?.ok_or(ApiError::NotFound)
}

/// Filters of the message list, besides [`METADATA`].
pub(super) const FILTERS: [&str; 9] =
    ["to", "from", "subject", "message_id_header", "status", "stream", "via", "after", "before"];

/// Filters by metadata, one for each name in brackets.
pub(super) const METADATA: &str = "metadata[]";
/// Maximum number of metadata filters of a list.
pub(in crate::http) const METADATA_FILTERS: usize = 3;

/// `GET /v1/messages`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let account = call.caller.account;
    let mut violations = Violations::new();
    let listing = Listing::read(&call, "messages", account, &[&FILTERS[..], &[METADATA]].concat(), &mut violations);
    let mut filter = filter_of(|name| listing.filter(name), &mut violations);
    filter.metadata = metadata_of(listing.filters(), &mut violations);
    violations.or(|| Some(()))?;
    let filter = with_message_id(api, account, filter, listing.filter("message_id_header"))?;
    let mut members = Map::new();
    if !filter.metadata.is_empty() {
        let since = api.engine.metadata_indexed_since(account).await?;
        members.insert("indexed_since".to_owned(), since.map(|since| since.to_string()).into());
    }
    let Page { rows, next } = api.engine.messages(account, filter, listing.page).await?;
    let expiry = api.engine.clock.time().expiry;
    listing.answer_of_with(rows.iter().map(|record| MessageView::in_list(record, expiry)), next, &members)
}

/// Sets the filter for messages with the Message-ID `header`, ours or the client's.
pub(super) fn with_message_id(
    api: &Api,
    account: AccountId,
    mut filter: MessageFilter,
    header: Option<&str>,
) -> Result<MessageFilter, ApiError> {
    let header = header.map(bare);
    let has_header =
        |record: &MessageRecord| header.is_none_or(|header| bare(&record.row.message_id_header(record.id)) == header);
    if let Some(id) = filter.id
        && !api.engine.message(account, id)?.is_some_and(|record| has_header(&record))
    {
        // A client may have submitted a message with a Message-ID that looks like ours.
        (filter.id, filter.original_message_id) = (None, header.map(str::to_owned));
    }
    Ok(filter)
}

/// Parses the metadata filters among the parameters `given`. Errors go to `violations`.
pub(crate) fn metadata_of<'a>(
    given: impl Iterator<Item = (&'a str, &'a str)>,
    violations: &mut Violations,
) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (parameter, value) in given {
        let Some(name) = bracketed(parameter, "metadata") else { continue };
        if name.is_empty() {
            violations.add(parameter, "must have a name in the brackets, such as metadata[order]");
        }
        if name.len().max(value.len()) > METADATA_BYTES_MAX {
            violations.add(parameter, format!("must have at most {METADATA_BYTES_MAX} bytes on each side"));
        }
        if pairs.len() == METADATA_FILTERS {
            violations.add("metadata", format!("must be at most {METADATA_FILTERS} pairs"));
            break;
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    pairs
}

/// Parses the filter whose members `given` returns by name. The panel's search uses it too. Errors go to `violations`.
/// A Message-ID that is not ours is one that a client set by SMTP.
pub(crate) fn filter_of<'a>(given: impl Fn(&str) -> Option<&'a str>, violations: &mut Violations) -> MessageFilter {
    fn parsed<T: FromStr<Err: Display>>(text: Option<&str>, name: &str, violations: &mut Violations) -> Option<T> {
        violations.check(name, text?.parse())
    }
    MessageFilter {
        to: parsed(given("to"), "to", violations),
        from: parsed(given("from"), "from", violations),
        subject_words: wanted(given("subject").unwrap_or_default()),
        id: given("message_id_header").and_then(named_id),
        original_message_id: given("message_id_header").filter(|id| named_id(id).is_none()).map(str::to_owned),
        via: parsed(given("via"), "via", violations),
        statuses: parsed(given("status"), "status", violations).into_iter().collect(),
        stream: parsed(given("stream"), "stream", violations),
        after: parsed(given("after"), "after", violations),
        before: parsed(given("before"), "before", violations),
        ..MessageFilter::default()
    }
}

/// Removes the angle brackets of a Message-ID, which people often omit.
fn bare(header: &str) -> &str {
    let header = header.trim();
    header.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(header)
}

/// Returns the message that a Message-ID names: its left side is the identifier (contract 3).
pub(crate) fn named_id(header: &str) -> Option<MessageId> {
    bare(header).split_once('@')?.0.parse().ok()
}
