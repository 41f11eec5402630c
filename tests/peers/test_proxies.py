"""The documentation's reverse proxies, run with the documented configuration (docs/proxy.md)."""

import json
import os
import re
import socket
import ssl
import threading
from pathlib import Path

import httpx
import pytest
from support.roots import program
from support.wait import LOOPBACK, free_port, listens, spawn, stop, until

PAGE = (Path(__file__).parents[2] / "docs/proxy.md").read_text()
HOST = "mail.example.com"


def block(language: str, word: str) -> str:
    """Returns the code block of a language that contains this word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return next(text for text in blocks if word in text)


class Proxy:
    """A proxy in front of the service at `upstream`, with TLS for mail.example.com at `port`."""

    def __init__(self, name: str, folder: Path, upstream: int, pem: Path):
        self.port = free_port()
        folder.mkdir()
        write = {"nginx": self.nginx, "caddy": self.caddy}[name]
        arguments = write(folder, upstream, pem)
        command, surroundings = program(name, name)
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        with (folder / "log").open("w") as log:
            self.child = spawn([command, *arguments], log, env=(surroundings or dict(os.environ)) | home)
        until(f"{name} listens", lambda: listens(self.port))

    def nginx(self, folder: Path, upstream: int, pem: Path) -> list[str]:
        """The documented server, with the minimum that nginx needs around it."""
        server = block("nginx", "server_name")
        for given, here in (
            ("listen 443 ssl", f"listen {LOOPBACK}:{self.port} ssl"),
            (f"{LOOPBACK}:8025", f"{LOOPBACK}:{upstream}"),
            ("/etc/postrider/tls/fullchain.pem", str(pem)),
            ("/etc/postrider/tls/privkey.pem", str(pem)),
        ):
            assert given in server, given
            server = server.replace(given, here)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        user = "user root;\n" if os.geteuid() == 0 else ""
        config = folder / "nginx.conf"
        config.write_text(
            f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{places}{server}}}\n"
        )
        return ["-p", str(folder), "-e", "stderr", "-c", str(config)]

    def caddy(self, folder: Path, upstream: int, pem: Path) -> list[str]:
        """The documented site, with a given certificate, because there is no authority."""
        site = block("text", "reverse_proxy")
        assert site.startswith(f"{HOST} {{\n") and f"{LOOPBACK}:8025" in site
        site = site.replace(f"{HOST} {{\n", f"https://{HOST}:{self.port} {{\n    tls {pem} {pem}\n", 1)
        site = site.replace(f"{LOOPBACK}:8025", f"{LOOPBACK}:{upstream}")
        config = folder / "Caddyfile"
        config.write_text(f"{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}")
        return ["run", "--config", str(config), "--adapter", "caddyfile"]


@pytest.fixture
def behind(workdir, dev, authority):
    """The service as documented, behind the named proxy."""
    proxies = []

    def make(name: str):
        instance = dev(config=block("toml", "trusted_proxies"))
        addresses = json.loads((Path(instance.info["data_dir"]) / "addresses.json").read_text())
        upstream = int(addresses["http"][0].rpartition(":")[2])
        proxies.append(Proxy(name, workdir / name, upstream, authority.issue(HOST)))
        return instance, proxies[-1]

    yield make
    for proxy in proxies:
        stop(proxy.child)


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_the_documented_proxies_change_nothing(name, behind, authority):
    instance, proxy = behind(name)
    context = ssl.create_default_context(cafile=str(authority.root))
    key = {"Authorization": f"Bearer {instance.info['api_key']}"}

    def resolved(host, *rest, **more):
        return real(LOOPBACK if host == HOST else host, *rest, **more)

    real, socket.getaddrinfo = socket.getaddrinfo, resolved
    try:
        with httpx.Client(base_url=f"https://{HOST}:{proxy.port}", verify=context, timeout=20) as client:
            assert client.get("/readyz").status_code == 200
            mail = {"from": "a@example.test", "to": "you@receiver.test", "subject": "s", "text": "x" * 2_000_000}
            assert client.post("/v1/messages", json=mail, headers=key).status_code == 202, "larger than a proxy's default"
            events_come_as_they_happen(client, key, mail | {"text": "t"})
            the_panel_can_be_used(client, instance)
    finally:
        socket.getaddrinfo = real


def events_come_as_they_happen(client: httpx.Client, key: dict, mail: dict):
    """If a proxy buffered the stream, the event would arrive with the next one, or never."""
    with client.stream("GET", "/v1/events/stream", headers=key) as stream:
        assert stream.status_code == 200
        sent = []
        sending = threading.Thread(target=lambda: sent.append(client.post("/v1/messages", json=mail, headers=key)))
        sending.start()
        lines = stream.iter_lines()
        line = next(line for line in lines if line.startswith("data:") and "queued" in line)
        sending.join()
        assert sent[0].json()["id"] in line


def the_panel_can_be_used(client: httpx.Client, instance):
    """Cookies are valid for https only, and the origin of forms is accepted."""
    page = client.get("/login").text
    token = re.search(r'name="(csrf\w*)" value="([^"]+)"', page)
    form = {"email": instance.info["panel_user"], "password": instance.info["panel_password"]}
    form |= {token[1]: token[2]} if token else {}
    answer = client.post("/login", data=form, headers={"Origin": f"https://{HOST}"})
    assert answer.status_code == 303, answer.text
    assert answer.headers["set-cookie"].startswith("__Host-") and "Secure" in answer.headers["set-cookie"]
    assert client.get("/messages").status_code == 200
