"""A small read-only web page with the status of a federation. It answers two addresses and serves no file."""

from __future__ import annotations

import http.server
import ipaddress
import re
import socket
import socketserver
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fedpg.errors import UserError
from fedpg.flower import sheet
from fedpg.flower.page_style import POLICY
from fedpg.flower.snapshot import Status
from fedpg.flower.status_file import read, to_json

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_VISITORS = 32
"""Connections at the same time; more are turned away, so that a crowd takes nothing from the run."""
PATIENCE = 10.0
"""Seconds that a visitor has to say what it wants."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refuse(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"this page can only be read\n", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _answer(self) -> None:
        if not self.server.is_called(self.headers.get("Host", "")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this page answers to localhost only\n")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(HTTPStatus.OK, "text/html", sheet.html(self._status(), time.time()).encode())
        elif path == "/status.json":
            self._send(HTTPStatus.OK, "application/json", to_json(self._status()))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is only / and /status.json\n")

    def _status(self) -> Status:
        return read(self.server.path) or Status()

    def _send(self, code: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
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
        """Nothing: the terminal is for the run."""


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = MOST_VISITORS

    def __init__(self, path: Path, host: str, port: int) -> None:
        self.path, self._seats = path, threading.BoundedSemaphore(MOST_VISITORS)
        self._local = host == "localhost" or _is_loopback(host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the network for this machine's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def is_called(self, host: str) -> bool:
        """Whether a Host header names this server. A page for this machine only is not for a website whose name was bent to it."""
        name = re.sub(r":\d*$", "", host).strip("[]").lower()
        return not self._local or name in ("", "localhost") or _is_loopback(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._seats.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: visitors leave when they like."""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Page:
    """A page that is being served, from a thread of its own.

    Args:
        server: what answers.

    Attributes:
        address: HOST:PORT, where it is.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        host, port = server.server_address[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="status page", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; nobody is answered any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(path: Path, host: str = "127.0.0.1", port: int = 0) -> Page:
    """Shows the status in a file on a web page.

    Args:
        path: the file; need not exist yet.
        host: where to listen; the default is this machine alone.
        port: 0 takes a free one.
    """
    try:
        return Page(_Server(path, host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot show the status on {host}:{port}: {why}; give another address") from None
