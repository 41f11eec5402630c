"""The RSA-2048 signing key of the peers, the cost of one signature on this machine, and the verification of
signatures."""

import base64
import time
from pathlib import Path

import dkim
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from letters import SENDING_DOMAIN
from support.knot import Knot

SELECTOR = "bench"
_BATCHES, _BATCH = 5, 100


class SigningKey:
    """One key, its PEM text, and its published record."""

    def __init__(self, knot: Knot):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.pem = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ).decode()
        public = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        record = f"v=DKIM1; k=rsa; p={base64.b64encode(public).decode()}"
        knot.put(f"{SELECTOR}._domainkey.{SENDING_DOMAIN}", "TXT", record)
        knot.publish()

    def write(self, file: Path) -> Path:
        """Writes the key to a file that only its owner may read, as signers require."""
        file.write_text(self.pem)
        file.chmod(0o600)
        return file

    def signature_seconds(self) -> float:
        """Returns the CPU time of one OpenSSL signature: the minimum of some batches, because disturbances only add
        time."""
        best = float("inf")
        for _ in range(_BATCHES):
            began = time.thread_time()
            for number in range(_BATCH):
                self.key.sign(number.to_bytes(4, "big"), padding.PKCS1v15(), hashes.SHA256())
            best = min(best, (time.thread_time() - began) / _BATCH)
        return best


def signatures(mail: bytes) -> list[bytes]:
    """Returns the algorithms of a message's signatures."""
    fields = [value for name, value in dkim.DKIM(mail).headers if name.lower() == b"dkim-signature"]
    return [dkim.util.parse_tag_value(field)[b"a"] for field in fields]


def fault_of_signature(mail: bytes, knot: Knot) -> str | None:
    """Returns the reason why this message is not signed correctly: once, with RSA, and verifiable."""
    algorithms = signatures(mail)
    if algorithms != [b"rsa-sha256"]:
        return f"signed by {algorithms}"
    if not dkim.DKIM(mail).verify(dnsfunc=knot.txt_for_dkimpy):
        return "its signature does not verify"
    return None
