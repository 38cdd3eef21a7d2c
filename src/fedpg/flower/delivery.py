"""Policies for those who use them: each agent gets the newest on its own disk, and others may fetch it with a key that can only read.

An agent writes what it would deploy at every evaluation; nothing more crosses the wire than the evaluation does. A reader's key is a
random text, `reader-I`; the server has only its SHA-256, `reader-I.pub`. It opens one document, over TLS, and is no key of an agent.
"""

import datetime
import hashlib
import hmac
import json
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jax
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedpg.errors import UserError, require
from fedpg.flower.web import WebServer
from fedpg.runs import policy as files
from fedpg.runs import policy_files
from fedpg.runs.config import Config
from fedpg.runs.folder import write_json
from fedpg.runs.policy import PolicyFile

RECEIPT = "delivery.json"
"""The file beside a delivered policy that says which run it is from, and how good it is here."""
PATH = "/policy"
READER = re.compile(r"reader-\d+\.pub")
LARGEST = 2**30
"""Bytes of a policy that is still fetched."""
MAX_CONNECTIONS = 32
FETCH_SECONDS = 60.0


class Delivery:
    """Writes what an agent would deploy into a folder of the agent's, ready for `fedpg.load`.

    Args:
        folder: policy.safetensors, policy.json and delivery.json.
        agent: its number.
    """

    def __init__(self, folder: Path, agent: int) -> None:
        self._folder, self._agent = folder, agent

    def write(self, run: str, round: int, config: Config, problem: Any, params: Any, total_return: float) -> None:
        """Writes the params of a round.

        Args:
            run: its name.
            round: rounds done.
            config: of the agent, with its own environment.
            problem: in that environment.
            params: what the agent would deploy.
            total_return: here; it stays in this folder.
        """
        row = {"round": round, "return_per_seed": [total_return], "return_per_agent": [total_return]}
        spec = policy_files.make_spec(config, problem, jax.tree.map(lambda x: x[None], params), row)
        arrays = policy_files.names(params)
        one = PolicyFile(self._folder, spec, {name: jax.device_get(leaf)[None] for name, leaf in arrays.items()}).one(0)
        path = files.write(self._folder, one.spec, one.arrays)
        before = self._first_return(run)
        receipt = {
            "run": run,
            "agent": self._agent,
            "round": round,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "return_before": total_return if before is None else before,
            "return_after": total_return,
            "delivered": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        write_json(self._folder / RECEIPT, receipt)

    def _first_return(self, run: str) -> float | None:
        """The return before training, if this run has delivered before."""
        try:
            receipt = json.loads((self._folder / RECEIPT).read_text())
            return float(receipt["return_before"]) if receipt["run"] == run else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


class PolicyServer:
    """Serves the newest policy of a run, from its construction until `stop`.

    Args:
        path: the policy file; need not exist yet.
        host, port: where to listen; port 0 takes a free one. `address` is HOST:PORT.
        keys: the folder with server.pem, server.key and reader-I.pub; None: no encryption, and everybody may read.
    """

    def __init__(self, path: Path, host: str, port: int, keys: Path | None) -> None:
        self._path, self._readers = path, readers(keys) if keys else None
        app = Starlette(routes=[Route(PATH, self._answer, methods=["GET"])], exception_handlers={404: _refuse, 405: _refuse})
        app.router.redirect_slashes = False
        tls = (str(keys / "server.pem"), str(keys / "server.key")) if keys else None
        self._web = WebServer(app, host, port, "--policy", tls=tls, max_connections=MAX_CONNECTIONS)
        self.address, self.stop = self._web.address, self._web.stop

    async def _answer(self, request: Request) -> Response:
        if self._readers is not None:
            given = hashlib.sha256(request.headers.get("authorization", "").removeprefix("Bearer ").encode()).hexdigest()
            if not any(hmac.compare_digest(given, known) for known in self._readers):
                return Response("this key may not read\n", 401)
        try:
            return Response(self._path.read_bytes(), media_type="application/octet-stream", headers={"Cache-Control": "no-store"})
        except OSError:
            return Response("there is no policy yet\n", 503)


async def _refuse(request: Request, error: HTTPException) -> Response:
    return Response(f"there is only {PATH}, to be read\n", error.status_code)


def readers(keys: Path) -> set[str]:
    """What the server knows of the readers: the SHA-256 of each key."""
    found = {path.read_text().strip() for path in sorted(keys.glob("reader-*.pub")) if READER.fullmatch(path.name)}
    require(bool(found), f"no reader-I.pub in {keys}: nobody could read the policy (fedpg cert --readers 1 makes one)")
    return found


def fetch(server: str, out: Path, key: Path | None, authority: Path | None) -> PolicyFile:
    """Fetches the newest policy of the run that `server`, HOST:PORT, leads, and writes it into `out`.

    Raises:
        UserError: if the server cannot be reached, refuses the key, or sends something else than a policy.
    """
    address = f"{'https' if key else 'http'}://{server}{PATH}"
    try:
        header = {"Authorization": f"Bearer {key.read_text().strip()}"} if key else {}
        context = ssl.create_default_context(cafile=str(authority)) if key else None
        request = urllib.request.Request(address, headers=header)
        with urllib.request.urlopen(request, timeout=FETCH_SECONDS, context=context) as answer:
            data = answer.read(LARGEST + 1)
    except urllib.error.HTTPError as error:
        reasons = {401: "it refuses this key", 503: "it has no policy yet: try again after the first evaluation"}
        raise UserError(f"no policy from {server}: {reasons.get(error.code, f'it answers {error.code}')}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"no policy from {server}: {getattr(error, 'reason', None) or error}") from None
    require(len(data) <= LARGEST, f"{server} sends more than {LARGEST} bytes: that is no policy")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / files.FILE).write_bytes(data)
        found = files.read(folder)
    files.write(out, found.spec, found.arrays)
    return PolicyFile(out / files.FILE, found.spec, found.arrays)
