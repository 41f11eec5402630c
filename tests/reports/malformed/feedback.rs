//! Errors in feedback reports: a report that is not clearly a complaint is not one, and never a bounce.

use super::Kind::{Feedback, Unknown};
use super::{Defect, Malformed, with_faults};

const GOOD: &str = "From: postmaster@isp.example
Subject: Undeliverable? No: a complaint
Content-Type: multipart/report; report-type=feedback-report; boundary=\"B\"

--B
Content-Type: text/plain

This message was not delivered to the inbox.

--B
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: SomeGenerator/1.0
Version: 1
Original-Mail-From: <b+token@rp.example.com>
Original-Rcpt-To: <bob@example.net>

--B
Content-Type: text/rfc822-headers

Message-ID: <msg_01@example.com>

--B--
";

const TOP: &str = "multipart/report; report-type=feedback-report; boundary=\"B\"";
const PART: &str = "Content-Type: message/feedback-report\n";
const TYPE: &str = "Feedback-Type: abuse";

const FAULTS: &[Defect<'_>] = &[
    ("arf: report of delivery", TOP, "multipart/report; report-type=disposition-notification; boundary=\"B\"", Unknown),
    ("arf: report of nothing known", TOP, "multipart/report; report-type=feedback; boundary=\"B\"", Unknown),
    ("arf: report type empty", TOP, "multipart/report; report-type=; boundary=\"B\"", Feedback),
    (
        "arf: report type in quotes",
        TOP,
        "multipart/report; report-type=\" Feedback-Report \"; boundary=\"B\"",
        Feedback,
    ),
    ("arf: no boundary", TOP, "multipart/report; report-type=feedback-report", Unknown),
    ("arf: boundary of another", TOP, "multipart/report; report-type=feedback-report; boundary=C", Unknown),
    ("arf: boundary empty", TOP, "multipart/report; report-type=feedback-report; boundary=", Unknown),
    ("arf: two content types", "Subject: Undeliverable? No: a complaint", "Content-Type: text/plain", Unknown),
    ("arf: part as text", PART, "Content-Type: text/plain\n", Unknown),
    ("arf: part without type", PART, "", Unknown),
    ("arf: part of delivery", PART, "Content-Type: message/delivery-status\n", Unknown),
    ("arf: part of two types", PART, "Content-Type: message/feedback-report\nContent-Type: text/plain\n", Unknown),
    ("arf: part in upper case", PART, "CONTENT-TYPE: MESSAGE/FEEDBACK-REPORT\n", Feedback),
    (
        "arf: part nested",
        PART,
        "Content-Type: multipart/mixed; boundary=C\n\n--C\nContent-Type: message/feedback-report\n",
        Unknown,
    ),
    (
        "arf: part in a message",
        PART,
        "Content-Type: message/rfc822\n\nContent-Type: message/feedback-report\n",
        Unknown,
    ),
    (
        "arf: part in base64 that is none",
        PART,
        "Content-Type: message/feedback-report\nContent-Transfer-Encoding: base64\n",
        Unknown,
    ),
    (
        "arf: part in base64",
        "Content-Type: message/feedback-report\n\nFeedback-Type: abuse\n",
        "Content-Type: message/feedback-report\nContent-Transfer-Encoding: base64\n\nRmVlZGJhY2stVHlwZTogYWJ1c2UK=\n",
        Feedback,
    ),
    (
        "arf: part in quoted-printable",
        "Content-Type: message/feedback-report\n\nFeedback-Type: abuse\n",
        "Content-Type: message/feedback-report\nContent-Transfer-Encoding: quoted-printable\n\nFeedback-Ty=\npe: =61buse\n",
        Feedback,
    ),
    (
        "arf: part without an empty line",
        "feedback-report\n\nFeedback-Type: abuse\nUser",
        "feedback-report\nFeedback-Type: abuse\nUser",
        Unknown,
    ),
    (
        "arf: part of empty lines",
        "feedback-report\n\nFeedback-Type",
        "feedback-report\n\n\n\n\nFeedback-Type",
        Feedback,
    ),
    ("arf: no type", "Feedback-Type: abuse\n", "", Unknown),
    ("arf: type empty", TYPE, "Feedback-Type:", Unknown),
    ("arf: type without colon", TYPE, "Feedback-Type abuse", Unknown),
    ("arf: type in a comment", TYPE, "Feedback-Type: (abuse)", Unknown),
    ("arf: type with an open comment", TYPE, "Feedback-Type: abuse (", Feedback),
    ("arf: type behind an open comment", TYPE, "Feedback-Type: ( abuse", Unknown),
    ("arf: type in upper case", TYPE, "FEEDBACK-TYPE: ABUSE", Feedback),
    ("arf: type folded", TYPE, "Feedback-Type:\n abuse", Feedback),
    ("arf: type of two words", TYPE, "Feedback-Type: not spam", Feedback),
    ("arf: type with controls", TYPE, "Feedback-Type: ab\0use\u{7f}", Feedback),
    ("arf: type of no UTF-8", TYPE, "Feedback-Type: ¿¿", Feedback),
    ("arf: two types that differ", TYPE, "Feedback-Type: abuse\nFeedback-Type: not-spam", Unknown),
    ("arf: two types, one empty", TYPE, "Feedback-Type: abuse\nFeedback-Type:", Unknown),
    ("arf: two types alike", TYPE, "Feedback-Type: abuse\nFeedback-Type: Abuse", Feedback),
    ("arf: type behind an empty line", TYPE, "X-A: b\n\nFeedback-Type: abuse", Unknown),
    ("arf: type indented", TYPE, "X-A: b\n Feedback-Type: abuse", Unknown),
    ("arf: no agent", "User-Agent: SomeGenerator/1.0\n", "", Feedback),
    ("arf: agent empty", "SomeGenerator/1.0", "", Feedback),
    ("arf: no version", "Version: 1\n", "", Feedback),
    ("arf: version nonsense", "Version: 1\n", "Version: ¿\n", Feedback),
    ("arf: sender empty", "<b+token@rp.example.com>", "", Feedback),
    ("arf: sender with an open bracket", "<b+token@rp.example.com>", "<b+token@rp.example.com", Feedback),
    ("arf: sender of comments", "<b+token@rp.example.com>", "(a(b)c)", Feedback),
    ("arf: recipient redacted", "<bob@example.net>", "[redacted]", Feedback),
    ("arf: recipient empty", "<bob@example.net>", "", Feedback),
    ("arf: recipient of signs", "<bob@example.net>", "@@@@", Feedback),
    ("arf: recipient with controls", "<bob@example.net>", "<b\u{1b}ob@example.net>", Feedback),
    ("arf: returned as text", "Content-Type: text/rfc822-headers", "Content-Type: text/plain", Feedback),
    ("arf: nothing returned", "Message-ID: <msg_01@example.com>\n", "", Feedback),
    ("arf: returned without an end", "Message-ID: <msg_01@example.com>\n\n--B--\n", "Message-ID", Feedback),
    (
        "arf: cut within its fields",
        "Version: 1\nOriginal-Mail-From: <b+token@rp.example.com>\nOriginal-Rcpt-To: <bob@example.net>\n\n--B\nContent-Type: text/rfc822-headers\n\nMessage-ID: <msg_01@example.com>\n\n--B--\n",
        "Vers",
        Feedback,
    ),
];

pub(super) fn all() -> Vec<Malformed> {
    let mut all = with_faults(GOOD, FAULTS);
    let x = |count: usize| "x".repeat(count);
    for (name, from, to, kind) in [
        ("arf size: type of ten thousand", "abuse", x(10_000), Feedback),
        ("arf size: agent of ten thousand", "SomeGenerator", x(10_000), Feedback),
        ("arf size: agent of a megabyte", "SomeGenerator", x(1_000_000), Feedback),
        ("arf size: type behind the limit", TYPE, format!("X: {}\n{TYPE}", x(100_000)), Unknown),
        (
            "arf size: recipients without number",
            "Version: 1\n",
            "Original-Rcpt-To: <a@b.example>\n".repeat(2000),
            Feedback,
        ),
        ("arf size: parts without number", "--B\nContent-Type: text/plain", "--B\n\n".repeat(1000) + "--B", Unknown),
        ("arf size: part header over its limit", PART, format!("{PART}X: {}\n", x(70_000)), Unknown),
        ("arf size: returned header over its limit", "Message-ID:", format!("X: {}\nMessage-ID:", x(70_000)), Feedback),
    ] {
        let message = GOOD.replacen(from, &to, 1);
        assert_ne!(message, GOOD, "{name}");
        all.push(Malformed::new(name, &message, kind));
    }
    all
}
