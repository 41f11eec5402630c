//! Resend's paths: sending one email or a list, showing one, and canceling it (contract 12.3).

mod email;
mod shown_email;

use hyper::StatusCode;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use super::client_message::ValidMessage;
use super::failure::CompatError;
use super::list::{self, Kind, List};
use super::service::CompatService;
use super::{send, shown_message};
use crate::base::id::MessageId;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::submit::together::{AllAccepted, ListRefused, WholeList};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages;
use crate::http::json;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::op::accept::Accepted;

/// Header that selects the validation mode of a list.
const VALIDATION: HeaderName = HeaderName::from_static("x-batch-validation");
const LIST: Kind = Kind { service: CompatService::Resend, field: "emails", most: 100 };

/// The validation mode of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validation {
    /// The whole list is accepted or rejected.
    Strict,
    /// Each email is accepted or rejected separately.
    Permissive,
}

/// `POST /emails`.
pub(super) async fn send(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    send::answered(CompatService::Resend, api, &call, one(api, &call).await)
}

async fn one(api: &Api, call: &Call<Caller>) -> Result<Answer, CompatError> {
    call.no_query()?;
    let body = json::parse_email(call.body())?;
    let mut faults = Violations::new();
    let body = Value::Object(body);
    let claim = send::claim(call, "resend /emails", &body, &mut faults);
    let replay = send::before(api, call.caller.account, claim.as_ref().filter(|_| faults.is_empty()));
    let accepted = match replay {
        Some(accepted) => accepted,
        None => send::submit(api, &call.caller, ready(api, body, faults)?, claim).await?,
    };
    let id = send::receipt(&accepted.answer)?.id;
    Ok(send::ok(json!({ "id": id }).to_string().into_bytes(), &accepted.quota, accepted.is_replay))
}

/// Parses the email in `value`.
fn ready(api: &Api, value: Value, faults: Violations) -> Result<ValidMessage, CompatError> {
    let Value::Object(object) = value else {
        return Err(Violations::of("email", "must be an object").into());
    };
    let (draft, faults) = email::read(object, faults);
    draft.lift(faults, api.engine.submission_limits())
}

/// `POST /emails/batch`.
pub(super) async fn batch(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    list::answer(&LIST, api, &call, |items| emails(api, &call, items)).await
}

async fn emails(api: &Api, call: &Call<Caller>, items: Vec<Value>) -> Result<Answer, CompatError> {
    let validation = validation(call)?;
    let address = match validation {
        Validation::Strict => "resend /emails/batch strict",
        Validation::Permissive => "resend /emails/batch permissive",
    };
    let list = match list::begin(api, call, address, items)? {
        Ok(list) => list,
        Err(Accepted { answer, quota, .. }) => return Ok(send::ok(answer, &quota, true)),
    };
    match validation {
        Validation::Strict => strict(api, call, list).await,
        Validation::Permissive => permissive(api, call, list).await,
    }
}

fn validation(call: &Call<Caller>) -> Result<Validation, CompatError> {
    match call.headers.get(&VALIDATION).map(hyper::header::HeaderValue::as_bytes) {
        None | Some(b"strict") => Ok(Validation::Strict),
        Some(b"permissive") => Ok(Validation::Permissive),
        Some(_) => Err(Violations::of(VALIDATION.as_str(), "must be strict or permissive").into()),
    }
}

/// Accepts all emails in one transaction, or none. The first error is reported.
async fn strict(api: &Api, call: &Call<Caller>, list: List) -> Result<Answer, CompatError> {
    let List { items, claim, in_use, .. } = list;
    let (mut submissions, mut read) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (index, item) in items.into_iter().enumerate() {
        let ready = ready(api, item, Violations::new()).map_err(|fault| fault.at(place(index)))?;
        read.push((ready.submission.from.clone(), ready.submission.to.clone(), ready.names));
        submissions.push(ready.submission);
    }
    let whole = WholeList { submissions, key: claim.zip(in_use), answer: accepted_json };
    let outcome = api.engine.submit_all(&call.caller, whole).await;
    let AllAccepted { answer, quota } = outcome.map_err(|ListRefused { place: index, error }| {
        match index.and_then(|index| Some((index, read.get(index)?))) {
            Some((index, (from, to, names))) => {
                let error = messages::not_accepted(api, &call.caller, error, from, to);
                send::refused(error, names).at(place(index))
            }
            None => messages::key_refused(error).into(),
        }
    })?;
    Ok(send::ok(answer, &quota, false))
}

/// Returns the answer to a list that was accepted as a whole.
fn accepted_json(ids: &[MessageId]) -> Vec<u8> {
    let data: Vec<_> = ids.iter().map(|id| json!({ "id": id.to_string() })).collect();
    json!({ "data": data }).to_string().into_bytes()
}

async fn permissive(api: &Api, call: &Call<Caller>, mut list: List) -> Result<Answer, CompatError> {
    let sent = list::each(api, call, &mut list, |item| ready(api, item, Violations::new())).await;
    let (mut data, mut errors) = (Vec::new(), Vec::new());
    for (index, one) in sent.iter().enumerate() {
        match one {
            Ok(sent) => data.push(json!({ "id": send::receipt(&sent.accepted.answer)?.id })),
            Err(fault) => {
                let error = fault.client_error(CompatService::Resend, &call.request_id);
                errors.push(json!({ "index": index, "message": error.message }));
            }
        }
    }
    let body = json!({ "data": data, "errors": errors }).to_string().into_bytes();
    list::finish(api, call, &list, &sent, body).await
}

/// Returns the position of an email in a list.
fn place(index: usize) -> String {
    format!("emails[{index}]")
}

/// `POST /emails/{id}/cancel`.
pub(super) async fn cancel(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id = messages::cancel_now(api, &call).await?;
    Ok(Answer::json(StatusCode::OK, &json!({ "object": "email", "id": id.to_string() })))
}

/// `GET /emails/{id}`.
pub(super) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (_, record, content) = shown_message::read(api, &call).await?;
    Ok(Answer::json(StatusCode::OK, &shown_email::Email::of(&record, content.as_ref())))
}
