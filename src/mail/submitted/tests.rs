//! Tests of submitted messages: the parsed values, and the content of each copy.

use std::time::Duration;

use super::*;
use crate::base::id::Ulid;

fn facts(mail_from: &str) -> ReadingFacts<'_> {
    let limits = SubmissionLimits::at(Timestamp::from_millis(1_700_000_000_000), Duration::from_secs(48 * 3600));
    ReadingFacts { mail_from, limits }
}

fn read(message: &str) -> Result<SubmittedMessage, Unsubmitted> {
    SubmittedMessage::read(message.as_bytes().to_vec(), &facts("envelope@example.com"))
}

/// Returns a message with these header lines.
fn with(headers: &str) -> SubmittedMessage {
    read(&format!("From: a@example.com\r\n{headers}\r\nhello\r\n")).unwrap()
}

/// Returns the violations of a message with these header lines, each as `field: sentence`.
fn faults(headers: &str) -> Vec<String> {
    match read(&format!("From: a@example.com\r\n{headers}\r\nhello\r\n")) {
        Err(Unsubmitted::Invalid(violations)) => {
            let of = |(field, sentences): (&String, &Vec<String>)| format!("{field}: {}", sentences.join("; "));
            violations.by_field().iter().map(of).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn copy(keeps_message_id: bool, hosted: Option<&UnsubscribeUrl>) -> CopyFacts<'_> {
    let at = Timestamp::from_millis(1_700_000_000_000);
    CopyFacts { id: MessageId(Ulid([1; 16])), at, keeps_message_id, hosted_unsubscribe: hosted }
}

fn head(message: &SubmittedMessage) -> String {
    String::from_utf8(message.head(&copy(false, None))).unwrap()
}

fn ours() -> String {
    format!("<{}@example.com>", MessageId(Ulid([1; 16])))
}

#[test]
fn a_copy_has_our_message_id_and_the_clients_remains_searchable() {
    let message = with("Message-ID: <1@app.example>\r\nBcc: c@example.net\r\nDate: x\r\nTo: b@example.net\r\n");
    let expected = format!(
        "Message-ID: {}\r\nFrom: a@example.com\r\nX-Original-Message-ID: <1@app.example>\r\nDate: x\r\n\
         To: b@example.net\r\nReferences: <1@app.example>\r\n\r\n",
        ours()
    );
    assert_eq!(head(&message), expected);
    assert_eq!(message.original_message_id.as_deref(), Some("<1@app.example>"));
    assert_eq!(message.body(), b"hello\r\n");
}

#[test]
fn the_clients_message_id_is_appended_to_references() {
    let references = |headers: &str| {
        let head = head(&with(&format!("Message-ID: <1@x>\r\n{headers}")));
        let place = head.find("References:").unwrap();
        head[place..].trim_end().to_owned()
    };
    assert_eq!(references("References: <a@b>\r\n <c@d>\r\n"), "References: <a@b>\r\n <c@d>\r\n <1@x>");
    assert_eq!(references("In-Reply-To: <a@b>\r\n"), "References: <a@b>\r\n <1@x>");
    assert_eq!(references("References: <a@b> <1@x>\r\n"), "References: <a@b> <1@x>");
    assert_eq!(references("References:\r\n"), "References: <1@x>");
    assert!(!head(&with("Message-ID: 1@x\r\n")).contains("References"), "an invalid identifier is not added");
}

#[test]
fn a_valid_message_id_is_kept_if_the_account_wants_it() {
    let message = with("Message-ID: <1@x>\r\nIn-Reply-To: <a@b>\r\n");
    let kept = String::from_utf8(message.head(&copy(true, None))).unwrap();
    assert!(kept.contains("Message-ID: <1@x>\r\n") && !kept.contains("X-Original") && !kept.contains("References"));
    for invalid in ["1@x", "<1>", "<1@x> <2@x>", "<a b@x>", "<>", ""] {
        let message = with(&format!("Message-ID: {invalid}\r\n"));
        assert!(!message.has_valid_message_id, "{invalid}");
        assert!(String::from_utf8(message.head(&copy(true, None))).unwrap().contains(&ours()));
    }
}

#[test]
fn mail_from_replaces_a_missing_from() {
    let message = read("Subject: x\n\nhello\n").unwrap();
    assert_eq!((message.from.as_given(), message.from_name), ("envelope@example.com", None));
    assert!(head(&read("Subject: x\n\nhello\n").unwrap()).contains("From: envelope@example.com\r\n"));
    for path in ["", "root", "root@localhost"] {
        let message = SubmittedMessage::read(b"Subject: x\r\n\r\nhello\r\n".to_vec(), &facts(path));
        assert!(matches!(message, Err(Unsubmitted::Invalid(_))), "{path}");
    }
    assert!(read("From: a@example.com, b@example.com\r\n\r\nx").is_err());
}

#[test]
fn the_display_name_and_the_subject_are_decoded() {
    let message =
        read("From: =?utf-8?q?J=C3=B6_?= Lee <a@example.com>\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\n\nx").unwrap();
    assert_eq!(
        (message.from_name.as_deref(), message.subject.as_deref()),
        (Some("J\u{f6}  Lee"), Some("Gr\u{fc}\u{df}e"))
    );
}

#[test]
fn steering_headers_are_parsed_and_removed() {
    let message = with(
        "x-SERVICE-idempotency-key: order-1\r\nX-Service-Expires-At: 2023-11-15T10:00:00+00:00\r\n\
         X-Service-Metadata: {\"a\":\r\n \"1\"}\r\nX-Service-Metadata-Order-Id: =?utf-8?q?=C3=B6?=\r\nX-Serviceable: y\r\n",
    );
    let Steering { idempotency_key, notes } = &message.steering;
    assert_eq!(idempotency_key.as_deref(), Some("order-1"));
    let pairs: Vec<_> = notes.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("a", "1"), ("order-id", "\u{f6}")]);
    assert_eq!(notes.expires_at.unwrap().given.to_string(), "2023-11-15T10:00:00.000+00:00");
    assert!(!head(&message).to_lowercase().contains("x-service-") && head(&message).contains("X-Serviceable: y"));
}

#[test]
fn all_errors_of_steering_headers_are_reported_under_their_names() {
    let found = faults(
        "X-Service-Idempotency-Key:\r\nX-Service-Expires-At: tomorrow\r\nX-Service-Metadata: [1]\r\n\
         X-Service-Stream: x\r\nX-Service-Metadata-A: 1\r\nx-service-metadata-a: 2\r\n",
    );
    let names: Vec<_> = found.iter().map(|fault| fault.split(':').next().unwrap()).collect();
    let expected = ["X-Service-Expires-At", "X-Service-Idempotency-Key", "X-Service-Metadata", "X-Service-Stream"];
    assert_eq!(names[..4], expected);
    assert_eq!(names[4..], ["x-service-metadata-a"]);
    let pairs: String = (0..11).map(|number| format!("X-Service-Metadata-k{number}: v\r\n")).collect();
    assert_eq!(faults(&pairs), ["X-Service-Metadata: must have at most 10 pairs"]);
    let number = faults("X-Service-Metadata: {\"a\":1}\r\n");
    assert_eq!(number, ["X-Service-Metadata-a: must be a string"]);
    for twice in [r#"{"a":"1"}"#.to_owned() + "\r\nX-Service-Metadata-A: 2", r#"{"a":"1","a":"2"}"#.to_owned()] {
        assert_eq!(faults(&format!("X-Service-Metadata: {twice}\r\n")).len(), 1, "{twice}");
    }
}

#[test]
fn violations_of_raw_apply_here_too() {
    assert_eq!(faults("Subject: a\r\nSubject: b\r\n").len(), 1);
    assert_eq!(
        faults(&format!("X: {}\r\n", "x".repeat(1000))),
        ["message: must not have lines of more than 998 bytes"]
    );
    assert!(matches!(read(&"X: y\r\n".repeat(20_000)), Err(Unsubmitted::HeaderTooLong)));
}

#[test]
fn a_sender_without_a_full_domain_gets_an_explanation() {
    for from in ["root@localhost", "Shop", "a@example.com, b@example.com"] {
        let Err(Unsubmitted::Invalid(violations)) = read(&format!("From: {from}\r\n\r\nx\r\n")) else {
            panic!("{from}")
        };
        let sentence = "the From header must have exactly one mailbox, at a domain such as example.com";
        assert_eq!(violations.by_field()["message"], [sentence]);
    }
}

#[test]
fn a_message_may_have_20_mib_including_our_additions() {
    let of = |bytes: usize| {
        let message = format!("From: a@example.com\r\n\r\n{}", "x\r\n".repeat(bytes / 3));
        SubmittedMessage::read(message.as_bytes().to_vec(), &facts(""))
            .map(|message| message.head(&copy(false, None)).len())
    };
    let added = of(3).unwrap();
    assert!(of(MESSAGE_BYTES - added - 3).is_ok());
    assert_eq!(of(MESSAGE_BYTES - added + 3), Err(Unsubmitted::TooLong));
}

#[test]
fn uses_the_first_https_url_of_list_unsubscribe_and_keeps_the_headers() {
    let message = with("List-Unsubscribe: <mailto:u@x.example>, <http://x.example/u>,\r\n <https://x.example/ u>\r\n");
    assert_eq!(message.unsubscribe_url.as_ref().unwrap().as_given(), "https://x.example/u");
    assert!(head(&message).contains("<https://x.example/ u>"));
    let hosted: UnsubscribeUrl = "https://mail.example/u/1".parse().unwrap();
    let replaced = String::from_utf8(message.head(&copy(false, Some(&hosted)))).unwrap();
    assert!(replaced.contains("List-Unsubscribe: <https://mail.example/u/1>\r\nList-Unsubscribe-Post:"));
    assert!(!replaced.contains("mailto:"));
    assert!(with("List-Unsubscribe: <mailto:u@x.example>\r\n").unsubscribe_url.is_none());
}

#[test]
fn the_trace_field_is_one_line_without_the_client() {
    let line = received("mail.example.com", MessageId(Ulid([1; 16])), Timestamp::from_millis(1_700_000_000_000));
    let id = MessageId(Ulid([1; 16]));
    let expected = format!("Received: by mail.example.com with ESMTPSA id {id}; Tue, 14 Nov 2023 22:13:20 +0000\r\n");
    assert_eq!(String::from_utf8(line).unwrap(), expected);
}

/// Returns the digest of one message in variants: date, identifiers, boundary and transfer encodings.
fn dressed(boundary: &str, encoding: &str, text: &str, date: &str) -> [u8; 32] {
    let message = format!(
        "From: A <a@EXAMPLE.com>\r\nSubject: Order 1\r\nDate: {date}\r\nMessage-ID: <{date}@x>\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n--{boundary}\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{text}\r\n--{boundary}\r\n\
         Content-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nAAECAw==\r\n--{boundary}--\r\n"
    );
    read(&message).unwrap().fingerprint()
}

#[test]
fn the_fingerprint_depends_only_on_the_content() {
    let first = dressed("b1", "8bit", "Gr\u{fc}\u{df}e\r\nWien", "1");
    assert_eq!(first, dressed("b2", "quoted-printable", "Gr=C3=BC=C3=9Fe\r\nWi=\r\nen", "2"));
    assert_eq!(first, dressed("b3", "base64", "R3LDvMOfZQ0KV2llbg==", "3"));
    assert_ne!(first, dressed("b1", "8bit", "Gr\u{fc}\u{df}e\r\nGraz", "1"));
    let simple = |from: &str, subject: &str| {
        read(&format!("From: {from}\nSubject: {subject}\n\nhello\n")).unwrap().fingerprint()
    };
    let plain = simple("A <a@example.com>", "Gr\u{fc}\u{df}e");
    assert_eq!(plain, simple("a@Example.com", "=?utf-8?b?R3LDvMOfZQ==?="));
    assert_ne!(plain, simple("a@example.com", "Gruesse"));
    assert_ne!(plain, simple("b@example.com", "Gr\u{fc}\u{df}e"));
}
