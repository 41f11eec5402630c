//! Form of a webhook endpoint, and its conversion to the API's JSON object.

use serde_json::{Map, Value};

use super::components::FormErrors;
use super::form::Form;
use crate::domain::event::EventType;
use crate::store::row::endpoint::EndpointRow;

/// The form, filled with the current settings or with rejected input.
#[derive(Debug)]
pub(super) struct EndpointForm {
    /// URL that receives events.
    pub(super) url: String,
    /// Description chosen by the account.
    pub(super) description: String,
    /// Event types to choose from.
    pub(super) events: Vec<EventBox>,
    /// Errors of the form.
    pub(super) faults: FormErrors,
}

/// An event type and whether it is selected.
#[derive(Debug)]
pub(super) struct EventBox {
    /// Name of the event type.
    pub(super) name: &'static str,
    /// Whether the type is selected.
    pub(super) is_ticked: bool,
}

fn boxes(is_ticked: impl Fn(EventType) -> bool) -> Vec<EventBox> {
    EventType::ALL.iter().map(|kind| EventBox { name: kind.as_str(), is_ticked: is_ticked(*kind) }).collect()
}

impl EndpointForm {
    /// Returns the form for a new endpoint.
    pub(super) fn empty() -> Self {
        Self { url: String::new(), description: String::new(), events: boxes(|_| false), faults: FormErrors::none() }
    }

    /// Returns the form for an existing endpoint.
    pub(super) fn of(row: &EndpointRow) -> Self {
        Self {
            url: row.url.clone(),
            description: row.description.clone().unwrap_or_default(),
            // An endpoint that receives all types has no box ticked, because future types are included too.
            events: boxes(|kind| row.events.as_ref().is_some_and(|events| events.contains(&kind))),
            faults: FormErrors::none(),
        }
    }

    /// Returns the form with the rejected input.
    pub(super) fn refused(form: &Form, faults: FormErrors) -> Self {
        let ticked = form.all("events");
        Self {
            url: form.text("url").to_owned(),
            description: form.text("description").to_owned(),
            events: boxes(|kind| ticked.contains(&kind.as_str())),
            faults,
        }
    }
}

/// Converts the form to the equivalent API body. Fields that the form lacks stay unchanged.
pub(super) fn as_body(form: &Form) -> Map<String, Value> {
    let mut body = Map::new();
    body.extend(form.field("url").map(|url| ("url".to_owned(), Value::from(url))));
    let own_words = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
    body.extend(form.field("description").map(|text| ("description".to_owned(), own_words(text))));
    let events = form.all("events");
    // Browsers don't send unticked boxes, so a hidden field says that the form has them.
    if form.is_ticked("has_events") || !events.is_empty() {
        let events = if events.is_empty() { Value::Null } else { Value::from(events) };
        body.insert("events".to_owned(), events);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(form: &str) -> Value {
        Value::Object(as_body(&Form::read(form.as_bytes())))
    }

    #[test]
    fn a_form_becomes_the_equivalent_api_body() {
        let chosen = body("url=https://a.test&events=bounced&events=failed&description=shop&has_events=1");
        let asked =
            serde_json::json!({ "url": "https://a.test", "events": ["bounced", "failed"], "description": "shop" });
        assert_eq!(chosen, asked);
        let cleared = body("url=https://a.test&description=&has_events=1");
        let asked = serde_json::json!({ "url": "https://a.test", "events": null, "description": null });
        assert_eq!(cleared, asked);
        assert_eq!(body("description=shop"), serde_json::json!({ "description": "shop" }));
    }
}
