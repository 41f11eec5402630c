//! Errors in bounces of plain text: a message that is not certainly a bounce does not count as one.

use super::Kind::{AutoReply, Bounce, Unknown};
use super::{Defect, Malformed, with_faults};

const GOOD: &str = "From: Mail Delivery System <Mailer-Daemon@exim.example.net>
Subject: Mail delivery failed: returning message to sender
X-Failed-Recipients: bob@example.net

A message that you sent could not be delivered to one of its recipients.

  bob@example.net
    550 5.1.1 unknown

------ This is a copy of the message. ------

Subject: Your order
";

/// The same message without the field that only bounces have.
const BARE: &str = "From: Mail Delivery System <Mailer-Daemon@exim.example.net>
Subject: Mail delivery failed: returning message to sender
X-Other: x

A message that you sent could not be delivered to one of its recipients.
";

const FAULTS: &[Defect<'_>] = &[
    ("plain: from a person", "Mail Delivery System <Mailer-Daemon@exim.example.net>", "Bob <bob@example.net>", Bounce),
    ("plain: no subject", "Subject: Mail delivery failed: returning message to sender\n", "", Bounce),
    ("plain: reply", "Subject: Mail delivery failed", "Subject: Re: Mail delivery failed", Unknown),
    ("plain: forwarded", "Subject: Mail delivery failed", "Subject: FWD: Mail delivery failed", Unknown),
    ("plain: forwarded in German", "Subject: Mail delivery failed", "Subject: WG: Mail delivery failed", Unknown),
    (
        "plain: warning",
        "Mail delivery failed: returning message to sender",
        "Warning: message delayed 24 hours",
        Unknown,
    ),
    ("plain: delayed in its words", "could not be delivered to", "is delayed on its way to", Unknown),
    ("plain: to be tried again", "could not be delivered to", "could not be delivered and will be retried to", Unknown),
    ("plain: success", "Mail delivery failed: returning message to sender", "Successful mail delivery", Unknown),
    ("plain: unsuccessful", "Mail delivery failed: returning message to sender", "Unsuccessful mail delivery", Bounce),
    ("plain: unsuccessful in its words", "could not be delivered to", "was unsuccessful in reaching", Bounce),
    ("plain: failed recipients empty", "X-Failed-Recipients: bob@example.net", "X-Failed-Recipients:", Bounce),
    ("plain: words behind the copy", "\nA message", "\n--- original message ---\nA message", Bounce),
    ("plain: auto-submitted", "X-Failed-Recipients", "Auto-Submitted: auto-replied\nX-Failed-Recipients", Bounce),
    ("plain: code of no UTF-8", "550 5.1.1 unknown", "55¿ 5.1.¿ unknown", Bounce),
    (
        "plain: no words",
        "A message that you sent could not be delivered to one of its recipients.\n\n  bob@example.net\n    550 5.1.1 unknown\n\n------ This is a copy of the message. ------\n\nSubject: Your order\n",
        "",
        Bounce,
    ),
];

const BARE_FAULTS: &[Defect<'_>] = &[
    ("bare: from a person", "Mail Delivery System <Mailer-Daemon@exim.example.net>", "Bob <bob@example.net>", Unknown),
    (
        "bare: from a person named so",
        "Mail Delivery System <Mailer-Daemon@exim.example.net>",
        "Ed Mailer <daemon@example.net>",
        Unknown,
    ),
    ("bare: from nobody", "From: Mail Delivery System <Mailer-Daemon@exim.example.net>\n", "", Unknown),
    ("bare: from empty", "From: Mail Delivery System <Mailer-Daemon@exim.example.net>", "From:", Unknown),
    (
        "bare: from encoded",
        "Mail Delivery System <Mailer-Daemon@exim.example.net>",
        "=?utf-8?q?MAILER-DAEMON?= <bob@example.net>",
        Bounce,
    ),
    ("bare: subject of another", "Mail delivery failed: returning message to sender", "Hello", Bounce),
    (
        "bare: words of another",
        "A message that you sent could not be delivered to one of its recipients.",
        "Hello",
        Bounce,
    ),
    ("bare: vacation", "X-Other: x", "X-Autoreply: yes", Bounce),
    ("bare: in quotation", "A message", "> A message", Bounce),
    ("bare: picture", "X-Other: x", "Content-Type: image/png", Unknown),
    ("bare: two content types", "X-Other: x", "Content-Type: text/plain\nContent-Type: text/plain", Unknown),
    (
        "bare: report of reading",
        "X-Other: x",
        "Content-Type: multipart/report; report-type=disposition-notification; boundary=b",
        Unknown,
    ),
];

const QMAIL: &str = "From: errors@example.net
Subject: Your message
Precedence: bulk

Hi. This is the mailer at example.net.

<bob@example.net>:
Gone. (#5.1.1)

--- Below this line is a copy of the message.
";

const QMAIL_FAULTS: &[Defect<'_>] = &[
    ("qsbmf: another greeting", "Hi. This is the mailer", "Hello. This is the mailer", Unknown),
    ("qsbmf: greeting further down", "Hi. This", "x\nHi. This", Unknown),
    ("qsbmf: no recipient", "<bob@example.net>:\n", "", Unknown),
    ("qsbmf: recipient without brackets", "<bob@example.net>:", "bob@example.net:", Unknown),
    ("qsbmf: recipient without colon", "<bob@example.net>:", "<bob@example.net>", Unknown),
    ("qsbmf: recipient behind the copy", "<bob@example.net>:", "--- copy\n<bob@example.net>:", Unknown),
    ("qsbmf: vacation", "Hi. This is the mailer", "I am away. This is the mailer", Unknown),
    ("qsbmf: marked as a machine's", "Precedence: bulk", "Auto-Submitted: auto-replied", Bounce),
    ("qsbmf: marked and greeting otherwise", "Precedence: bulk\n\nHi.", "Precedence: auto_reply\n\nHo.", AutoReply),
];

pub(super) fn all() -> Vec<Malformed> {
    let tables = [(GOOD, FAULTS), (BARE, BARE_FAULTS), (QMAIL, QMAIL_FAULTS)];
    tables.into_iter().flat_map(|(good, faults)| with_faults(good, faults)).collect()
}
