//! Tests of composed messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_parser::{MessageParser, MimeHeaders};
use proptest::prelude::*;

use super::*;

#[test]
fn a_composed_message_has_the_expected_form() {
    let message = composed(json!({
        "from": "news@bücher.example", "from_name": "Bücher & \"Mehr\"", "to": "Leser@Example.NET",
        "subject": "Ihre Bestellung – heute verschickt, morgen bei Ihnen",
        "text": "Guten Tag,\nalles läuft.\n", "html": "<p>Guten Tag</p>",
        "unsubscribe_url": "https://bücher.example/u?t=1", "headers": {"X-Order": "42", "Reply-To": "Jörg <hilfe@bücher.example>"},
        "attachments": [
            {"filename": "logo.png", "content": "iVBORw==", "content_type": "image/png", "content_id": "logo"},
            {"filename": "Über \"uns\".txt", "content": "YQpiCg==", "content_type": "text/plain; charset=utf-8"},
        ],
    }));
    let id = facts().message_id;
    let expected = format!(
        "From: =?UTF-8?B?QsO8Y2hlciAmICJNZWhyIg==?= <news@xn--bcher-kva.example>\r\n\
To: Leser@example.net\r\n\
Subject: =?UTF-8?Q?Ihre_Bestellung_=E2=80=93_heute_verschickt=2C_morgen_be?=\r\n =?UTF-8?Q?i_Ihnen?=\r\n\
Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n\
Message-ID: <{id}@xn--bcher-kva.example>\r\n\
List-Unsubscribe: <https://xn--bcher-kva.example/u?t=1>\r\n\
List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n\
Reply-To: =?UTF-8?B?SsO2cmc=?= <hilfe@xn--bcher-kva.example>\r\n\
X-Order: 42\r\n\
MIME-Version: 1.0\r\n\
Content-Type: multipart/mixed;\r\n boundary=\"=_mix_{id}\"\r\n\
\r\n\
--=_mix_{id}\r\n\
Content-Type: multipart/alternative;\r\n boundary=\"=_alt_{id}\"\r\n\
\r\n\
--=_alt_{id}\r\n\
Content-Type: text/plain; charset=utf-8\r\n\
Content-Transfer-Encoding: quoted-printable\r\n\
\r\n\
Guten Tag,\r\nalles l=C3=A4uft.\r\n\
--=_alt_{id}\r\n\
Content-Type: multipart/related;\r\n boundary=\"=_rel_{id}\"\r\n\
\r\n\
--=_rel_{id}\r\n\
Content-Type: text/html; charset=utf-8\r\n\
Content-Transfer-Encoding: 7bit\r\n\
\r\n\
<p>Guten Tag</p>\r\n\
--=_rel_{id}\r\n\
Content-Type: image/png\r\n\
Content-Disposition: inline;\r\n filename=\"logo.png\"\r\n\
Content-ID: <logo>\r\n\
Content-Transfer-Encoding: base64\r\n\
\r\n\
iVBORw==\r\n\
--=_rel_{id}--\r\n\
--=_alt_{id}--\r\n\
--=_mix_{id}\r\n\
Content-Type: text/plain; charset=utf-8\r\n\
Content-Disposition: attachment;\r\n filename*=UTF-8''%C3%9Cber%20%22uns%22.txt\r\n\
Content-Transfer-Encoding: base64\r\n\
\r\n\
YQpiCg==\r\n\
--=_mix_{id}--\r\n"
    );
    assert_eq!(text_of(&message), expected);
    assert!(!message.eight_bit && !message.smtputf8);
}

#[test]
fn text_alone_is_one_part_and_no_subject_gives_no_header() {
    let message = composed(json!({"text": "Hello\r\n\r\n"}));
    let id = facts().message_id;
    let expected = format!(
        "From: a@example.com\r\nTo: b@example.net\r\nDate: Tue, 14 Nov 2023 22:13:20 +0000\r\n\
Message-ID: <{id}@example.com>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
Content-Transfer-Encoding: 7bit\r\n\r\nHello\r\n\r\n"
    );
    assert_eq!(text_of(&message), expected);
    assert_eq!(message.subject, None);
    assert!(text_of(&composed(json!({"text": "x", "subject": ""}))).contains("\r\nSubject: \r\n"));
}

#[test]
fn one_click_is_offered_only_over_https() {
    let message = composed(json!({"text": "x", "unsubscribe_url": "http://example.com/u"}));
    assert!(text_of(&message).contains("\r\nList-Unsubscribe: <http://example.com/u>\r\n"));
    assert!(!text_of(&message).contains("List-Unsubscribe-Post"));
}

#[test]
fn a_recipients_name_and_a_list_header_are_written_as_given() {
    let body = json!({"from": "a@example.com", "to": "b@example.net", "text": "x",
        "unsubscribe_url": "https://example.com/u"});
    let mut submission = lift(body).unwrap();
    submission.to_name = Some("Lee, Ann".to_owned());
    let given = "<mailto:u@example.com>, <https://example.com/u>";
    submission.list_unsubscribe = HeaderValue::parse(given.to_owned()).ok();
    let message = compose(&submission, &facts()).unwrap();
    assert!(text_of(&message).contains("\r\nTo: \"Lee, Ann\" <b@example.net>\r\n"));
    let lists = "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n";
    assert!(text_of(&message).contains(&format!("\r\nList-Unsubscribe: {given}\r\n{lists}")));
    let hosted: UnsubscribeUrl = "https://mail.example.com/unsubscribe/1".parse().unwrap();
    let ours = compose(&submission, &ComposeFacts { hosted_unsubscribe: Some(&hosted), ..facts() }).unwrap();
    let replaced = format!("\r\nList-Unsubscribe: <{}>\r\n{lists}", hosted.to_wire());
    assert!(text_of(&ours).contains(&replaced) && !text_of(&ours).contains("mailto:"));
}

#[test]
fn a_non_ascii_local_part_needs_smtputf8() {
    let message = composed(json!({"to": "用户@例え.テスト", "text": "x"}));
    assert!(message.smtputf8 && message.eight_bit);
    assert!(text_of(&message).contains("\r\nTo: 用户@xn--r8jz45g.xn--zckzah\r\n"));
}

#[test]
fn smuggled_end_of_data_sequences_are_removed() {
    for text in ["a\n.\nb", "a\r.\rb", "a\r\n.\rb", "a\n.\r\nb", "\r\r\n.\r\r\n", "\n\r", "\r"] {
        let message = composed(json!({"text": text, "html": text}));
        assert!(!text_of(&message).contains("\n.\n") && !text_of(&message).contains("\r.\r"));
    }
}

#[test]
fn empty_lines_are_as_fast_as_other_text() {
    let message = composed(json!({"text": "\n".repeat(5 << 20)}));
    assert!(message.bytes.len() > 10 << 20);
}

#[test]
fn a_message_over_20_mib_is_a_violation_of_its_largest_field() {
    let file = STANDARD.encode(vec![0; 8 << 20]);
    let body = json!({"from": "a@example.com", "to": "b@example.net", "text": "x",
        "attachments": [{"filename": "a", "content": file}, {"filename": "b", "content": file}]});
    let refused = compose(&lift(body).unwrap(), &facts()).unwrap_err();
    assert_eq!(refused.by_field().keys().collect::<Vec<_>>(), ["attachments"]);
}

#[test]
fn long_values_are_folded_and_parse_back_unchanged() {
    let unbroken = "x".repeat(998);
    let spaced = format!("{} {}  {}", "a".repeat(400), "b".repeat(500), "c".repeat(90));
    let url = format!("https://example.com/{}", "u".repeat(2000));
    let name = "X".repeat(76);
    for value in [unbroken.as_str(), &spaced, "a  b", "=?utf-8?q?literal?=", " framed ", &"ü".repeat(998)] {
        let message = composed(json!({
            "text": "x", "subject": value, "from_name": &value[..value.floor_char_boundary(250)],
            "headers": {name.as_str(): value}, "unsubscribe_url": url,
        }));
        let parsed = MessageParser::default().parse(&message.bytes).unwrap();
        assert_eq!(parsed.subject().unwrap().trim(), value.trim());
        assert_eq!(message.subject.as_deref(), Some(value));
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("\r\n".to_owned()),
        Just("\n".to_owned()),
        Just("\r".to_owned()),
        Just(".".to_owned()),
        Just(" ".to_owned()),
        Just("\r\n.\r\n".to_owned()),
        Just("=?utf-8?b?".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just("<a@b.co>".to_owned()),
        Just("ü".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("\t".to_owned()),
        Just("-- \n".to_owned()),
        "[ -~]{0,90}",
        "\\PC{0,20}",
        Just("x".repeat(1000)),
    ];
    proptest::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

fn line() -> impl Strategy<Value = String> {
    hostile().prop_map(|text| text.chars().filter(|c| !c.is_control()).take(255).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_submission_produces_an_invalid_line(
        text in hostile(), html in hostile(), subject in line(), from_name in line(), header in line(), file in line(),
        local in "[a-z!#$]{1,20}",
    ) {
        let file: String = file.chars().filter(|c| !crate::domain::text::is_deceptive(*c) && !"/\\".contains(*c)).take(250).collect();
        let message = composed(json!({
            "from": format!("{local}@example.com"), "text": text, "html": format!("<p>{html}"), "subject": subject.clone(),
            "from_name": from_name, "headers": {"X-Any": header, "Reply-To": subject.clone()},
            "attachments": [{"filename": format!("f{file}"), "content": STANDARD.encode(&text), "content_id": "c"}],
        }));
        let parsed = MessageParser::default().parse(&message.bytes).unwrap();
        prop_assert_eq!(parsed.from().unwrap().first().unwrap().address().unwrap(), format!("{local}@example.com"));
        let attachment = parsed.attachments().next();
        prop_assert_eq!(attachment.map(|part| part.contents()), Some(text.as_bytes()));
        prop_assert!(attachment.and_then(|part| part.attachment_name()).is_some());
        let shown = parsed.subject().unwrap_or_default().trim().to_owned();
        prop_assert_eq!(shown, subject.trim());
    }

    #[test]
    fn no_raw_message_produces_an_invalid_line(head in hostile(), body in hostile()) {
        let raw = format!("From: a@example.com\n{head}\n\n{body}");
        let submission = lift(json!({"from": "a@example.com", "to": "b@example.net", "raw": raw})).unwrap();
        if let Ok(message) = compose(&submission, &facts()) {
            assert_lines(&message);
        }
    }
}
