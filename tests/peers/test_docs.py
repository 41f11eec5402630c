"""The documentation's commands and configurations, run as they stand there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.roots import binary

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))


def blocks(page, language):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")])
def test_every_command_of_a_page_works_as_it_stands_there(page, dev, workdir):
    instance = dev()
    folder = workdir / "reader"
    folder.mkdir()
    (folder / "postrider").symlink_to(binary())
    script = "\n".join(blocks(page, "sh")).replace("https://mail.example.com", instance.info["url"])
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KEY": instance.info["api_key"],
        "POSTRIDER_DATA_DIR": instance.info["data_dir"],
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_every_configuration_of_a_page_is_one(page, workdir):
    for number, text in enumerate(blocks(page, "toml")):
        # The files that it names are those of the reader's machine.
        for path in re.findall(r'"(/etc/postrider/[^"]+)"', text):
            there = workdir / Path(path).name
            there.write_text("secret")
            text = text.replace(path, str(there))
        config = workdir / f"{number}.toml"
        config.write_text(f'data_dir = "{workdir}/data"\n{text}')
        command = [binary(), "config", "check", "--config", str(config)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"
