"""The proxy in front of Flower's SuperLink: it passes agents' calls on and answers 404 to everything else.

A SuperLink of Flower 1.41 has one port for three things: the Fleet API, by which SuperNodes fetch tasks and bring answers; the Control
API, by which keys are registered and apps are submitted; and the Runtime API of its own apps. Node authentication guards the Fleet
API only. Anyone who reaches the port can register a key and submit an app, which the server and every agent would then execute.
So the SuperLink listens on the loopback interface, and agents connect to this proxy, which has the server's certificate and knows the
calls of the Fleet API by name. The SuperLink itself still authenticates each agent.
"""

import asyncio
import contextlib
import datetime
import functools
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedpg.flower.greeting import MAX_GREETING, PATH, Door
from fedpg.flower.web import Allowance, WebServer

CALLS = frozenset(
    {
        "register-node", "activate-node", "deactivate-node", "unregister-node", "send-node-heartbeat", "pull-messages",
        "push-messages", "get-run", "get-fab", "push-object", "pull-object", "confirm-message-received",
    }
)  # fmt: skip
"""The Fleet API."""
ENTRIES = frozenset({"register-node", "activate-node"})
"""The calls with which a SuperNode comes in."""
CLOCK = "its signature is not valid now: is its clock right?"
MAX_BODY, MAX_BODY_UNKNOWN = 2**30, 2**16
"""Bytes of a call, with a known key and without."""
KEY_HEADER = "flwr-public-key"
DROPPED_HEADERS = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "content-encoding"}
)
"""Headers that concern one connection, not the call, or that are computed again."""
REPLY_SECONDS = 60.0
"""How long the SuperLink may take to answer."""
RESTART_SECONDS, RESTART_POLL = 20.0, 0.2
"""How long a call waits for a SuperLink that does not listen, and between two tries. A SuperNode gives up after 30 seconds."""
MAX_UNKNOWN, REFILL = 1000, 10.0
"""How many calls without a known key reach the SuperLink, which writes a line into its log for each, and after how many seconds one
more may."""
MAX_LOG_LINES, MAX_LOG_PATH = 10_000, 200
"""Limits of the log: endless calls must not fill the disk."""


class Proxy:
    """A proxy that runs from its construction until `stop`.

    Args:
        host, port: where it listens; port 0 for any that is free.
        superlink_port: the SuperLink's port on 127.0.0.1.
        keys: the folder with ca.crt, server.pem and server.key; None: no encryption, on either side.
        door: answers greetings and hears of everyone who is refused; without one, nobody is greeted and every call may be long.
        log: the file that gets a line for each refused call; `refused` is their number.
        is_ready: whether the SuperLink knows the agents' keys; calls wait until then.
    """

    def __init__(
        self,
        host: str,
        port: int,
        superlink_port: int,
        keys: Path | None = None,
        door: Door | None = None,
        log: Path | None = None,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._superlink_port, self._keys, self._log, self.refused, self._is_ready = superlink_port, keys, log, 0, is_ready
        self._door = door or Door(0, "", {}, lambda agent, line: None)
        self._known, self._strangers = self._door.owners, Allowance(MAX_UNKNOWN, REFILL)
        routes = [Route(f"/v1/fleet/{call}", functools.partial(self._pass_on, call), methods=["POST"]) for call in sorted(CALLS)]
        routes += [Route(PATH, self._greet, methods=["POST"])] if door else []
        app = Starlette(routes=routes, exception_handlers={404: self._refuse, 405: self._refuse}, lifespan=self._connected)
        app.router.redirect_slashes = False
        tls = (str(keys / "server.pem"), str(keys / "server.key")) if keys else None
        self._web = WebServer(app, host, port, "--address", tls, trouble=lambda line: self._door.refuse(None, line))
        self.port, self.stop = self._web.port, self._web.stop

    @contextlib.asynccontextmanager
    async def _connected(self, app: Starlette) -> AsyncIterator[None]:
        """Holds the connections to the SuperLink while the proxy runs."""
        secure = ssl.create_default_context(cafile=self._keys / "ca.crt") if self._keys else False
        url = f"{'https' if self._keys else 'http'}://127.0.0.1:{self._superlink_port}/v1/fleet/"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        # trust_env=False: both ends are on this machine, so HTTPS_PROXY must not apply.
        async with httpx.AsyncClient(base_url=url, verify=secure, timeout=REPLY_SECONDS, trust_env=False, limits=limits) as self._link:
            yield

    async def _refuse(self, request: Request, error: Exception | None = None, status: int = 404) -> Response:
        self.refused += 1
        if self._log is not None and self.refused <= MAX_LOG_LINES:
            host, path = _host(request), ascii(request.url.path)[:MAX_LOG_PATH]
            with contextlib.suppress(OSError), self._log.open("a") as file:
                file.write(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {host} {request.method} {path} refused with {status}\n")
        return Response(status_code=status)

    async def _greet(self, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_GREETING:
                return await self._refuse(request, status=413)
        code, line = self._door.answer(bytes(body), _host(request))
        return Response(line, code, media_type="text/plain")

    async def _pass_on(self, call: str, request: Request) -> Response:
        key = request.headers.get(KEY_HEADER)
        unknown = bool(self._known) and key not in self._known
        if unknown and not self._strangers.take():
            return await self._refuse(request, status=429)
        limit, body = MAX_BODY_UNKNOWN if unknown else MAX_BODY, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                return await self._refuse(request, status=413)
        headers = [(name, value) for name, value in request.headers.items() if name not in DROPPED_HEADERS]
        reply = await self._ask(call, bytes(body), headers, request)
        if reply is None:
            return Response(status_code=503)  # SuperNodes try again after this one, in up to 20 seconds
        if call in ENTRIES and reply.status_code >= 400:
            why = "unknown key" if unknown else "it still counts as connected, for up to a minute" if reply.status_code != 401 else CLOCK
            self._door.refuse(self._known.get(key), why, _host(request))
        kept = {name: value for name, value in reply.headers.items() if name not in DROPPED_HEADERS}
        return Response(reply.content, reply.status_code, kept)

    async def _ask(self, call: str, body: bytes, headers: list[tuple[str, str]], request: Request) -> httpx.Response | None:
        """The SuperLink's answer; None if it breaks off. A call waits for a SuperLink that is being started."""
        end = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                if self._is_ready():
                    # The name comes from our own list, so nothing in the request's path reaches the SuperLink.
                    return await self._link.post(call, content=body, headers=headers)
            except httpx.ConnectError:
                pass
            except httpx.TransportError:
                return None
            if time.monotonic() > end or await request.is_disconnected():
                return None
            await asyncio.sleep(RESTART_POLL)


def _host(request: Request) -> str:
    return request.client.host if request.client else "unknown"
