"""Identity providers: oidc-provider from npm, and one with configurable, even hostile behaviour. And a browser for
both."""

import base64
import http.cookies
import json
import shutil
import ssl
import threading
import time
import urllib.parse
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from .roots import PEERS, missing
from .wait import LOOPBACK, listens, spawn, stop, until

CLIENT, SECRET = "postrider", "a secret with spaces & signs: %+"

PROVIDER = """
import crypto from "node:crypto";
import fs from "node:fs";
import https from "node:https";
import Provider from "MODULE";
const { certificate, port, redirect, algorithm, client, secret, emails } = JSON.parse(process.argv[2]);
const key = (type, options) => crypto.generateKeyPairSync(type, options).privateKey.export({ format: "jwk" });
const keys = [
  { ...key("rsa", { modulusLength: 2048 }), kid: "rsa", use: "sig" },
  { ...key("ec", { namedCurve: "P-256" }), kid: "ec", use: "sig" },
];
const provider = new Provider(`https://127.0.0.1:${port}`, {
  clients: [{
    client_id: client, client_secret: secret, redirect_uris: [redirect], id_token_signed_response_alg: algorithm,
  }],
  jwks: { keys },
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  pkce: { required: () => true },
  enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256"] },
  findAccount: async (_, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, email: emails[id] ?? `${id}@corp.example`, email_verified: id !== "mallory" }),
  }),
});
const pem = fs.readFileSync(certificate);
https.createServer({ key: pem, cert: pem }, provider.callback()).listen(port, "127.0.0.1");
"""


class NodeProvider:
    """oidc-provider, where entering a user's name is enough to sign in."""

    def __init__(self, folder: Path, certificate: Path, port: int, redirect: str, algorithm: str, emails: dict):
        module = PEERS / "node" / "node_modules" / "oidc-provider" / "lib" / "index.js"
        if not shutil.which("node") or not module.exists():
            missing("node with the package oidc-provider")
        folder.mkdir()
        script = folder / "provider.mjs"
        script.write_text(PROVIDER.replace("MODULE", str(module)))
        settings = {
            "certificate": str(certificate), "port": port, "redirect": redirect, "algorithm": algorithm,
            "client": CLIENT, "secret": SECRET, "emails": emails,
        }
        self.log = (folder / "log").open("w")
        self.child = spawn(["node", str(script), json.dumps(settings)], self.log)
        until("oidc-provider listens", lambda: listens(port))

    def close(self):
        """Stops it."""
        stop(self.child)
        self.log.close()


def encoded(value: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class HostileProvider:
    """Listens at https://127.0.0.1:port. Tests change `document`, `claims`, `header`, `sign` and `answers`."""

    def __init__(self, certificate: Path):
        self.key = rsa.generate_private_key(65537, 2048)
        self.claims: dict = {}
        self.header: dict = {}
        self.document: dict = {}
        self.nonce = ""
        self.asked: list[str] = []
        # Paths with special answers: a function that gets the handler.
        self.answers: dict = {}
        self.sign = self.rs256
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_GET(self):  # noqa: N802 (http.server's name)
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.split("?")[0]
                provider.asked.append(path)
                if path in provider.answers:
                    provider.answers[path](self)
                    return
                body = json.dumps(provider.answer(path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_):
                """Logs nothing: the received requests are the log."""

        class Server(ThreadingHTTPServer):
            """The handshake runs on the connection's thread."""

            daemon_threads = True

            def finish_request(self, request, client_address):
                with context.wrap_socket(request, server_side=True) as tls:
                    super().finish_request(tls, client_address)

            def handle_error(self, _request, _client_address):
                """A dropped connection of a client is ignored."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.server = Server((LOOPBACK, 0), Handler)
        self.issuer = f"https://{LOOPBACK}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str) -> dict:
        """Returns the answer of a correct provider, with the changes of the test."""
        numbers = self.key.public_key().public_numbers()
        number = lambda n: encoded(n.to_bytes((n.bit_length() + 7) // 8, "big"))  # noqa: E731
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
            | self.document,
            "/keys": {"keys": [{"kty": "RSA", "kid": "k1", "n": number(numbers.n), "e": number(numbers.e)}]},
            "/token": {"id_token": self.token(), "access_token": "a", "token_type": "Bearer"},
        }[path]

    def token(self) -> str:
        """An ID token."""
        now = int(time.time())
        claims = {
            "iss": self.issuer, "sub": "s-1", "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": self.nonce,
            "email": "ann@corp.example", "email_verified": True,
        } | self.claims
        header = {"alg": "RS256", "kid": "k1"} | self.header
        text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        return f"{text}.{encoded(self.sign(text.encode()))}"

    def rs256(self, text: bytes) -> bytes:
        """Returns a correct signature."""
        return self.key.sign(text, padding.PKCS1v15(), hashes.SHA256())

    def hs256_with_the_public_key(self, text: bytes) -> bytes:
        """Returns a MAC with a publicly known key."""
        pem = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        mac = hmac.HMAC(pem, hashes.SHA256())
        mac.update(text)
        return mac.finalize()

    def close(self):
        """Stops listening."""
        self.server.shutdown()
        self.server.server_close()


class Browser:
    """Keeps cookies for each origin and follows redirects."""

    def __init__(self, root: Path):
        self.context = ssl.create_default_context(cafile=str(root))
        self.jars: dict[str, dict[str, str]] = {}

    def ask(self, url: str, form: dict | None = None):
        """Sends one request: returns the answer and its body."""
        parts = urllib.parse.urlsplit(url)
        jar = self.jars.setdefault(f"{parts.scheme}://{parts.netloc}", {})
        if parts.scheme == "https":
            connection = HTTPSConnection(parts.netloc, context=self.context, timeout=30)
        else:
            connection = HTTPConnection(parts.netloc, timeout=30)
        fields = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items()), "Accept": "text/html"}
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            fields["Content-Type"] = "application/x-www-form-urlencoded"
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST" if form is not None else "GET", target, body, fields)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        for line in answer.headers.get_all("Set-Cookie") or []:
            for name, morsel in http.cookies.SimpleCookie(line).items():
                jar[name] = morsel.value
                if not morsel.value:
                    del jar[name]
        return answer, text

    def follow(self, url: str, form: dict | None = None):
        """Sends a request and follows redirects: returns the last URL, the status and the page."""
        for _ in range(12):
            answer, text = self.ask(url, form)
            location, form = answer.headers.get("Location"), None
            if answer.status not in (302, 303):
                return url, answer.status, text
            url = urllib.parse.urljoin(url, location)
        raise AssertionError(f"redirected for ever: {url}")
