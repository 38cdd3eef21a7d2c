"""The server's only door to the outside: lets agents' calls through to the SuperLink, and nothing else.

A SuperLink of Flower 1.41 has one port for three things: the Fleet API, by which SuperNodes fetch tasks and bring answers; the Control
API, by which keys are registered and apps are submitted; and the Runtime API of its own apps. Node authentication guards the first
only. Whoever reaches the port can register a key of his own, and submit an app that the server and every agent would then execute.
So the SuperLink listens on the loopback interface, and agents come to this gate, which has the server's certificate, knows the calls of
the Fleet API by name, and answers 404 to everything else. Who an agent is, the SuperLink still finds out by itself.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import functools
import logging
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedpg.errors import UserError

CALLS = frozenset(
    {
        "register-node", "activate-node", "deactivate-node", "unregister-node", "send-node-heartbeat", "pull-messages",
        "push-messages", "get-run", "get-fab", "push-object", "pull-object", "confirm-message-received",
    }
)  # fmt: skip
"""The Fleet API."""
LONGEST, LONGEST_OF_STRANGERS = 2**30, 2**16
"""Bytes of a call. Whoever shows no known key has no reason for a long one."""
KEY_HEADER = "flwr-public-key"
HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "content-encoding"})
"""Headers that concern one connection, not the call, or that are made anew."""
PATIENCE = 60.0
"""Seconds that the SuperLink has to answer."""
START, STOP = 10.0, 5.0
MOST_LINES, LONGEST_PATH = 10_000, 200
"""Of the log: whoever knocks all day must not fill the disk."""


@dataclasses.dataclass(frozen=True)
class Way:
    """From where to where."""

    host: str
    port: int
    """Where agents come; port 0 for any that is free."""
    link: int
    """The SuperLink's port on 127.0.0.1."""
    keys: Path | None = None
    """The folder with ca.crt, server.pem and server.key; None: no encryption, on either side."""
    known: frozenset[bytes] = frozenset()
    """The agents' public keys as PEM; empty: anybody may make long calls."""
    log: Path | None = None
    """The file that gets a line for each call that was refused."""


class Gate:
    """Open from its construction until `stop`.

    Args:
        way: from where to where.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        self._known = frozenset(base64.b64encode(key).decode() for key in way.known)
        self.refused = 0
        """How many calls were not for agents, or too long."""
        try:
            family = socket.AF_INET6 if ":" in way.host else socket.AF_INET
            self._socket = socket.create_server((way.host.strip("[]"), way.port), family=family)
        except OSError as error:
            why = (error.strerror or str(error)).partition(" (while")[0]
            raise UserError(f"cannot listen on {way.host}:{way.port}: {why}; choose another --address") from None
        self.port: int = self._socket.getsockname()[1]
        files = {}
        if way.keys is not None:
            files = {"ssl_certfile": str(way.keys / "server.pem"), "ssl_keyfile": str(way.keys / "server.key")}
        routes = [Route(f"/v1/fleet/{call}", functools.partial(self._pass_on, call), methods=["POST"]) for call in sorted(CALLS)]
        app = Starlette(routes=routes, exception_handlers={404: self._refuse, 405: self._refuse}, lifespan=self._calling)
        app.router.redirect_slashes = False
        config = uvicorn.Config(app, log_config=None, access_log=False, http="h11", ws="none", server_header=False, **files)
        config.timeout_graceful_shutdown = 1
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that it closes with calls under way is no news
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise UserError(f"server.pem and server.key in {way.keys} are no certificate and its key: {error}") from None
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="gate", daemon=True)
        self._thread.start()
        end = time.monotonic() + START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self.stop()
                raise UserError(f"the gate on {way.host}:{way.port} does not open: is {way.keys}/ca.crt a certificate?")
            time.sleep(0.01)

    @contextlib.asynccontextmanager
    async def _calling(self, app: Starlette) -> AsyncIterator[None]:
        keys = self._way.keys
        secure = ssl.create_default_context(cafile=keys / "ca.crt") if keys else False
        url = f"{'https' if keys else 'http'}://127.0.0.1:{self._way.link}/v1/fleet/"
        # No proxy of the environment may come between: both are on this machine.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with httpx.AsyncClient(base_url=url, verify=secure, timeout=PATIENCE, trust_env=False, limits=limits) as self._link:
            yield

    async def _refuse(self, request: Request, error: Exception | None = None, status: int = 404) -> Response:
        self.refused += 1
        if self._way.log is not None and self.refused <= MOST_LINES:
            host, path = request.client.host if request.client else "somebody", ascii(request.url.path)[:LONGEST_PATH]
            with contextlib.suppress(OSError), self._way.log.open("a") as file:
                file.write(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {host} {request.method} {path} refused with {status}\n")
        return Response(status_code=status)

    async def _pass_on(self, call: str, request: Request) -> Response:
        stranger = bool(self._known) and request.headers.get(KEY_HEADER) not in self._known
        longest, body = LONGEST_OF_STRANGERS if stranger else LONGEST, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > longest:
                return await self._refuse(request, status=413)
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP]
        try:
            # The name from our own list: whatever else a path could mean to the SuperLink is gone.
            reply = await self._link.post(call, content=bytes(body), headers=headers)
        except httpx.TransportError:
            return Response(status_code=503)  # SuperNodes try again after this one
        return Response(reply.content, reply.status_code, {name: value for name, value in reply.headers.items() if name not in HOP})

    def stop(self) -> None:
        """Closes it."""
        self._server.should_exit = True
        self._thread.join(STOP)
        self._socket.close()
