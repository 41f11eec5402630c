"""Alerts of an account, each by its real cause: bounces, complaints, a dead webhook, a quota, a sign-in."""

import http.client
import json
import subprocess
from urllib.parse import urlencode

from support.roots import binary
from support.wait import until

MESSAGE = {"from": "shop@example.test", "subject": "s", "text": "The text."}
WEEK = 7 * 24 * 3600


def of(api, condition: str) -> list[tuple[str, str | None, bool]]:
    """Returns the severity, the subject and whether it is open of each alert of a condition, the newest first."""
    found = api.get(f"/v1/alerts?condition={condition}")["data"]
    names = [alert["subject"] and alert["subject"]["name"] for alert in found]
    return [(alert["severity"], name, alert["resolved_at"] is None) for alert, name in zip(found, names, strict=True)]


def checked(instance) -> dict:
    """Runs the checks of alerts, and returns what they changed."""
    command = [binary(), "alert", "check", "--json", "--data-dir", instance.info["data_dir"]]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def send(instance, name: str, count: int):
    """Sends messages to the simulator, and waits for their outcomes."""
    for number in range(count):
        instance.api.accept(MESSAGE | {"to": f"{name}+{number}@simulator.test"})
    instance.advance(60)


def test_bounces_and_complaints_raise_alerts_of_their_stream_until_the_rates_fall(dev):
    instance = dev("--virtual-clock")
    send(instance, "delivered", 94)
    send(instance, "bounced", 2)
    assert of(instance.api, "bounce_rate") == [], "fewer than 100 are not judged"
    send(instance, "delivered+more", 4)
    levels = instance.api.get("/v1/me")["reputation"]["streams"]["transactional"]
    assert (levels["bounce_level"], of(instance.api, "bounce_rate")) == ("warn", []), "a delivery raises no alert"
    assert len(checked(instance)["opened"]) == 1
    assert of(instance.api, "bounce_rate") == [("warning", "transactional", True)]
    assert checked(instance) == {"opened": [], "resolved": []}
    send(instance, "complained", 1)
    assert of(instance.api, "complaint_rate") == [], "a single complaint is no rate"
    send(instance, "complained+more", 1)
    assert of(instance.api, "complaint_rate") == [("critical", "transactional", True)]
    send(instance, "bounced+more", 6)
    assert of(instance.api, "bounce_rate") == [("critical", "transactional", True)]
    levels = instance.api.get("/v1/me")["reputation"]["streams"]["transactional"]
    assert (levels["bounce_level"], levels["complaint_level"]) == ("alarm", "alarm")
    instance.advance(WEEK + 3600)
    send(instance, "delivered+later", 1)
    assert [of(instance.api, f"{rate}_rate")[0][2] for rate in ("bounce", "complaint")] == [False, False]


def test_a_store_without_a_backup_raises_an_alert_after_48_hours(dev):
    instance = dev("--virtual-clock")
    instance.advance(47 * 3600)
    checked(instance)
    assert of(instance.api, "backup_old") == []
    instance.advance(2 * 3600)
    checked(instance)
    assert of(instance.api, "backup_old") == [("warning", None, True)]


def test_a_webhook_that_the_service_disables_raises_an_alert_until_it_is_enabled(dev):
    instance = dev("--virtual-clock")
    api = instance.api
    hook = api.request("POST", "/v1/webhooks", {"url": "http://127.0.0.1:9/in", "events": ["delivered"]}).json()
    path = f"/v1/webhooks/{hook['id']}"
    send(instance, "delivered", 10)
    until("the webhook is disabled", lambda: api.get(path)["disabled_at"])
    [(severity, name, is_open)] = of(api, "webhook_disabled")
    assert (severity, is_open) == ("critical", True) and "127.0.0.1" in name
    assert api.request("PATCH", path, {"enabled": True}).status == 200
    assert [is_open for *_, is_open in of(api, "webhook_disabled")] == [False]


def test_a_quota_raises_a_warning_at_80_percent_and_a_critical_alert_at_a_refusal(begin, operator, sink):
    service = begin(port=sink.port, quota={"per_hour": 100, "per_day": 10})
    service.domain("sender.test")

    def sent() -> int:
        return service.api.send(MESSAGE | {"from": "shop@sender.test", "to": "a@recipient.test"}).status

    assert [sent() for _ in range(7)] == [202] * 7
    assert of(service.api, "quota") == []
    assert sent() == 202
    assert of(service.api, "quota") == [("warning", None, True)]
    assert service.api.get("/v1/alerts?condition=quota")["data"][0]["seen"] == "The account has used 8 of 10 messages."
    assert [sent() for _ in range(3)] == [202, 202, 429]
    assert operator.notified(service, "quota", "worse")["severity"] == "critical", "the operator hears of critical ones"
    assert [kind for kind, _ in operator.notices("quota")] == ["alert.worse"]
    assert "CRITICAL: Messages are refused: the quota is used up" in operator.mailed("quota is used up")


def test_a_sign_in_from_an_unknown_browser_is_reported_to_the_user(begin, operator):
    service = begin()
    user = service.cli("user", "add", "op@operator.test", "--role", "viewer")
    form = urlencode({"email": "op@operator.test", "password": user["password"]})
    # `public_url` is where the panel is, so forms come from there.
    fields = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://mail.sender.test"}

    def sign_in(cookies: str = "") -> str:
        connection = http.client.HTTPConnection(service.api.host, service.api.port, timeout=30)
        fresh = fields | {"Host": "mail.sender.test"} | ({"Cookie": cookies} if cookies else {})
        connection.request("POST", "/login", form, fresh)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 303
        given = [value.split(";")[0] for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        return "; ".join(cookie for cookie in given if "device" in cookie)

    device = sign_in()
    assert device, "the browser is remembered"
    assert of(service.api, "new_sign_in") == [], "the first sign-in is no news"
    sign_in(device)
    assert of(service.api, "new_sign_in") == [], "the browser is known"
    sign_in()
    assert of(service.api, "new_sign_in") == [("info", "op@operator.test", False)]
    assert operator.mailed("INFO").startswith("[mail.sender.test] INFO: ")
    assert operator.notices("new_sign_in") == [], "only the user is notified"
