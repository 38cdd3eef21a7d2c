"""Keys of a federation: a certificate that tells agents who the server is, and a key that tells the server who each agent is.

The server proves itself with TLS: `server.pem` is signed by the federation's own authority, whose certificate `ca.crt` every agent
has. An agent proves itself with a signature by its private key `agent-I`, of which the server has the public half `agent-I.pub`.
All keys are ECDSA on P-384; an agent's pair is written as OpenSSH writes it, which is what Flower reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import os
import re
import shutil
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpg.errors import UserError, require

ALWAYS = ("localhost", "127.0.0.1")
"""Names that every server certificate has: its own machine reaches it by them."""
AUTHORITY_DAYS = 3650
"""The authority outlives its certificates, so that a renewed one needs no new file at any agent."""
PRIVATE, PUBLIC = 0o600, 0o644
HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


@dataclasses.dataclass(frozen=True)
class Request:
    """Which keys to make."""

    names: tuple[str, ...]
    """Host names and addresses by which agents reach the server."""
    agents: int
    """How many agents get a key pair."""
    days: int = 825
    """How long the server's certificate is valid."""


def make(folder: Path, request: Request) -> list[str]:
    """Writes a complete set of keys, or nothing.

    Args:
        folder: does not exist yet, or is empty; only its owner will be able to open it.
        request: which keys.

    Returns:
        The names of the files in it.
    """
    require(1 <= request.agents <= 10_000, f"there cannot be {request.agents} agents: give 1 to 10000")
    require(1 <= request.days <= 36_500, f"a certificate cannot be valid for {request.days} days: give 1 to 36500")
    names = [_general_name(name) for name in dict.fromkeys((*request.names, *ALWAYS))]
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(free, f"{folder} exists and is not an empty folder: nothing is overwritten, choose another --out")
    files = _authority_and_server(names, request.days)
    for agent in range(request.agents):
        files |= _agent(f"agent-{agent}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place and then moved there in one step: nobody ever finds half a set. A folder made so has mode 0700.
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for name, (mode, data) in files.items():
                with open(os.open(draft / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                    file.write(data)
            os.rename(draft, folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(draft)
    except OSError as error:
        raise UserError(f"cannot write the keys to {folder}: {error.strerror or error}") from None
    return list(files)


def flower_key(path: Path) -> bytes:
    """An agent's public key as Flower's `NodeInfo.public_key` has it: the file agent-I.pub as PEM."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no public key: {error}") from None
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _general_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    fine = len(name) <= 253 and HOST.fullmatch(name) and not name.rpartition(".")[2].isdigit()
    require(bool(fine), f"{name!r} is neither a host name nor an address: give --server HOST_OR_IP[,MORE], without a port")
    return x509.DNSName(name.lower())


def _authority_and_server(names: list[x509.GeneralName], days: int) -> dict[str, tuple[int, bytes]]:
    """File -> (mode, content) of ca.crt, ca.key, server.pem and server.key."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpg federation")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpg server")])
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    own = _certificate(issuer, issuer, authority.public_key(), max(days, AUTHORITY_DAYS))
    own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    own = own.add_extension(_usage(signs_certificates=True), critical=True)
    its = _certificate(subject, issuer, server.public_key(), days)
    its = its.add_extension(x509.SubjectAlternativeName(names), critical=False)
    its = its.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    its = its.add_extension(_usage(signs_certificates=False), critical=True)
    its = its.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    its = its.add_extension(by, critical=False)
    pem = serialization.Encoding.PEM
    return {
        "ca.crt": (PUBLIC, own.sign(authority, hashes.SHA384()).public_bytes(pem)),
        "ca.key": (PRIVATE, _private(authority, serialization.PrivateFormat.PKCS8)),
        "server.pem": (PUBLIC, its.sign(authority, hashes.SHA384()).public_bytes(pem)),
        "server.key": (PRIVATE, _private(server, serialization.PrivateFormat.PKCS8)),
    }


def _agent(name: str) -> dict[str, tuple[int, bytes]]:
    """What `ssh-keygen -t ecdsa -b 384 -N "" -C NAME -f NAME` writes."""
    key = ec.generate_private_key(ec.SECP384R1())
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {name: (PRIVATE, _private(key, serialization.PrivateFormat.OpenSSH)), f"{name}.pub": (PUBLIC, line + f" {name}\n".encode())}


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin = now - datetime.timedelta(days=1)  # clocks of other machines may be slow
    built = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, now + datetime.timedelta(days=days))
    return built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
