"""Monitoring as Prometheus reads it: the page of metrics, the alert rules, the scrape."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

from support.roots import program

ROOT = Path(__file__).parents[2]


def promtool(*arguments: str, text: str | None = None) -> str:
    """Returns promtool's output; it must report success."""
    command, surroundings = program("promtool", "prometheus")
    done = subprocess.run(
        [command, *arguments], input=text, env=surroundings or os.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_alert_rules_are_valid(workdir):
    assert "SUCCESS" in promtool("check", "rules", str(ROOT / "packaging/monitoring/alerts.yml"))


def test_the_documented_scrape_configuration_is_valid(workdir):
    page = (ROOT / "docs/metrics.md").read_text()
    config = workdir / "prometheus.yml"
    config.write_text(re.search(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1))
    assert "SUCCESS" in promtool("check", "config", str(config))


def test_promtool_finds_no_problems_in_the_metrics(workdir, dev):
    instance = dev(config='[metrics]\nlisten = "127.0.0.1:0"\n')
    instance.api.accept({"from": "a@example.test", "to": "delivered@simulator.test", "subject": "s", "text": "t"})
    address = re.search(r'"metrics":"([^"]+)"', (Path(instance.info["data_dir"]) / "addresses.json").read_text()).group(1)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    # promtool reads the older text format, in which a family has the full name of its samples.
    older = re.sub(r"^# (UNIT|EOF).*\n", "", page, flags=re.MULTILINE)
    for kind, suffix in (("counter", "_total"), ("info", "_info")):
        for name in re.findall(rf"^# TYPE (\S+) {kind}$", page, re.MULTILINE):
            older = re.sub(rf"^# (TYPE|HELP) {name} ", rf"# \1 {name}{suffix} ", older, flags=re.MULTILINE)
    older = re.sub(r"^(# TYPE \S+) info$", r"\1 gauge", older, flags=re.MULTILINE)
    assert older.count("# TYPE") > 20
    promtool("check", "metrics", text=older)
