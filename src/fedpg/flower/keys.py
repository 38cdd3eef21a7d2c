"""The keys of a federation: a certificate that proves the server to agents, and a key pair that proves each agent to the server.

`server.pem` is signed by the federation's own authority, whose certificate `ca.crt` every agent has. An agent signs its calls with
its private key `agent-I`; the server has the public half `agent-I.pub`. All keys are ECDSA on P-384. An agent's pair is written
in the format of OpenSSH, which Flower reads.
"""

import contextlib
import datetime
import hashlib
import ipaddress
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpg.errors import UserError, require
from fedpg.flower.processes import write_secret

LOCAL_NAMES = ("localhost", "127.0.0.1")
"""Names in every server certificate: processes on the server's machine use them."""
AUTHORITY_DAYS = 3650
"""The authority is valid longer than its certificates, so agents need no new file when server.pem is renewed."""
PRIVATE, PUBLIC = 0o600, 0o644
HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
PUBLIC_KEY = re.compile(r"agent-(\d+)\.pub")


def make_keys(folder: Path, names: tuple[str, ...], agents: int, days: int = 825, readers: int = 0) -> None:
    """Writes a complete set of keys, or nothing.

    Args:
        folder: must not exist, or be empty; only its owner can open it afterwards.
        names: host names and addresses by which agents reach the server.
        agents: how many agents get a key pair.
        days: how long the server's certificate is valid.
        readers: how many get a key with which the policy can be read and nothing else be done.
    """
    require(0 <= readers <= 10_000, f"there cannot be {readers} readers: give 0 to 10000")
    require(1 <= agents <= 10_000, f"there cannot be {agents} agents: give 1 to 10000")
    require(1 <= days <= 36_500, f"a certificate cannot be valid for {days} days: give 1 to 36500")
    general = [_general_name(name) for name in dict.fromkeys((*names, *LOCAL_NAMES))]
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(free, f"{folder} exists and is not an empty folder: nothing is overwritten, choose another --out")
    files = _authority_and_server(general, days)
    for agent in range(agents):
        files |= _agent(f"agent-{agent}")
    for reader in range(readers):
        secret = secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        files |= {f"reader-{reader}": (PRIVATE, f"{secret}\n".encode()), f"reader-{reader}.pub": (PUBLIC, f"{digest}\n".encode())}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and moved in one step, so there is never half a set. mkdtemp makes a folder of mode 0700.
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


def agent_keys(folder: Path) -> dict[int, Path]:
    """The files agent-I.pub of a folder, by I."""
    found = {int(match[1]): path for path in sorted(folder.glob("*.pub")) if (match := PUBLIC_KEY.fullmatch(path.name))}
    require(bool(found), f"no agent-I.pub in {folder}: without the agents' public keys no agent can join")
    return found


def flower_key(path: Path) -> bytes:
    """The public key in a file agent-I.pub as PEM, which is how Flower's `NodeInfo.public_key` has it."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no public key: {error}") from None
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key in a file agent-I."""
    require(path.exists(), f"no {path.name} in {path.parent}: make a set of keys with fedpg cert, or give --insecure")
    try:
        return serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} is no private key without a password: {error}") from None


def own_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key in a file, made if there is none: by it a server without keys knows an agent that comes again."""
    if not path.exists():
        write_secret(path, _private(ec.generate_private_key(ec.SECP384R1()), serialization.PrivateFormat.OpenSSH))
    return private_key(path)


def public_key(path: Path) -> bytes:
    """The public half, as PEM, of the private key in a file agent-I."""
    return private_key(path).public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_owner(folder: Path) -> Callable[[Any], int]:
    """A function from Flower's `NodeInfo` to the agent whose key it has; -1 if the key belongs to no agent."""
    owners = {flower_key(path): agent for agent, path in agent_keys(folder).items()}
    return lambda node: owners.get(node.public_key, -1)


def _general_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    valid = len(name) <= 253 and HOST.fullmatch(name) and not name.rpartition(".")[2].isdigit()
    require(bool(valid), f"{name!r} is neither a host name nor an address: give --server HOST_OR_IP[,MORE], without a port")
    return x509.DNSName(name.lower())


def _authority_and_server(names: list[x509.GeneralName], days: int) -> dict[str, tuple[int, bytes]]:
    """File -> (mode, content) of ca.crt, ca.key, server.pem and server.key."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpg federation")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpg server")])
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    root = _certificate(issuer, issuer, authority.public_key(), max(days, AUTHORITY_DAYS))
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(_usage(signs_certificates=True), critical=True)
    leaf = _certificate(subject, issuer, server.public_key(), days)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(signs_certificates=False), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    leaf = leaf.add_extension(by, critical=False)
    pem = serialization.Encoding.PEM
    return {
        "ca.crt": (PUBLIC, root.sign(authority, hashes.SHA384()).public_bytes(pem)),
        "ca.key": (PRIVATE, _private(authority, serialization.PrivateFormat.PKCS8)),
        "server.pem": (PUBLIC, leaf.sign(authority, hashes.SHA384()).public_bytes(pem)),
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
