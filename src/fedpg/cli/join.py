"""`fedpg join`: one agent of a federation between machines."""

import dataclasses
import datetime
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import require
from fedpg.flower import require_flower
from fedpg.runs.config import Options, PresetNotNegative

GREETING_PAUSE = 2.0
"""Seconds between greetings while the server is away."""


@dataclasses.dataclass(frozen=True)
class JoinOptions:
    """Take part in a federation as one agent, with a private environment.

    Example: fedpg join --server server.example:9092 --agent-id 0 --env cartpole --keys keys

    Tries the environment first. Then keeps it and the compiled program in memory, and runs until it is stopped: it waits while the
    server is away, and continues when the server is back. The server chooses the algorithm, but no code comes from it.
    """

    agent_id: int
    """Which agent this is, from 0."""
    env: str
    """Its environment, as in `fedpg train --env`; observations and actions must have the shapes of the server's env."""
    server: str
    """HOST:PORT of the server."""
    env_option: Options = dataclasses.field(default_factory=dict)
    """Options of the environment."""
    heterogeneity: PresetNotNegative = None
    """For families of environments: how much they differ, as in `fedpg train`."""
    algorithm: str | None = None
    """FILE.py:FUNCTION, your copy of the algorithm, if the server runs one from a file."""
    policy: str | None = None
    """FILE.py:FUNCTION, your copy of the policy, if the server has one from a file."""
    keys: str | None = None
    """The folder with ca.crt and this agent's private key agent-ID."""
    insecure: bool = False
    """Neither encryption nor authentication: for tests on one machine."""
    folder: Annotated[str | None, tyro.conf.arg(help_behavior_hint="(default: agents/ID)")] = None
    """Where this agent keeps its states and logs."""
    deliver: str | None = None
    """A folder in which this agent finds the policy of every evaluation, and at the end the final one, ready for fedpg.load."""
    withhold: bool = False
    """Send nothing but messages: neither what they cost nor how good the policy is here."""
    least_noise: float = 0.0
    """Take part only with at least this much noise on messages; see docs/how-to/private-messages.md."""
    most_epsilon: float = 0.0
    """Stop answering before the privacy loss exceeds this epsilon; 0 for no limit."""
    leave: bool = False
    """Tell the server that this agent leaves for good, and end: nobody waits for it any more. Without this flag it may come back."""
    once: bool = False
    """End when the run is over, with exit code 0, instead of waiting for the next one."""
    attack: Literal["none", "zero", "noise", "sign-flip", "reward-flip", "random-action", "shuffled-reward"] = "none"
    """Act as an attacker, to test a federation's defences."""


def main(argv: list[str]) -> int:
    """Runs the verb; returns the exit code."""
    options = parse(JoinOptions, argv, "fedpg join")
    require(bool(options.keys) != options.insecure, "give either --keys FOLDER (fedpg cert makes one) or --insecure")
    keys = Path(options.keys) if options.keys else None
    require(options.agent_id >= 0, f"agent-id counts from 0, not {options.agent_id}")
    folder = Path(options.folder or f"agents/{options.agent_id}")

    require_flower()
    from fedpg import own
    from fedpg.envs import families
    from fedpg.flower.agent import OWN_CODE, Agent, AgentSettings
    from fedpg.flower.connection import Connection, last_node
    from fedpg.flower.delivery import Delivery
    from fedpg.flower.greeting import my_greeting
    from fedpg.flower.processes import key_flags, split_address
    from fedpg.flower.trial import try_environment
    from fedpg.runs.folder import RunFolder

    split_address(options.server)
    key_flags(keys, {"": "ca.crt"})
    families.check_name(options.env)
    for name in OWN_CODE:
        if (given := getattr(options, name)) is not None:
            own.load(given, name)
    names = [field.name for field in dataclasses.fields(AgentSettings) if field.name != "agent"]
    settings = AgentSettings(options.agent_id, **{name: getattr(options, name) for name in names})
    os.umask(0o077)  # what this agent remembers is nobody else's business
    hint = "stop this agent first (Ctrl-C)" if options.leave else "wait for it, or give another --folder"
    with RunFolder(folder).lock(hint=hint):
        environment = None
        if not options.leave:
            environment = try_environment(options.env, options.agent_id, options.heterogeneity, options.env_option)
        greeting = my_greeting(options.agent_id, environment, keys, last_node(folder))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # not SIGINT's handler: scripts in the background ignore SIGINT
        what = "leaves for good" if options.leave else f"in {options.env}, state in {folder}"
        tell(f"agent {options.agent_id} {what}; greeting {options.server}")
        wait_for_welcome(options.server, greeting, keys)
        delivery = Delivery(Path(options.deliver), options.agent_id) if options.deliver else None
        agent = Agent(settings, folder / "states", tell, delivery=delivery, leaving=options.leave)
        connection = Connection(options.server, options.agent_id, agent.answer, folder, keys, tell)
        try:
            connection.wait(agent.over.is_set if options.once or options.leave else lambda: False)
        except KeyboardInterrupt:
            tell("stopped: the server goes on without this agent until it is back. To leave for good, add --leave to the same command")
            raise
        finally:
            connection.stop()
    return 0


def wait_for_welcome(server: str, greeting: Any, keys: Path | None) -> None:
    """Returns when the server has welcomed this agent; raises a `UserError` if it refuses it."""
    from fedpg.flower.greeting import WELCOME, greet

    told = ""
    while (found := greet(server, greeting, keys))[0] != WELCOME:
        if found[0] != told:
            tell(f"waiting: {found[1]}")
        told = found[0]
        time.sleep(GREETING_PAUSE)
    tell("the server welcomes this agent: connecting")


def tell(line: str) -> None:
    """Prints one line with the time."""
    print(f"{datetime.datetime.now():%H:%M:%S}  {line}", flush=True)
