"""Every algorithm with the same number of trajectories: random MDPs, conflicting MDPs and CartPole, each at its best step-sizes.

Methods of `compare` choose lambda / (eta K) too. Step-sizes are chosen on other seeds than those reported.

Score 0 is the first policy. 1 is 100 steps on CartPole, and on finite MDPs the best J that any method found in that federation with common
params, at any step-size. Runs that failed count 0.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg.paper import verdict
from fedpg.paper.compare import ratios_of, settings_of, tune
from fedpg.paper.jobs import cached, parallel
from fedpg.paper.method import METHODS, Method
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, exactly, minus, row, select
from fedpg.paper.task import Task
from fedpg.report.statistics import Estimate, interquartile_mean, probability_of_improvement, stratified
from fedpg.rounds import HEALTHY

TITLE = "Every algorithm with the same number of trajectories"
FINITE = Task("finite MDPs", "mixture", local_steps=16, horizon=40, importance="truncated")
CARTPOLE = Task("CartPole", "cartpole", local_steps=4, horizon=100, discount=0.99, batch=8, baseline="time", importance="truncated")
ETAS = {FINITE.name: (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), CARTPOLE.name: (1e-3, 3e-3, 1e-2, 3e-2)}
PARTS = {FINITE.name: ("random MDPs", "conflict MDPs"), CARTPOLE.name: ("CartPole",)}
"""The tasks of a program; seeds take turns."""
DRAWS, ROOT = 1000, 61
ENTRANTS = tuple(name for name in METHODS if name not in ("FedPG-BR", "HARPG", "CALM-VR"))
"""Nobody attacks: FedPG-BR runs without its filter. CALM-VR is for small steps and is measured in `complexity`."""

SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"methods": ("PAvg", "CALM", "SCAFFOLD"), "budgets": {FINITE.name: 160}, "tuning": 3, "seeds": 6, "threads": 1},
    "full": {"methods": ENTRANTS, "budgets": {FINITE.name: 480, CARTPOLE.name: 1920}, "tuning": 4, "seeds": 16, "threads": 2},
}


class Played(NamedTuple):
    """What theta_0, (S,), and the last params in P settings, (P, S), of one method on one task are worth, NaN where a run
    failed; and what it used."""

    start: np.ndarray
    final: np.ndarray
    trajectories: float
    rounds: int


def play(method: Method, task: Task, budget: int, seeds: int) -> dict[str, Played]:
    """A method at every step-size on `seeds` seeds of each part of a task, with at most `budget` trajectories per agent."""
    etas, parts = ETAS[task.name], PARTS[task.name]
    settings = settings_of(method, np.array(etas), task.local_steps) if len(ratios_of(method)) > 1 else {"local_lr": etas}
    sim = task.simulator(method, settings, seeds * len(parts))
    state = sim.init(jax.random.key(ROOT))
    first = float(state.rows.info.usage.trajectories.max())

    def worth(state: object) -> np.ndarray:
        scores = sim.evaluate(state)
        return np.asarray(scores.returns if task.name == CARTPOLE.name else scores.objective).mean(axis=1)

    start = worth(state)
    state, info = sim.run(state, 1)
    cost = float(info.local.usage.trajectories.max())
    affordable = (budget * task.agents - first) // cost if cost else budget // (task.local_steps * task.batch)
    rounds = max(1, int(affordable))
    state, _ = sim.run(state, rounds - 1)
    final = np.where(np.asarray(state.rows.failed) == HEALTHY, worth(state), np.nan)
    final, start = (values.reshape(-1, seeds, len(parts)) for values in (final, start))
    return {part: Played(start[0, :, at], final[..., at], first + rounds * cost, rounds) for at, part in enumerate(parts)}


class Scored(NamedTuple):
    """Scores of the reported seeds at the chosen step-sizes, (S,), those, whether eta is at the edge of the grid, and the width."""

    scores: np.ndarray
    eta: float
    ratio: float
    edge: bool
    width: float


def normalised(values: np.ndarray, start: np.ndarray, best: np.ndarray) -> np.ndarray:
    """0 = the first policy, 1 = `best`; a run that failed counts as the first policy."""
    return np.nan_to_num((values - start) / np.where(best > start, best - start, np.inf), nan=0.0)


def score(played: dict[str, Played], etas: tuple[float, ...], tuning: int, most: float | np.ndarray | None) -> dict[str, Scored]:
    """Scores on one task, by method; the first `tuning` seeds choose the step-sizes, and the others are reported.

    `most` is what a perfect policy gets, () or (S,); None takes, seed by seed, the best that any method found with common params.
    """
    common = [np.nanmax([*each.final, each.start], axis=0) for name, each in played.items() if name != "local only"]
    found = {}
    for name, each in played.items():
        best = np.max(common, axis=0) if most is None else np.full_like(each.start, most)
        scores = normalised(each.final, each.start, best).reshape(-1, len(etas), len(each.start))  # (ratios, E, S)
        ratios = ratios_of(METHODS[name]) if name in METHODS else (1.0,)
        chosen = tune(scores[..., :tuning], np.array(etas), ratios[: len(scores)], 0.0)
        which, at = ratios.index(chosen.ratio), etas.index(chosen.eta)
        found[name] = Scored(scores[which, at, tuning:], chosen.eta, chosen.ratio, chosen.at_edge, chosen.width)
    return found


def mean_score(scores: list[np.ndarray]) -> Estimate:
    """The interquartile mean over tasks and seeds."""
    return stratified(lambda tasks: interquartile_mean(np.concatenate(tasks)), scores, DRAWS)


def chance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> Estimate:
    """The chance to be better, mean over tasks; both have the same seeds, which are drawn together."""
    pairs = [np.stack(pair, axis=1) for pair in zip(ours, theirs, strict=True)]
    return stratified(lambda tasks: float(np.mean([probability_of_improvement(*task.T) for task in tasks])), pairs, DRAWS)


def table(board: dict[str, dict[str, Scored]]) -> list[Row]:
    """The rows, best method first; `board` by task, then by method."""
    methods = list(dict.fromkeys(name for scored in board.values() for name in scored))
    overall = {name: mean_score([scored[name].scores for scored in board.values() if name in scored]) for name in methods}
    rows = []
    for name in sorted(methods, key=lambda name: -float(overall[name].mean)):
        entered = {task: scored[name] for task, scored in board.items() if name in scored}
        keys, flags = {"method": name}, ("no trajectories",) if METHODS[name].exact else ()
        parts = {task: [task] for task in entered}
        if len(entered) > 1:
            joint = "all tasks" if len(entered) == len(board) else FINITE.name
            parts = {joint: list(entered)} | parts
            rows.append(row("score", overall[name], task=joint, flags=flags, **keys))
        for task, own in entered.items():
            edge = ("edge of the grid",) if own.edge else ()
            rows.append(row("score", mean_score([own.scores]), task=task, eta=own.eta, ratio=own.ratio, flags=flags + edge, **keys))
            rows.append(exactly("width", round(own.width, 3), len(own.scores), task=task, **keys))
        if name == "PAvg" or not all("PAvg" in board[task] for task in entered):
            continue
        for part, tasks in parts.items():
            found = chance([board[task][name].scores for task in tasks], [board[task]["PAvg"].scores for task in tasks])
            compared = {"against": "PAvg", "comparison": ">", "verdict": verdict.above(found, 0.5)}
            rows.append(row("chance", found, task=part, flags=flags, **keys, **compared))
    return rows


def run(tell: Tell, methods: tuple[str, ...], budgets: dict[str, int], tuning: int, seeds: int, threads: int) -> Result:
    """Runs the experiment.

    Args:
        methods: by name; those that draw no trajectories are for finite MDPs only.
        budgets: trajectories per agent, by program. Initial directions, further exchanges and what a server draws are paid from them.
        tuning, seeds: seeds for choosing a step-size, and those that are reported.
    """
    programs = {task.name: task for task in (FINITE, CARTPOLE)}
    jobs = [(name, task) for task in budgets for name in methods if task == FINITE.name or not METHODS[name].exact]

    def one(name: str, task: str) -> dict[str, Played]:
        asked = METHODS[name], programs[task], budgets[task], tuning + seeds
        return cached(("arena", asked, ETAS[task]), lambda: play(*asked))

    found = dict(zip(jobs, parallel(one, jobs, threads=threads, tell=lambda share: tell("arena", share)), strict=True))
    board = {}
    for task in budgets:
        for part in PARTS[task]:
            played = {name: found[name, task][part] for name, where in jobs if where == task}
            board[part] = score(played, ETAS[task], tuning, CARTPOLE.horizon if part == CARTPOLE.name else None)
    spent = {f"{name}, {task}": next(iter(parts.values()))[2:] for (name, task), parts in found.items()}
    settings = {
        "tasks": [dataclasses.asdict(task) for task in programs.values()],
        "etas": ETAS,
        "root": ROOT,
        "trajectories and rounds": spent,
    }
    return Result(rows=table(board), settings=settings)


def figures(result: Result) -> list[Figure]:
    """Every method's score less PAvg's, task by task."""
    scores = select(result.rows, quantity="score")
    tasks = [task for task in ("all tasks", *PARTS[FINITE.name], *PARTS[CARTPOLE.name]) if select(scores, task=task)]
    rows = [gap for task in tasks for gap in minus(select(scores, task=task), select(scores, task=task, method="PAvg"), "task")]
    look = {"names": "method", "series": (), "x_label": "score - PAvg's score", "x_scale": "symlog 0.01", "guides": (0.0,)}
    plots = [Plot(title=task, quantity="score", where={"task": task}, **look) for task in tasks]
    most = max(len(select(rows, task=task)) for task in tasks)
    return [Figure(plots=plots, rows=rows, height=0.8 + 0.17 * most)]
