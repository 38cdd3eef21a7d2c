"""`fedpg evaluate RUN...`: trained policies in their own, in unseen, or in other environments."""

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Column, Table

from fedpg.cli.parse import console, parse
from fedpg.errors import UserError, require
from fedpg.runs.config import Options

if TYPE_CHECKING:
    from fedpg.runs.evaluation import Place, Scored


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """Run trained policies in environments and print their returns.

    Without further flags: every policy in the environments of its training agents.
    With --agents, --heterogeneity, --env or --env-option: in newly drawn environments that nobody trained on.

    Examples:
        fedpg evaluate runs/calm runs/local-only            several runs side by side
        fedpg evaluate runs/calm --agents 20                20 unseen agents of the same family
        fedpg evaluate runs/heads --agents 20               with --personal heads: each of them learns a little first
        fedpg evaluate runs/calm --env gym:CartPole-v1      another environment with the same shapes
        fedpg evaluate runs/local-only --matrix --out here  every agent's policy in every agent's environment

    mean and worst agent: mean over seeds with a 95 % interval. Percentiles: over all episodes.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders or exports."""
    env: str | None = None
    """Another environment, as in fedpg train; left out, that of the run."""
    env_option: Options | None = None
    """Its options, as in fedpg train."""
    agents: int | None = None
    """How many unseen agents to draw."""
    heterogeneity: float | None = None
    """How much they differ; left out, as in training."""
    horizon: int | None = None
    """The most steps of an episode; left out, as in training."""
    episodes: int = 100
    """Episodes of each policy in each environment, for each seed."""
    seed: int | None = None
    """Only this seed of the runs; left out, all seeds."""
    agent: int | None = None
    """Only the policy of this agent, where every agent has its own."""
    fit: int = 10
    """Batches with which an unseen agent trains the policy further, for runs with --personal heads, from the mean head. It keeps the head
    that is best on the training agents if that has the higher return in a few further episodes. 0: every trained policy as it is."""
    matrix: bool = False
    """Every policy in every environment: a table, and with --out a heat map."""
    json: bool = False
    """Print one JSON object instead of tables."""
    out: str | None = None
    """A folder for evaluation.json, and with --matrix also matrix.png."""


def main(argv: list[str]) -> int:
    """Evaluates; returns the exit code."""
    options = parse(EvaluateOptions, argv, "fedpg evaluate")
    require(bool(options.runs), "give one or more run folders: fedpg evaluate runs/mine")
    for name in ("episodes", "agents", "horizon"):
        value = getattr(options, name)
        require(value is None or value >= 1, f"{name} must be at least 1, not {value}")
    require(options.fit >= 0, f"fit must be 0 or more, not {options.fit}")
    require(options.heterogeneity is None or options.heterogeneity >= 0, f"heterogeneity must be 0 or more, not {options.heterogeneity}")
    from fedpg.machine import use_all_cores

    use_all_cores()
    from fedpg.runs import evaluation, heads

    # Everything is read before anything is run: a mistake costs no time.
    trained = [evaluation.read(run, options.agent, options.seed) for run in options.runs]
    names = short_names(options.runs)
    drawn = {name: getattr(options, name) for name in ("env", "env_option", "agents", "heterogeneity")}
    given = {name: value for name, value in drawn.items() if value is not None}
    scored, places, fitted = [], [], []
    for name, one in zip(names, trained, strict=True):
        where = evaluation.place(one.spec, options.horizon, **given)
        if where.training and one.spec.personal and one.count == 1:
            where = where.of_agent(one.spec.agent)
        steps = 0
        if not where.training and options.fit and heads.has_heads(one):
            one, where, steps = heads.fit(one, where, options.fit)
        places.append(where)
        fitted.append(steps)
        for how in evaluation.modes(one):
            found = evaluation.evaluate(one, where, episodes=options.episodes, how=how, matrix=options.matrix)
            scored.append(found._replace(name=name))
    found = {
        "episodes": options.episodes,
        "where": [where.name for where in places],
        "steps_to_fit_heads": fitted,
        "results": [as_json(one, options.matrix) for one in scored],
    }
    if options.json:
        print(json.dumps(found))
    else:
        show(scored, places, options)
        for name, steps in zip(names, fitted, strict=True):
            print(f"{name}: every agent fitted its own policy in at most {steps:,} steps") if steps else None
    if options.out:
        for path in save(found, scored, Path(options.out), options.matrix):
            print(f"written: {path}") if not options.json else None
    return 0


def short_names(runs: tuple[str, ...]) -> list[str]:
    """The shortest different names of the runs: the last part of each path, or all of it."""
    short = [Path(os.path.abspath(run)).name for run in runs]
    return short if len(set(short)) == len(short) else list(runs)


def as_json(one: "Scored", matrix: bool) -> dict[str, Any]:
    """The numbers of one run, as plain data."""
    mean, worst = one.mean(), one.worst()
    found = {
        "run": one.name,
        "how": one.how,
        "seeds": mean.seeds,
        "mean": [float(x) for x in mean[:3]],
        "worst_agent": [float(x) for x in worst[:3]],
        "percentiles": one.quantiles(),
        "per_agent": one.own().mean((0, 2)).tolist(),
    }
    return found | ({"matrix": one.matrix().tolist()} if matrix else {})


def show(scored: list["Scored"], places: list["Place"], options: EvaluateOptions) -> None:
    """Prints the tables."""
    from fedpg.runs.evaluation import QUANTILES

    screen = console()
    columns = ["seeds", "mean", "worst agent", *(f"{q} %" for q in QUANTILES)]
    title = f"return in {places[0].name}, {options.episodes} episodes each; mean over seeds with 95 % interval"
    table = Table("run", "actions", *(Column(name, justify="right", no_wrap=True) for name in columns), title=title, title_justify="left")
    for one in scored:
        shown = [str(found) if found.seeds > 1 else f"{found.mean:.1f}" for found in (one.mean(), one.worst())]
        table.add_row(one.name, one.how, str(one.mean().seeds), *shown, *(f"{value:.1f}" for value in one.quantiles().values()))
    screen.print(table)
    for how in dict.fromkeys(one.how for one in scored) if options.matrix else ():
        rows, labels = stacked([one for one in scored if one.how == how])
        columns = [Column(str(n), justify="right") for n in range(rows.shape[1])]
        matrix = Table("policy", *columns, "mean", title=f"policies (rows) in environments (columns), {how} actions", title_justify="left")
        for label, row in zip(labels, rows, strict=True):
            matrix.add_row(label, *(f"{value:.1f}" for value in row), f"{row.mean():.1f}")
        screen.print(matrix)


def stacked(scored: list["Scored"]) -> tuple[Any, list[str]]:
    """The matrices of several runs on top of each other, (rows, N), and the names of the rows."""
    import numpy as np

    require(len({one.returns.shape[2] for one in scored}) == 1, "the runs have different numbers of agents: give --agents for one matrix")
    labels = []
    for one in scored:
        policies = one.returns.shape[1]
        labels += [one.name] if policies == 1 else [f"{one.name}, agent {i}" for i in range(policies)]
    return np.concatenate([one.matrix() for one in scored]), labels


def save(found: dict[str, Any], scored: list["Scored"], out: Path, matrix: bool) -> list[Path]:
    """Writes evaluation.json and the heat map; returns their paths."""
    from fedpg.runs.folder import write_json

    write_json(out / "evaluation.json", found)
    if not matrix:
        return [out / "evaluation.json"]
    from fedpg.report.figures import heat_map

    how = scored[-1].how
    rows, labels = stacked([one for one in scored if one.how == how])
    places = [f"environment {n}" for n in range(rows.shape[1])]
    try:
        return [
            out / "evaluation.json",
            heat_map(rows, labels, places, out / "matrix.png", title=f"return of each policy in each environment, {how} actions"),
        ]
    except UserError as error:
        print(error)
        return [out / "evaluation.json"]
