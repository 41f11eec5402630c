"""The code in docs/webhooks.md that verifies a webhook's signature, each run as printed, with the same inputs."""

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.roots import missing, private_root

PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"
SECRET = "whsec_q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="
BODY = '{"id":"evt_1","type":"delivered","subject":"Grüße \u2028 €"}'.encode()


def snippet(language):
    found = re.search(rf"^```{language}\n(.*?\bverify\b.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/webhooks.md shows no verification in {language}"
    return found.group(1)


def header(t, secret=SECRET, body=BODY):
    return f"t={t},v1={hmac.new(secret.encode(), f'{t}.'.encode() + body, hashlib.sha256).hexdigest()}"


def questions():
    """Returns secret, header and body, and whether they are valid."""
    now = int(time.time())
    good = header(now)
    return [
        (SECRET, good, BODY, True),
        (SECRET, header(now - 280), BODY, True),
        (SECRET, header(now - 310), BODY, False),
        (SECRET, header(now + 310), BODY, False),
        (SECRET, good, BODY + b" ", False),
        ("whsec_other", good, BODY, False),
        (SECRET, good[:-1] + ("0" if good[-1] != "0" else "1"), BODY, False),
        (SECRET, good.replace("v1=", "v0="), BODY, False),
        (SECRET, good.replace("t=", "t=1"), BODY, False),
        (SECRET, good.split(",")[0], BODY, False),
        (SECRET, good.split(",")[1], BODY, False),
        (SECRET, "", BODY, False),
    ]


GO_LOOP = """
func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked []string
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		body, _ := base64.StdEncoding.DecodeString(asked[2])
		fmt.Println(verify(asked[0], asked[1], body))
	}
}
"""

# Code before a snippet that makes it a program.
PROLOGUES = {
    "php": "<?php\n",
    "go": 'package main\n\nimport (\n\t"bufio"\n\t"encoding/base64"\n\t"encoding/json"\n\t"fmt"\n\t"os"\n)\n\n',
}

# Each reads inputs as JSON lines and answers "true" or "false" for each.
RUNNERS = {
    "python": (
        [sys.executable],
        ".py",
        "\nimport base64, json, sys\nfor line in sys.stdin:\n    s, h, b = json.loads(line)\n"
        "    print(str(verify(s, h, base64.b64decode(b))).lower())\n",
    ),
    "js": (
        ["node"],
        ".cjs",
        '\nfor (const line of require("node:fs").readFileSync(0, "utf8").trim().split("\\n")) {\n'
        '  const [s, h, b] = JSON.parse(line);\n  console.log(String(verify(s, h, Buffer.from(b, "base64"))));\n}\n',
    ),
    "php": (
        ["php"],
        ".php",
        "\nwhile (($line = fgets(STDIN)) !== false) {\n    [$s, $h, $b] = json_decode($line);\n"
        "    echo verify($s, $h, base64_decode($b)) ? \"true\\n\" : \"false\\n\";\n}\n",
    ),
    "ruby": (
        ["ruby"],
        ".rb",
        '\nrequire "json"\nSTDIN.each_line do |line|\n  s, h, b = JSON.parse(line)\n'
        '  puts verify(s, h, b.unpack1("m"))\nend\n',
    ),
    "go": (["go", "run"], ".go", GO_LOOP),
}


def environment(workdir):
    """Returns the environment of the programs: Go in its private root, with a cache for this test."""
    go = private_root("go")
    if go is None:
        return dict(os.environ)
    found = {"PATH": f"{go}/usr/lib/go/bin:{os.environ['PATH']}", "GOROOT": f"{go}/usr/lib/go"}
    return {**os.environ, **found, "GOCACHE": f"{workdir}/go", "GOPATH": f"{workdir}/path", "GO111MODULE": "off"}


@pytest.mark.parametrize("language", RUNNERS)
def test_a_snippet_accepts_only_recent_and_authentic_webhooks(language, workdir):
    command, suffix, loop = RUNNERS[language]
    env = environment(workdir)
    if shutil.which(command[0], path=env["PATH"]) is None:
        missing(command[0])
    program = workdir / f"verify{suffix}"
    program.write_text(PROLOGUES.get(language, "") + snippet(language) + loop)
    asked = questions()
    lines = "".join(json.dumps([s, h, base64.b64encode(b).decode()]) + "\n" for s, h, b, _ in asked)
    ran = subprocess.run([*command, program], input=lines, capture_output=True, text=True, timeout=120, env=env)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(believed).lower() for *_, believed in asked]
