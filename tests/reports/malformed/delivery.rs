//! Errors in delivery reports. If the status part is unusable, the text makes the message a bounce without certainty.
//! If the text is not recognised either, the message counts as an auto-reply.

use super::Kind::{AutoReply, Bounce, Delivery, Unknown};
use super::{Defect, Malformed, with_faults};

const GOOD: &str = "Return-Path: <>
From: Mail Delivery System <MAILER-DAEMON@mx.example.net>
Subject: Undelivered Mail Returned to Sender
Auto-Submitted: auto-replied
Content-Type: multipart/report; report-type=delivery-status; boundary=\"B\"

preamble
--B
Content-Type: text/plain

Your message could not be delivered.

--B
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.net

Final-Recipient: rfc822; bob@example.net
Action: failed
Status: 5.1.1
Remote-MTA: dns; mail.example.net
Diagnostic-Code: smtp; 550 5.1.1 no such user

--B
Content-Type: message/rfc822

Message-ID: <msg_01@example.com>

Hello
--B--
";

const TOP: &str = "multipart/report; report-type=delivery-status; boundary=\"B\"";
const STATUS: &str = "Content-Type: message/delivery-status\n";

const FAULTS: &[Defect<'_>] = &[
    // Top level.
    (
        "top: no content type",
        "Content-Type: multipart/report; report-type=delivery-status; boundary=\"B\"\n",
        "",
        Bounce,
    ),
    ("top: two content types", "Auto-Submitted: auto-replied", "Content-Type: text/plain", Unknown),
    ("top: content type without a value", TOP, "", Bounce),
    ("top: mixed", TOP, "multipart/mixed; boundary=\"B\"", Delivery),
    ("top: alternative", TOP, "multipart/alternative; boundary=\"B\"", Bounce),
    ("top: reports", TOP, "multipart/reports; report-type=delivery-status; boundary=\"B\"", Bounce),
    ("top: status itself", TOP, "message/delivery-status", AutoReply),
    ("top: rfc822", TOP, "message/rfc822", AutoReply),
    ("top: bytes", TOP, "application/octet-stream", AutoReply),
    ("top: nonsense type", TOP, ";;;===\"\"\"", Bounce),
    ("top: report of feedback", TOP, "multipart/report; report-type=feedback-report; boundary=\"B\"", AutoReply),
    (
        "top: report of reading",
        TOP,
        "multipart/report; report-type=disposition-notification; boundary=\"B\"",
        AutoReply,
    ),
    ("top: report of TLS", TOP, "multipart/report; report-type=tlsrpt; boundary=\"B\"", AutoReply),
    ("top: report of nothing known", TOP, "multipart/report; report-type=delivery-statuss; boundary=\"B\"", AutoReply),
    ("top: report type empty", TOP, "multipart/report; report-type=; boundary=\"B\"", Delivery),
    ("top: report type quoted empty", TOP, "multipart/report; report-type=\"\"; boundary=\"B\"", Delivery),
    ("top: report type without equals", TOP, "multipart/report; report-type; boundary=\"B\"", Delivery),
    (
        "top: report type twice",
        TOP,
        "multipart/report; report-type=delivery-status; report-type=x; boundary=B",
        Delivery,
    ),
    ("top: no boundary", TOP, "multipart/report; report-type=delivery-status", AutoReply),
    ("top: boundary empty", TOP, "multipart/report; report-type=delivery-status; boundary=\"\"", AutoReply),
    ("top: boundary of blanks", TOP, "multipart/report; report-type=delivery-status; boundary=\"  \"", AutoReply),
    ("top: boundary of another", TOP, "multipart/report; report-type=delivery-status; boundary=\"C\"", AutoReply),
    ("top: boundary in lower case", TOP, "multipart/report; report-type=delivery-status; boundary=\"b\"", AutoReply),
    ("top: boundary not closed", TOP, "multipart/report; report-type=delivery-status; boundary=\"B", Delivery),
    ("top: boundary with a blank", TOP, "multipart/report; report-type=delivery-status; boundary=\"B \"", Delivery),
    ("top: boundary escaped", TOP, "multipart/report; report-type=delivery-status; boundary=\"\\B\"", Delivery),
    ("top: boundary twice", TOP, "multipart/report; report-type=delivery-status; boundary=C; boundary=B", AutoReply),
    ("top: boundary before a comment", TOP, "multipart/report; boundary=B (; boundary=C)", Delivery),
    ("top: boundary in an open comment", TOP, "multipart/report; report-type=delivery-status (boundary=B", AutoReply),
    ("top: line without a colon", "Auto-Submitted: auto-replied", "no colon at all", Delivery),
    ("top: name with a blank", "Auto-Submitted: auto-replied", "Auto Submitted : x", Delivery),
    ("top: NUL in a value", "Auto-Submitted: auto-replied", "X-A: a\0b", Delivery),
    ("top: no UTF-8 in a value", "Auto-Submitted: auto-replied", "X-A: ¿¿", Delivery),
    ("top: mbox line first", "Return-Path: <>", "From mailer-daemon Sat Nov 21 10:00:00 2026", Delivery),
    ("top: fold first", "Return-Path: <>", " Return-Path: <>", Delivery),
    ("top: empty line first", "Return-Path: <>", "\nReturn-Path: <>", Unknown),
    (
        "top: no empty line",
        "boundary=\"B\"\n\npreamble\n--B\nContent-Type: text/plain\n\n",
        "boundary=\"B\"\n--B\nContent-Type: text/plain\n\n",
        Unknown,
    ),
    ("top: from a person", "Mail Delivery System <MAILER-DAEMON@mx.example.net>", "Bob <bob@example.net>", Delivery),
    ("top: no from", "From: Mail Delivery System <MAILER-DAEMON@mx.example.net>\n", "", Delivery),
    // Parts.
    ("part: delimiters without a line end before", "delivered.\n\n--B", "delivered.--B", Bounce),
    (
        "part: status in the preamble",
        "preamble\n",
        "Content-Type: message/delivery-status\n\nAction: delivered\n",
        Delivery,
    ),
    (
        "part: status behind the end",
        "\n--B\nContent-Type: message/delivery-status",
        "\n--B--\nContent-Type: message/delivery-status",
        Bounce,
    ),
    ("part: end before all", "preamble", "--B--", AutoReply),
    ("part: end twice", "--B--\n", "--B--\n--B--\n", Delivery),
    ("part: delimiter with white space", "preamble\n--B\n", "--B \t \n", Delivery),
    ("part: delimiter with text behind", "delivered.\n\n--B\n", "delivered.\n\n--B x\n", Bounce),
    ("part: indented delimiter", "delivered.\n\n--B\n", "delivered.\n\n --B\n", Bounce),
    ("part: status as text", STATUS, "Content-Type: text/plain\n", Bounce),
    ("part: status as rfc822", STATUS, "Content-Type: message/rfc822\n", Bounce),
    ("part: status without type", STATUS, "", Bounce),
    ("part: status of a longer name", STATUS, "Content-Type: message/delivery-statusx\n", Bounce),
    ("part: status of a shorter name", STATUS, "Content-Type: message/delivery-statu\n", Bounce),
    ("part: status with blanks in its type", STATUS, "Content-Type: message / delivery-status\n", Delivery),
    ("part: status with parameters", STATUS, "Content-Type: message/delivery-status; charset=x; =; ;\n", Delivery),
    ("part: status of two types", STATUS, "Content-Type: message/delivery-status\nContent-Type: text/plain\n", Bounce),
    ("part: status of reading", STATUS, "Content-Type: message/disposition-notification\n", Bounce),
    ("part: status of feedback", STATUS, "Content-Type: message/feedback-report\n", Bounce),
    (
        "part: status nested",
        STATUS,
        "Content-Type: multipart/mixed; boundary=C\n\n--C\nContent-Type: message/delivery-status\n",
        Bounce,
    ),
    (
        "part: status in a message",
        STATUS,
        "Content-Type: message/rfc822\n\nContent-Type: message/delivery-status\n",
        Bounce,
    ),
    (
        "part: status without an empty line",
        "delivery-status\n\nReporting-MTA",
        "delivery-status\nReporting-MTA",
        Delivery,
    ),
    (
        "part: status in base64 that is none",
        STATUS,
        "Content-Type: message/delivery-status\nContent-Transfer-Encoding: base64\n",
        Bounce,
    ),
    (
        "part: status in quoted-printable that is plain",
        STATUS,
        "Content-Type: message/delivery-status\nContent-Transfer-Encoding: quoted-printable\n",
        Delivery,
    ),
    (
        "part: status in uuencode",
        STATUS,
        "Content-Type: message/delivery-status\nContent-Transfer-Encoding: x-uuencode\n",
        Delivery,
    ),
    (
        "part: status in two encodings",
        STATUS,
        "Content-Type: message/delivery-status\nContent-Transfer-Encoding: 7bit\nContent-Transfer-Encoding: base64\n",
        Delivery,
    ),
    (
        "part: status as an attachment",
        STATUS,
        "Content-Type: message/delivery-status\nContent-Disposition: attachment; filename=a.exe\n",
        Delivery,
    ),
    ("part: no words", "\nYour message could not be delivered.\n", "", Delivery),
    ("part: words in no charset", "Content-Type: text/plain\n", "Content-Type: text/plain; charset=¿\n", Delivery),
    (
        "part: nothing returned",
        "Content-Type: message/rfc822\n\nMessage-ID: <msg_01@example.com>\n\nHello\n",
        "",
        Delivery,
    ),
    (
        "part: returned without an end",
        "Message-ID: <msg_01@example.com>\n\nHello\n--B--\n",
        "Message-ID: <msg",
        Delivery,
    ),
    (
        "part: returned of two types",
        "Content-Type: message/rfc822\n",
        "Content-Type: message/rfc822\nContent-Type: a/b\n",
        Delivery,
    ),
    // Fields.
    ("field: no recipient", "Final-Recipient: rfc822; bob@example.net\n", "", Delivery),
    ("field: recipient without type", "rfc822; bob@example.net", "bob@example.net", Delivery),
    ("field: recipient empty", "rfc822; bob@example.net", "", Delivery),
    ("field: recipient of type alone", "rfc822; bob@example.net", "rfc822;", Delivery),
    ("field: recipient of a comment", "rfc822; bob@example.net", "(bob)", Delivery),
    ("field: recipient with an open comment", "rfc822; bob@example.net", "rfc822; bob@example.net (((", Delivery),
    ("field: recipient with an open bracket", "rfc822; bob@example.net", "rfc822; <bob@example.net", Delivery),
    ("field: recipient with an open quote", "rfc822; bob@example.net", "rfc822; \"bob(@example.net", Delivery),
    ("field: recipient of semicolons", "rfc822; bob@example.net", ";;;;;;", Delivery),
    ("field: recipient with controls", "rfc822; bob@example.net", "rfc822; b\u{1}o\u{1b}[2Jb@example.net", Delivery),
    ("field: recipient of no UTF-8", "rfc822; bob@example.net", "utf-8; ¿¿\\x{¿}@example.net", Delivery),
    ("field: recipient twice", "Action: failed", "Final-Recipient: rfc822; eve@example.net\nAction: failed", Delivery),
    ("field: no action", "Action: failed\n", "", Bounce),
    ("field: action empty", "Action: failed", "Action:", Bounce),
    ("field: action without colon", "Action: failed", "Action failed", Bounce),
    ("field: action with a blank before its colon", "Action: failed", "Action : failed", Bounce),
    ("field: action indented", "Action: failed", " Action: failed", Bounce),
    ("field: action in a comment", "Action: failed", "Action: (failed)", Bounce),
    ("field: action in quotes", "Action: failed", "Action: \"failed\"", Bounce),
    ("field: action with a semicolon", "Action: failed", "Action: failed;", Bounce),
    ("field: action misspelt", "Action: failed", "Action: failure", Bounce),
    ("field: action in German", "Action: failed", "Action: gescheitert", Bounce),
    ("field: action encoded", "Action: failed", "Action: =?us-ascii?Q?failed?=", Bounce),
    ("field: action with NUL", "Action: failed", "Action: fai\0led", Bounce),
    ("field: action of two words", "Action: failed", "Action: failed delivered", Bounce),
    ("field: two actions that differ", "Action: failed", "Action: failed\nAction: delivered", Bounce),
    ("field: two actions, one unknown", "Action: failed", "Action: failed\nAction: x", Bounce),
    ("field: two actions alike", "Action: failed", "Action: failed\nAction: Failed", Delivery),
    ("field: action in a block of its own", "Action: failed", "\nAction: failed\n", Delivery),
    ("field: action folded from nothing", "Action: failed", "Action:\n failed", Delivery),
    ("field: no status", "Status: 5.1.1\n", "", Delivery),
    ("field: status empty", "Status: 5.1.1", "Status:", Delivery),
    ("field: status of one part", "Status: 5.1.1", "Status: 5", Delivery),
    ("field: status of four parts", "Status: 5.1.1", "Status: 5.1.1.1", Delivery),
    ("field: status of class three", "Status: 5.1.1", "Status: 3.1.1", Delivery),
    ("field: status huge", "Status: 5.1.1", "Status: 5.99999999999999999999.1", Delivery),
    ("field: status negative", "Status: 5.1.1", "Status: -5.-1.-1", Delivery),
    ("field: status in Arabic digits", "Status: 5.1.1", "Status: ٥.١.١", Delivery),
    ("field: status of words", "Status: 5.1.1", "Status: bad", Delivery),
    ("field: no diagnostic", "Diagnostic-Code: smtp; 550 5.1.1 no such user\n", "", Delivery),
    ("field: diagnostic empty", "smtp; 550 5.1.1 no such user", "", Delivery),
    ("field: diagnostic of type alone", "smtp; 550 5.1.1 no such user", "smtp;", Delivery),
    ("field: diagnostic of code alone", "smtp; 550 5.1.1 no such user", "smtp; 550", Delivery),
    ("field: diagnostic with half a code", "smtp; 550 5.1.1 no such user", "smtp; 55", Delivery),
    ("field: diagnostic with code 999", "smtp; 550 5.1.1 no such user", "smtp; 999 5.1.1 x", Delivery),
    ("field: diagnostic of codes without end", "smtp; 550 5.1.1 no such user", "smtp; 550-550-550-5.1.1-550", Delivery),
    ("field: diagnostic of no UTF-8", "smtp; 550 5.1.1 no such user", "smtp; ¿50 ¿", Delivery),
    ("field: diagnostic of empty folds", "smtp; 550 5.1.1 no such user", "\n \n \n \n ", Delivery),
    ("field: remote server empty", "dns; mail.example.net", "", Delivery),
    ("field: remote server of dots", "dns; mail.example.net", "dns; .....", Delivery),
    ("field: remote server in an open comment", "dns; mail.example.net", "(dns; mail.example.net", Delivery),
    ("field: no reporting server", "Reporting-MTA: dns; mx.example.net\n\n", "", Delivery),
    ("field: byte order mark first", "Reporting-MTA: dns; mx", "\u{feff}Reporting-MTA: dns; mx", Delivery),
    ("field: blanks for empty line", "mx.example.net\n\nFinal", "mx.example.net\n   \nFinal", Delivery),
    (
        "field: no line end in all",
        "Final-Recipient: rfc822; bob@example.net\nAction: failed\nStatus: 5.1.1\n",
        "Final-Recipient: rfc822; bob@example.net Action: failed Status: 5.1.1\n",
        Bounce,
    ),
    (
        "field: lone carriage returns",
        "bob@example.net\nAction: failed\nStatus",
        "bob@example.net\rAction: failed\rStatus",
        Bounce,
    ),
    (
        "field: all in HTML",
        "Final-Recipient: rfc822; bob@example.net\nAction: failed\n",
        "<html><b>Action:</b> failed</html>\n",
        Bounce,
    ),
    (
        "field: all in JSON",
        "Final-Recipient: rfc822; bob@example.net\nAction: failed\n",
        "{\"Action\": \"failed\"}\n",
        Bounce,
    ),
    ("field: colons alone", "Final-Recipient: rfc822; bob@example.net\nAction: failed\n", ":\n::\n:::\n", Bounce),
];

pub(super) fn all() -> Vec<Malformed> {
    let mut all = with_faults(GOOD, FAULTS);
    let x = |count: usize| "x".repeat(count);
    let action = "Action: failed";
    for (name, from, to, kind) in [
        ("size: top header over its limit", "Return-Path: <>", format!("X: {}", x(70_000)), Unknown),
        ("size: top header of many lines", "Return-Path: <>", "X: y\n".repeat(1100) + "Z: z", Unknown),
        ("size: top header without an end", GOOD, x(2_000_000), Unknown),
        ("size: boundary of ten thousand", TOP, format!("multipart/report; boundary={}", x(10_000)), AutoReply),
        (
            "size: parameters without number",
            TOP,
            "multipart/report".to_owned() + &"; a=b".repeat(5000) + "; boundary=B",
            AutoReply,
        ),
        ("size: comments nested without number", TOP, "(".repeat(9000), Bounce),
        ("size: a hundred parts more", "preamble\n", "--B\n\n\n".repeat(100), AutoReply),
        ("size: ninety parts more", "preamble\n", "--B\n\n\n".repeat(90), Delivery),
        ("size: status header over its limit", STATUS, format!("{STATUS}X: {}\n", x(70_000)), Bounce),
        ("size: status header of many lines", STATUS, format!("{STATUS}{}", "X: y\n".repeat(1100)), Bounce),
        ("size: status behind the limit of its part", action, format!("X: {}\n{action}", x(300_000)), Bounce),
        ("size: empty lines without number", action, "\n".repeat(100_000) + action, Delivery),
        (
            "size: recipients without number",
            "Status: 5.1.1\n",
            "Status: 5.1.1\n\nFinal-Recipient: rfc822; a@b\nAction: failed\n".repeat(2000),
            Delivery,
        ),
        ("size: recipient of a megabyte", "bob@example.net", x(1_000_000), Bounce),
        ("size: recipient of ten thousand", "bob@example.net", x(10_000), Delivery),
        ("size: recipient of comments", "bob@example.net", "(a)".repeat(5000), Delivery),
        ("size: recipient of escapes", "rfc822; bob@example.net", format!("utf-8; {}", "\\x{".repeat(5000)), Delivery),
        ("size: recipient of xtext", "bob@example.net", "+2B".repeat(5000), Delivery),
        ("size: status of digits", "5.1.1\n", format!("{}\n", "5.".repeat(5000)), Delivery),
        ("size: diagnostic of many lines", "550 5.1.1 no such user", "550-5.1.1 no\n ".repeat(10_000), Delivery),
        ("size: diagnostic of quotations", "550 5.1.1 no such user", " said: ".repeat(2000), Delivery),
        ("size: fields without number", action, "X: y\n".repeat(40_000) + action, Delivery),
        ("size: returned header over its limit", "Message-ID:", format!("X: {}\nMessage-ID:", x(70_000)), Delivery),
        ("size: returned message of megabytes", "Hello\n", x(3_000_000), Delivery),
        ("size: preamble behind the limit", "preamble\n", format!("{}\n", x(1_200_000)), AutoReply),
    ] {
        let message = GOOD.replacen(from, &to, 1);
        assert_ne!(message, GOOD, "{name}");
        all.push(Malformed::new(name, &message, kind));
    }
    all
}
