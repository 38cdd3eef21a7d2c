"""`fedpg personalize RUN`: a policy of its own for every agent, from few trajectories."""

import dataclasses
import datetime
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Column, Table

from fedpg.cli.parse import console, parse
from fedpg.errors import require
from fedpg.runs.config import left_out

OWN = left_out("FLOAT", "the preset of local-only")


@dataclasses.dataclass(frozen=True)
class PersonalizeOptions:
    """Train a common policy further for every agent by itself, and compare with training from scratch on as many trajectories.

    Example: fedpg personalize runs/calm --rounds 5

    An agent keeps the common policy unless its own has the higher return in further episodes, half a round's worth with each of the
    two. Training from scratch gets as many trajectories more.

    Writes two run folders, OUT/personal and OUT/scratch; fedpg.load("OUT/personal", agent=0) is the first agent's policy. The table
    shows returns in the agents' own environments, and the gain of the personal policies: the mean over seeds of the difference in
    each seed, with a 95 % interval.
    """

    run: Annotated[str, tyro.conf.Positional]
    """A run whose agents share one policy."""
    rounds: int = 5
    """Rounds of local training; each is --local-steps times --batch trajectories of every agent."""
    local_lr: Annotated[float | None, OWN] = None
    """The step-size."""
    local_steps: Annotated[int | None, left_out("INT", "as in the run")] = None
    """Updates in a round."""
    batch: Annotated[int | None, left_out("INT", "as in the run")] = None
    """Trajectories per update."""
    episodes: int = 100
    """Episodes per agent and seed behind every number."""
    out: str | None = None
    """Where the two run folders go; left out, a new folder under runs/."""


def main(argv: list[str]) -> int:
    """Personalizes; returns the exit code."""
    options = parse(PersonalizeOptions, argv, "fedpg personalize")
    require(options.rounds >= 1 and options.episodes >= 1, "rounds and episodes must be at least 1")
    from fedpg.machine import use_all_cores

    use_all_cores()
    from fedpg.runs.personal import ARMS, personalize
    from fedpg.runs.progress import Bar

    screen = console()
    out = Path(options.out or f"runs/personal-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    settings = {name: getattr(options, name) for name in ("rounds", "local_lr", "local_steps", "batch")}
    progress = {name: Bar(screen, name) for name in ARMS}
    found = personalize(options.run, out, episodes=options.episodes, progress=progress, **settings)
    columns = [Column(name, justify="right", no_wrap=True) for name in ("mean", "worst agent", "gain of personal", "trajectories each")]
    title = f"return in the agents' own environments, {options.episodes} episodes each; mean over seeds with 95 % interval"
    table = Table("policy", *columns, title=title, title_justify="left")
    several = found.scored["common"].mean().seeds > 1
    for name, label in (("common", "the common one"), ("personal", "personal"), ("scratch", "from scratch")):
        one = found.scored[name]
        numbers = [one.mean(), one.worst(), *([found.gain(name)] if name != "personal" else [])]
        shown = [str(value) if several else f"{value.mean:.1f}" for value in numbers]
        table.add_row(label, *shown, *([""] if name == "personal" else []), "0 more" if name == "common" else f"{found.trajectories:,.0f}")
    screen.print(table)
    print(f"written: {out / 'personal'}, {out / 'scratch'}")
    return 0
