"""Every algorithm at equal numbers of trajectories: random MDPs, conflict MDPs and CartPole, each at its best step-size."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.algorithms import Algorithm
from fedpg.paper import arena_entries as entries
from fedpg.paper.arena_entries import BY_NAME, CARTPOLE, CARTPOLE_SETTINGS, ENTRIES, GROUNDS, ROOT, make
from fedpg.paper.arena_scores import Board, Played, pictures, rows, score
from fedpg.paper.kept import part
from fedpg.paper.outcome import Outcome, Tell
from fedpg.paper.table_1 import together
from fedpg.rounds import HEALTHY
from fedpg.simulate import Simulator

OWN = ("local-only",)
"""Agents deploy their own params."""
EXACT = tuple(entry.algorithm for entry in ENTRIES if entry.exact)


class Scale(NamedTuple):
    """Attributes:
    algorithms: who takes part.
    grounds: where, with the trajectories per agent that everybody has there.
    tuning, seeds: seeds for choosing a step-size, and those that are reported.
    threads: programs compiled side by side.
    """

    algorithms: tuple[str, ...]
    grounds: dict[str, int]
    tuning: int
    seeds: int
    threads: int


SCALES = {
    "smoke": Scale(("pavg", "fedsvrpg-s", "scaffold"), {"finite": 160}, 3, 6, 1),
    "full": Scale(tuple(BY_NAME), {"finite": 480, "cartpole": 1920}, 8, 24, 6),
}


def play(name: str, ground: str, budget: int, seeds: int) -> dict[str, Played]:
    """One algorithm at every step-size, on `seeds` seeds of each of a ground's tasks, with at most `budget` trajectories per agent.

    An initial direction, other exchanges of a round and what a server draws are paid from the budget. Who draws nothing makes as
    many rounds as PAvg.
    """
    entry, place = BY_NAME[name], GROUNDS[ground]
    problem, per_round = place.problem(entry), place.local_steps * place.batch

    def algorithm_of(setting: dict[str, jax.Array]) -> Algorithm:
        return make(entry, problem, setting["local_lr"], place.local_steps, place.batch)

    def looked_at(round: int) -> np.ndarray:
        found = engine.evaluate(round)
        return np.asarray(found.total_return if CARTPOLE in place.tasks else found.objective).mean(axis=1)

    grid = {"local_lr": jnp.asarray(place.local_lrs, float)}
    with jax.default_matmul_precision("highest"):
        engine = Simulator(
            problem, algorithm_of, place.agents_of(seeds), root=ROOT, seeds=seeds * len(place.tasks), settings=grid
        )  # fmt: skip
        engine.start()
        first, start = engine.state().info.usage.trajectories.max(), looked_at(0)
        engine.advance(0, 1)
        cost = engine.state().info.usage.trajectories.max() - first
        rounds = max(1, int((budget * entries.AGENTS - first) // cost) if cost else budget // per_round)
        engine.advance(1, rounds - 1)
        state = engine.state()
        final = np.where(state.failed == HEALTHY, looked_at(rounds), np.nan)
    shape = len(place.local_lrs), len(place.tasks), seeds
    final, start, used = final.reshape(shape), start.reshape(shape)[0], float(state.info.usage.trajectories.max())
    return {task: Played(start[number], final[:, number], used, rounds) for number, task in enumerate(place.tasks)}


def run(scale: str, tell: Tell) -> Outcome:
    """Plays, chooses step-sizes, scores."""
    size = SCALES[scale]
    jobs = [(name, ground) for ground in size.grounds for name in size.algorithms if ground == "finite" or not BY_NAME[name].exact]

    def one(job: tuple[str, str]) -> dict[str, Played]:
        asked = (*job, size.grounds[job[1]], size.tuning + size.seeds)
        return part(("arena", asked, GROUNDS[job[1]].local_lrs), lambda: play(*asked))

    played = dict(zip(jobs, together(one, jobs, size.threads, lambda job, share: tell(f"{job[0]}, {job[1]}", share)), strict=True))
    board: Board = {}
    for ground in size.grounds:
        for task in GROUNDS[ground].tasks:
            found = {name: played[name, ground][task] for name, where in jobs if where == ground}
            best = CARTPOLE_SETTINGS["horizon"] if task == CARTPOLE else None
            board[task] = score(found, GROUNDS[ground].local_lrs, size.tuning, best, OWN)
    spent = {
        f"{name}, {ground}": [each.trajectories, each.rounds]
        for (name, ground), tasks in played.items()
        for each in [next(iter(tasks.values()))]
    }
    settings: dict[str, Any] = size._asdict() | {
        "agents": entries.AGENTS, "heterogeneity": entries.HETEROGENEITY, "beta": entries.BETA, "root": ROOT,
        "trajectories and rounds": spent, "finite": entries.FINITE_SETTINGS, "cartpole": CARTPOLE_SETTINGS,
        "local_lrs": {name: GROUNDS[name].local_lrs for name in size.grounds},
        "local_steps": {name: GROUNDS[name].local_steps for name in size.grounds},
        "factors": {entry.algorithm: entry.factor for entry in ENTRIES if entry.factor != 1.0},
        "options": {name: BY_NAME[name].options for name in size.algorithms if BY_NAME[name].options},
    }  # fmt: skip
    table = rows(board, EXACT)
    return Outcome(
        "arena", "Every algorithm at equal numbers of trajectories", scale, settings, table, NOTES, pictures(table, tuple(board))
    )


NOTES = [
    "Scores: 0 is the first policy. 1 is 100 steps on CartPole, and on finite MDPs the best J that any algorithm found in that federation "
    "with common params, at any step-size. Runs that failed count 0. local-only has a policy of its own for each agent, and may pass 1.",
    "Everybody has the same number of trajectories, whatever they are used for: initial directions, the second exchange of Fast-FedPG, the "
    "second batch of every step of N-HARPG and what the server of FedPG-BR draws are paid from it, in fewer rounds. Rounds and messages "
    "are not equal. Algorithms marked 'no trajectories' compute with the agents' whole environments, in as many rounds as PAvg.",
    "Each algorithm has, on each task, the best step-size of the same grid, chosen on seeds that are not reported. The grid is multiplied "
    "by a factor where a step does not multiply a gradient (settings). Nothing else was tuned; beta, mu and epochs are one value for all "
    "tasks. The grid, K and the budget on finite MDPs were set after a look at three algorithms on other seeds (root 60).",
    "IQM is the mean without the lowest and the highest quarter, over seeds and tasks; intervals by drawing seeds again within each task "
    "(stratified bootstrap). The chance to be better is over all pairs of runs on a task, mean over tasks.",
    "FedPG-BR runs without its filter: nobody attacks. FedKL makes ten epochs on every batch. authors-svrpg and authors-hapg are the "
    "paper's published code with its softmax over time, and a baseline over time where the others' is over states.",
]
