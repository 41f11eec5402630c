"""The table of misbehaving mail servers: their answers or actions by phase. The tests add silence and disconnects."""

from support.hostile_servers import (
    DIALOGUE,
    WITH_TLS,
    Act,
    Script,
    drip,
    endless,
    hang_up,
    instead_of_handshake,
    silence,
    then_hang_up,
)

PHASES = ("greeting", "ehlo", "mail", "rcpt", "data", "dot")
# After this phase the server has the message, but the client can't know: only then may it be duplicated.
_TAKEN = "dot"

_HANDSHAKE = b"\x16\x03\x03"
# A ServerHello that announces 16 MiB, in records of the maximum length.
_ENDLESS_HELLO = _HANDSHAKE + b"\x40\x00" + b"\x02\xff\xff\xff" + bytes(0x3FFC)
_NOISE = bytes((n * 131 + 7) % 256 for n in range(4096))

_NO_ANSWERS = {"no code": b"hello\r\n", "999": b"999 so\r\n", "100": b"100 wait\r\n", "empty": b"\r\n"}

_HANDSHAKES: dict[str, Act] = {
    "noise": then_hang_up(_NOISE),
    "nothing": hang_up,
    "half a record": then_hang_up(_HANDSHAKE + b"\x40\x00\x02\x00"),
    "an alert": then_hang_up(b"\x15\x03\x03\x00\x02\x02\x28"),
    "SMTP": then_hang_up(b"454 4.7.0 not now\r\n"),
    "empty records without end": endless(_HANDSHAKE + b"\x00\x00"),
    "changes of cipher without end": endless(b"\x14\x03\x03\x00\x01\x01"),
    "a hello without end": endless(_HANDSHAKE + b"\x40\x00" + bytes(0x4000), first=_ENDLESS_HELLO),
    "warnings without end": endless(b"\x15\x03\x03\x00\x02\x01\x5a"),
}



def silent() -> dict[str, Script]:
    """Servers that send nothing more, or almost nothing, from some phase on."""
    rows = {f"silent at {phase}": {phase: silence} for phase in (*PHASES, "connect")}
    rows |= {f"a byte now and then at {phase}": {phase: drip(b"250-")} for phase in PHASES}
    rows["one answer to three commands"] = {"rcpt": b"", "data": b""}
    rows["silent at STARTTLS"] = {"ehlo": WITH_TLS, "starttls": silence}
    rows["silent at the handshake"] = instead_of_handshake(silence)
    rows["a byte now and then in the handshake"] = instead_of_handshake(drip(_HANDSHAKE + b"\x40\x00" + bytes(0x4000)))
    return rows


def endless_ones() -> dict[str, Script]:
    """Servers that send without end."""
    rows = {}
    for phase in PHASES:
        code = DIALOGUE[phase][:3]
        rows[f"lines that go on at {phase}"] = {phase: endless(code + b"-and on\r\n")}
        rows[f"a line of a GiB at {phase}"] = {phase: endless(b"a", first=code + b" ")}
        rows[f"NULs at {phase}"] = {phase: endless(b"\0")}
    for name, act in _HANDSHAKES.items():
        if "without end" in name:
            rows[f"handshake: {name}"] = instead_of_handshake(act)
    return rows


def wrong() -> dict[str, Script]:
    """Servers whose answers are invalid, or end the session. All of them finish."""
    rows = {}
    for phase in PHASES:
        rows[f"421 at {phase}"] = {phase: b"421 4.3.2 closing down\r\n"}
        rows[f"the end at {phase}"] = {phase: hang_up}
        rows[f"noise at {phase}"] = {phase: then_hang_up(_NOISE)}
        for name, data in _NO_ANSWERS.items():
            rows[f"{name} at {phase}"] = {phase: then_hang_up(data)}
    rows |= {
        "answers before their commands": {"greeting": DIALOGUE["greeting"] + b"250 ok\r\n" * 6},
        "answers behind EHLO's": {"ehlo": DIALOGUE["ehlo"] + b"250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n"},
        "answers in the wrong order": {"mail": b"354 go\r\n", "rcpt": b"250 ok\r\n", "data": b"250 ok\r\n"},
        "354 to MAIL": {"mail": b"354 go\r\n"},
        "250 to DATA": {"data": b"250 ok\r\n"},
        "334 to DATA": {"data": b"334 \r\n"},
        "an answer too many": {"rcpt": b"250 ok\r\n250 ok\r\n"},
        "taken before it was sent": {"data": b"354 go\r\n250 2.0.0 taken\r\n"},
        "354 to the message": {"dot": b"354 more\r\n"},
        "words behind 220 go on": {"ehlo": WITH_TLS, "starttls": b"220 go on\r\n250 injected\r\n"},
    }
    for name, act in _HANDSHAKES.items():
        if "without end" not in name:
            rows[f"handshake: {name}"] = instead_of_handshake(act)
    return rows


def odd() -> dict[str, Script]:
    """Servers that are unusual but valid: their mail is delivered at the first attempt."""
    rows = {}
    rows["Latin-1 and NUL in EHLO's lines"] = {"ehlo": b"250-mx \xe4\0\r\n250-\xff\xfe\r\n250-PIPELINING\r\n250 \0\r\n"}
    for phase in PHASES:
        code = DIALOGUE[phase][:3]
        rows[f"Latin-1 and NUL at {phase}"] = {phase: code + b" Gr\xfc\xdfe \0 \xff\r\n"}
        rows[f"bare LF at {phase}"] = {phase: DIALOGUE[phase].replace(b"\r\n", b"\n")}
        rows[f"many lines at {phase}"] = {phase: (code + b"-and\r\n") * 50 + code + b" so\r\n"}
    rows["words behind the last answer"] = {"dot": DIALOGUE["dot"] + b"250 and more\r\n"}
    return rows


def may_double(script: Script) -> bool:
    """Whether the server has the message before it misbehaves."""
    said = script.get(_TAKEN)
    return said is not None and (not isinstance(said, bytes) or said.startswith(b"2"))
