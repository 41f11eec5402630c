"""The messages: order confirmations in text and HTML, made from a seed, the same in every run and for every system.

They compress about as such mail does (the ratio is printed). With constant bytes a compressing store would look too
good, with random ones too bad. All are encoded beforehand, so that sending one is a copy."""

import json
import random
import shutil
import subprocess
from email.message import EmailMessage
from email.policy import SMTP

SENDING_DOMAIN = "sender.test"
SENDER = f"orders@{SENDING_DOMAIN}"
# Host name of the systems, also in their certificates.
HOST = f"mail.{SENDING_DOMAIN}"
# The receiving domains of the recipients.
SITES = [f"site{number}.test" for number in range(16)]
# Number of different messages, which are used in turn.
_VARIETY = 64
_WORDS = """the your order has been shipped and will arrive on Monday please check address below if anything is
    missing write to us within fourteen days of delivery we refund full amount invoice number customer account payment
    card ending was charged for items in this parcel tracking link shows where it now thank you shopping with our team
    cotton shirt blue large ceramic mug set four walnut desk lamp brass hinge steel bottle litre wool blanket grey linen
    cushion cover notebook dotted paper pencil case leather strap watch glass jar lid bamboo tray oak shelf small medium
    return label printed enclosed keep receipt warranty two years support hours weekdays morning evening holiday
    """.split()
_CELL = 'style="padding:8px 12px;border-bottom:1px solid #e5e5e5;font:14px Arial,sans-serif"'


class Letters:
    """Messages whose text and HTML have `size` bytes together: a quarter is text."""

    def __init__(self, size: int):
        made = [_Letter(seed, size) for seed in range(_VARIETY)]
        self.json = [letter.json() for letter in made]
        self.mime = [letter.mime() for letter in made]
        self.bytes = sum(letter.bytes for letter in made) / len(made)
        self.ratio = _ratio(made)

    def as_json(self, number: int) -> bytes:
        """Returns the request's body for message `number`."""
        return b'{"to":"%s",%s' % (recipient(number).encode(), self.json[number % _VARIETY])

    def as_mime(self, number: int) -> bytes:
        """Returns the finished message `number` up to the final dot, as an application's own library creates it."""
        head = f"To: {recipient(number)}\r\nMessage-ID: <{number}@{SENDING_DOMAIN}>\r\n"
        return head.encode() + self.mime[number % _VARIETY]


def recipient(number: int) -> str:
    """Returns the recipient of message `number`, who gets no other: it identifies the message at the receiver."""
    return f"customer{number}@{SITES[number % len(SITES)]}"


class _Letter:
    """One message without a recipient."""

    def __init__(self, seed: int, size: int):
        self.chance = random.Random(seed)
        self.subject = f"Your order {self._reference()} is on its way"
        self.text = self._text(size // 4)
        self.html = self._html(size - len(self.text))
        self.bytes = len(self.text) + len(self.html)

    def json(self) -> bytes:
        """Returns the request's members after the recipient, and the closing brace."""
        members = {"from": SENDER, "from_name": "The Shop at the Corner", "subject": self.subject}
        return json.dumps(members | {"text": self.text, "html": self.html}).removeprefix("{").encode()

    def mime(self) -> bytes:
        """Returns the headers without the recipient's, and the body, dot-stuffed and with the final dot (RFC 5321
        4.5.2)."""
        message = EmailMessage(policy=SMTP)
        message["From"] = f"The Shop at the Corner <{SENDER}>"
        message["Subject"] = self.subject
        message["Date"] = "Mon, 02 Nov 2026 10:00:00 +0000"
        message.set_content(self.text)
        message.add_alternative(self.html, subtype="html")
        message.set_boundary("=_letter")
        return message.as_bytes().replace(b"\r\n.", b"\r\n..") + b".\r\n"

    def _text(self, bytes: int) -> str:
        out = f"Dear {self._name()},\n\n"
        while len(out) < bytes:
            out += f"{self._words(12)}.\n{self._reference()}  {self._price()}\n"
        return out

    def _html(self, bytes: int) -> str:
        out = f'<!doctype html><html><body style="margin:0;background:#f6f6f6"><p>Dear {self._name()}.</p><table>\n'
        end = "</table><p>Thank you.</p></body></html>\n"
        while len(out) + len(row := self._row()) + len(end) <= bytes:
            out += row
        return out + end

    def _row(self) -> str:
        link = f"https://shop.{SENDING_DOMAIN}/o/{self._reference()}?t={self.chance.getrandbits(128):032x}"
        return (
            f'<tr><td {_CELL}><a href="{link}">{self._words(5)}</a></td>'
            f"<td {_CELL}>{self._words(9)}</td><td {_CELL}>{self._price()}</td></tr>\n"
        )

    def _words(self, count: int) -> str:
        """Returns words. The first of the list are more frequent, as in natural language."""
        return " ".join(_WORDS[self.chance.randrange(1 + self.chance.randrange(len(_WORDS)))] for _ in range(count))

    def _name(self) -> str:
        return self.chance.choice(["Ada Moreau", "Jonas Weber", "Mina Okafor", "Luis Prado", "Sofia Lindqvist"])

    def _reference(self) -> str:
        return f"SC-{self.chance.randrange(10**8):08}"

    def _price(self) -> str:
        return f"{self.chance.randrange(200)}.{self.chance.randrange(100):02} EUR"


def _ratio(letters: list[_Letter]) -> float | None:
    """Returns the compression ratio with zstd at its default level, message by message; none without zstd."""
    program = shutil.which("zstd")
    if not program:
        return None
    packed = 0
    for letter in letters:
        done = subprocess.run([program, "-3", "-c"], input=(letter.text + letter.html).encode(), capture_output=True)
        packed += len(done.stdout)
    return sum(letter.bytes for letter in letters) / packed
