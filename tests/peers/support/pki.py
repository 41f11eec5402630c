"""A private certificate authority, new in every test."""

import datetime
import hashlib
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """Issues server certificates; `root` is the PEM file that makes them valid."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Peers' test root")])
        certificate = (
            self._unsigned(self.name, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.root = folder / "root.pem"
        self.root.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *names: str, days: tuple[int, int] = (-1, 90)) -> Path:
        """Writes one PEM file, key first and certificate after it, for host names and addresses; valid between
        `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = (
            self._unsigned(subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        file = self.folder / f"{names[0]}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        file.chmod(0o600)
        return file

    def self_signed(self, *names: str) -> Path:
        """Writes one PEM file as `issue` does, with a self-signed certificate."""
        stranger = Authority(self.folder / f"stranger-{names[0]}")
        return stranger.issue(*names)

    def _unsigned(self, subject: x509.Name, public_key, days=(-1, 90)) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
        )


def public_key_digest(file: Path) -> str:
    """Returns the SHA-256 of the public key of a PEM file's certificate, as in a TLSA record (RFC 6698 2.1)."""
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).hexdigest()


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
