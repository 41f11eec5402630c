"""Certificate files that are renewed by another program, under `serve` (contract 8): reloaded while connections
continue."""

import signal
import smtplib
import socket
import ssl

from support.wait import LOOPBACK, free_port, until

HOST = "mail.sender.test"


def connected(port: int, root) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(root))
    return context.wrap_socket(socket.create_connection((LOOPBACK, port), timeout=5), server_hostname=HOST)


def serial(port: int, root) -> str:
    """The serial number of the certificate that a new connection sees."""
    with connected(port, root) as stream:
        return stream.getpeercert()["serialNumber"]


def healthy(stream: ssl.SSLSocket) -> bool:
    stream.sendall(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    return stream.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_renewed_certificate_is_loaded_without_dropping_connections(serve, authority):
    port, bounces = free_port(), free_port()
    file = authority.issue(HOST)
    server = serve(
        1,
        **{
            "http": {"listen": [f"{LOOPBACK}:{port}"], "public_url": f"https://{HOST}"},
            "http.tls": {"mode": "files", "certificate": str(file), "key": str(file)},
            "bounces": {"host": HOST, "listen": [f"{LOOPBACK}:{bounces}"]},
        },
    )
    first = serial(port, authority.root)
    with connected(port, authority.root) as kept:
        assert healthy(kept)
        authority.issue(HOST)
        until("the new one is presented", lambda: serial(port, authority.root) != first, 10, every=0.1)
        second = serial(port, authority.root)
        with smtplib.SMTP(LOOPBACK, bounces, timeout=10) as smtp:
            smtp._host = HOST
            smtp.starttls(context=ssl.create_default_context(cafile=str(authority.root)))
            assert smtp.sock.getpeercert()["serialNumber"] == second, "mail presents it too"

        file.write_text("torn")
        until("it is logged", lambda: "could not reload TLS certificate; keeping the current one" in server.logged(), 10)
        assert serial(port, authority.root) == second
        authority.issue(HOST)
        server.child.send_signal(signal.SIGHUP)
        until("SIGHUP loads the new certificate", lambda: serial(port, authority.root) != second, 10, every=0.1)
        assert healthy(kept), "an open connection continues"
