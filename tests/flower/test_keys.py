"""Keys that openssl, ssh and Python's ssl accept, in files that nobody else can read."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key, load_ssh_public_key

from fedpg.errors import UserError
from fedpg.flower.keys import flower_key, make_keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "of" / "all"
    make_keys(folder, ("Fed.example.org", "192.0.2.7", "2001:db8::1", "localhost"), agents=2, days=30)
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")  # it exists, and is empty
    make_keys(folder, ("fed.example.org",), agents=1)
    return folder


def test_the_set_is_complete_and_private(keys, others):
    agents = {"agent-0", "agent-1", "agent-0.pub", "agent-1.pub"}
    assert {path.name for path in keys.iterdir()} == {"ca.crt", "ca.key", "server.pem", "server.key"} | agents
    for folder in (keys, others):
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.iterdir():
            secret = b"PRIVATE KEY" in path.read_bytes()
            assert path.stat().st_mode & 0o777 == (0o600 if secret else 0o644 & ~umask()), path
    assert [path.name for path in keys.parent.iterdir()] == ["all"]  # no draft is left


def umask():
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_certificate_names_every_way_to_the_server(keys):
    server, authority = (x509.load_pem_x509_certificate((keys / name).read_bytes()) for name in ("server.pem", "ca.crt"))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("192.0.2.7", "2001:db8::1", "127.0.0.1")]
    server.verify_directly_issued_by(authority)
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days == 31  # and a day for slow clocks
    assert authority.not_valid_after_utc > server.not_valid_after_utc


@pytest.mark.federation  # needs openssl, ssh-keygen and bash
def test_openssl_verifies_the_chain_and_only_that(keys, others):
    def verify(authority, *more):
        words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", *more, "-CAfile", str(authority / "ca.crt")]
        return subprocess.run([*words, str(keys / "server.pem")], capture_output=True, check=False).returncode

    assert verify(keys, "-verify_hostname", "fed.example.org") == 0
    assert verify(keys, "-verify_ip", "2001:db8::1") == 0
    assert verify(keys, "-verify_hostname", "other.example.org") != 0
    assert verify(others) != 0


def handshake(server_keys, authority, host):
    """What a client that trusts `authority` gets from a server with `server_keys` that it calls `host`: the TLS version."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server_keys / "server.pem", server_keys / "server.key")
    calling = ssl.create_default_context(cafile=authority / "ca.crt")
    calling.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    ours, theirs = socket.socketpair()

    def accept():
        with theirs:
            try:
                with accepting.wrap_socket(theirs, server_side=True) as secured:
                    secured.sendall(b"done")
            except OSError:
                pass

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with ours, calling.wrap_socket(ours, server_hostname=host) as secured:
            assert secured.recv(4) == b"done"
            return secured.version()
    finally:
        thread.join(5.0)
        assert not thread.is_alive()


@pytest.mark.parametrize("host", ["fed.example.org", "192.0.2.7", "127.0.0.1", "localhost"])
def test_a_client_of_the_same_authority_gets_through(keys, host):
    assert handshake(keys, keys, host) == "TLSv1.3"


@pytest.mark.parametrize(("foreign", "host"), [(True, "localhost"), (False, "elsewhere.example.org"), (False, "192.0.2.8")])
def test_another_authority_and_another_name_do_not(keys, others, foreign, host):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, others if foreign else keys, host)


def test_agents_have_pairs_that_flower_reads(keys):
    pairs = [load_ssh_private_key((keys / f"agent-{agent}").read_bytes(), None) for agent in (0, 1)]
    for agent, pair in enumerate(pairs):
        line = (keys / f"agent-{agent}.pub").read_bytes()
        assert line.startswith(b"ecdsa-sha2-nistp384 ")
        assert line.endswith(f" agent-{agent}\n".encode())
        public = load_ssh_public_key(line)
        assert isinstance(public.curve, ec.SECP384R1)
        assert public == pair.public_key() == load_pem_public_key(flower_key(keys / f"agent-{agent}.pub"))
    assert pairs[0].public_key() != pairs[1].public_key()


@pytest.mark.federation  # needs openssl, ssh-keygen and bash
def test_ssh_keygen_agrees_in_both_directions(keys, tmp_path):
    said = subprocess.run(["ssh-keygen", "-y", "-f", str(keys / "agent-0")], capture_output=True, text=True, check=True).stdout
    assert said.split()[:2] == (keys / "agent-0.pub").read_text().split()[:2]
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(tmp_path / "own")], check=True)
    assert load_pem_public_key(flower_key(tmp_path / "own.pub")) == load_ssh_public_key((tmp_path / "own.pub").read_bytes())


@pytest.mark.federation  # needs openssl, ssh-keygen and bash
def test_the_lines_of_the_page_make_keys_that_are_as_good(tmp_path, others):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "secure.md").read_text()
    lines = page.partition("### Without fedpg cert")[2].partition("```bash")[2].partition("```")[0]
    subprocess.run(["bash", "-euc", lines], cwd=tmp_path, check=True, capture_output=True)
    assert [handshake(tmp_path, tmp_path, host) for host in ("fed.example.org", "192.0.2.7", "127.0.0.1")] == ["TLSv1.3"] * 3
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, others, "localhost")
    pair = load_ssh_private_key((tmp_path / "agent-1").read_bytes(), None)
    assert pair.public_key() == load_pem_public_key(flower_key(tmp_path / "agent-1.pub"))
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "agents", "days", "message"),
    [
        (("fed.example.org:9092",), 1, 1, "neither a host name nor an address"),
        (("",), 1, 1, "neither a host name nor an address"),
        (("-fed",), 1, 1, "neither a host name nor an address"),
        (("192.0.2.300",), 1, 1, "neither a host name nor an address"),
        (("fed",), 0, 1, "0 agents"),
        (("fed",), 1, 0, "0 days"),
    ],
)
def test_what_cannot_be_is_one_line_and_no_folder(tmp_path, names, agents, days, message):
    with pytest.raises(UserError, match=message) as caught:
        make_keys(tmp_path / "keys", names, agents, days)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_no_half_set_is_left(tmp_path, monkeypatch):
    mine = tmp_path / "keys" / "ca.key"
    mine.parent.mkdir()
    mine.write_text("mine")
    for folder in (mine.parent, mine):
        with pytest.raises(UserError, match="nothing is overwritten"):
            make_keys(folder, ("fed",), 1)
    with pytest.raises(UserError, match="cannot write"):
        make_keys(mine / "below", ("fed",), 1)

    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left"):
        make_keys(tmp_path / "more", ("fed",), 1)
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.rglob("*")] == ["keys", "ca.key"]
    with pytest.raises(UserError, match="no public key"):
        flower_key(mine)
