"""A read-only web page with the status of a federation: it serves status.html and one JSON document, and no other file."""

import base64
import hashlib
import ipaddress
import re
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedpg.flower.status import Status, read_status
from fedpg.flower.web import WebServer

PAGE = Path(__file__).with_name("status.html").read_text()
MAX_CONNECTIONS = 32
"""Connections at the same time; further ones get 503."""


def _hash_of(element: str) -> str:
    """The inline script or style of the page, as a Content-Security-Policy names it."""
    (text,) = re.findall(rf"<{element}>(.*?)</{element}>", PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# The page may run its own script and style and ask its own server, and nothing else.
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StatusPage:
    """A web page that shows the status in a file, from its construction until `stop`.

    Args:
        path: the file; need not exist yet.
        host, port: where to listen; port 0 takes a free one. `address` is HOST:PORT.
    """

    def __init__(self, path: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self._path, self._local = path, _is_loopback(host)
        routes = [Route("/", self._page), Route("/status.json", self._json)]
        app = Starlette(routes=routes, exception_handlers={404: self._refuse, 405: self._refuse})
        app.router.redirect_slashes = False
        self._web = WebServer(app, host, port, "--status", max_connections=MAX_CONNECTIONS)
        self.address, self.stop = self._web.address, self._web.stop

    def _answer(self, request: Request, text: str, kind: str = "text/plain", status: int = 200) -> Response:
        # Rejects DNS rebinding: a page for this machine accepts only Host headers that name this machine.
        if self._local and not _is_loopback(re.sub(r":\d*$", "", request.headers.get("host", ""))):
            text, kind, status = "this page answers to localhost only\n", "text/plain", 421
        return Response(text, status, HEADERS, kind)

    async def _page(self, request: Request) -> Response:
        return self._answer(request, PAGE, "text/html")

    async def _json(self, request: Request) -> Response:
        return self._answer(request, msgspec.json.encode(read_status(self._path) or Status()).decode(), "application/json")

    async def _refuse(self, request: Request, error: HTTPException) -> Response:
        return self._answer(request, "there is only / and /status.json, to be read\n", status=error.status_code)


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
