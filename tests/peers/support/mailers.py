"""Independent mail clients, each sending one message by SMTP submission: Django, aiosmtplib, s-nail, PHPMailer, Symfony
Mailer and Ruby's mail gem. Each client runs as a separate process and reports the result."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .roots import library_path, missing, private_root
from .submission import USER, Door

SUBJECT = "Grüße über SMTP"
TEXT = "Grüße aus Köln\n.a leading dot\n" + "x" * 900 + "\n"
HEADER = ("X-Service-Metadata-order", "17")


@dataclass
class Letter:
    """The message for a client, and its settings."""

    port: int
    implicit: bool
    password: str
    root: str
    mechanism: str = "PLAIN"
    to: list[str] = field(default_factory=lambda: ["ann@example.org"])
    host: str = "127.0.0.1"
    name: str = USER
    sender: str = "shop@example.test"
    bcc: str = "hidden@example.org"
    subject: str = SUBJECT
    text: str = TEXT
    header: tuple[str, str] = HEADER


@dataclass
class Ended:
    """Whether the client believes that it has sent, and its output."""

    ok: bool
    said: str


def letter(door: Door, implicit: bool, **more) -> Letter:
    """Returns a message to one of the two submission ports."""
    fields = {"password": door.key} | more
    return Letter(door.tls_port if implicit else door.port, implicit, root=str(door.root), **fields)


def _run(command: list[str], environment: dict[str, str], letter: Letter, text: str | None = None) -> Ended:
    done = subprocess.run(
        command,
        input=json.dumps(asdict(letter)) if text is None else text,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(done.returncode == 0, done.stdout + done.stderr)


_DJANGO = """\
import json, sys
letter = json.load(sys.stdin)
import django
from django.conf import settings
settings.configure(
    EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend", EMAIL_HOST=letter["host"], EMAIL_PORT=letter["port"],
    EMAIL_USE_SSL=letter["implicit"], EMAIL_USE_TLS=not letter["implicit"], EMAIL_HOST_USER=letter["name"],
    EMAIL_HOST_PASSWORD=letter["password"], EMAIL_TIMEOUT=20)
django.setup()
from django.core.mail import EmailMessage
EmailMessage(letter["subject"], letter["text"], f"Shop <{letter['sender']}>", letter["to"], bcc=[letter["bcc"]],
    headers=dict([letter["header"]])).send()
"""

_AIOSMTPLIB = """\
import asyncio, json, ssl, sys
from email.message import EmailMessage
import aiosmtplib
letter = json.load(sys.stdin)
mail = EmailMessage()
mail["From"], mail["To"], mail["Bcc"] = f"Shop <{letter['sender']}>", ", ".join(letter["to"]), letter["bcc"]
mail["Subject"] = letter["subject"]
mail[letter["header"][0]] = letter["header"][1]
mail.set_content(letter["text"])
async def send():
    client = aiosmtplib.SMTP(hostname=letter["host"], port=letter["port"], use_tls=letter["implicit"],
        start_tls=not letter["implicit"], tls_context=ssl.create_default_context(cafile=letter["root"]), timeout=20)
    async with client:
        await client.ehlo()
        auth = client.auth_login if letter["mechanism"] == "LOGIN" else client.auth_plain
        await auth(letter["name"], letter["password"])
        refused, answer = await client.send_message(mail)
        print(refused, answer)
asyncio.run(send())
"""

_PHPMAILER = """\
<?php
$letter = json_decode(stream_get_contents(STDIN), true);
foreach (['Exception', 'SMTP', 'PHPMailer'] as $file) { require getenv('PHPMAILER') . "/src/$file.php"; }
$mail = new PHPMailer\\PHPMailer\\PHPMailer(true);
$mail->isSMTP();
$mail->Host = $letter['host'];
$mail->Port = $letter['port'];
$mail->SMTPSecure = $letter['implicit'] ? 'ssl' : 'tls';
$mail->SMTPAuth = true;
$mail->AuthType = $letter['mechanism'];
$mail->Username = $letter['name'];
$mail->Password = $letter['password'];
$mail->SMTPOptions = ['ssl' => ['cafile' => $letter['root'], 'verify_peer' => true, 'peer_name' => 'mail.sender.test']];
$mail->CharSet = 'UTF-8';
$mail->setFrom($letter['sender'], 'Shop');
foreach ($letter['to'] as $to) { $mail->addAddress($to); }
$mail->addBCC($letter['bcc']);
$mail->addCustomHeader($letter['header'][0], $letter['header'][1]);
$mail->Subject = $letter['subject'];
$mail->Body = $letter['text'];
try {
    $mail->send();
} catch (PHPMailer\\PHPMailer\\Exception $error) {
    echo $error->getMessage(), "\\n", $mail->getSMTPInstance()->getLastTransactionID(), "\\n";
    exit(1);
}
echo $mail->getSMTPInstance()->getLastTransactionID(), "\\n";
"""

_SYMFONY = """\
<?php
require 'Symfony/Component/Mailer/autoload.php';
use Symfony\\Component\\Mailer\\Transport\\Smtp\\Auth\\LoginAuthenticator;
use Symfony\\Component\\Mailer\\Transport\\Smtp\\Auth\\PlainAuthenticator;
use Symfony\\Component\\Mailer\\Transport\\Smtp\\EsmtpTransport;
use Symfony\\Component\\Mime\\Email;
$letter = json_decode(stream_get_contents(STDIN), true);
$transport = new EsmtpTransport($letter['host'], $letter['port'], $letter['implicit']);
$transport->getStream()->setStreamOptions(['ssl' => ['cafile' => $letter['root'], 'peer_name' => 'mail.sender.test']]);
$transport->setUsername($letter['name'])->setPassword($letter['password']);
$mail = (new Email())->from($letter['sender'])->to(...$letter['to'])->bcc($letter['bcc'])
    ->subject($letter['subject'])->text($letter['text']);
$mail->getHeaders()->addTextHeader($letter['header'][0], $letter['header'][1]);
try {
    echo $transport->send($mail)->getDebug(), "\\n";
} catch (Throwable $error) {
    echo $error->getMessage(), "\\n";
    exit(1);
}
"""

_RUBY = """\
require 'json'
require 'mail'
letter = JSON.parse($stdin.read)
mail = Mail.new do
  from "Shop <#{letter['sender']}>"
  to letter['to']
  bcc letter['bcc']
  subject letter['subject']
  content_type 'text/plain; charset=UTF-8'
  body letter['text']
end
mail.header[letter['header'][0]] = letter['header'][1]
security = letter['implicit'] ? { ssl: true } : { enable_starttls: true }
mail.delivery_method :smtp, { address: letter['host'], port: letter['port'], user_name: letter['name'],
  password: letter['password'], authentication: letter['mechanism'].downcase.to_sym, ca_file: letter['root'],
  openssl_verify_mode: OpenSSL::SSL::VERIFY_PEER, return_response: true }.merge(security)
puts mail.deliver!.string
"""


def _python(script: str):
    def send(letter: Letter, folder: Path) -> Ended:
        return _run([sys.executable, "-c", script], {"SSL_CERT_FILE": letter.root}, letter)

    return send


def _php(root_name: str, script: str):
    def send(letter: Letter, folder: Path) -> Ended:
        root = private_root(root_name)
        if not root or not shutil.which("php"):
            missing(f"PHP with the private root {root_name}")
        file = folder / f"{root_name}.php"
        file.write_text(script)
        shared = root / "usr/share/php"
        environment = {"PHPMAILER": str(shared / "libphp-phpmailer")}
        extensions = [word for file in root.glob("usr/lib/php/*/mbstring.so") for word in ("-d", f"extension={file}")]
        command = ["php", *extensions, "-d", f"include_path={shared}:/usr/share/php", str(file)]
        return _run(command, environment, letter)

    return send


def _ruby(letter: Letter, folder: Path) -> Ended:
    root = private_root("ruby-mail")
    if not root or not shutil.which("ruby"):
        missing("Ruby with the private root ruby-mail")
    gems = root.glob("usr/share/rubygems-integration/all/gems/*/lib")
    libraries = ":".join(map(str, [root / "usr/lib/ruby/vendor_ruby", *gems]))
    return _run(["ruby", "-I", libraries, "-e", _RUBY], {}, letter)


def _s_nail(letter: Letter, folder: Path) -> Ended:
    root = private_root("s-nail")
    found = root / "usr/bin/s-nail" if root else shutil.which("s-nail")
    if not found:
        missing("s-nail")
    scheme = "smtps" if letter.implicit else "smtp"
    settings = {
        "v15-compat": "yes",
        "mta": f"{scheme}://{letter.name}:{letter.password}@localhost:{letter.port}",
        "smtp-auth": letter.mechanism.lower(),
        "smtp-use-starttls": "" if not letter.implicit else None,
        "tls-ca-file": letter.root,
        "tls-ca-no-defaults": "",
        "tls-verify": "strict",
        "from": letter.sender,
        "ttycharset": "utf-8",
        "sendcharsets": "utf-8",
        "sendwait": "",
        "verbose": "",
    }
    command = [str(found), "-:/", "-b", letter.bcc, "-s", letter.subject, "-C", ": ".join(letter.header)]
    for name, value in settings.items():
        if value is not None:
            command += ["-S", f"{name}={value}" if value else name]
    environment = {"HOME": str(folder), "LC_ALL": "C.UTF-8"}
    if root:
        environment["LD_LIBRARY_PATH"] = library_path(root)
    return _run([*command, *letter.to], environment, letter, letter.text)


CLIENTS = {
    "django": _python(_DJANGO),
    "aiosmtplib": _python(_AIOSMTPLIB),
    "phpmailer": _php("phpmailer", _PHPMAILER),
    "symfony": _php("symfony-mailer", _SYMFONY),
    "ruby-mail": _ruby,
    "s-nail": _s_nail,
}
# Clients whose mechanism can be configured; the others choose.
CHOOSES_MECHANISM = ("django", "symfony")
# Clients that send to the remaining recipients if one is refused; the others give up the whole message.
GOES_ON = ("django", "aiosmtplib", "phpmailer")
