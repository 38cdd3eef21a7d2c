"""A small web server in a thread of this process: what the proxy and the status page run on."""

import contextlib
import logging
import socket
import ssl
import threading
import time
from asyncio import BaseTransport
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedpg.errors import UserError

REQUEST_SECONDS = 10.0
"""How long a new connection may take to send its first request."""
TLS_HANDSHAKE = b"\x16\x03"
"""How a connection with TLS begins."""
TLS_TROUBLE = {
    "HTTP_REQUEST": "a caller does not speak TLS: agents must give --keys, not --insecure",
    "ALERT_UNKNOWN_CA": "a caller does not accept this server's certificate: it needs the ca.crt of this federation",
    "ALERT_CERTIFICATE": "a caller does not accept this server's certificate: is it valid, and for the name that agents use?",
    "ALERT_BAD_CERTIFICATE": "a caller does not accept this server's certificate: is it valid, and for the name that agents use?",
}
"""Why TLS fails: a part of OpenSSL's reason, and what it means here."""
START_SECONDS, STOP_SECONDS = 60.0, 5.0


class Allowance:
    """So many at once, and one more for every `seconds` that pass: strangers must not fill the disk."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds, self._left, self._looked = count, seconds, float(count), time.monotonic()

    def take(self) -> bool:
        """Whether there is one left, which is then used."""
        now = time.monotonic()
        self._left, self._looked = min(self._left + (now - self._looked) / self._seconds, self._count), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class _Protocol(H11Protocol):
    """HTTP that closes connections on which no request comes, so that silent ones do not use up the process's files."""

    trouble: Callable[[str], None]
    _silent = True

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, lambda: None if self.cycle else self.transport.close())

    def data_received(self, data: bytes) -> None:
        if self._silent and data.startswith(TLS_HANDSHAKE):  # later data may begin like this by chance
            self.trouble("a caller speaks TLS, and this server runs with --insecure: agents must give --insecure too")
        self._silent = False
        super().data_received(data)


class _Tls(ssl.SSLObject):
    """The server's side of TLS, which says why a connection fails."""

    trouble: Callable[[str], None]

    def do_handshake(self) -> None:
        with self._watched():
            super().do_handshake()

    def read(self, *args: Any) -> Any:
        with self._watched():
            return super().read(*args)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as error:
            for reason, line in TLS_TROUBLE.items():
                if reason in (error.reason or ""):
                    self.trouble(line)
            raise


class WebServer:
    """Serves an application from its construction until `stop`.

    Args:
        app: the application.
        host: the address to listen on.
        port: the port to listen on; 0 for any that is free.
        flag: the option with which the user chooses the address, for error messages.
        tls: the files of a certificate and its key; None: no encryption.
        max_connections: connections at the same time; None for no limit.
        trouble: called with one line when a connection fails because its two ends do not agree on TLS.
    """

    def __init__(
        self,
        app: Starlette,
        host: str,
        port: int,
        flag: str,
        tls: tuple[str, str] | None = None,
        max_connections: int | None = None,
        trouble: Callable[[str], None] = lambda line: None,
    ) -> None:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host.strip("[]"), port), family=family)
        except (OSError, OverflowError) as error:
            why = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
            raise UserError(f"cannot listen on {host}:{port}: {why}; choose another {flag}") from None
        self.port: int = self._socket.getsockname()[1]
        self.address = f"{host}:{self.port}"
        certificate, key = tls or (None, None)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, http=_with(_Protocol, trouble), ws="none", server_header=False,
            timeout_graceful_shutdown=1, ssl_certfile=certificate, ssl_keyfile=key, limit_concurrency=max_connections,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # calls under way at the end are expected
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise UserError(f"{certificate} and {key} are not a certificate and its key: {error}") from None
        if config.ssl:
            config.ssl.sslobject_class = _with(_Tls, trouble)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name=f"web server {port}", daemon=True)
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                self.stop()
                raise UserError(f"cannot serve on {host}:{port}: is ca.crt in the folder of the keys a certificate?")
            time.sleep(0.01)

    def stop(self) -> None:
        """Closes the port and ends the thread."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._socket.close()


def _with(kind: type, trouble: Callable[[str], None]) -> type:
    """A class like `kind` whose objects report trouble: the libraries that make them pass nothing on."""
    return type(kind.__name__, (kind,), {"trouble": staticmethod(trouble)})
