"""Certificates and keys of a deployment: a server that clients can trust, clients that the server knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedtide.core.errors import OutputError

VALID = timedelta(days=365)
HERE = ("localhost", "127.0.0.1")

PrivateKey = ec.EllipticCurvePrivateKey


class Keys(NamedTuple):
    """The files of a folder of keys. Only `authority` and its own key go to a client's machine."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate that server and clients trust."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def clients(self) -> list[int]:
        """The numbers of the clients whose public keys are in the folder."""
        return self._numbers(".pub")

    @property
    def private(self) -> list[int]:
        """The numbers of the clients whose private keys are in the folder: one, on a client's machine."""
        return self._numbers(".key")

    def _numbers(self, ending: str) -> list[int]:
        names = [
            path.stem.removeprefix("client-") for path in self.folder.glob(f"client-*{ending}")
        ]
        return sorted(int(name) for name in names if name.isdecimal())

    def of_client(self, number: int) -> Path:
        """A client's private key; its public half has the ending .pub."""
        return self.folder / f"client-{number}.key"


def generate(folder: Path, clients: int, hosts: Sequence[str] = ()) -> Keys:
    """A certificate for a server at these hosts, and a key pair for each client, in a new folder."""
    keys = Keys(folder)
    try:
        folder.mkdir(parents=True, mode=0o700)
        _certify(keys, [*dict.fromkeys([*HERE, *hosts])])
        for number in range(clients):
            key, path = ec.generate_private_key(ec.SECP384R1()), keys.of_client(number)
            _private(path, key, serialization.PrivateFormat.OpenSSH)
            public = key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            path.with_suffix(".pub").write_bytes(public)
    except OSError as error:
        raise OutputError(
            f"deploy keys: {folder} must be a new folder that can be written. Got: {error.strerror}. "
            "Choose another; keys are never overwritten."
        ) from error
    return keys


def _certify(keys: Keys, hosts: Sequence[str]) -> None:
    """A certificate authority, whose private key is deleted once it has signed the server's certificate."""
    signer, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca, server = _name("FedTide deployment"), _name(hosts[0])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    usage |= {"encipher_only": False, "decipher_only": False}
    root = (
        _builder(ca, ca, signer.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), False)
        .sign(signer, hashes.SHA384())
    )
    known_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(server, ca, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        .add_extension(known_by, False)
        .sign(signer, hashes.SHA384())
    )
    keys.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    keys.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _private(keys.key, key, serialization.PrivateFormat.PKCS8)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + VALID)


def _name(words: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(path: Path, key: PrivateKey, form: serialization.PrivateFormat) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
