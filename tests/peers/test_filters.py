"""Spam filters must find nothing malformed in our messages (contract 3)."""

import base64
import re
from email.utils import formatdate

import pytest
from support.filters import CLIENT, Rspamd, SpamAssassin
from support.server import Dev

FROM = {"from": "shop@example.test", "to": "inbox@recipient.test"}
TEXT = "Dear customer,\n\nyour order 4711 is on its way and will arrive on Tuesday.\n\nKind regards\nThe Shop\n"
HTML = f"<!DOCTYPE html>\n<html><head><title>Order</title></head><body>{TEXT.replace(chr(10), '<br>')}</body></html>"
LONG = TEXT.replace("\n", " ") * 40 + "\n"
GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
UNSUBSCRIBE = {"unsubscribe_url": "https://example.test/u/1"}
PDF = {"filename": "order.pdf", "content": base64.b64encode(b"%PDF-1.4\n" + bytes(range(256)) * 9).decode()}
RAW = (
    "From: The Shop <shop@example.test>\r\nTo: inbox@recipient.test\r\nSubject: Your order\r\n"
    "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Content-Transfer-Encoding: 8bit\r\n\r\n" + TEXT.replace("\n", "\r\n") + "Grüße\r\n"
)
SHAPES = {
    "text": {"subject": "Your order", "text": TEXT},
    "html": {"subject": "Your order", "html": HTML},
    "both": {"subject": "Your order", "text": TEXT, "html": HTML},
    "attachment": {"subject": "Your order", "text": TEXT, "attachments": [PDF]},
    "attachments with names": {
        "subject": "Your order",
        "text": TEXT,
        "html": HTML,
        "attachments": [PDF, {"filename": "Größe und Preis.txt", "content": base64.b64encode(b"42\n").decode()}],
    },
    "inline": {
        "subject": "Your order",
        "text": TEXT,
        "html": HTML.replace("<body>", '<body><img src="cid:logo@example.test" alt="logo">'),
        "attachments": [{"filename": "logo.gif", "content": GIF, "content_id": "logo@example.test"}],
    },
    "raw": {"raw": RAW},
    "marketing": {"from": "news@news.example.test", "subject": "What is new", "text": TEXT, "html": HTML}
    | UNSUBSCRIBE,
    "non-ASCII": {"from_name": "Bücher & Grüße", "subject": "Ihre Größe, 你好, 4711 ✓", "text": TEXT + "Größe €\n"},
    "long subject": {"subject": "Your order of many things" + " and more" * 30, "text": TEXT},
    "long lines": {"subject": "Your order", "text": LONG, "html": f"<html><body><p>{LONG}</p></body></html>"},
    "emoji": {"subject": "Your order 📦", "text": TEXT + "📦 " * 200, "html": HTML.replace("order", "📦")},
    "headers": {
        "subject": "Your order",
        "text": TEXT,
        "headers": {"Reply-To": "help@example.test", "X-Order": "1 " * 99},
    },
    "no subject": {"text": TEXT},
}
# Rules about form: MIME, encodings, dates, identifiers, header syntax. The composer is not responsible for the caller's
# choices (HTML only, no subject) or for transport (Received lines, names in DNS, a recipient's answers).
FORM = re.compile(
    r"MIME|MSGID|MESSAGEID|MISSING|INVALID|MALFORM|BROKEN|BAD_|_BAD|DATE|CTYPE|CHARSET|ENCOD|BASE64|_QP|QP_|BOUNDARY"
    r"|HEADER|HEAD_|MULTIPLE|_MID|MID_|EXCESS|ILLEGAL|NON_ASCII|8BIT|LONG_LINE|MPART|CT_|CTE|CD_|EMPTY|UNPARS|ALT_DIFF"
)
SOUND = {
    "MIME_GOOD",  # rspamd: a known type
    "MIME_TRACE",  # rspamd: the reported structure
    "MID_RHS_MATCH_FROM",  # rspamd: the identifier's domain is the sender's
    "MID_RHS_MATCH_FROMTLD",
    "HAS_LIST_UNSUB",
    "R_MIXED_CHARSET",  # rspamd: letters with and without accents in one word, as German has them
}
CHOSEN = {
    "html": {"MIME_HTML_ONLY"},
    "emoji": {"MIME_BASE64_TEXT"},  # most of it is beyond ASCII: base64 is the shorter form
    "no subject": {"MISSING_SUBJECT", "EMPTY_SUBJECT"},
}
SCORE_MAX = 5.0  # from which SpamAssassin calls a message spam
BROKEN = b"Subject: x\nDate: then\nMessage-ID: <1>\nContent-Type: text/a/b\n\nx\n"


@pytest.fixture(scope="module")
def received(tmp_path_factory):
    """Each kind of message as received, with the Received line that the receiver adds."""
    dev = Dev(tmp_path_factory.mktemp("filters") / "dev", (), "")
    mails = {}
    for shape, body in SHAPES.items():
        sent = dev.api.accept(FROM | body)
        raw = dev.api.request("GET", f"/v1/messages/{sent['id']}/raw").body
        mails[shape] = sent, received_line() + raw.replace(b"\r\n", b"\n")
    dev.close()
    return mails


def received_line() -> bytes:
    """Returns the header that a receiver adds."""
    return (
        f"Received: from mail.sender.test (mail.sender.test [{CLIENT}])\n\tby mx1.recipient.test with ESMTPS id 1;\n"
        f"\t{formatdate()}\n"
    ).encode()


def faults(shape: str, rules: set[str]) -> set[str]:
    """Returns the rules about form that fired although the caller did not cause them."""
    return {rule for rule in rules if FORM.search(rule)} - SOUND - CHOSEN.get(shape, set())


def test_rspamd_finds_nothing_malformed(received, workdir):
    rspamd = Rspamd(workdir / "rspamd")
    found = {}
    try:
        for shape, (sent, mail) in received.items():
            judged = rspamd.judge(mail, sent["from"], sent["to"])
            print(f"{shape}: {judged.score} {sorted(judged.rules)}")
            found[shape] = faults(shape, judged.rules)
        broken = rspamd.judge(BROKEN, "a@b.test", "c@d.test")
    finally:
        rspamd.close()
    assert faults("broken", broken.rules), f"a rule about form fires where there is reason to: {broken}"
    assert not any(found.values()), found


def test_spamassassin_finds_nothing_malformed(received, workdir):
    judged = SpamAssassin(workdir / "sa").judge([*(mail for _, mail in received.values()), BROKEN])
    for shape, judgement in zip(received, judged):
        print(f"{shape}: {judgement.score} {sorted(judgement.rules)}")
        assert judgement.score < SCORE_MAX, shape
    found = {shape: faults(shape, judgement.rules) for shape, judgement in zip(received, judged)}
    assert faults("broken", judged[-1].rules), f"a rule about form fires where there is reason to: {judged[-1]}"
    assert not any(found.values()), found
