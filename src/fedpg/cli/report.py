"""`fedpg report RUN...`: one HTML page about runs."""

import base64
import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import UserError, require

if TYPE_CHECKING:
    from fedpg.report.page import Matrix, RunData

LARGEST_FILM = 1_500_000
"""Bytes of a film that still goes into the page."""
MOST_AGENTS = 16
"""Agents of a run whose policies and environments go into the matrix."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page about one or more runs. It opens from disk, without a network, on a phone, in the dark, and on paper.

    Example: fedpg report runs/calm runs/pavg runs/local-only --out report.html

    It shows learning curves over rounds, environment steps, trajectories and numbers sent; final scores with bootstrap intervals;
    every agent; how likely one run is to beat another; what the agents differ in; communication; importance weights; policies in
    environments; films that fedpg play wrote; and the configurations with what differs between them.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders."""
    out: str = "report.html"
    """The page."""
    title: str = "Runs of fedpg"
    """Its heading."""
    episodes: int = 20
    """Episodes of each policy in each environment, on the training agents and on as many unseen ones; 0 leaves both out."""


def main(argv: list[str]) -> int:
    """Writes the page; returns the exit code."""
    options = parse(ReportOptions, argv, "fedpg report")
    require(bool(options.runs), "give one or more run folders: fedpg report runs/mine")
    from fedpg.cli.evaluate import short_names
    from fedpg.machine import use_all_cores
    from fedpg.report import page

    use_all_cores()
    names = short_names(options.runs)
    runs = [read(Path(run), name) for run, name in zip(options.runs, names, strict=True)]
    matrices, note = evaluated(options, names)
    about = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, written {datetime.datetime.now():%d %B %Y, %H:%M}"
    path = page.write(runs, Path(options.out), title=options.title, about=about, matrices=matrices, note=note)
    print(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


def read(path: Path, name: str) -> "RunData":
    """What the page shows of the run in `path`.

    Raises:
        UserError: if there is no run, or nothing of it can be shown.
    """
    import msgspec

    from fedpg.report.page import RunData
    from fedpg.runs import config as configs
    from fedpg.runs import evaluation, metrics
    from fedpg.runs.folder import RunFolder, read_manifest

    folder = RunFolder(path)
    require(folder.config.exists(), f"no run in {path}: give the folder that fedpg train or serve wrote")
    config = configs.Config(**configs.read(folder.config))
    rows = metrics.read(folder.metrics)
    require(bool(rows), f"the run in {path} has no evaluation yet, or its metrics.jsonl is damaged")
    manifest = read_manifest(folder.manifest)
    try:
        environments = evaluation.constants(config)
    except UserError as error:
        environments = ({}, f"The environments cannot be made here: {error}")
    values = {configs.flag(field): value for field, value in msgspec.to_builtins(config).items()}
    return RunData(name, values, manifest, rows, environments, film(path))


def film(path: Path) -> tuple[str, str] | None:
    """The film of a run as a data URI, if there is one and it is small enough."""
    for name, kind in (("replay.mp4", "video/mp4"), ("replay.gif", "image/gif")):
        file = path / name
        if file.is_file() and file.stat().st_size <= LARGEST_FILM:
            return kind, f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
    return None


def evaluated(options: ReportOptions, names: list[str]) -> tuple[list["Matrix"], str]:
    """Policies in environments, and what to say about them."""
    from fedpg.report.page import Matrix
    from fedpg.runs import evaluation

    if options.episodes < 1:
        return [], "Left out (--episodes 0)."
    parts: dict[tuple[str, int], list[Any]] = {}
    missing = []
    for run, name in zip(options.runs, names, strict=True):
        try:
            trained = evaluation.read(run)
            require(trained.spec.agents <= MOST_AGENTS, f"more than {MOST_AGENTS} agents")
            for unseen in (False, True):
                where = evaluation.place(trained.spec, **({"agents": trained.spec.agents} if unseen else {}))
                found = evaluation.evaluate(trained, where, episodes=options.episodes, matrix=True).matrix().tolist()
                labels = [name] if len(found) == 1 else [f"{name}, agent {i}" for i in range(len(found))]
                title = "unseen agents of the same family" if unseen else "agents of training"
                parts.setdefault((title, where.count), []).extend(zip(labels, found, strict=True))
        except UserError as error:
            missing.append(f"{name} is left out: {error}")
    matrices = [Matrix(title, rows, [str(n) for n in range(count)]) for (title, count), rows in parts.items()]
    note = f"Return of each policy (rows) in each environment (columns), mean over seeds and {options.episodes} episodes, random actions."
    return matrices, " ".join([note if matrices else "", *missing]).strip()
