"""SMTP submission with common client libraries (contract of submission 2 to 5): each logs in at both ports, gets the
reason when it may not send, and its mail arrives unchanged."""

import pytest
from support.mailers import CHOOSES_MECHANISM, CLIENTS, GOES_ON, SUBJECT, TEXT, letter
from support.submission import Door
from support.wait import until


def accepted(door: Door) -> list[dict]:
    return door.server.api.get("/v1/messages?via=smtp")["data"]


def arrived(door: Door, to: str) -> dict:
    """Returns the mail that the built-in receiver has for an address."""
    found = until(f"mail for {to}", lambda: door.server.api.get(f"/dev/mail?to={to}")["data"], 20)
    return door.server.api.get(f"/dev/mail/{found[0]['message_id']}")


@pytest.mark.parametrize("implicit", [False, True], ids=["starttls", "tls"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_s_message_arrives_unchanged(dev, authority, workdir, name, implicit):
    door = Door(dev, authority)
    mechanisms = ["any"] if name in CHOOSES_MECHANISM else ["PLAIN", "LOGIN"]
    for number, mechanism in enumerate(mechanisms):
        to = f"r{number}@example.org"
        ended = CLIENTS[name](letter(door, implicit, mechanism=mechanism, to=[to]), workdir)
        assert ended.ok, ended.said
        mail = arrived(door, to)
        assert mail["text"].replace("\r\n", "\n").strip() == TEXT.strip() and mail["subject"] == SUBJECT
        names = {field.lower() for field, _ in mail["headers"]}
        assert "bcc" not in names and not any(field.startswith("x-service-") for field in names)
        record = next(one for one in accepted(door) if one["to"] == to)
        assert record["metadata"] == {"order": "17"} and record["submission"]["recipients"] == 2
    assert arrived(door, "hidden@example.org")["subject"] == SUBJECT


@pytest.mark.parametrize("name", CLIENTS)
def test_a_wrong_key_sends_nothing_and_the_client_reports_it(dev, authority, workdir, name):
    door = Door(dev, authority)
    strange = door.key[:-4] + ("aaaa" if door.key[-4:] != "aaaa" else "bbbb")
    ended = CLIENTS[name](letter(door, True, password=strange), workdir)
    assert not ended.ok and accepted(door) == [], ended.said


@pytest.mark.parametrize("name", CLIENTS)
def test_a_suppressed_recipient_is_refused_and_the_client_decides_about_the_others(dev, authority, workdir, name):
    door = Door(dev, authority)
    assert door.server.api.request("POST", "/v1/suppressions", {"email": "gone@example.org"}).status == 201
    CLIENTS[name](letter(door, False, to=["ann@example.org", "gone@example.org"]), workdir)
    reached = {one["to"] for one in accepted(door)}
    assert reached == ({"ann@example.org", "hidden@example.org"} if name in GOES_ON else set())
    refused = door.server.api.get("/v1/submission-refusals")["data"][0]
    assert refused["to"] == "gone@example.org" and refused["reply"].startswith("550 5.7.1 ")
