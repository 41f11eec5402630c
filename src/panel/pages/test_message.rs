//! The test message of the first steps: one message to the visitor's own address, under every rule and quota.

use serde_json::{Map, Value, json};

use super::overview;
use crate::domain::stream::Stream;
use crate::domain::submission::Submission;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages::not_accepted;
use crate::panel::first_steps::{Sender, sender};
use crate::panel::html;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

/// Body text of the message.
const TEXT: &str = "This is a test message, sent from the Postrider panel.";

/// `POST /test-message`.
pub(in crate::panel) async fn send(visit: Visit<'_>) -> Result<Answer, PageError> {
    let Some(sender) = sender(&visit)? else {
        return Err(ApiError::Conflict("Verify a domain first: mail is sent from it.".to_owned()).into());
    };
    match accepted(&visit, &sender).await {
        Ok(id) => Ok(html::redirect(&format!("/messages/{id}"))),
        Err(ApiError::RecipientSuppressed(_)) => overview::refused(
            &visit,
            "Your address is suppressed. Remove it from the suppressions to send the message.".to_owned(),
        ),
        Err(error) => Err(error.into()),
    }
}

/// Submits the message as the API would. Returns its identifier.
async fn accepted(visit: &Visit<'_>, sender: &Sender) -> Result<String, ApiError> {
    let engine = &visit.api.engine;
    let to = visit.user().email.as_given();
    let mut body = Map::new();
    for (name, value) in [("from", sender.address.as_str()), ("to", to), ("subject", "Test message"), ("text", TEXT)] {
        body.insert(name.to_owned(), Value::from(value));
    }
    if sender.stream == Stream::Marketing {
        let url = engine.settings.public_url.get().map_or("", String::as_str);
        body.insert("unsubscribe_url".to_owned(), json!(url));
    }
    let submission = Submission::lift(body, engine.submission_limits())?;
    let (from, recipient) = (submission.from.clone(), submission.to.clone());
    let caller = Caller { account: visit.account_id(), key: None };
    let accepted = engine.submit(&caller, submission, None).await;
    let accepted = accepted.map_err(|error| not_accepted(visit.api, &caller, error, &from, &recipient))?;
    let answer: Value = serde_json::from_slice(&accepted.answer).unwrap_or_default();
    answer["id"].as_str().map(str::to_owned).ok_or(ApiError::Internal)
}
