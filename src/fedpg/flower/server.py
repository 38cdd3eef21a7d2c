"""The server of a federation, whatever the link: from a configuration and a way to the agents to a run folder."""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable
from pathlib import Path

import jax

from fedpg import trees
from fedpg.errors import require
from fedpg.flower.asking import Asking, Link, Terms, Watcher
from fedpg.flower.remote import Remote
from fedpg.runs.config import Config, to_toml
from fedpg.runs.folder import RunFolder, write_atomically
from fedpg.runs.progress import Progress
from fedpg.runs.setup import BETWEEN_MACHINES, participation_of, plan, resolve
from fedpg.runs.training import Run, train
from fedpg.simulate import make_agents

RUN_NAME = "run-name"
"""The file with the name under which agents keep their states of this run."""
NOT_SENT = ("env", "env_option", "heterogeneity", "backend", "engine", "track")
"""What of a configuration is no agent's business, or its own."""


LinkOf = Callable[[Terms, Callable[[str], None]], Link]
"""From what all tasks have in common, and a function that puts a line on the record, to the way to the agents."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """How a server treats its agents."""

    deadline: float = 120.0
    """Seconds to wait for the answers to an exchange; whoever has not answered then is left out of it."""
    quorum: int = 1
    """The fewest messages that make a round; with fewer it is repeated."""
    norm_bound: float = 1e9
    """Messages with a larger L2 norm are refused."""
    start_with: int = 0
    """The agents that must be there before the first exchange; 0: all of them."""


def to_agents(config: Config) -> str:
    """The configuration as agents get it."""
    plain = dataclasses.replace(config, **{name: getattr(Config, name) for name in NOT_SENT})
    return "".join(line + "\n" for line in to_toml(plain).splitlines() if line.split(" =")[0].replace("-", "_") not in NOT_SENT)


def run_name(out: Path) -> str:
    """The run's name: made once, and found again when it is resumed."""
    path = RunFolder(out).federation / RUN_NAME
    if not path.exists():
        write_atomically(path, secrets.token_hex(8).encode())
    return path.read_text()


def check(config: Config, rules: Rules) -> None:
    """Refuses a configuration, or rules, with which no federation between machines can be."""
    require(config.seeds == 1, "a federation between machines runs one seed: leave out --seeds")
    require(config.attack == "none", "attacks are the agents' business: leave out --attack here, and give it to fedpg join")
    require(0 < rules.deadline < 1e6, f"deadline must be a positive number of seconds, not {rules.deadline}")
    require(0 <= rules.start_with <= config.agents, f"start-with must be from 0 to the {config.agents} agents, not {rules.start_with}")
    require(1 <= rules.quorum <= config.agents, f"quorum must be from 1 to the {config.agents} agents, not {rules.quorum}")
    complete, taking_part = resolve(config), participation_of(config).taking_part(config.agents)
    require(rules.quorum <= taking_part, f"quorum {rules.quorum} is more than the {taking_part} agents of a round")
    algorithm = plan(complete).algorithm_of({})
    require(not algorithm.pooled, f"{algorithm.name} needs all environments in one place: it cannot run between machines")


def engine_of(config: Config, run: str, link_of: LinkOf, rules: Rules, watcher: Watcher | None = None) -> Remote:
    """The engine of a complete configuration; `run` is the name under which agents keep their states."""
    asked, participation = plan(config), participation_of(config)
    _, own = make_agents(asked.agents_of, asked.more["prepare"], config.seed, 1, jax.devices("cpu")[0])
    terms = Terms(run, to_agents(config), config.agents, rules.deadline, rules.norm_bound)
    asking = Asking(terms, watcher)
    asking.link = link_of(terms, functools.partial(asking.note, None))
    return Remote(
        asked.problem,
        asked.algorithm_of({}),
        trees.take(own, 0),
        asking,
        root=config.seed,
        quorum=rules.quorum,
        start_with=rules.start_with or config.agents,
        participation=participation,
        withheld=config.noise > 0,
    )


def lead(
    config: Config,
    out: Path | str,
    link_of: LinkOf,
    *,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    resume: bool = False,
    progress: Progress | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Trains one policy with agents on other machines and writes a run folder, as `fedpg.train` does.

    Args:
        config: what to run. Its environment gives the policy its shapes; what agents live in is their own business.
        out: the run folder.
        link_of: makes the way to the agents from what all tasks have in common, and a function that puts a line on the record.
        rules: how the server treats its agents.
        resume: go on from the folder's checkpoint.
        progress: where to report.
        watcher: who is told of every answer.
    """
    check(config, rules)

    def make_engine(config: Config) -> Remote:
        return engine_of(config, run_name(Path(out)), link_of, rules, watcher)

    return train(dataclasses.replace(config, engine=BETWEEN_MACHINES), out, resume=resume, progress=progress, make_engine=make_engine)
