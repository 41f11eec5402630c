"""The documentation's commands and configurations, run unchanged."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.roots import binary
from support.wait import spawn, stop, until

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))


def blocks(page, language):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")])
def test_every_command_of_a_page_works_unchanged(page, dev, workdir):
    instance = dev()
    folder = workdir / "reader"
    folder.mkdir()
    (folder / "postrider").symlink_to(binary())
    script = "\n".join(blocks(page, "sh"))
    for address in ("https://mail.example.com", "http://127.0.0.1:8025"):
        script = script.replace(address, instance.info["url"])
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "POSTRIDER_API_KEY": instance.info["api_key"],
        "POSTRIDER_DATA_DIR": instance.info["data_dir"],
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("number", [0, 1])
def test_the_event_following_commands_of_the_webhooks_page_show_a_message(number, dev, workdir):
    """Commands that run until they are stopped."""
    instance = dev()
    receiver = http.server.HTTPServer(("127.0.0.1", 0), Acknowledging)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    (workdir / "postrider").symlink_to(binary())
    command = blocks("webhooks", "text")[number]
    assert "127.0.0.1:3000" in command or "/events/stream" in command
    for there, here in (("https://mail.example.com", instance.info["url"]), (":3000", f":{receiver.server_port}")):
        command = command.replace(there, here)
    environment = {
        "PATH": f"{workdir}:{os.environ['PATH']}",
        "POSTRIDER_API_KEY": instance.info["api_key"],
        "POSTRIDER_DATA_DIR": instance.info["data_dir"],
    }
    with (workdir / "said").open("w") as said:
        following = spawn(["bash", "-c", command], said, cwd=workdir, env=environment)
    told = lambda: "queued" in (workdir / "said").read_text()  # noqa: E731
    mail = {"from": "hello@example.test", "to": "you@example.org", "subject": "s", "text": "t"}
    try:
        # It may begin to follow only after the first event.
        until("an event is shown", lambda: instance.api.accept(mail) and told(), every=0.2)
    finally:
        stop(following)
        receiver.shutdown()


class Acknowledging(http.server.BaseHTTPRequestHandler):
    """Accepts every POST."""

    def do_POST(self):  # noqa: N802, the name is http.server's
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Nothing is logged."""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_every_configuration_on_a_page_is_valid(page, workdir):
    for number, text in enumerate(blocks(page, "toml")):
        # The named files are on the reader's machine.
        for path in re.findall(r'"(/etc/postrider/[^"]+)"', text):
            there = workdir / Path(path).name
            there.write_text("secret")
            text = text.replace(path, str(there))
        config = workdir / f"{number}.toml"
        config.write_text(f'data_dir = "{workdir}/data"\n{text}')
        command = [binary(), "config", "check", "--config", str(config)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"


def test_the_pytest_example_of_the_testing_page_passes(dev, workdir):
    instance = dev()
    (workdir / "test_example.py").write_text(blocks("testing", "python")[0])
    environment = {**os.environ, "POSTRIDER_URL": instance.info["url"]}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(workdir / "test_example.py")]
    ended = subprocess.run(command, cwd=workdir, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


def test_the_vitest_example_of_the_testing_page_passes(dev, workdir):
    """Run by Node's own test runner, whose names are the same as the imported ones except `expect`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    instance = dev()
    shim = """import assert from "node:assert/strict";
export { beforeEach, test } from "node:test";
export const expect = (seen) => ({
  toBe: (wanted) => assert.equal(seen, wanted), toEqual: (wanted) => assert.deepEqual(seen, wanted),
});
"""
    (workdir / "vitest.mjs").write_text(shim)
    (workdir / "example.test.mjs").write_text(blocks("testing", "js")[0].replace('"vitest"', '"./vitest.mjs"'))
    environment = {**os.environ, "POSTRIDER_URL": instance.info["url"], "POSTRIDER_API_KEY": instance.info["api_key"]}
    command = [node, "--test", str(workdir / "example.test.mjs")]
    ended = subprocess.run(command, cwd=workdir, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("number", [0, 1])
def test_the_files_of_the_testing_page_set_only_known_variables(number):
    text = blocks("testing", "yaml")[number]
    known = {row for row in re.findall(r"`(POSTRIDER_[A-Z_]+)", (DOCS / "testing.md").read_text())}
    named = set(re.findall(r"(POSTRIDER_DEV_[A-Z_]+):", text))
    assert named and named <= known
    assert "127.0.0.1:8025:8025" in text
