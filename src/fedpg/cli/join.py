"""`fedpg join`: one agent of a federation between machines."""

from __future__ import annotations

import dataclasses
import datetime
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import processes
from fedpg.runs.config import PresetFloat

ATTACKS = ("none", "zero", "noise", "sign-flip", "reward-flip", "random-action", "shuffled-reward")


@dataclasses.dataclass(frozen=True)
class JoinOptions:
    """Take part in a federation as one agent, with an environment that nobody else sees.

    Example: fedpg join --server server.example:9092 --agent-id 0 --env cartpole --keys keys

    Keeps the environment and the compiled program warm beside Flower's SuperNode, and stays until it is stopped: it waits while
    the server is away, and goes on when that is back. What the algorithm is, is the server's business.
    """

    agent_id: int
    """Which agent this is, from 0."""
    env: str
    """What it lives in, as in `fedpg train --env`; observations and actions must have the shapes of the server's env."""
    server: str = ""
    """HOST:PORT of the server."""
    socket: str = ""
    """Start no SuperNode: do the tasks of one of your own, whose --node-config has fedpg-socket="THIS PATH"."""
    env_option: tuple[str, ...] = ()
    """NAME=VALUE pairs for the environment."""
    heterogeneity: PresetFloat = None
    """For families of environments: which member of them is this agent's, as in `fedpg train`."""
    backend: str = "auto"
    """What steps MuJoCo, as in `fedpg train`."""
    keys: str | None = None
    """The folder with ca.crt and this agent's private key agent-ID."""
    insecure: bool = False
    """Neither encryption nor authentication: for trying things out on one machine."""
    folder: Annotated[str | None, tyro.conf.arg(help_behavior_hint="(default: agents/ID)")] = None
    """Where this agent keeps its state and its logs."""
    withhold: bool = False
    """Tell the server nothing but messages: neither what they cost nor how good the policy is here."""
    least_noise: float = 0.0
    """Take part only with at least this much noise on messages; see docs/privacy.md."""
    most_epsilon: float = 0.0
    """Stop answering before more than this epsilon is given away; 0 for no limit."""
    attack: str = "none"
    """Play an attacker, to try out a federation's defences: zero, noise, sign-flip, reward-flip, random-action, shuffled-reward."""


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(JoinOptions, argv, "fedpg join")
    require(bool(options.server) != bool(options.socket), "give --server HOST:PORT, or --socket PATH for a SuperNode of your own")
    secured = bool(options.socket) or options.insecure or options.keys is not None
    require(secured, "give --keys FOLDER (with ca.crt and agent-ID), or --insecure to do without")
    require(not (options.insecure and options.keys), "--keys and --insecure exclude each other")
    require(options.agent_id >= 0, f"agent-id counts from 0, not {options.agent_id}")
    require(options.attack in ATTACKS, f"attack must be one of {', '.join(ATTACKS)}, not {options.attack}")
    folder = Path(options.folder or f"agents/{options.agent_id}")

    processes.require_flower()
    from fedpg.envs import worlds
    from fedpg.flower.site import Site
    from fedpg.flower.supernode import SuperNode
    from fedpg.flower.work import Own
    from fedpg.flower.worker import Worker
    from fedpg.runs.folder import RunFolder

    worlds.check_name(options.env)
    names = [field.name for field in dataclasses.fields(Own) if field.name != "agent"]
    own = Own(options.agent_id, **{name: getattr(options, name) for name in names})
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # not what SIGINT has: scripts have it ignored in the background
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    answer = Site(own, folder / "states", tell).answer
    with RunFolder(folder).lock():
        if options.socket:
            with Worker(answer, Path(options.socket)):
                tell(f"agent {options.agent_id} in {options.env}, state in {folder}; waiting for a SuperNode on {options.socket}")
                threading.Event().wait()
        tell(f"agent {options.agent_id} in {options.env}, state in {folder}; waiting for {options.server}")
        node = SuperNode(options.server, options.agent_id, answer, folder, Path(options.keys) if options.keys else None, tell)
        try:
            node.wait()
        finally:
            node.stop()
    return 0


def tell(line: str) -> None:
    """One line on the terminal."""
    print(f"{datetime.datetime.now():%H:%M:%S}  {line}", flush=True, file=sys.stdout)
