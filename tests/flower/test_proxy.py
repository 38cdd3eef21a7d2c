"""The proxy: agents' calls reach the SuperLink as they are, and nothing else reaches it at all."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import socket
import ssl
import threading
import time

import pytest

from fedpg.errors import UserError
from fedpg.flower.greeting import Door
from fedpg.flower.keys import flower_key, make_keys
from fedpg.flower.proxy import CALLS, MAX_BODY_UNKNOWN, Proxy
from fedpg.flower.web import TLS_HANDSHAKE


class Link(http.server.BaseHTTPRequestHandler):
    """In the SuperLink's place: remembers what it was asked, and says so."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, body, dict(self.headers)))
        self.send_response(412 if self.path.endswith("/activate-node") else 200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", str(len(body) + 4))
        self.end_headers()
        self.wfile.write(b"seen" + body)

    do_GET = do_POST

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def link(keys=None, port=0):
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Link) as server:
        server.seen, server.daemon_threads = [], True
        if keys:
            secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            secure.load_cert_chain(keys / "server.pem", keys / "server.key")
            server.socket = secure.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@contextlib.contextmanager
def opened(*where, **more):
    proxy = Proxy("127.0.0.1", 0, *where, **more)
    try:
        yield proxy
    finally:
        proxy.stop()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    make_keys(folder := tmp_path_factory.mktemp("proxy") / "keys", ("localhost",), 2)
    return folder


@pytest.fixture(scope="module")
def plain():
    """(proxy, link), both without encryption."""
    with link() as server, opened(server.server_port) as proxy:
        yield proxy, server


def call(connection, path, body=b"", method="POST", **headers):
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    return reply.status, reply.read(), reply.headers["content-type"]


def test_agents_calls_pass_as_they_are_through_two_encryptions(keys):
    with link(keys) as server, opened(server.server_port, keys) as proxy:
        connection = http.client.HTTPSConnection("localhost", proxy.port, context=ssl.create_default_context(cafile=keys / "ca.crt"))
        body = bytes(range(256)) * 5000
        for name in sorted(CALLS):
            status, answer, kind = call(connection, f"/v1/fleet/{name}", body, flwr_public_key="a key", flwr_signature="a signature")
            assert (status, answer, kind) == (412 if name == "activate-node" else 200, b"seen" + body, "application/protobuf")
        connection.close()
        assert [(path, sent) for path, sent, _ in server.seen] == [(f"/v1/fleet/{name}", body) for name in sorted(CALLS)]
        assert all(headers["flwr-public-key"] == "a key" and headers["flwr-signature"] == "a signature" for *_, headers in server.seen)
        assert proxy.refused == 0
        with socket.create_connection(("127.0.0.1", proxy.port)) as raw:  # plain text gets no answer
            raw.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in raw.recv(1000)
        assert len(server.seen) == len(CALLS)


def test_calls_are_those_of_the_fleet_api():
    pytest.importorskip("flwr")
    from flwr.superlink.routers.fleet.router import router

    assert {route.path for route in router.routes} == {f"/v1/fleet/{name}" for name in CALLS}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/openapi.json", "/health", "/", "*",
        "/v1/fleet/", "/v1/fleet/start-run", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run", "/v1/fleet/..%2fcontrol%2fstart-run", "//v1/control/start-run",
        "http://127.0.0.1/v1/control/start-run", "/v1/fleet/pull-messages%00/x",
    ],
)  # fmt: skip
def test_nothing_else_reaches_the_link(plain, path):
    proxy, server = plain
    before, refused = len(server.seen), proxy.refused
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
    assert [call(connection, path, b"x", method) for method in ("POST", "GET", "PUT")] == [(404, b"", None)] * 3
    connection.close()
    assert len(server.seen) == before
    assert proxy.refused == refused + 3


def test_only_posts_are_calls_and_questions_are_dropped(plain):
    proxy, server = plain
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
    before = len(server.seen)
    assert call(connection, "/v1/fleet/pull-messages", method="GET")[0] == 404
    assert len(server.seen) == before
    assert call(connection, "/v1/fleet/pull-messages?to=/v1/control/start-run")[0] == 200
    connection.close()
    assert server.seen[-1][0] == "/v1/fleet/pull-messages"


@pytest.mark.parametrize("framing", ["Content-Length: 4\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked"])
def test_no_second_call_hides_in_the_first(plain, framing):
    proxy, server = plain
    before = len(server.seen)
    hidden = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    chunk = f"{len(hidden):x}\r\n".encode() + hidden + b"\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as raw:
        raw.sendall(f"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}\r\n\r\n".encode() + chunk)
        while raw.recv(1000):
            pass
    assert {path for path, *_ in server.seen[before:]} <= {"/v1/fleet/pull-messages"}
    assert all(sent == hidden for _, sent, _ in server.seen[before:])


def test_long_calls_are_for_known_keys(keys, tmp_path):
    known, log = flower_key(keys / "agent-0.pub"), tmp_path / "proxy.log"
    door = Door(1, "", {base64.b64encode(known).decode(): 0}, lambda agent, line: None)
    with link() as server, opened(server.server_port, door=door, log=log) as proxy:
        long = b"0" * (MAX_BODY_UNKNOWN + 1)
        for key, body, status in ((known, long, 200), (b"other", long, 413), (b"other", long[:-1], 200)):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
            assert call(connection, "/v1/fleet/push-object", body, flwr_public_key=base64.b64encode(key).decode())[0] == status
            connection.close()
        assert [len(body) for _, body, _ in server.seen] == [len(long), len(long) - 1]
        assert proxy.refused == 1
        (line,) = log.read_text().splitlines()
        assert line.endswith(" 127.0.0.1 POST '/v1/fleet/push-object' refused with 413")


def test_strangers_do_not_fill_the_log_of_the_superlink(keys, monkeypatch):
    monkeypatch.setattr("fedpg.flower.proxy.MAX_UNKNOWN", 5)
    known = base64.b64encode(flower_key(keys / "agent-0.pub")).decode()
    with link() as server, opened(server.server_port, door=Door(1, "", {known: 0}, lambda agent, line: None)) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        found = [call(connection, "/v1/fleet/pull-messages", flwr_public_key="mine")[0] for _ in range(8)]
        assert found == [200] * 5 + [429] * 3
        assert call(connection, "/v1/fleet/pull-messages", flwr_public_key=known)[0] == 200, "agents are served as ever"
        connection.close()
        assert len(server.seen) == 6


def test_a_link_that_is_away_is_for_agents_to_try_again(monkeypatch):
    monkeypatch.setattr("fedpg.flower.proxy.RESTART_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with opened(port) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        assert call(connection, "/v1/fleet/pull-messages")[0] == 503  # Flower's SuperNodes retry on it
        connection.close()


def test_a_call_waits_for_a_link_that_is_being_restarted():
    with link() as server:
        port = server.server_port
    with opened(port) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("POST", "/v1/fleet/pull-messages", b"early")
        time.sleep(0.5)
        with link(port=port) as server:
            assert connection.getresponse().read() == b"seenearly"
            assert [body for _, body, _ in server.seen] == [b"early"]
        connection.close()


def test_a_call_waits_for_a_link_that_does_not_know_the_keys_yet():
    """An agent that comes in the first second must not be told that its key is in use."""
    ready = threading.Event()
    with link() as server, opened(server.server_port, is_ready=ready.is_set) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("POST", "/v1/fleet/pull-messages", b"early")
        time.sleep(0.5)
        assert not server.seen
        ready.set()
        assert connection.getresponse().read() == b"seenearly"
        connection.close()


def test_data_that_look_like_the_beginning_of_tls_are_no_news():
    lines: list = []
    door = Door(1, "", {}, lambda agent, line: lines.append(line))
    with link() as server, opened(server.server_port, door=door) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as raw:
            raw.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\n")
            time.sleep(0.3)
            raw.sendall(TLS_HANDSHAKE + b"??")
            while raw.recv(1000):
                pass
        assert [body for _, body, _ in server.seen] == [TLS_HANDSHAKE + b"??"]
        assert not lines
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as raw:
            raw.sendall(TLS_HANDSHAKE + b"??")
            with contextlib.suppress(ConnectionResetError):
                raw.recv(1000)
    assert len(lines) == 1


def test_what_keeps_it_shut_is_one_line(plain, keys, tmp_path):
    proxy, server = plain
    with pytest.raises(UserError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use; choose another --address"):
        Proxy("127.0.0.1", proxy.port, server.server_port)
    (tmp_path / "server.pem").write_bytes((keys / "server.pem").read_bytes())
    (tmp_path / "server.key").write_bytes((keys / "ca.key").read_bytes())
    with pytest.raises(UserError, match="not a certificate and its key"):
        Proxy("127.0.0.1", 0, 1, tmp_path)
