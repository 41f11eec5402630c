"""Objects of a replica, made without the program: as an older or a newer version would write them."""

import hashlib
import hmac
import json
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# The body is not encrypted, and ends with an HMAC.
_CLEAR = b"\2"


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def ulid(text: str) -> bytes:
    """Returns the bytes of an identifier."""
    value = 0
    for character in text:
        value = value << 5 | _CROCKFORD.index(character)
    return value.to_bytes(16, "big")


def raw_zstd(content: bytes) -> bytes:
    """Returns a zstd frame (RFC 8878 3.1.1) with one raw block."""
    assert len(content) < 1 << 17
    header = b"\x28\xb5\x2f\xfd" + b"\xa0" + len(content).to_bytes(4, "little")
    return header + (len(content) << 3 | 1).to_bytes(3, "little") + content


def varint(number: int) -> bytes:
    """Returns a number as postcard writes it."""
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


class Forge:
    """Makes the objects of the store `store` under a master key."""

    def __init__(self, master_key: bytes, store: str, holder: str):
        self.derivation = _hmac(master_key, b"postrider derivation key 1")
        self.store, self.holder = store, holder

    def head(self, kind: str, number: int, epoch: int) -> bytes:
        """Returns the first line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime())
        return f"postrider replica 1 {kind} {number} {epoch} {self.holder} {at}\n".encode()

    def sealed(self, name: str, head: bytes, clear: bytes, body: bytes) -> bytes:
        """Returns an object with a MAC, and without encryption."""
        purpose = b"postrider replica object " + _CLEAR + ulid(self.store) + name.encode() + b"\1"
        whole = head + _CLEAR + clear + body
        return whole + _hmac(_hmac(self.derivation, purpose), whole)

    def identity(self, row_format: int) -> bytes:
        """Returns the object `store`."""
        head = self.head("store", 0, 0)
        purpose = b"postrider replica store " + head + self.store.encode() + row_format.to_bytes(4, "big")
        proof = _hmac(self.derivation, purpose).hex()
        return head + json.dumps({"store": self.store, "row_format": row_format, "proof": proof}).encode() + b"\n"

    def slot(self, kind: str, number: int, epoch: int, row_format: int, previous: bytes, body: bytes) -> bytes:
        """Returns a slot that follows the slot with the bytes `previous`, which are empty before the first."""
        before = hashlib.sha256(previous).digest() if previous else bytes(32)
        clear = row_format.to_bytes(4, "big") + before
        return self.sealed(f"log/{number:012}", self.head(kind, number, epoch), clear, body)

    def claim(self, number: int, epoch: int, row_format: int, previous: bytes, sequence: int) -> bytes:
        """Returns a slot that begins an epoch."""
        program = b"9.9.9"
        body = b"\1" + varint(len(program)) + program + b"\0" + varint(0) + varint(sequence)
        return self.slot("claim", number, epoch, row_format, previous, body)

    def batches(self, number: int, epoch: int, row_format: int, previous: bytes, sequence: int, record: bytes) -> bytes:
        """Returns a slot with one batch."""
        at = int(time.time() * 1000)
        size = len(record).to_bytes(4, "big")
        piece = b"\1" + sequence.to_bytes(8, "big") + at.to_bytes(8, "big") + size + bytes(4) + size + record
        return self.slot("batches", number, epoch, row_format, previous, raw_zstd(piece))

    def part(self, slot: int, content: bytes) -> bytes:
        """Returns the only part of a base."""
        return self.sealed(f"base/{slot:012}/000001", self.head("part", slot, 1), b"", content)

    def manifest(self, slot: bytes, number: int, row_format: int, sequence: int, part: bytes) -> bytes:
        """Returns the manifest of the base of a slot with one part and without content."""
        taken_at = int(time.time() * 1000)
        parts = varint(1) + varint(len(part)) + hashlib.sha256(part).digest()
        numbers = varint(sequence) + varint(taken_at) + varint(row_format) + varint(0)
        body = b"\1" + varint(number) + hashlib.sha256(slot).digest() + numbers + parts + varint(0)
        return self.sealed(f"base/{number:012}/manifest", self.head("manifest", number, 1), b"", raw_zstd(body))


# Parts of a backup.
_BACKUP, _HEAD, _MASTER_KEY, _ROWS = b"postrider backup ", 1, 2, 3


def base_of_backup(backup: bytes) -> tuple[bytes, bytes]:
    """Returns the master key in a backup, and the rows of the backup as a base has them: without content."""
    at = backup.index(b"\n") + 1
    content, chain, key = backup[:at], _hmac(_BACKUP, (1).to_bytes(4, "big")), b""
    while at < len(backup):
        kind, length = backup[at], int.from_bytes(backup[at + 1 : at + 5], "big")
        payload = backup[at + 5 : at + 5 + length]
        at += 5 + length + 16
        if kind == _MASTER_KEY:
            key = payload
        elif kind not in (_HEAD, _ROWS) and at < len(backup):
            continue
        elif at == len(backup):  # The totals: rows, segments, and bytes of content.
            rows = next(end for end, byte in enumerate(payload) if byte < 128) + 1
            payload = payload[:rows] + b"\0\0"
        if kind != _MASTER_KEY:
            chain = _hmac(chain, bytes([kind]) + payload)
            content += bytes([kind]) + len(payload).to_bytes(4, "big") + payload + chain[:16]
    return key, content
