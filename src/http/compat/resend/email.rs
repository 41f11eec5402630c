//! Parser of Resend's email into a draft.

use serde_json::{Map, Value};

use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::http::compat::client_message::{MessageDraft, NO_COPIES, NO_TEMPLATES, ONE_RECIPIENT, is_absent, present};
use crate::http::compat::names::Names;
use crate::http::compat::service::CompatService;

/// Known but unsupported fields, and the error text for each.
const REFUSED: [(&str, &str); 5] = [
    ("cc", NO_COPIES),
    ("bcc", NO_COPIES),
    ("scheduled_at", "scheduling is not supported: send the message when it is due"),
    ("template", NO_TEMPLATES),
    ("topic_id", "topics are not supported: suppress the recipients who opted out"),
];

/// Parses the email in `object`. Errors are added to `faults`.
pub(super) fn read(object: Map<String, Value>, mut faults: Violations) -> (MessageDraft, Violations) {
    let mut draft = MessageDraft::new(Names::of(CompatService::Resend));
    let mut fields = Fields::new(present(object), &mut faults);
    draft.sender(&mut fields, "from");
    if let Some(value) = fields.value("to") {
        recipient(&mut draft, &mut fields, value);
    }
    draft.copy(&mut fields, "subject", "subject");
    for (name, value) in fields.object("headers").unwrap_or_default() {
        draft.header(&mut fields, "headers", name, value);
    }
    if let Some(value) = fields.value("reply_to") {
        match texts(value) {
            Some(given) => draft.reply_to(&mut fields, "reply_to", &given),
            None => fields.fault("reply_to", "must be a string or a list of strings"),
        }
    }
    let attachments = fields.array("attachments").unwrap_or_default();
    let attachments = attachments.into_iter().enumerate();
    let attachments = attachments.map(|(place, value)| attachment(&mut draft, &mut fields, place, value)).collect();
    draft.attachments(attachments);
    for (place, tag) in fields.array("tags").unwrap_or_default().into_iter().enumerate() {
        read_tag(&mut draft, &mut fields, place, tag);
    }
    for (name, why) in REFUSED {
        if fields.value(name).is_some() {
            fields.fault(name, why);
        }
    }
    draft.bodies(&mut fields, "text", "html");
    fields.finish();
    (draft, faults)
}

fn recipient(draft: &mut MessageDraft, fields: &mut Fields<'_>, value: Value) {
    match texts(value) {
        Some(mut given) if given.len() == 1 => draft.recipient(fields, "to", given.remove(0)),
        Some(_) => fields.fault("to", ONE_RECIPIENT),
        None => fields.fault("to", "must be a string or a list of one string"),
    }
}

/// Returns a string, or the strings of a list.
fn texts(value: Value) -> Option<Vec<String>> {
    let items = match value {
        Value::Array(items) => items,
        text => vec![text],
    };
    let text = |value| if let Value::String(text) = value { Some(text) } else { None };
    items.into_iter().map(text).collect()
}

/// Converts one attachment to our form. A malformed one is replaced by a harmless one, so that only the error of its
/// form is reported.
fn attachment(draft: &mut MessageDraft, outer: &mut Fields<'_>, place: usize, value: Value) -> Value {
    let path = outer.path(&format!("attachments.{place}"));
    let harmless = || serde_json::json!({ "filename": "attachment", "content": "" });
    let Value::Object(mut object) = value else {
        outer.fault(&format!("attachments.{place}"), "must be an object");
        return harmless();
    };
    let content = object.remove("content");
    let before = outer.violations().by_field().len();
    let mut fields = Fields::nested(present(object), &path, outer.violations());
    if fields.value("path").is_some() {
        fields.fault("path", "attachments by URL are not supported: send the content");
    }
    let mut ours = Map::new();
    match content {
        Some(Value::String(text)) => {
            let packed: String = text.split_ascii_whitespace().collect();
            ours.insert("content".to_owned(), packed.into());
        }
        Some(Value::Array(items)) if items.is_empty() => drop(ours.insert("content".to_owned(), "".into())),
        None | Some(Value::Null) => {}
        Some(_) => fields.fault("content", "must be base64 or a list of bytes"),
    }
    let inline = fields.value("inline_content_id");
    let id = fields.value("content_id");
    if inline.is_some() && id.is_none() {
        draft.moved(format!("{path}.content_id"), format!("{path}.inline_content_id"));
    }
    for (name, value) in [
        ("filename", fields.value("filename")),
        ("content_type", fields.value("content_type")),
        ("content_id", id.or(inline)),
    ] {
        ours.extend(value.map(|value| (name.to_owned(), value)));
    }
    fields.finish();
    if outer.violations().by_field().len() > before { harmless() } else { ours.into() }
}

fn read_tag(draft: &mut MessageDraft, outer: &mut Fields<'_>, place: usize, tag: Value) {
    let path = format!("tags.{place}");
    let Value::Object(object) = tag else {
        outer.fault(&path, "must be an object with name and value");
        return;
    };
    let mut object = object;
    object.retain(|name, value| !is_absent(value) || name == "value" && value.is_string());
    let mut fields = Fields::nested(object, &outer.path(&path), outer.violations());
    let name = fields.required_text("name");
    let value = fields.required_text("value");
    fields.finish();
    if let (Some(name), Some(value)) = (name, value) {
        draft.pair(outer, &path, name, value.into());
    }
}
