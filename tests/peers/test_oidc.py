"""Sign-in by OpenID Connect: at an independent provider, and at a hostile one (contract 9)."""

import time
import urllib.parse

import pytest
from support.oidc import CLIENT, SECRET, Browser, HostileProvider, NodeProvider
from support.server import Dev
from support.wait import free_port

SECTION = """hostname = "mail.sender.test"
[webhooks]
extra_roots = "{root}"
[oidc]
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "{secret}"
allowed_domains = ["corp.example"]
account = "{account}"
default_role = "member"
"""


@pytest.fixture
def configured(workdir, authority):
    """Creates `dev` with a provider: the account exists before the configuration names it."""
    started = []

    def start(issuer: str) -> Dev:
        folder = workdir / "service"
        first = Dev(folder, (), "")
        first.close()
        secret = workdir / "secret"
        secret.write_text(SECRET + "\n")
        account = first.info["account_id"]
        text = SECTION.format(root=authority.root, issuer=issuer, client=CLIENT, secret=secret, account=account)
        started.append(Dev(folder, (), text))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def hostile(authority):
    """A provider with configurable behaviour."""
    provider = HostileProvider(authority.issue("127.0.0.1"))
    yield provider
    provider.close()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "PS256"])
def test_users_sign_in_at_an_independent_provider(algorithm, configured, workdir, authority):
    port = free_port()
    server = configured(f"https://127.0.0.1:{port}")
    url, owner = server.info["url"], server.info["panel_user"]
    redirect = f"{url}/login/oidc/callback"
    certificate = authority.issue("127.0.0.1")
    provider = NodeProvider(workdir / "provider", certificate, port, redirect, algorithm, {"boss": owner})

    def sign_in(browser: Browser, user: str, next_: str = "/users"):
        there, status, page = browser.follow(f"{url}/login/oidc?" + urllib.parse.urlencode({"next": next_}))
        assert (status, "/interaction/" in there) == (200, True), page
        there, status, page = browser.follow(there, {"prompt": "login", "login": user, "password": "any"})
        if "/interaction/" in there:
            there, status, page = browser.follow(there, {"prompt": "consent"})
        return there, status, page

    try:
        there, status, page = sign_in(Browser(authority.root), "ann")
        assert (there, status) == (f"{url}/users", 200), page
        assert "ann@corp.example" in page and "Member" in page
        there, status, page = sign_in(Browser(authority.root), "boss")
        assert (there, status) == (f"{url}/users", 200) and owner in page
        browser = Browser(authority.root)
        there, status, page = sign_in(browser, "mallory")
        assert status == 403 and "has not verified your email address" in page
        assert "@corp.example" not in server.logged() and "sign-in by OpenID Connect failed" in server.logged()
        # A confirmation for secrets: the provider asks again, and states the time.
        browser = Browser(authority.root)
        sign_in(browser, "boss")
        there, status, page = browser.follow(f"{url}/login/oidc?next=/settings&again=1")
        assert "/interaction/" in there, page
        there, status, page = browser.follow(there, {"prompt": "login", "login": "boss", "password": "any"})
        if "/interaction/" in there:
            there, status, page = browser.follow(there, {"prompt": "consent"})
        assert (there, status) == (f"{url}/settings", 200), page
    finally:
        provider.close()


def signed_in(server, provider, browser: Browser):
    """Signs in at the hostile provider, which needs no user input; returns the status and the page."""
    answer, page = browser.ask(f"{server.info['url']}/login/oidc?next=/users")
    if answer.status != 303:
        return answer.status, page
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer.headers["Location"]).query))
    provider.nonce = query["nonce"]
    _, status, page = browser.follow(f"{server.info['url']}/login/oidc/callback?code=c&state={query['state']}")
    return status, page


def test_forged_provider_answers_never_sign_a_user_in(configured, hostile, authority):
    server = configured(hostile.issuer)
    now = int(time.time())
    for claims in (
        {"iss": "https://login.example.com"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"]},
        {"nonce": "another"},
        {"exp": now - 600, "iat": now - 660},
        {"iat": now + 600},
        {"sub": ""},
    ):
        hostile.claims = claims
        assert signed_in(server, hostile, Browser(authority.root))[0] == 502, claims
    hostile.claims = {"email_verified": False}
    assert signed_in(server, hostile, Browser(authority.root))[0] == 403
    hostile.claims = {}
    for header, sign in (
        ({"alg": "none"}, lambda _: b""),
        ({"alg": "HS256"}, hostile.hs256_with_the_public_key),
        ({"alg": "RS256"}, hostile.hs256_with_the_public_key),
        ({"kid": "unknown"}, hostile.rs256),
        ({"crit": ["exp"]}, hostile.rs256),
    ):
        hostile.header, hostile.sign = header, sign
        assert signed_in(server, hostile, Browser(authority.root))[0] == 502, header
    hostile.header, hostile.sign = {}, hostile.rs256
    status, page = signed_in(server, hostile, Browser(authority.root))
    assert status == 200 and "ann@corp.example" in page
    # Another person with the same address is refused.
    hostile.claims = {"sub": "s-2"}
    status, page = signed_in(server, hostile, Browser(authority.root))
    assert status == 403 and "another identity" in page
    assert "corp.example" not in server.logged()


def test_a_misbehaving_provider_costs_one_page_and_ten_seconds(configured, hostile, authority):
    server = configured(hostile.issuer)
    document = "/.well-known/openid-configuration"

    def flood(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100_000):
                handler.wfile.write(b" " * 4096)
        except OSError:
            pass

    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def sleep(_):
        time.sleep(12)

    for answer in (flood, redirect, sleep):
        hostile.answers = {document: answer}
        begun = time.monotonic()
        status, page = signed_in(server, hostile, Browser(authority.root))
        assert (status, "be reached" in page) == (502, True), (answer, page)
        assert time.monotonic() - begun < 11.5
        time.sleep(3.1)  # A provider that failed is not queried again for three seconds.
    assert "/elsewhere" not in hostile.asked
    hostile.answers = {"/token": flood}
    assert signed_in(server, hostile, Browser(authority.root))[0] == 502
    hostile.answers = {}
    assert signed_in(server, hostile, Browser(authority.root))[0] == 200
