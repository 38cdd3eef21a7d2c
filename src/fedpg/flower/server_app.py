"""The server of a federation: from a configuration and a link to the agents to a run folder, and Flower's ServerApp that does it."""

import dataclasses
import functools
import json
import os
import secrets
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from fedpg.errors import UserError, require
from fedpg.flower.agent import OWN_CODE, OWN_FIELDS
from fedpg.flower.server import Link, RemoteAgents, Rules, RunTerms, Server
from fedpg.flower.status import STATUS_FILE, StatusWriter
from fedpg.runs import config as configs
from fedpg.runs.config import Config, to_toml
from fedpg.runs.folder import RunFolder, read_lines, write_atomically
from fedpg.runs.progress import Progress
from fedpg.runs.setup import BETWEEN_MACHINES, participation_of, prepare, resolve
from fedpg.runs.training import Run, train

RUN_NAME = "run-name"
"""The file with the name under which agents keep their states of this run."""
OPTIONS = "serve.json"
"""The file with the options of `fedpg serve` that the ServerApp needs: config, out, keys, rules."""
PROCESS = "serverapp.pid"
"""The file with the number of the ServerApp's process, so that `fedpg serve` notices when it dies."""
NOT_SENT = (*OWN_FIELDS, "engine", "track", "init_from")
"""Fields of a configuration that agents do not get."""

MakeLink = Callable[[RunTerms, Callable[[str], None]], Link]
"""From what all tasks have in common, and a function that records a line as an event, to the link to the agents."""


def to_agents(config: Config) -> str:
    """The configuration as agents get it. Of the user's own files they get only the name: each has its own copy."""
    names = {name: Path(getattr(config, name)).name for name in OWN_CODE if ":" in getattr(config, name)}
    values = tomllib.loads(to_toml(dataclasses.replace(config, **names)))
    return tomli_w.dumps({key: value for key, value in values.items() if key.replace("-", "_") not in NOT_SENT})


def run_name(out: Path) -> str:
    """The run's name: made once, and found again when the run is resumed."""
    path = RunFolder(out).federation / RUN_NAME
    if not path.exists():
        write_atomically(path, secrets.token_hex(8).encode())
    return path.read_text()


def check(config: Config, rules: Rules) -> None:
    """Raises a `UserError` for a configuration, or rules, that a federation between machines cannot have."""
    require(config.seeds == 1, "a federation between machines runs one seed: leave out --seeds")
    require(config.attack == "none", "agents decide about attacks: leave out --attack here, and give it to fedpg join")
    require(0 < rules.deadline < 1e6, f"deadline must be a positive number of seconds, not {rules.deadline}")
    require(0 <= rules.start_with <= config.agents, f"start-with must be from 0 to the {config.agents} agents, not {rules.start_with}")
    require(1 <= rules.quorum <= config.agents, f"quorum must be from 1 to the {config.agents} agents, not {rules.quorum}")
    complete, participants = resolve(config), participation_of(config).participants(config.agents)
    require(rules.quorum <= participants, f"quorum {rules.quorum} is more than the {participants} agents of a round")
    algorithm = prepare(complete).algorithm_of({})
    starts = not (config.init_from and algorithm.personal)
    require(starts, f"the agents of {algorithm.name} keep their own params: --init-from cannot reach them between machines")
    require(not algorithm.pooled, f"{algorithm.name} needs all environments in one place: it cannot run between machines")


def make_server(config: Config, run: str, make_link: MakeLink, rules: Rules, status: StatusWriter | None = None) -> Server:
    """The engine of a complete configuration; `run` is the name under which agents keep their states."""
    terms = RunTerms(run, to_agents(config), config.agents)
    remote = RemoteAgents(terms, rules, status=status)
    remote.link = make_link(terms, functools.partial(remote.note, None))
    return Server(prepare(config), remote, withheld=config.noise > 0)


def train_remotely(
    config: Config,
    out: Path | str,
    make_link: MakeLink,
    *,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    resume: bool = False,
    progress: Progress | None = None,
    status: StatusWriter | None = None,
) -> Run:
    """Trains one policy with agents on other machines and writes a run folder, as `fedpg.train` does.

    Args:
        config: what to run. Its environment gives the policy its shapes; each agent has its own environment.
        out: the run folder.
        make_link: makes the link to the agents.
        rules: how the server treats its agents.
        resume: continue from the folder's checkpoint.
        progress: gets reports from the training loop; `status` by default.
        status: gets reports on the agents.
    """
    check(config, rules)

    def make_engine(config: Config) -> Server:
        return make_server(config, run_name(Path(out)), make_link, rules, status)

    config = dataclasses.replace(config, engine=BETWEEN_MACHINES)
    return train(config, out=out, resume=resume, progress=progress or status, make_engine=make_engine)


def main(grid: Any, options_file: str, resume: bool) -> None:
    """What our ServerApp does: runs a federation to its end over Flower's grid, with its status in OUT/federation/status.json."""
    from fedpg.flower.keys import key_owner
    from fedpg.flower.link import FlowerLink

    options = json.loads(Path(options_file).read_bytes())
    folder = RunFolder(Path(options["out"]))
    write_atomically(folder.federation / PROCESS, str(os.getpid()).encode())
    resume = resume and folder.config.exists()
    config = Config(**configs.read(folder.config if resume else Path(options["config"])))
    status = StatusWriter(folder.federation / STATUS_FILE, resolve(config), read_lines(folder.metrics))
    owner = key_owner(Path(options["keys"])) if options["keys"] else lambda node: None
    make_link: MakeLink = lambda terms, note: FlowerLink(grid, terms, owner, note)  # noqa: E731
    try:
        train_remotely(config, folder.path, make_link, rules=Rules(**options["rules"]), resume=resume, status=status)
    except BaseException as error:
        status.failed(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
        traceback.print_exc()
        raise
    status.finished()
