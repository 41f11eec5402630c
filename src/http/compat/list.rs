//! Lists of messages. A list counts as one request per message and has one Idempotency-Key. If the client asks for it,
//! each message succeeds or fails separately.

use std::future::Future;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::client_message::ValidMessage;
use super::failure::CompatError;
use super::names::Names;
use super::send::{self, MessageParties};
use super::service::CompatService;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::submit::list::ListItem;
use crate::engine::submit::{KeyInUse, SubmitError};
use crate::http::answer::Answer;
use crate::http::authenticator::RATE_LIMIT;
use crate::http::error::ApiError;
use crate::http::handlers::messages;
use crate::http::json::{self, named_hash};
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::error::StoreError;
use crate::store::op::accept::Accepted;
use crate::store::op::admission::IdempotencyClaim;

/// Postmark's error number for a list that is too long.
const TOO_LONG: u16 = 410;

/// Name and maximum length of a list.
pub(super) struct Kind {
    pub(super) service: CompatService,
    /// Field under which errors of the whole list are reported.
    pub(super) field: &'static str,
    pub(super) most: usize,
}

/// A list that has not been answered before.
pub(super) struct List {
    pub(super) items: Vec<Value>,
    address: String,
    pub(super) claim: Option<IdempotencyClaim>,
    /// Marks the key as in use until the list is answered.
    pub(super) in_use: Option<KeyInUse>,
}

/// Result of one message in a list.
pub(super) struct SendResult {
    pub(super) accepted: Accepted,
    /// Recipient as the client wrote it.
    pub(super) to_as_given: String,
}

/// Parses the list, counts it against the request rate, and answers it with `work`.
pub(super) async fn answer<F: Future<Output = Result<Answer, CompatError>> + Send>(
    kind: &Kind,
    api: &Api,
    call: &Call<Caller>,
    work: impl FnOnce(Vec<Value>) -> F + Send,
) -> Result<Answer, ApiError> {
    let items = match read(kind, call) {
        Ok(items) => items,
        Err(fault) => return Ok(fault.answer(kind.service, api, call)),
    };
    let counted = api.admit_more(&call.caller, items.len().saturating_sub(1));
    let answer = match counted.and_then(|counted| counted.refused) {
        Some(seconds) => CompatError::from(ApiError::RateLimited(seconds)).answer(kind.service, api, call),
        None => work(items).await.unwrap_or_else(|fault| fault.answer(kind.service, api, call)),
    };
    Ok(match counted {
        // The list counts as more than one request.
        Some(counted) => answer.with_header(RATE_LIMIT, &counted.to_header()),
        None => answer,
    })
}

fn read(kind: &Kind, call: &Call<Caller>) -> Result<Vec<Value>, CompatError> {
    call.no_query()?;
    let items = json::parse_list(call.body())?;
    let most = kind.most;
    let fault = || CompatError::from(Violations::of(kind.field, format!("must be 1 to {most} messages")));
    match items.len() {
        0 => Err(fault()),
        count if count > most => Err(fault().numbered(TOO_LONG)),
        _ => Ok(items),
    }
}

/// Claims the list's Idempotency-Key, or returns the earlier answer to the same list. The key is also bound to
/// `address`.
///
/// # Errors
/// Fails if the key is malformed, bound to another request, or in use.
pub(super) fn begin(
    api: &Api,
    call: &Call<Caller>,
    address: &str,
    items: Vec<Value>,
) -> Result<Result<List, Accepted>, CompatError> {
    let mut faults = Violations::new();
    let (address, whole) = (address.to_owned(), Value::Array(items));
    let claim = send::claim(call, &address, &whole, &mut faults);
    faults.or(|| Some(()))?;
    let Value::Array(items) = whole else { return Err(ApiError::Internal.into()) };
    let account = call.caller.account;
    let not_now = |error: SubmitError| CompatError::from(messages::key_refused(error));
    let Some(bound) = claim else { return Ok(Ok(List { items, address, claim, in_use: None })) };
    // The key is claimed before the lookup, because the first request may be about to finish.
    let in_use = api.engine.use_key(account, bound.key_hash);
    match api.engine.accepted_before(account, &bound).map_err(not_now)? {
        Some(accepted) => Ok(Err(accepted)),
        None => Ok(Ok(List { items, address, claim, in_use: Some(in_use.map_err(not_now)?) })),
    }
}

/// Sends the messages of the list separately, in order. Each has a key derived from the list's key, so that a
/// repetition after a crash sends no message twice.
pub(super) async fn each(
    api: &Api,
    call: &Call<Caller>,
    list: &mut List,
    read: impl Fn(Value) -> Result<ValidMessage, CompatError>,
) -> Vec<Result<SendResult, CompatError>> {
    let items = std::mem::take(&mut list.items);
    let (mut read_items, mut submitted) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (place, item) in items.into_iter().enumerate() {
        let idempotency = list.claim.as_ref().map(|whole| claim_at(whole, place, &list.address, &item));
        read_items.push(read(item).map(|ValidMessage { submission, names, to_as_given }| {
            let parties = MessageParties::of(&submission);
            submitted.push(ListItem { submission, idempotency });
            (parties, names, to_as_given)
        }));
    }
    let mut outcomes = api.engine.submit_each(&call.caller, submitted).await.into_iter();
    let outcome_of = |read_item: Result<(MessageParties, Names, String), CompatError>| {
        let (parties, names, to_as_given) = read_item?;
        let outcome = outcomes.next().unwrap_or(Err(SubmitError::Failed(StoreError::Panicked)));
        let accepted = outcome.map_err(|error| parties.refused(api, &call.caller, error, &names))?;
        Ok(SendResult { accepted, to_as_given })
    };
    read_items.into_iter().map(outcome_of).collect()
}

/// Returns the idempotency key of the message at `place` in the list with the key `whole`.
fn claim_at(whole: &IdempotencyClaim, place: usize, address: &str, item: &Value) -> IdempotencyClaim {
    let key_hash = Sha256::new().chain_update(whole.key_hash).chain_update((place as u64).to_be_bytes());
    IdempotencyClaim { key_hash: key_hash.finalize().into(), body_hash: named_hash(address, item) }
}

/// Answers the list and binds its key to the answer. If nothing was sent, or if the service failed for some message,
/// the key stays free: a repetition sends the remaining messages.
pub(super) async fn finish(
    api: &Api,
    call: &Call<Caller>,
    list: &List,
    sent: &[Result<SendResult, CompatError>],
    body: Vec<u8>,
) -> Result<Answer, CompatError> {
    let account = call.caller.account;
    let is_over = sent.iter().any(Result::is_ok)
        && !sent.iter().any(|one| one.as_ref().is_err_and(|fault| is_passing(&fault.error)));
    if let Some(claim) = list.claim.filter(|_| is_over) {
        let bound = api.engine.bind_answer(account, claim, body.clone()).await;
        bound.map_err(messages::key_refused)?;
    }
    let quota = api.engine.quota(&api.account_of(&call.caller)?).map_err(ApiError::from)?;
    Ok(send::ok(body, &quota, false))
}

/// Returns whether a repetition of the list may succeed for this message: the service failed, or an abandoned request
/// is still running.
fn is_passing(error: &ApiError) -> bool {
    error.status().is_server_error() || *error == ApiError::IdempotencyInProgress
}
