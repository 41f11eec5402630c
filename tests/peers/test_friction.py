"""Problems that new users met (contract of adoption, D): one test for each row that is visible from outside."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
from support.roots import binary
from support.server import Api
from support.wait import free_port, spawn, stop, until

TREE = Path(__file__).parents[2]
DOCS = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]


def cli(dev, *words: str, text: str = "") -> subprocess.CompletedProcess:
    """Runs a command next to `dev`, which it finds by the variable that `dev` prints."""
    environment = {**os.environ, "POSTRIDER_DATA_DIR": dev.info["data_dir"]}
    return subprocess.run(
        [binary(), *words], env=environment, input=text, capture_output=True, text=True, timeout=60, check=False
    )


def post(dev, path: str, body: str, content_type: str) -> int:
    request = urllib.request.Request(dev.info["url"] + path, body.encode(), {"Content-Type": content_type}, method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.status


def test_dev_accepts_json_with_any_content_type(dev):
    server = dev("--virtual-clock")
    for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        assert post(server, "/dev/clock", '{"advance_seconds":60}', content_type) == 200


def test_a_refused_webhook_to_localhost_suggests_dev_mode(dev):
    server = dev(config="[network]\nallow = []\n")
    answer = server.api.request("POST", "/v1/webhooks", {"url": "http://localhost:3000/hook"})
    assert answer.status == 422
    told = [sentence for several in answer.json()["errors"].values() for sentence in several]
    assert any(sentence.endswith("While developing: postrider webhook listen --forward-to URL") for sentence in told), told


def test_dev_prints_the_data_directory_variable_and_consistent_key_names(workdir):
    with (workdir / "said").open("w") as said:
        command = [binary(), "dev", "--listen", "0", "--smtp-listen", "0", "--data-dir", str(workdir / "data")]
        child = spawn(command, said, env={**os.environ, "HOME": str(workdir)})
    try:
        printed = (workdir / "said").read_text
        until("it is ready", lambda: "POSTRIDER_DATA_DIR" in printed() or child.poll() is not None, 30)
        assert f"export POSTRIDER_DATA_DIR={workdir / 'data'}" in printed()
        assert printed().startswith("Postrider is ready at http://127.0.0.1:")
    finally:
        stop(child)
    for page in DOCS:
        assert not re.search(r"\$\{?(KEY|POSTRIDER_KEY)\b", page.read_text()), f"{page}: the variable is POSTRIDER_API_KEY"


def test_the_first_message_is_sent_to_the_address_that_dev_prints():
    local = (TREE / "docs" / "first-message.md").read_text()
    assert "http://127.0.0.1:8025/v1/messages" in local


def test_every_document_uses_the_same_configuration_path():
    named = {path for page in DOCS for path in re.findall(r"/[\w/.-]*postrider\.toml", page.read_text())}
    # The other file is the copy that a restore starts from.
    assert named == {"/etc/postrider/postrider.toml", "/media/safe/postrider.toml"}


def test_verifying_an_unverified_domain_exits_with_7_and_names_the_record(dev):
    server = dev()
    assert cli(server, "domain", "add", "pending.example", "--stream", "transactional").returncode == 0
    for more in ([], ["--wait", "1"]):
        done = cli(server, "domain", "verify", "pending.example", *more)
        last = done.stdout.strip().splitlines()[-1]
        assert (done.returncode, last.split(":")[0]) == (7, "Not verified"), done


def test_wildcards_are_refused_as_suppressions(dev):
    answer = dev().api.request("POST", "/v1/suppressions", {"email": "*@evil.example"})
    assert answer.status == 422 and "Wildcards are not supported; suppress each address" in answer.body.decode()


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("cc", "b@example.org", "one request per recipient"),
        ("bcc", "b@example.org", "one request per recipient"),
        ("reply_to", "b@example.org", "Reply-To"),
        ("tags", ["a"], "metadata"),
        ("send_at", "2030-01-01T00:00:00Z", "not supported"),
        ("body", "x", "text"),
        ("template_id", "t", "render"),
        ("to", ["a@example.org", "b@example.org"], "`to` takes one address: send one request per recipient"),
        ("from", "Shop <shop@example.test>", "from_name"),
    ],
)
def test_a_field_of_other_services_is_refused_with_a_hint(dev, field, value, hint):
    letter = {"from": "shop@example.test", "to": "a@example.org", "subject": "s", "text": "t"} | {field: value}
    answer = dev().api.request("POST", "/v1/messages", letter)
    assert answer.status == 422 and hint in answer.body.decode(), answer.body


@pytest.mark.parametrize("option", ["--port", "--listen"])
def test_a_bare_port_means_loopback(workdir, option):
    port = free_port()
    with (workdir / "said").open("w") as said:
        command = [binary(), "dev", option, str(port), "--smtp-listen", "0", "--data-dir", str(workdir / "data")]
        child = spawn(command, said, env={**os.environ, "HOME": str(workdir)})
    try:
        until("it is ready", lambda: "ready at" in (workdir / "said").read_text() or child.poll() is not None, 30)
        assert f"http://127.0.0.1:{port}" in (workdir / "said").read_text()
    finally:
        stop(child)


def test_a_port_in_use_names_the_option_to_change_it(dev):
    taken = dev().info["url"].rsplit(":", 1)[1]
    command = [binary(), "dev", "--port", taken, "--smtp-listen", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and "for dev with --listen" in done.stderr, done


def test_an_unknown_identifier_is_reported_with_the_list_command(dev):
    done = cli(dev(), "key", "remove", "key_1")
    assert done.returncode != 0 and "No key key_1. Run: postrider key list" in done.stderr, done


def test_message_send_waits_for_the_outcome(dev):
    server = dev()
    words = ["message", "send", "--from", "shop@example.test", "--to", "ann@example.org", "--subject", "Hi"]
    sent = cli(server, *words, "--wait", text="from standard input\n")
    assert sent.returncode == 0 and "delivered" in sent.stdout, sent
    bounced = cli(server, *[*words[:5], "bounced@simulator.test", *words[6:]], "--text", "x", "--wait")
    assert bounced.returncode == 1 and "bounced" in bounced.stdout, bounced


def test_status_is_an_overview(dev):
    said = cli(dev(), "status")
    assert said.returncode == 0
    for word in ("version", "uptime", "url", "queue", "error", "certificate", "disk", "backup", "clock"):
        assert word in said.stdout.lower(), said.stdout


def test_serve_logs_its_public_url(serve):
    assert "http://mail.sender.test" in serve(port=free_port()).logged()


def test_the_smarthost_page_names_ports_that_are_not_blocked():
    assert all(port in (TREE / "docs" / "smarthost.md").read_text() for port in ("2525", "2587"))


def test_the_package_has_no_invented_maintainer():
    control = (TREE / "packaging" / "deb" / "control").read_text()
    assert "Maintainer: @MAINTAINER@" in control and "postrider.example" not in control


def test_dev_is_ready_once_its_first_account_has_its_key_and_webhooks(tmp_path):
    port, key = free_port(), "a-key-for-this-test-alone"
    command = [binary(), "dev", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as log:
        server = spawn([*command, "--api-key", key, "--webhook", "http://127.0.0.1:9/hook"], log)
    try:
        api = Api(f"http://127.0.0.1:{port}", key)

        def is_ready() -> bool:
            try:
                return api.request("GET", "/readyz").status == 200
            except OSError:
                return False

        until("dev is ready", is_ready, every=0.001)
        answer = api.request("GET", "/v1/webhooks")
        assert answer.status == 200, answer
        assert [hook["url"] for hook in answer.json()["data"]] == ["http://127.0.0.1:9/hook"]
    finally:
        stop(server)
