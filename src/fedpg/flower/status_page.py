"""A read-only web page with the status of a federation: it serves status.html and one JSON document, and no other file."""

from __future__ import annotations

import base64
import hashlib
import http.server
import ipaddress
import re
import socket
import socketserver
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from fedpg.errors import UserError
from fedpg.flower.status import Status, read_status

PAGE = Path(__file__).with_name("status.html").read_text()
MAX_CONNECTIONS = 32
"""Connections at the same time; more are closed, so that visitors take nothing from the run."""
REQUEST_SECONDS = 10.0
"""How long a visitor may take to send its request."""


def _hash_of(element: str) -> str:
    """The inline script or style of the page, as a Content-Security-Policy names it."""
    (text,) = re.findall(rf"<{element}>(.*?)</{element}>", PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page may run its own script and style and ask its own server, and nothing else."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        if not self.server.accepts_host(self.headers.get("Host", "")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "this page answers to localhost only\n")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(HTTPStatus.OK, "text/html", PAGE)
        elif path == "/status.json":
            self._send(HTTPStatus.OK, "application/json", msgspec.json.encode(read_status(self.server.path) or Status()).decode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is only / and /status.json\n")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "this page can only be read\n", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _send(self, code: HTTPStatus, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        return "fedpg"

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the terminal is for the run."""


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, path: Path, host: str, port: int) -> None:
        self.path, self._free = path, threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._local = host == "localhost" or _is_loopback(host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the network for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def accepts_host(self, host: str) -> bool:
        """Rejects DNS rebinding: a page for this machine accepts only Host headers that name this machine."""
        name = re.sub(r":\d*$", "", host).strip("[]").lower()
        return not self._local or name in ("", "localhost") or _is_loopback(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores visitors that leave early."""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class StatusPage:
    """A web page that shows the status in a file, served from a thread of its own until `stop`.

    Args:
        path: the file; need not exist yet.
        host: where to listen; the default is this machine alone.
        port: 0 takes a free one.

    Attributes:
        address: HOST:PORT, where it is.
    """

    def __init__(self, path: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        try:
            self._server = _Server(path, host.strip("[]"), port)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"cannot show the status on {host}:{port}: {why}; give another address") from None
        host, port = self._server.server_address[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="status page", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the port and ends the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
