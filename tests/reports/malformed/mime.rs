//! Bodies that are expensive to parse: deeply nested, split, encoded and unterminated. They come from a mail system
//! with the subject of a bounce, so that the whole reader runs.

use super::Kind::{AutoReply, Bounce, Delivery, Unknown};
use super::{Kind, Malformed};

const HEAD: &str = "From: MAILER-DAEMON@mx.example.net\nSubject: failure notice\nMIME-Version: 1.0\n";
const STATUS: &str = "Content-Type: message/delivery-status\n\nFinal-Recipient: rfc822; a@b.example\nAction: failed\n";

/// Returns nested multiparts of this depth around a text.
fn nested(depth: usize) -> String {
    let open = |level: usize| format!("Content-Type: multipart/mixed; boundary=b{level}\n\n--b{level}\n");
    let levels: String = (0..depth).map(open).collect();
    format!("{HEAD}{levels}Content-Type: text/plain\n\ngone\n")
}

pub(super) fn all() -> Vec<Malformed> {
    let report = |body: &str| format!("{HEAD}Content-Type: multipart/report; boundary=B\n\n{body}");
    let typed = |content_type: &str, body: &str| format!("{HEAD}Content-Type: {content_type}\n\n{body}");
    let encoded = |encoding: &str, body: &str| format!("{HEAD}Content-Transfer-Encoding: {encoding}\n\n{body}");
    let rows: Vec<(&str, String, Kind)> = vec![
        ("mime: nothing", String::new(), Unknown),
        ("mime: one line end", "\n".to_owned(), Unknown),
        ("mime: one colon", ":".to_owned(), Unknown),
        ("mime: one NUL", "\0".to_owned(), Unknown),
        ("mime: blanks", " \t ".to_owned(), Unknown),
        ("mime: no UTF-8 alone", "¿".repeat(1000), Unknown),
        ("mime: header alone", HEAD.to_owned(), Bounce),
        ("mime: content type alone", "Content-Type: multipart/report; boundary=B".to_owned(), Unknown),
        ("mime: delimiter alone", report("--B"), Bounce),
        ("mime: delimiters alone", report(&"--B\n".repeat(50)), Bounce),
        ("mime: delimiters without number", report(&"--B\n".repeat(100_000)), Unknown),
        ("mime: last delimiters without number", report(&"--B--\n".repeat(100_000)), Unknown),
        ("mime: dashes without number", report(&"-".repeat(500_000)), Unknown),
        ("mime: dashed lines without number", report(&"--\n".repeat(200_000)), Unknown),
        ("mime: nested twice", nested(2), Bounce),
        ("mime: nested to the limit", nested(19), Bounce),
        ("mime: nested beyond the limit", nested(20), Unknown),
        ("mime: nested a thousand times", nested(1000), Unknown),
        (
            "mime: nested in messages",
            typed("message/rfc822", &"Content-Type: message/rfc822\n\n".repeat(1000)),
            Unknown,
        ),
        (
            "mime: report in a report",
            report(&format!("--B\nContent-Type: multipart/report; boundary=C\n\n--C\n{STATUS}\n--C--\n--B--\n")),
            Unknown,
        ),
        (
            "mime: report in a digest",
            typed(
                "multipart/digest; boundary=D",
                &format!("--D\n\nContent-Type: multipart/report; boundary=B\n\n--B\n{STATUS}--B--\n--D--\n"),
            ),
            Bounce,
        ),
        (
            "mime: one boundary on two levels",
            report(&format!("--B\nContent-Type: multipart/mixed; boundary=B\n\n--B\n{STATUS}\n--B--\n")),
            Delivery,
        ),
        (
            "mime: boundary that begins another",
            report(&format!("--BB\n{STATUS}\n--BB--\n--B\nContent-Type: text/plain\n\nx\n--B--\n")),
            Bounce,
        ),
        (
            "mime: boundary of signs",
            typed(
                "multipart/report; boundary=\"'()+_,-./:=?\"",
                &format!("--'()+_,-./:=?\n{STATUS}\n--'()+_,-./:=?--\n"),
            ),
            Delivery,
        ),
        (
            "mime: boundary of no UTF-8",
            typed("multipart/report; boundary=\"¿\"", &format!("--¿\n{STATUS}\n--¿--\n")),
            Unknown,
        ),
        ("mime: status as long as all", report(&format!("--B\n{STATUS}{}", "a".repeat(900_000))), Delivery),
        ("mime: a hundred statuses", report(&format!("--B\n{STATUS}\n").repeat(100)), Delivery),
        (
            "mime: status behind one of no use",
            report(&format!("--B\nContent-Type: message/delivery-status\n\nx\n\n--B\n{STATUS}\n--B--\n")),
            Unknown,
        ),
        ("mime: base64 of nothing", encoded("base64", ""), Bounce),
        ("mime: base64 of padding", encoded("base64", &"=".repeat(1000)), Bounce),
        ("mime: base64 of signs", encoded("base64", "!§$%&/()"), Bounce),
        ("mime: base64 of one character", encoded("base64", "A"), Bounce),
        ("mime: base64 without end", encoded("base64", &"QUFB".repeat(200_000)), Bounce),
        ("mime: quoted-printable of signs", encoded("quoted-printable", &"=".repeat(100_000)), Bounce),
        ("mime: quoted-printable cut", encoded("quoted-printable", "abc=4"), Bounce),
        ("mime: quoted-printable of NULs", encoded("quoted-printable", &"=00".repeat(10_000)), Bounce),
        ("mime: HTML without end", typed("text/html", &"<".repeat(200_000)), Bounce),
        ("mime: HTML of tags", typed("text/html", &"<a <b <c>".repeat(20_000)), Bounce),
        ("mime: HTML of entities", typed("text/html", &"&#x110000;&amp;&;&#;".repeat(5000)), Bounce),
        ("mime: HTML of comments", typed("text/html", &"<!--".repeat(50_000)), Bounce),
        ("mime: text of one line", typed("text/plain", &"550 ".repeat(250_000)), Bounce),
        ("mime: text of lines without number", typed("text/plain", &"\n".repeat(400_000)), Bounce),
        ("mime: text of quotations", typed("text/plain", &"said: 550 ".repeat(50_000)), Bounce),
        ("mime: text in UTF-16", typed("text/plain; charset=utf-16", &"a\0b\0".repeat(1000)), Bounce),
        ("mime: picture", typed("image/png", "¿PNG"), Unknown),
        ("mime: auto-submitted without end", format!("Auto-Submitted: auto-{}\n\n", "x".repeat(60_000)), AutoReply),
        ("mime: auto-submitted in an open comment", "Auto-Submitted: (auto-replied\n\n".to_owned(), Unknown),
        ("mime: auto-submitted of no UTF-8", "Auto-Submitted: ¿\n\n".to_owned(), AutoReply),
    ];
    rows.into_iter().map(|(name, message, kind)| Malformed::new(name, &message, kind)).collect()
}
