//! Postmark's paths: sending one email or a list, and message details. Templates and bulk sends are rejected with an
//! explanation (contract 12.3).

mod details;
mod email;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::client_message::{NO_TEMPLATES, ValidMessage};
use super::failure::CompatError;
use super::list::{self, Kind, SendResult};
use super::service::CompatService;
use super::{send, shown_message};
use crate::base::id::AccountId;
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::json;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::op::accept::Accepted;
use crate::store::op::domain::domain_by_name;

const LIST: Kind = Kind { service: CompatService::Postmark, field: "Messages", most: 500 };

/// `POST /email`.
pub(super) async fn send(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    send::answered(CompatService::Postmark, api, &call, one(api, &call).await)
}

async fn one(api: &Api, call: &Call<Caller>) -> Result<Answer, CompatError> {
    call.no_query()?;
    let body = Value::Object(json::parse_object(call.body())?);
    let mut faults = Violations::new();
    let claim = send::claim(call, "postmark /email", &body, &mut faults);
    let replay = send::before(api, call.caller.account, claim.as_ref().filter(|_| faults.is_empty()));
    let to_as_given = body["To"].as_str().unwrap_or_default().to_owned();
    let accepted = match replay {
        Some(accepted) => accepted,
        None => {
            let ready = ready(api, call.caller.account, body, faults)?;
            send::submit(api, &call.caller, ready, claim).await?
        }
    };
    let (quota, is_replay) = (accepted.quota, accepted.is_replay);
    let body = accepted_json(&SendResult { accepted, to_as_given })?;
    Ok(send::ok(body.to_string().into_bytes(), &quota, is_replay))
}

/// Parses the email in `value` and checks that it is for the stream of its domain.
fn ready(api: &Api, account: AccountId, value: Value, faults: Violations) -> Result<ValidMessage, CompatError> {
    let Value::Object(object) = value else {
        return Err(Violations::of("Message", "must be an object").into());
    };
    let email::Read { draft, faults, stream, names_no_stream } = email::read(object, faults);
    let ready = draft.lift(faults, api.engine.submission_limits()).map_err(|fault| {
        let is_alone = fault.error.errors().is_some_and(|errors| errors.len() == 1);
        if names_no_stream && is_alone { fault.numbered(email::UNKNOWN_STREAM_NUMBER) } else { fault }
    })?;
    match stream {
        Some(stream) => check_stream(api, account, ready, stream),
        None => Ok(ready),
    }
}

/// Checks that the named stream is the domain's stream. Unknown domains are reported later.
fn check_stream(
    api: &Api,
    account: AccountId,
    ready: ValidMessage,
    wanted: Stream,
) -> Result<ValidMessage, CompatError> {
    let snapshot = api.engine.store.snapshot().map_err(ApiError::from)?;
    let name = ready.submission.from.domain().as_str();
    match domain_by_name(&snapshot, account, name).map_err(ApiError::from)? {
        Some((_, domain)) if domain.stream != wanted => {
            let sentence = format!("must be the stream of {name}, which is {}", domain.stream);
            Err(Violations::of("MessageStream", sentence).into())
        }
        Some(_) | None => Ok(ready),
    }
}

/// Returns Postmark's answer for an accepted message.
fn accepted_json(sent: &SendResult) -> Result<Value, ApiError> {
    let receipt = send::receipt(&sent.accepted.answer)?;
    Ok(json!({
        "To": sent.to_as_given,
        "SubmittedAt": receipt.created_at,
        "MessageID": receipt.id,
        "ErrorCode": 0,
        "Message": "OK",
    }))
}

/// `POST /email/batch`.
pub(super) async fn batch(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    list::answer(&LIST, api, &call, |items| emails(api, &call, items)).await
}

async fn emails(api: &Api, call: &Call<Caller>, items: Vec<Value>) -> Result<Answer, CompatError> {
    let mut list = match list::begin(api, call, "postmark /email/batch", items)? {
        Ok(list) => list,
        Err(Accepted { answer, quota, .. }) => return Ok(send::ok(answer, &quota, true)),
    };
    let account = call.caller.account;
    let sent = list::each(api, call, &mut list, |item| ready(api, account, item, Violations::new())).await;
    let mut answers = Vec::with_capacity(sent.len());
    for one in &sent {
        answers.push(match one {
            Ok(sent) => accepted_json(sent)?,
            Err(fault) => {
                let client_error = fault.client_error(CompatService::Postmark, &call.request_id);
                json!({ "ErrorCode": client_error.number, "Message": client_error.message })
            }
        });
    }
    list::finish(api, call, &list, &sent, Value::Array(answers).to_string().into_bytes()).await
}

/// `POST /email/withTemplate` and `/email/batchWithTemplates`.
pub(super) async fn template(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let fault = CompatError::from(Violations::of("TemplateId", NO_TEMPLATES));
    Ok(fault.answer(CompatService::Postmark, api, &call))
}

/// `POST /email/bulk`.
pub(super) async fn bulk(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let sentence = "bulk sends are not supported: send the messages to /email/batch";
    Ok(CompatError::from(Violations::of("Messages", sentence)).answer(CompatService::Postmark, api, &call))
}

/// `GET /messages/outbound/{id}/details`.
pub(super) async fn details(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, record, content) = shown_message::read(api, &call).await?;
    let events = api.engine.timeline(account, record.id)?;
    Ok(Answer::json(StatusCode::OK, &details::Details::of(&record, content.as_ref(), &events)))
}
