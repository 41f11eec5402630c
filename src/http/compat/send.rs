//! Sends one message that a compatible API has parsed: submission, refusals under the client's names, and the answer
//! parts that both compatible APIs share.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::client_message::ValidMessage;
use super::failure::CompatError;
use super::names::Names;
use super::service::CompatService;
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::domain::submission::Submission;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::submit::SubmitError;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages;
use crate::http::json::named_hash;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::machine::quota::QuotaView;
use crate::store::op::accept::Accepted;
use crate::store::op::admission::{IdempotencyClaim, Refusal};

/// Identifiers of an accepted message.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Receipt {
    pub(super) id: String,
    pub(super) created_at: String,
}

/// Returns the Idempotency-Key of a request to `address`, bound to its body and address.
pub(super) fn claim(
    call: &Call<Caller>,
    address: &str,
    body: &Value,
    faults: &mut Violations,
) -> Option<IdempotencyClaim> {
    let key_hash = messages::idempotency_key(&call.headers, faults)?;
    Some(IdempotencyClaim { key_hash, body_hash: named_hash(address, body) })
}

/// Returns the earlier answer to the same request. A key bound to another body is detected at submission.
pub(super) fn before(api: &Api, account: AccountId, claim: Option<&IdempotencyClaim>) -> Option<Accepted> {
    api.engine.accepted_before(account, claim?).ok().flatten()
}

/// Accepts the message.
///
/// # Errors
/// The reason why the message was not accepted.
pub(super) async fn submit(
    api: &Api,
    caller: &Caller,
    ready: ValidMessage,
    claim: Option<IdempotencyClaim>,
) -> Result<Accepted, CompatError> {
    let ValidMessage { submission, names, .. } = ready;
    let parties = MessageParties::of(&submission);
    api.engine.submit(caller, submission, claim).await.map_err(|error| parties.refused(api, caller, error, &names))
}

/// Sender and recipient of a message, for the text of a refusal.
pub(super) struct MessageParties {
    from: Address,
    to: Address,
}

impl MessageParties {
    pub(super) fn of(submission: &Submission) -> Self {
        Self { from: submission.from.clone(), to: submission.to.clone() }
    }

    /// Returns the error of one message in the client's form.
    pub(super) fn refused(&self, api: &Api, caller: &Caller, error: SubmitError, names: &Names) -> CompatError {
        let is_suppressed = matches!(error, SubmitError::Refused(Refusal::RecipientSuppressed));
        let fault = refused(messages::not_accepted(api, caller, error, &self.from, &self.to), names);
        fault.closed_by(is_suppressed.then(|| inactive(self.to.as_given())))
    }
}

/// Returns the error with its fields under the client's names.
pub(super) fn refused(error: ApiError, names: &Names) -> CompatError {
    match error {
        ApiError::Invalid(ours) => names.translated(&ours).into(),
        error => error.into(),
    }
}

/// Returns the error text for a suppressed recipient, as Postmark's clients parse it.
pub(super) fn inactive(address: &str) -> String {
    format!(
        "Found inactive addresses: {address}. Inactive recipients are ones that bounced, complained, unsubscribed or \
         were suppressed by hand."
    )
}

/// Parses the identifiers in the answer to an accepted message.
///
/// # Errors
/// Fails if the stored answer is malformed.
pub(super) fn receipt(answer: &[u8]) -> Result<Receipt, ApiError> {
    serde_json::from_slice(answer).map_err(|error| {
        tracing::error!(%error, "could not read a stored answer; answering 500");
        ApiError::Internal
    })
}

/// Returns the 200 of a compatible API, with the quota headers.
pub(super) fn ok(body: Vec<u8>, quota: &QuotaView, is_replay: bool) -> Answer {
    let answer = messages::with_quota(Answer::json_bytes(StatusCode::OK, body), quota);
    if is_replay { messages::marked_as_replay(answer) } else { answer }
}

/// Converts the result of a handler to an answer.
pub(super) fn answered(
    service: CompatService,
    api: &Api,
    call: &Call<Caller>,
    outcome: Result<Answer, CompatError>,
) -> Result<Answer, ApiError> {
    Ok(outcome.unwrap_or_else(|fault| fault.answer(service, api, call)))
}
