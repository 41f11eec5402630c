//! Tests of valid and invalid submissions.

use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LIMITS: SubmissionLimits = SubmissionLimits::at(NOW, Duration::from_secs(48 * 3600));

fn lift(body: Value) -> Result<Submission, Violations> {
    let Value::Object(object) = body else { panic!("an object") };
    Submission::lift(object, LIMITS)
}

/// Parses a valid submission with `changes`.
fn with(changes: Value) -> Result<Submission, Violations> {
    let mut body = json!({"from": "a@example.com", "to": "b@example.net", "text": "Hello"});
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    lift(body)
}

fn faults(changes: Value) -> Vec<String> {
    with(changes).unwrap_err().by_field().keys().cloned().collect()
}

#[test]
fn a_minimal_submission_has_sender_recipient_and_body() {
    let Content::Composed(parts) = with(json!({})).unwrap().content else { panic!("parts") };
    assert_eq!(parts, Parts { text: Some("Hello".to_owned()), ..Parts::default() });
    assert!(lift(json!({"from": "a@example.com", "to": "b@example.net", "html": "<p>"})).is_ok());
}

#[test]
fn one_answer_reports_all_violations() {
    let all = lift(json!({
        "from": 7, "from_name": "a\r\nb", "subject": "x\ty", "html": ["no"], "headers": {"Bcc": "x", "X-Ok": "y"},
        "unsubscribe_url": "nope", "metadata": {"a": 1, "": "x"}, "expires_at": "soon", "attachments": [{"filename": "a"}, 3],
        "unsubscribe_ur": "https://x.example/", "nonsense": true,
    }))
    .unwrap_err();
    let fields: Vec<_> = all.by_field().keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "attachments.0.content",
            "attachments.1",
            "expires_at",
            "from",
            "from_name",
            "headers.Bcc",
            "html",
            "metadata.",
            "metadata.a",
            "nonsense",
            "subject",
            "to",
            "unsubscribe_ur",
            "unsubscribe_url",
        ]
    );
    assert_eq!(all.by_field()["from"], ["must be a string"]);
    assert_eq!(all.by_field()["to"], ["is required"]);
    assert_eq!(all.hints(), ["unsubscribe_ur is unknown; did you mean unsubscribe_url?"]);
}

#[test]
fn null_counts_as_absent() {
    let nulls = json!({"from_name": null, "html": null, "headers": null, "attachments": null, "metadata": null,
        "expires_at": null, "raw": null, "subject": null, "unsubscribe_url": null});
    assert_eq!(with(nulls), with(json!({})));
    assert_eq!(faults(json!({"to": null})), ["to"]);
}

#[test]
fn a_body_is_required_and_an_empty_one_counts_as_absent() {
    assert_eq!(faults(json!({"text": null})), ["text"]);
    assert_eq!(faults(json!({"text": "", "html": ""})), ["text"]);
    assert!(with(json!({"text": "", "html": "x"})).is_ok());
    assert_eq!(faults(json!({"text": "a\u{0}b"})), ["text"]);
    assert_eq!(faults(json!({"html": "a".repeat(BODY_BYTES + 1)})), ["html"]);
    assert!(with(json!({"html": "a".repeat(BODY_BYTES)})).is_ok());
}

#[test]
fn raw_excludes_other_fields_and_may_be_base64() {
    let mail = "From: a@example.com\n\nHello";
    let raw = |changes: Value| {
        let mut body = json!({"from": "a@example.com", "to": "b@example.net", "raw": mail});
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        lift(body)
    };
    assert_eq!(raw(json!({})).unwrap().content, Content::Raw(mail.into()));
    let mut wrapped = STANDARD.encode(mail);
    wrapped.insert_str(8, "\r\n ");
    assert_eq!(raw(json!({"raw": wrapped})).unwrap().content, Content::Raw(mail.into()));
    for (name, value) in [
        ("text", json!("x")),
        ("html", json!("x")),
        ("subject", json!("x")),
        ("headers", json!({})),
        ("from_name", json!("x")),
        ("attachments", json!([])),
        ("raw", json!(1)),
        ("raw", json!("")),
        ("raw", json!(" \n")),
        ("raw", json!("abc")),
    ] {
        let refused = raw(json!({name: value})).unwrap_err();
        assert_eq!(refused.by_field().keys().collect::<Vec<_>>(), ["raw"], "{name}");
    }
}

#[test]
fn metadata_and_attachments_are_limited() {
    let pairs =
        |count: usize| json!({"metadata": Value::Object((0..count).map(|n| (n.to_string(), "v".into())).collect())});
    assert!(with(pairs(10)).is_ok());
    assert_eq!(faults(pairs(11)), ["metadata"]);
    assert!(with(json!({"metadata": {"é".repeat(40): "é".repeat(500)}})).is_ok());
    assert_eq!(faults(json!({"metadata": {"k": "v".repeat(501)}})), ["metadata.k"]);
    let files = |count: usize| json!({"attachments": vec![json!({"filename": "a", "content": "YQ=="}); count]});
    assert!(with(files(20)).is_ok());
    assert_eq!(faults(files(21)), ["attachments"]);
    let twice = json!({"filename": "a", "content": "", "content_id": "x"});
    assert_eq!(faults(json!({"attachments": [twice, twice]})), ["attachments.1.content_id"]);
}

#[test]
fn expiry_is_at_least_a_minute_and_at_most_the_queue_lifetime_ahead() {
    let at = |seconds: u64| json!({"expires_at": (NOW + Duration::from_secs(seconds)).to_string()});
    assert_eq!(with(at(60)).unwrap().expires_at, Some((NOW + Duration::from_secs(60)).into()));
    assert!(with(at(48 * 3600)).is_ok());
    assert_eq!(faults(at(59)), ["expires_at"]);
    assert_eq!(faults(at(48 * 3600 + 1)), ["expires_at"]);
    assert_eq!(faults(json!({"expires_at": 1_700_000_100})), ["expires_at"]);
}

#[test]
fn while_the_clock_is_doubtful_an_expiry_may_be_by_either_clock() {
    let hour = Duration::from_secs(3600);
    for wall in [NOW + 240 * hour, Timestamp::from_millis(NOW.as_millis() - 240 * 3_600_000)] {
        let limits = SubmissionLimits { wall, ..LIMITS };
        assert_eq!(limits.expiry(NOW + hour), Ok((NOW + hour).into()));
        assert_eq!(limits.expiry(wall + hour), Ok(Expiry { given: wall + hour, at: NOW + hour }));
        assert!(limits.expiry(wall + 49 * hour).is_err() && limits.expiry(NOW + 49 * hour).is_err());
    }
}

#[test]
fn a_submission_survives_serialization() {
    let whole =
        with(json!({"html": "<p>", "subject": "ü", "from_name": "A", "headers": {"X-A": "b"}, "metadata": {"k": "v"},
        "unsubscribe_url": "https://example.com/u", "expires_at": (NOW + Duration::from_secs(600)).to_string(),
        "attachments": [{"filename": "a", "content": "AAEC", "content_id": "c"}]}))
        .unwrap();
    let row = postcard::to_stdvec(&whole).unwrap();
    assert_eq!(postcard::from_bytes::<Submission>(&row).unwrap(), whole);
}

#[test]
fn a_field_of_another_service_gets_a_hint_about_its_replacement() {
    for (name, hint) in [
        ("cc", "cc is unknown: send one request per recipient."),
        ("bcc", "bcc is unknown: send one request per recipient."),
        ("reply_to", "reply_to is unknown: set Reply-To under `headers`."),
        ("tags", "tags is unknown: use `metadata`."),
        ("send_at", "send_at is unknown: scheduling is not supported."),
        ("body", "body is unknown: use `text` or `html`."),
        ("template_id", "template_id is unknown: templates are not supported: render before sending."),
    ] {
        let refused = with(json!({ name: "x" })).unwrap_err();
        assert_eq!(refused.by_field()[name], ["unknown field"]);
        assert_eq!(refused.hints(), [hint]);
    }
}

#[test]
fn a_recipient_list_and_a_display_name_get_a_hint() {
    let refused = with(json!({"to": ["b@example.net", "c@example.net"]})).unwrap_err();
    assert_eq!(refused.by_field()["to"], ["`to` takes one address: send one request per recipient"]);
    let refused = with(json!({"from": "Shop <a@example.com>"})).unwrap_err();
    assert!(refused.by_field()["from"][0].ends_with("use `from_name` for the display name"), "{refused:?}");
    assert_eq!(refused.hints(), ["from: use `from_name` for the display name."]);
}
