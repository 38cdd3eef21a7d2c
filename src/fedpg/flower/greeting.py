"""The greeting: what an agent says of itself before it connects, and the server's answer, one line in plain words.

    POST /fedpg/greeting    {"agent": 1, "fedpg": "0.1.0", "flwr": "1.41.0", "time": 1700000000.0, "spaces": "...", "key": "..."}
    200 welcome  |  409 not now  |  403 refused

A greeting gives no rights: the SuperLink checks an agent's signature in every call, and the `hello` of `fedpg.flower.protocol` checks
its number and its shapes again before it counts as present. It is there so that whatever will not work is said at once, on both sides.
"""

import base64
import math
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from fedpg.envs.base import Environment
from fedpg.envs.host import HostEnvironment
from fedpg.errors import UserError, one_line
from fedpg.flower.keys import public_key
from fedpg.flower.protocol import spaces_of
from fedpg.flower.status import event_kind
from fedpg.flower.web import Allowance
from fedpg.runs.folder import version

PATH = "/fedpg/greeting"
WELCOME, NOT_NOW, REFUSED = 200, 409, 403
MAX_GREETING = 4096
"""Bytes of a greeting."""
AHEAD, BEHIND = 5.0, 300.0
"""Seconds by which an agent's clock may differ from the server's; Flower refuses signatures of other times."""
PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds in which a refusal of one kind is noted once: at first, and at most, as the time doubles while such refusals go on."""
MAX_REFUSALS, REFILL = 1000, 10.0
"""How many refusals of all kinds may be noted at once, and the seconds after which one more may be: callers must not fill the disk."""
GREETING_SECONDS = 5.0


class Greeting(msgspec.Struct, frozen=True):
    """What an agent says of itself.

    Attributes:
        agent: its number.
        fedpg, flwr: versions.
        time: UNIX time at its place.
        spaces: of its environment, see `spaces_of`.
        key: its public key as Flower's header has it; empty without keys.
        leaving: whether it only comes to say that it leaves for good, and needs no environment.
        node: Flower's number of it when it was here last; 0: never. An agent that was killed need not wait until it counts as gone.
    """

    agent: int
    fedpg: str
    flwr: str
    time: float
    spaces: str
    key: str = ""
    leaving: bool = False
    node: int = 0


def my_greeting(agent: int, environment: Environment | HostEnvironment | None, keys: Path | None, node: int = 0) -> Greeting:
    """The greeting of an agent on this machine; without an environment, of one that leaves for good."""
    key = base64.b64encode(public_key(keys / f"agent-{agent}")).decode() if keys else ""
    spaces, versions = spaces_of(environment) if environment else "", (version("fedpg") or "", version("flwr") or "")
    return Greeting(agent, *versions, time.time(), spaces, key, environment is None, node)


class Door:
    """The server's half: answers greetings, and notes everyone who is refused.

    Args:
        agents: N.
        spaces: of the server's environment.
        owners: public key as in Flower's header -> agent; empty without keys.
        note: called with the agent, or None, and one line.

    Attributes:
        present: the agents that are there, and Flower's numbers of them.
    """

    def __init__(self, agents: int, spaces: str, owners: dict[str, int], note: Callable[[int | None, str], None]) -> None:
        self._agents, self._spaces, self.owners, self._note = agents, spaces, owners, note
        self._versions = {name: version(name) or "" for name in ("fedpg", "flwr")}
        self.present: Callable[[], dict[int, int]] = dict
        self._noted = dict[tuple[int | None, str], tuple[float, float, float]]()  # kind -> when it was noted, its pause, when it came last
        self._allowed, self._lock = Allowance(MAX_REFUSALS, REFILL), threading.Lock()

    def answer(self, body: bytes, host: str) -> tuple[int, str]:
        """The answer to a greeting from `host`: a code, and why."""
        try:
            said = msgspec.json.decode(body, type=Greeting)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return REFUSED, self.refuse(None, "this is no greeting of fedpg: the versions of fedpg differ", host)
        reason = self._reason(said)
        if reason:
            known = 0 <= said.agent < self._agents
            return REFUSED, self.refuse(said.agent if known else None, reason, host)
        if self.present().get(said.agent, said.node) != said.node:
            return NOT_NOW, self.refuse(said.agent, f"there is an agent {said.agent} already", host)
        return WELCOME, ""

    def _reason(self, said: Greeting) -> str:
        """Why an agent cannot take part; empty if it can."""
        owner = self.owners.get(said.key, -1) if self.owners else said.agent
        late = time.time() - said.time
        if owner == -1:
            return "unknown key: put its agent-I.pub into the server's folder of keys and restart the server with --resume"
        if owner != said.agent:
            return f"it says that it is agent {said.agent}, but has the key of agent {owner}"
        if not 0 <= said.agent < self._agents:
            return f"there is no agent {said.agent} in a federation of {self._agents}"
        for name, ours in self._versions.items():
            if (theirs := getattr(said, name)) != ours:
                return f"it has {name} {theirs[:20]}, the server {ours}: install the same version"
        if not -AHEAD < late < BEHIND:
            return f"its clock is {abs(late):.0f} seconds {'behind' if late > 0 else 'ahead of'} the server's: set it right"
        if said.spaces != self._spaces and not said.leaving:
            return f"its environment has {said.spaces[:100]}; this federation has {self._spaces}"
        return ""

    def refuse(self, agent: int | None, reason: str, host: str = "") -> str:
        """Notes a refusal; returns the line."""
        line = one_line(f"refused{f' (a caller from {host})' if host else ''}: {reason}")
        with self._lock:
            if self._is_news((agent, event_kind(line)), time.monotonic()):
                self._note(agent, line)
        return reason

    def _is_news(self, kind: tuple[int | None, str], now: float) -> bool:
        noted, pause, came = self._noted.get(kind, (-math.inf, PAUSE, -math.inf))
        if now - noted < pause:
            self._noted[kind] = noted, pause, now
            return False
        if not self._allowed.take():
            return False
        if len(self._noted) > 2 * MAX_REFUSALS:
            self._noted.clear()
        goes_on = noted < came and now - came < pause
        self._noted[kind] = now, min(2 * pause, LONGEST_PAUSE) if goes_on else PAUSE, now
        return True


def greet(server: str, greeting: Greeting, keys: Path | None) -> tuple[int, str]:
    """The server's answer to a greeting: `WELCOME`, `NOT_NOW`, or 0 if nobody answers, and why.

    Raises:
        UserError: if the server refuses this agent, or the two cannot talk.
    """
    secure = ssl.create_default_context(cafile=keys / "ca.crt") if keys else False
    url = f"{'https' if keys else 'http'}://{server}{PATH}"
    try:
        with httpx.Client(verify=secure, timeout=GREETING_SECONDS) as client:
            reply = client.post(url, content=msgspec.json.encode(msgspec.structs.replace(greeting, time=time.time())))
    except httpx.TransportError as error:
        why: BaseException | None = error
        while why is not None and not isinstance(why, ssl.SSLError):
            why = why.__cause__ or why.__context__
        if isinstance(why, ssl.SSLCertVerificationError):
            told = f"the certificate of {server} is not valid for ca.crt in {keys} ({why.verify_message})"
            raise UserError(f"{told}: is this the right server, and the right ca.crt?") from None
        if keys and isinstance(why, ssl.SSLError):
            raise UserError(f"{server} does not speak TLS: its server runs with --insecure, so give --insecure instead of --keys") from None
        # A caller in plain text is cut off by TLS. One that is refused or not answered in time is not, and a server need not hear of a try.
        if not keys and isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)) and _speaks_tls(server):
            raise UserError(f"{server} speaks TLS: give --keys FOLDER, with ca.crt and your key, instead of --insecure") from None
        return 0, one_line(str(error) or type(error).__name__)
    if reply.status_code == REFUSED:
        raise UserError(one_line(f"the server refuses this agent: {reply.text}"))
    if reply.status_code not in (WELCOME, NOT_NOW):
        raise UserError(f"{server} answers {reply.status_code}: it is no fedpg server of this version")
    return reply.status_code, one_line(reply.text)


def _speaks_tls(server: str) -> bool:
    """Whether a TLS handshake with a server succeeds, whoever it is."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        with httpx.Client(verify=unchecked, timeout=GREETING_SECONDS) as client:
            client.get(f"https://{server}/")
    except httpx.TransportError:
        return False
    return True
