//! Parser of Postmark's email into a draft.

use serde_json::{Map, Value};

use crate::domain::fields::Fields;
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::http::compat::client_message::{MessageDraft, NO_COPIES, NO_TEMPLATES, NO_TRACKING, present};
use crate::http::compat::names::Names;
use crate::http::compat::service::CompatService;

/// Our metadata key for Postmark's `Tag`.
pub(super) const TAG: &str = "tag";
/// Error text for an unknown stream.
pub(super) const UNKNOWN_STREAM: &str =
    "must be outbound or transactional, or broadcast, broadcasts or marketing, as the domain of From is";
/// Postmark's error number for an unknown stream.
pub(super) const UNKNOWN_STREAM_NUMBER: u16 = 1235;

/// Known but unsupported fields, and the error text for each.
const REFUSED: [(&str, &str); 7] = [
    ("Cc", NO_COPIES),
    ("Bcc", NO_COPIES),
    ("TemplateId", NO_TEMPLATES),
    ("TemplateAlias", NO_TEMPLATES),
    ("TemplateModel", NO_TEMPLATES),
    ("InlineCss", NO_TEMPLATES),
    ("SendAt", "scheduling is not supported: send the message when it is due"),
];

/// A parsed email.
pub(super) struct Read {
    pub(super) draft: MessageDraft,
    pub(super) faults: Violations,
    /// Stream that the client names.
    pub(super) stream: Option<Stream>,
    /// Whether the client names an unknown stream.
    pub(super) names_no_stream: bool,
}

/// Parses the email in `object`. Errors are added to `faults`.
pub(super) fn read(object: Map<String, Value>, mut faults: Violations) -> Read {
    let mut draft = MessageDraft::new(Names::of(CompatService::Postmark));
    let mut fields = Fields::new(present(object), &mut faults);
    draft.sender(&mut fields, "From");
    if let Some(text) = fields.text("To") {
        draft.recipient(&mut fields, "To", text);
    }
    draft.copy(&mut fields, "Subject", "subject");
    for (place, header) in fields.array("Headers").unwrap_or_default().into_iter().enumerate() {
        read_header(&mut draft, &mut fields, place, header);
    }
    if let Some(given) = fields.text("ReplyTo") {
        draft.reply_to(&mut fields, "ReplyTo", &[given]);
    }
    let attachments = fields.array("Attachments").unwrap_or_default().into_iter().enumerate();
    let attachments = attachments.map(|(place, value)| attachment(&mut fields, place, value)).collect();
    draft.attachments(attachments);
    for (name, value) in fields.object("Metadata").unwrap_or_default() {
        let field = format!("Metadata.{name}");
        draft.pair(&mut fields, &field, name, value);
    }
    if let Some(tag) = fields.text("Tag") {
        draft.pair(&mut fields, "Tag", TAG.to_owned(), tag.into());
    }
    refuse(&mut fields);
    let named = fields.text("MessageStream");
    let stream = named.as_deref().and_then(stream);
    let names_no_stream = named.is_some() && stream.is_none();
    if names_no_stream {
        fields.fault("MessageStream", UNKNOWN_STREAM);
    }
    draft.bodies(&mut fields, "TextBody", "HtmlBody");
    fields.finish();
    Read { draft, faults, stream, names_no_stream }
}

/// Rejects fields that are known but not supported. Tracking may be present if it is turned off.
fn refuse(fields: &mut Fields<'_>) {
    for (name, why) in REFUSED {
        if fields.value(name).is_some() {
            fields.fault(name, why);
        }
    }
    if fields.value("TrackOpens").is_some_and(|value| value != Value::Bool(false)) {
        fields.fault("TrackOpens", NO_TRACKING);
    }
    if fields.value("TrackLinks").is_some_and(|value| value != "None") {
        fields.fault("TrackLinks", NO_TRACKING);
    }
}

fn stream(name: &str) -> Option<Stream> {
    match name {
        "outbound" | "transactional" => Some(Stream::Transactional),
        "broadcast" | "broadcasts" | "marketing" => Some(Stream::Marketing),
        _ => None,
    }
}

fn read_header(draft: &mut MessageDraft, outer: &mut Fields<'_>, place: usize, header: Value) {
    let path = format!("Headers.{place}");
    let Value::Object(object) = header else {
        outer.fault(&path, "must be an object with Name and Value");
        return;
    };
    let mut fields = Fields::nested(object, &outer.path(&path), outer.violations());
    let name = fields.required_text("Name");
    let value = fields.value("Value");
    fields.finish();
    if let (Some(name), Some(value)) = (name, value) {
        draft.header(outer, "Headers", name, value);
    }
}

/// Converts one attachment to our form. A malformed one is replaced by a harmless one, so that only the error of its
/// form is reported.
fn attachment(outer: &mut Fields<'_>, place: usize, value: Value) -> Value {
    let path = format!("Attachments.{place}");
    let harmless = || serde_json::json!({ "filename": "attachment", "content": "" });
    let Value::Object(mut object) = value else {
        outer.fault(&path, "must be an object");
        return harmless();
    };
    let content = object.remove("Content");
    let before = outer.violations().by_field().len();
    let mut fields = Fields::nested(present(object), &outer.path(&path), outer.violations());
    let mut ours = Map::new();
    match content {
        Some(Value::String(text)) => {
            // Some clients split base64 into lines.
            let packed: String = text.split_ascii_whitespace().collect();
            ours.insert("content".to_owned(), packed.into());
        }
        None | Some(Value::Null) => {}
        Some(_) => fields.fault("Content", "must be base64"),
    }
    let id = fields.text("ContentID").map(|id| id.strip_prefix("cid:").map_or(id.clone(), str::to_owned));
    for (name, value) in [
        ("filename", fields.value("Name")),
        ("content_type", fields.value("ContentType")),
        ("content_id", id.map(Value::from)),
    ] {
        ours.extend(value.map(|value| (name.to_owned(), value)));
    }
    fields.finish();
    if outer.violations().by_field().len() > before { harmless() } else { ours.into() }
}
