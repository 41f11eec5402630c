//! The form of a webhook endpoint: what it holds, and the JSON object that would ask the API for the same.

use serde_json::{Map, Value};

use super::components::FormFaults;
use super::form::Form;
use crate::domain::event::EventType;
use crate::store::row::endpoint::EndpointRow;

/// The form, filled with what is set, or with what was typed and refused.
#[derive(Debug)]
pub(super) struct EndpointForm {
    /// Where events are posted.
    pub(super) url: String,
    /// The account's own words.
    pub(super) description: String,
    /// The types to choose from.
    pub(super) events: Vec<EventBox>,
    /// Errors of the form.
    pub(super) faults: FormFaults,
}

/// A type of events, and whether it is chosen.
#[derive(Debug)]
pub(super) struct EventBox {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it is chosen.
    pub(super) is_ticked: bool,
}

fn boxes(is_ticked: impl Fn(EventType) -> bool) -> Vec<EventBox> {
    EventType::ALL.iter().map(|kind| EventBox { name: kind.as_str(), is_ticked: is_ticked(*kind) }).collect()
}

impl EndpointForm {
    /// The form of an endpoint that is to be.
    pub(super) fn empty() -> Self {
        Self { url: String::new(), description: String::new(), events: boxes(|_| false), faults: FormFaults::none() }
    }

    /// The form of an endpoint that is there.
    pub(super) fn of(row: &EndpointRow) -> Self {
        Self {
            url: row.url.clone(),
            description: row.description.clone().unwrap_or_default(),
            // Where all are taken no box is ticked: those that are yet to come are taken too.
            events: boxes(|kind| row.events.as_ref().is_some_and(|events| events.contains(&kind))),
            faults: FormFaults::none(),
        }
    }

    /// The form as it was sent, and refused.
    pub(super) fn refused(form: &Form, faults: FormFaults) -> Self {
        let ticked = form.all("events");
        Self {
            url: form.text("url").to_owned(),
            description: form.text("description").to_owned(),
            events: boxes(|kind| ticked.contains(&kind.as_str())),
            faults,
        }
    }
}

/// The body that would ask the API for the same. Fields that a form does not have stay as they are.
pub(super) fn as_body(form: &Form) -> Map<String, Value> {
    let mut body = Map::new();
    body.extend(form.field("url").map(|url| ("url".to_owned(), Value::from(url))));
    let own_words = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
    body.extend(form.field("description").map(|text| ("description".to_owned(), own_words(text))));
    let events = form.all("events");
    // Boxes that are not ticked send nothing, so the form says that it has them.
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
    fn a_form_asks_for_what_the_api_would_be_asked_for() {
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
