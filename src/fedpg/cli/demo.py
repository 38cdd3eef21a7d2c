"""`fedpg demo`: eight agents with little data each. What federating gives them, and one case where it gives nothing."""

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from fedpg.cli.parse import console, parse
from fedpg.errors import UserError, require
from fedpg.machine import use_all_cores
from fedpg.runs.config import Config

if TYPE_CHECKING:
    from fedpg.report.statistics import Estimate
    from fedpg.runs.evaluation import Place, Scored, Trained
    from fedpg.runs.training import Run

AGENTS, UNSEEN, EPISODES, TARGET = 8, 10, 20, 150
METHODS = {
    "calm": ("CALM, federated", 1e-3),
    "pavg": ("PAvg, federated", 6e-4),
    "local-only": ("local only", 6e-4),
    "pooled": ("pooled (moves the data)", 1e-3),
}
"""Label and step-size. Each has its best of five step-sizes on other seeds, except pooled: see docs/start/demo.md."""
TASK = {"env": "cartpole", "agents": AGENTS, "heterogeneity": 1.5, "horizon": 200, "batch": 1, "local_steps": 10}
CONFLICT = {"env": "conflict", "agents": AGENTS, "rounds": 40}
"""Agents that want opposite actions in the same states."""


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """Eight CartPoles that differ in pole length, gravity and start, with 200 trajectories each. Does it pay to federate?

    Trains CALM, PAvg, local-only and pooled, tries every policy in its own environments and in ten that nobody trained on, and
    writes a table, a picture and a film; then shows a case in which federating does not pay. docs/start/demo.md says how it was chosen.
    """

    rounds: int = 20
    """Communication rounds, of ten trajectories of each agent."""
    seeds: int = 10
    """Independent repetitions, each with agents of its own."""
    out: str | None = None
    """Folder for the run folders, the picture and the film; by default a new one under runs/."""


class Result:
    """A method of the demo: its run, and the returns of its policies in their own and in unseen environments."""

    def __init__(self, label: str, run: "Run", trained: "Trained", own: "Scored", unseen: "Scored") -> None:
        self.label, self.run, self.trained, self.own, self.unseen = label, run, trained, own, unseen

    def worst(self) -> "Estimate":
        """Over seeds, the lowest mean return in any environment, own or unseen, of any policy of the method."""
        from fedpg.report.statistics import estimate

        return estimate(np.concatenate([one.own().mean(2) for one in (self.own, self.unseen)], 1).min(1))

    def to_target(self) -> str:
        """Trajectories of each agent until the mean return in its own environment reaches the target."""
        reached = [row["trajectories"] / AGENTS for row in self.run.rows if (row["return"] or 0.0) >= TARGET]
        return f"{reached[0]:,.0f}" if reached else "not reached"

    def sent(self) -> str:
        """Numbers sent in the whole run."""
        row = self.run.rows[-1]
        return f"{row['floats_up'] + row['floats_down']:,.0f}" if self.run.config.algorithm != "pooled" else "all trajectories"


def demo(options: DemoOptions, screen: Console) -> list[Path]:
    """Trains, evaluates, prints the tables, and returns the paths of the pictures."""
    from fedpg.report.statistics import estimate

    out = Path(options.out or f"runs/demo-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    shared = TASK | {"rounds": options.rounds, "seeds": options.seeds, "eval_every": 2}
    results = {name: result(name, out, screen, {**shared, "local_lr": METHODS[name][1]}) for name in METHODS}
    heads = (f"own {AGENTS}", f"{UNSEEN} unseen", "worst of all", f"trajectories to {TARGET}", "numbers sent")
    title = f"return of {TASK['horizon']} after {10 * options.rounds} trajectories each; mean over {options.seeds} seeds, 95 % interval"
    table = Table("", *(Column(head, justify="right", no_wrap=True) for head in heads), title=title, title_justify="left")
    for one in results.values():
        table.add_row(one.label, str(one.own.mean()), str(one.unseen.mean()), str(one.worst()), one.to_target(), one.sent())
    screen.print(table)
    unseen = {name: one.unseen.own().mean((1, 2)) for name, one in results.items()}
    for name in ("calm", "pavg"):
        gain = estimate(unseen[name] - unseen["local-only"])
        screen.print(verdict(f"{METHODS[name][0]}, against local only on unseen environments", gain))
    screen.print(verdict("CALM, federated, against pooled on unseen environments", estimate(unseen["calm"] - unseen["pooled"])))
    written = [picture(results, out / "demo.png")]
    screen.print()
    against = not_worth_it(options, out, screen)
    screen.print(verdict("Where agents want opposite things: CALM against local only, in their own environments", against))
    try:
        from fedpg.runs.play import play

        written += play([str(out / "calm")], out / "demo.mp4", steps=100, seed=0)
    except UserError as error:
        screen.print(f"no film: {error}")
    return written


def trained_run(name: str, folder: Path, screen: Console, settings: dict[str, Any]) -> "Run":
    """A finished run."""
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train

    progress = Bar(screen, METHODS[name][0]) if screen.is_terminal else None
    run = train(Config(algorithm=name, **settings), out=folder, progress=progress)
    if run.round < run.config.rounds:  # Ctrl-C ends the demo, not only this run
        raise KeyboardInterrupt
    return run


def result(name: str, out: Path, screen: Console, settings: dict[str, Any]) -> Result:
    """Trains one method and tries its policies; personal ones in every environment."""
    from fedpg.runs import evaluation

    run = trained_run(name, out / name, screen, settings)
    trained = evaluation.read(run.folder)
    places: list[Place] = [evaluation.place(trained.spec), evaluation.place(trained.spec, agents=UNSEEN)]
    own, unseen = (evaluation.evaluate(trained, where, episodes=EPISODES, matrix=True) for where in places)
    return Result(METHODS[name][0], run, trained, own, unseen)


def not_worth_it(options: DemoOptions, out: Path, screen: Console) -> "Estimate":
    """The gain of CALM over local only where agents want opposite things, over seeds."""
    from fedpg.report.statistics import estimate

    settings = CONFLICT | {"seeds": options.seeds, "eval_every": CONFLICT["rounds"]}
    ends = [trained_run(name, out / f"conflict-{name}", screen, settings).rows[-1]["return_per_seed"] for name in ("calm", "local-only")]
    return estimate(np.array(ends[0]) - np.array(ends[1]))


def verdict(what: str, gain: "Estimate") -> str:
    """One sentence that says no more than the interval does."""
    if gain.low > 0:
        return f"{what}: better by {gain}."
    if gain.high < 0:
        return f"{what}: worse by {-gain.mean:.1f} [{-gain.high:.1f}, {-gain.low:.1f}]."
    return f"{what}: no clear difference, {gain}."


def picture(results: dict[str, Result], path: Path) -> Path:
    """Learning curves above a heat map: policies of one seed in its own and in unseen environments, by pole length."""
    from fedpg.report.figures import Heat, Line, Panel, above_heat_map
    from fedpg.report.statistics import estimate
    from fedpg.runs import evaluation

    lines = []
    for one in results.values():
        rows = one.run.rows
        mean, low, high, _ = estimate(np.array([row["return_per_seed"] for row in rows], float).T)
        lines.append(Line(one.label, [row["trajectories"] / AGENTS for row in rows], mean, low, high))
    panel = Panel("in the agents' own environments", "trajectories of each agent", "return", lines)
    spec = results["calm"].trained.spec
    lengths = [2 * evaluation.place(spec, **changes).agents.length[0] for changes in ({}, {"agents": UNSEEN})]
    order = [np.argsort(values) for values in lengths]
    values, labels = [], []
    for one in results.values():
        own, unseen = (scored.returns[0].mean(-1) for scored in (one.own, one.unseen))
        policies = order[0] if len(own) > 1 else [0]
        for i in policies:
            values.append(np.concatenate([own[i][order[0]], unseen[i][order[1]]]))
            labels.append(one.label if len(own) == 1 else f"local, {lengths[0][i]:.2f} m")
    columns = [f"{kind} {values[i]:.2f} m" for kind, values, at in zip(("own", "unseen"), lengths, order, strict=True) for i in at]
    title = "policies of the first seed, by pole length"
    return above_heat_map(panel, Heat(title, np.array(values), labels, columns, groups=(AGENTS,)), path)


def main(argv: list[str]) -> int:
    """Runs the demo; returns the exit code."""
    options = parse(DemoOptions, argv, "fedpg demo")
    require(options.seeds >= 2 and options.rounds >= 1, "give at least 2 seeds (for an interval) and 1 round")
    use_all_cores()
    print("written: " + ", ".join(str(path) for path in demo(options, console())))
    return 0
