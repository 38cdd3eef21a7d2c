"""The server of a federation: from a configuration and a link to the agents to a run folder."""

import dataclasses
import functools
import secrets
import tomllib
from collections.abc import Callable
from pathlib import Path

import jax
import tomli_w

from fedpg.errors import require
from fedpg.flower.agent import OWN_CODE, OWN_FIELDS
from fedpg.flower.event_queue import EventQueue
from fedpg.flower.protocol import shapes_of
from fedpg.flower.seats import SEATS_FILE, Seats
from fedpg.flower.server import Link, RemoteAgents, Rules, RunTerms, Server
from fedpg.flower.status import StatusWriter
from fedpg.runs.config import Config, to_toml
from fedpg.runs.folder import RunFolder, write_atomically
from fedpg.runs.progress import Progress
from fedpg.runs.setup import BETWEEN_MACHINES, participation_of, prepare, resolve
from fedpg.runs.training import Run, train

RUN_NAME = "run-name"
"""The file with the name under which agents keep their states of this run."""
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
    require(0 <= rules.deadline < 1e6, f"deadline must be a number of seconds, 0 for one that adapts, not {rules.deadline}")
    require(rules.max_staleness >= 0, f"max-staleness must be 0 or more rounds, not {rules.max_staleness}")
    fewest, most = rules.min_agents_per_round, config.agents
    require(
        fewest == 0 or rules.quorum <= fewest <= most, f"min-agents-per-round must be from the quorum to the {most} agents, not {fewest}"
    )
    require(0 <= rules.start_with <= config.agents, f"start-with must be from 0 to the {config.agents} agents, not {rules.start_with}")
    require(1 <= rules.quorum <= config.agents, f"quorum must be from 1 to the {config.agents} agents, not {rules.quorum}")
    complete, participants = resolve(config), participation_of(config).participants(config.agents)
    require(rules.quorum <= participants, f"quorum {rules.quorum} is more than the {participants} agents of a round")
    algorithm = prepare(complete).algorithm_of({})
    starts = not (config.init_from and algorithm.personal)
    require(starts, f"the agents of {algorithm.name} keep their own params: --init-from cannot reach them between machines")
    require(not algorithm.pooled, f"{algorithm.name} needs all environments in one place: it cannot run between machines")


def make_server(
    config: Config,
    run: str,
    make_link: MakeLink,
    rules: Rules,
    status: StatusWriter | None = None,
    events: EventQueue | None = None,
    seats: Seats | None = None,
) -> Server:
    """The engine of a complete configuration; `run` is the name under which agents keep their states."""
    prepared = prepare(config)
    problem, algorithm = prepared.problem, prepared.algorithm_of({})
    shared = jax.eval_shape(lambda: algorithm.init(problem.init_params(jax.random.key(0)))[0].shared)
    terms = RunTerms(run, to_agents(config), config.agents, shapes_of(prepared.federation.environment, shared))
    remote = RemoteAgents(terms, rules, status=status, events=events, seats=seats)
    remote.link = make_link(terms, functools.partial(remote.note, None, during="greeting"))
    return Server(prepared, remote, withheld=config.noise > 0)


def train_remotely(
    config: Config,
    out: Path | str,
    make_link: MakeLink,
    *,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    resume: bool = False,
    progress: Progress | None = None,
    status: StatusWriter | None = None,
    events: EventQueue | None = None,
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
        events: the log of what goes wrong, where others note something too.
    """
    check(config, rules)

    def make_engine(config: Config) -> Server:
        seats = Seats(config.agents, RunFolder(Path(out)).federation / SEATS_FILE)
        return make_server(config, run_name(Path(out)), make_link, rules, status, events, seats)

    config = dataclasses.replace(config, engine=BETWEEN_MACHINES)
    return train(config, out=out, resume=resume, progress=progress or status, make_engine=make_engine)
