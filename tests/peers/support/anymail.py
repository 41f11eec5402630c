"""Anymail for Django, in a separate process, because Django can be configured only once per process."""

import json
import subprocess
import sys

SCRIPT = '''
import json, sys
import django
from django.conf import settings

backend, anymail = json.loads(sys.argv[1])
settings.configure(EMAIL_BACKEND=backend, ANYMAIL=anymail, INSTALLED_APPS=["anymail"], DEFAULT_CHARSET="utf-8")
django.setup()
from django.core.mail import EmailMultiAlternatives
from anymail.exceptions import AnymailAPIError, AnymailRecipientsRefused
from anymail.message import AnymailMessage, attach_inline_image


def told(message):
    try:
        message.send()
    except (AnymailAPIError, AnymailRecipientsRefused) as error:
        status = getattr(message, "anymail_status", None)
        recipients = status.recipients if status else {}
        return {"error": str(error), "status": {name: one.status for name, one in recipients.items()}}
    recipients = message.anymail_status.recipients
    ids = [one.message_id for one in recipients.values()]
    return {"id": ids[0], "ids": ids, "status": {name: one.status for name, one in recipients.items()}}


def message(*to, **more):
    return AnymailMessage(subject="Hi", body="x", from_email='"Jörg, Shop" <shop@example.test>', to=list(to), **more)


plain = message("Jörg <joerg@example.org>", metadata={"order": "7"}, tags=["welcome"], reply_to=["help@example.test"])
plain.attach_alternative("<img src='cid:" + attach_inline_image(plain, b"iVBORw0", "logo.png", subtype="png") + "'>", "text/html")
plain.attach("report.csv", "a,b", "text/csv")
many = message("Ann <ann@example.org>", "bob@example.org")
many.merge_metadata = {"ann@example.org": {"n": "1"}, "bob@example.org": {"n": "2"}}
print(json.dumps({
    "plain": told(plain),
    "many": told(many),
    "two": told(message("a@example.org", "b@example.org")),
    "suppressed": told(message("gone@example.org")),
}))
'''


def send_with(backend: str, settings: dict) -> dict:
    """Returns the results of some messages that Anymail sent through `backend`."""
    command = [sys.executable, "-c", SCRIPT, json.dumps([backend, settings])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
