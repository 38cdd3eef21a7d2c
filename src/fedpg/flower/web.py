"""A small web server in a thread of this process: what the proxy and the status page run on."""

import logging
import socket
import threading
import time
from asyncio import BaseTransport

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedpg.errors import UserError

REQUEST_SECONDS = 10.0
"""How long a new connection may take to send its first request."""
START_SECONDS, STOP_SECONDS = 10.0, 5.0


class _Protocol(H11Protocol):
    """HTTP that closes connections on which no request comes, so that silent ones do not use up the process's files."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, lambda: None if self.cycle else self.transport.close())


class WebServer:
    """Serves an application from its construction until `stop`.

    Args:
        app: the application.
        host: the address to listen on.
        port: the port to listen on; 0 for any that is free.
        flag: the option with which the user chooses the address, for error messages.
        tls: the files of a certificate and its key; None: no encryption.
        max_connections: connections at the same time; None for no limit.
    """

    def __init__(
        self, app: Starlette, host: str, port: int, flag: str, tls: tuple[str, str] | None = None, max_connections: int | None = None
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
            app, log_config=None, access_log=False, http=_Protocol, ws="none", server_header=False, timeout_graceful_shutdown=1,
            ssl_certfile=certificate, ssl_keyfile=key, limit_concurrency=max_connections,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # calls under way at the end are expected
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise UserError(f"{certificate} and {key} are not a certificate and its key: {error}") from None
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
