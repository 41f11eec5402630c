//! Tests of `raw`: refusals, and the few changes.

use super::*;
use crate::base::entropy::SeededEntropy;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::mail::compose::message_id_header;
use crate::mail::dkim::{SigningKey, sign};
use crate::mail::dkim_key::generate;

fn rewrite(raw: &str) -> Result<ComposedMessage, Violations> {
    rewrite_with(json!({"raw": raw}))
}

fn rewrite_with(changes: Value) -> Result<ComposedMessage, Violations> {
    let mut body = json!({"from": "a@example.com", "to": "b@example.net"});
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    let message = compose(&lift(body).unwrap(), &facts())?;
    assert_lines(&message);
    Ok(message)
}

#[test]
fn a_raw_message_is_changed_only_as_specified() {
    let raw = "Received: from x\nReturn-Path: <x@example.com>\nFrom:  \"A\"\n <a@EXAMPLE.com>\nBCC: s@example.org,\n t@example.org\nresent-bcc: u@example.org,\n v@example.org\n\
To: someone else <c@example.org>\nMessage-Id: <old@example.com>\nsubject: =?utf-8?q?H=C3=A4llo?=\n  W\nX-Odd:\t y  \n\nBody \n.\n\n";
    let message = rewrite(raw).unwrap();
    let id = message_id_header(facts().message_id, &"a@example.com".parse().unwrap());
    let expected = format!(
        "Message-ID: {id}\r\nDate: Tue, 14 Nov 2023 22:13:20 +0000\r\nReceived: from x\r\nFrom:  \"A\"\r\n <a@EXAMPLE.com>\r\n\
To: someone else <c@example.org>\r\nX-Original-Message-ID: <old@example.com>\r\nsubject: =?utf-8?q?H=C3=A4llo?=\r\n  W\r\n\
X-Odd:\t y  \r\n\r\nBody \r\n.\r\n\r\n"
    );
    assert_eq!(text_of(&message), expected);
    assert_eq!(message.subject.as_deref(), Some("Hällo W"));
    assert_eq!((message.eight_bit, message.smtputf8, message.received_count), (false, false, 1));
    assert_eq!(rewrite(&raw.replace('\n', "\r\n")).unwrap(), message);
}

#[test]
fn a_date_is_kept_and_a_message_without_an_empty_line_has_no_body() {
    let message = rewrite("From: a@example.com\nDate: Mon, 1 Jan 2024 00:00:00 +0000").unwrap();
    let id = message_id_header(facts().message_id, &"a@example.com".parse().unwrap());
    let expected = format!("Message-ID: {id}\r\nFrom: a@example.com\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\n\r\n");
    assert_eq!(text_of(&message), expected);
    assert_eq!(message.subject, None);
}

#[test]
fn an_unsubscribe_url_replaces_both_list_headers() {
    let raw = "From: a@example.com\nLIST-Unsubscribe: <https://old.example/>,\n <mailto:x@y.example>\nList-Unsubscribe-Post: x\n\nB";
    let kept = rewrite(raw).unwrap();
    assert!(text_of(&kept).contains(
        "LIST-Unsubscribe: <https://old.example/>,\r\n <mailto:x@y.example>\r\nList-Unsubscribe-Post: x\r\n"
    ));
    let replaced = rewrite_with(json!({"raw": raw, "unsubscribe_url": "https://new.example/"})).unwrap();
    let text = text_of(&replaced);
    assert!(!text.contains("old.example") && !text.contains("Post: x"));
    assert!(
        text.contains(
            "List-Unsubscribe: <https://new.example/>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
        )
    );
}

#[test]
fn bytes_above_127_are_classified_by_place() {
    let body = rewrite("From: a@example.com\n\nGrüße").unwrap();
    assert!(body.eight_bit && !body.smtputf8);
    let header = rewrite("From: a@example.com\nSubject: Grüße\n\nx").unwrap();
    assert!(header.eight_bit && header.smtputf8);
    assert_eq!(header.subject.as_deref(), Some("Grüße"));
}

#[test]
fn rejects_every_malformed_raw_message() {
    let from = "From: a@example.com\n";
    let long_line = format!("{from}\n{}", "x".repeat(999));
    let long_head = format!("{from}{}\n\nx", "X-A: b\n".repeat(9363));
    let second = |name: &str| format!("{from}{name}: x@example.com\n{}: y@example.com\n\nx", name.to_lowercase());
    let mut cases = vec![
        ("a bare CR", format!("{from}\na\rb")),
        ("a bare CR at the end", format!("{from}\na\r")),
        ("CR CR LF", format!("{from}\na\r\r\nb")),
        ("a bare CR in a header", format!("{from}X: a\rBcc: b\n\nx")),
        ("NUL", format!("{from}\na\0b")),
        ("a long line", long_line),
        ("a long header section", long_head),
        ("no colon", format!("{from}Hello\n\nx")),
        ("no name", format!("{from}: x\n\nx")),
        ("a continuation first", format!(" x\n{from}\nx")),
        ("an mbox line", format!("From a@example.com Mon Jan  1 00:00:00 2024\n{from}\nx")),
        ("a space before the colon", format!("{from}From : b@example.com\n\nx")),
        ("no From", "Subject: x\n\nx".to_owned()),
        ("nothing but a body", "\nHello!\n".to_owned()),
        ("an empty From", "From: \n\nx".to_owned()),
        ("two mailboxes", "From: a@example.com, b@example.com\n\nx".to_owned()),
        ("a group", "From: g: a@example.com;\n\nx".to_owned()),
        ("a hidden second address", "From: a@example.com <a@evil.example>\n\nx".to_owned()),
        ("too deep", format!("{from}{}", nested(21))),
        ("too deep in messages", format!("{from}{}\nx", "Content-Type: message/rfc822\n\n".repeat(21))),
    ];
    for name in ["From", "To", "Subject", "Date", "Message-ID", "Sender", "Reply-To"] {
        let raw = if name == "From" { format!("{from}FROM: a@example.com\n\nx") } else { second(name) };
        cases.push(("a second field", raw));
    }
    for (what, raw) in cases {
        let fields: Vec<_> = rewrite(&raw).expect_err(what).by_field().keys().cloned().collect();
        assert_eq!(fields, ["raw"], "{what}");
    }
    assert!(rewrite(&format!("{from}{}", nested(20))).is_ok());
    assert!(rewrite(&format!("{from}\n{}", "x".repeat(998))).is_ok());
}

fn nested(levels: usize) -> String {
    let mut raw = String::new();
    for level in 0..levels {
        let fold = if level % 2 == 0 { "\n\t" } else { " " };
        raw.push_str(&format!(
            "Content-Type: MULTIPART/mixed; x=\"a;b\";{fold}Boundary=\"b {level}\"\n\n--b {level}\n"
        ));
    }
    raw + "Content-Type: text/plain\n\nx\n"
}

#[test]
fn siblings_do_not_add_depth_and_a_longer_boundary_differs() {
    let parts = "--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n\nx\n--c--\n".repeat(100);
    let raw = format!("From: a@example.com\nContent-Type: multipart/mixed; boundary=b\n\n{parts}--b--\n");
    assert!(rewrite(&raw).is_ok());
    let parts = "--bb\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--b--\n".repeat(100);
    let raw = format!("From: a@example.com\nContent-Type: multipart/mixed; boundary=bb\n\n{parts}--bb--\n");
    assert!(rewrite(&raw).is_ok());
}

#[test]
fn hostile_header_sections_are_refused_or_signed_without_much_work() {
    let refused = rewrite(&"a:\n".repeat(5 << 20)).unwrap_err();
    assert_eq!(refused.by_field().keys().collect::<Vec<_>>(), ["raw"]);
    let lists: String = (0..4000).map(|n| format!("List-{n}: x\n")).collect();
    let message = rewrite(&format!("From: a@example.com\n{lists}\nx")).unwrap();
    let key = generate(DkimAlgorithm::Ed25519Sha256, &SeededEntropy::new(1)).unwrap();
    let domain = "example.com".parse().unwrap();
    let key = SigningKey::from_pkcs8(domain, "s", DkimAlgorithm::Ed25519Sha256, key.pkcs8.expose()).unwrap();
    assert!(sign(&[&key], &message.bytes, AT).unwrap().len() < 2048);
}

#[test]
fn a_from_of_another_domain_is_a_violation_of_from() {
    for from in
        ["a@evil.example", "a@sub.example.com", "\"a@example.com\" <a@evil.example>", "(a@example.com) a@evil.example"]
    {
        let refused = rewrite(&format!("From: {from}\n\nx")).unwrap_err();
        assert_eq!(refused.by_field().keys().collect::<Vec<_>>(), ["from"], "{from}");
    }
    let idn = rewrite_with(json!({"from": "a@bücher.example", "raw": "From: b@xn--bcher-kva.example\n\nx"}));
    assert!(idn.is_ok());
}

#[test]
fn a_long_old_message_id_stays_within_the_line_limit() {
    let id = format!("<{}@example.com>", "x".repeat(960));
    let message = rewrite(&format!("From: a@example.com\nMessage-ID: {id}\n\nx")).unwrap();
    assert!(text_of(&message).contains(&format!("X-Original-Message-ID:\r\n {id}\r\n")));
}

#[test]
fn counts_received_headers_of_a_looping_message() {
    let raw = format!("{}From: a@example.com\n\nx", "Received: by x\n".repeat(51));
    assert_eq!(rewrite(&raw).unwrap().received_count, 51);
}

#[test]
fn only_a_single_field_with_no_waives_tls() {
    for (fields, waives) in [
        ("", false),
        ("TLS-Required: No\n", true),
        ("tls-required:\n  NO \n", true),
        ("TLS-Required: Yes\n", false),
        ("TLS-Required: No, really\n", false),
        ("TLS-Required: No\nTLS-Required: No\n", false),
    ] {
        let raw = format!("From: a@example.com\n{fields}\nTLS-Required: No\n");
        assert_eq!(rewrite(&raw).unwrap().waives_tls, waives, "{fields:?}");
    }
    for (headers, waives) in [(json!({}), false), (json!({"Tls-required": "no"}), true), (json!({"X": "No"}), false)] {
        let message = composed(json!({"text": "x", "headers": headers}));
        assert_eq!(message.waives_tls, waives, "{headers}");
    }
}
