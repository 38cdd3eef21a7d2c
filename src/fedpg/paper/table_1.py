"""Table 1 of the paper, measured: exactness, local updates, heterogeneity, speed-up in N, and what every method sends and draws.

Fixed points are measured on `doors` with exact gradients: on the conflict family the best common policies are deterministic, and
|grad J|^2 falls forever on the way to them. At a constant step-size noise settles at c eta N^-p plus what local steps leave. To come down
to a given eps a federation may take steps that grow as N^p, and needs N^-p as many trajectories per agent: p is the exponent of the
speed-up.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import msgspec
import numpy as np

from fedpg import policies, trees
from fedpg.communication import measure as communication
from fedpg.envs import tabular
from fedpg.envs.tabular import MDP
from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap, geometric, slope
from fedpg.paper.jobs import cached, parallel
from fedpg.paper.method import METHODS, PAVG, Method
from fedpg.paper.results import Plot, Result, Row, Tell, exactly, line, over_seeds, row
from fedpg.paper.task import Task, doors, measure
from fedpg.problem import exact_policy_gradient
from fedpg.report.statistics import Estimate
from fedpg.rounds import HEALTHY
from fedpg.simulate import simulator

TITLE = "Table 1, measured"
SOURCE = "Wang et al., Momentum for the Win, ICML 2024, Table 1"
AT_REST = Task("doors", "doors", 3, exact=True)
NOISY = Task("doors", "doors", 3, local_steps=8, horizon=20)
PATH, SERVER = 0.4, 5.0
"""With exact gradients: eta K, the same for every K, and lambda, which decides how soon a method settles but not where."""
STEPS = {"FedPG-BR": {"local_lr": SERVER}, "FedPG-BR, no filter": {"local_lr": SERVER}, "FAPI": {"local_lr": 0.05},
         "FedNPG": {"local_lr": 1.0}}  # fmt: skip
"""Methods whose steps at rest are others: FedPG-BR's server makes K steps, and FAPI and FedNPG make no local ones."""
ETAS = (0.04, 0.32)
"""With sampled gradients: short steps, where noise is all there is, and long ones, where it is not."""
EVALUATIONS = 12
"""Evaluations in the last half of a run, over which |grad J|^2 is averaged."""
LOST = 1e3
"""A run that failed counts as this many times the |grad J|^2 of the start."""
WIDE = (20, 50)
"""States and actions of the policy whose messages are counted: d = 1000, so that a single number more does not show."""
ROOT = 40
EXACT, ENOUGH, TOLERANCE, LEAST = 1e-12, 0.9, 0.15, 1e-32
"""|grad J|^2 below this share of the start's is exact; the share of the best gain in J that supports heterogeneity; how far an interval
may be from the published exponent; and what ratios take 0 for."""


class Claim(NamedTuple):
    """A row of the paper's Table 1.

    Attributes:
        exact: whether CONVERGENCE says that |grad J|^2 comes down to 0; None for "asymptotic".
        exponent: p of "N^p times faster"; 0 for "No speedup".
        local_updates: its column LU.
        heterogeneity: its column HETER.
    """

    exact: bool | None
    exponent: float
    local_updates: bool
    heterogeneity: bool


CLAIMS = {
    "PAvg": Claim(False, 0.0, True, True),
    "FedKL": Claim(None, 0.0, False, True),
    "FedPG-BR": Claim(True, 2.0 / 3.0, False, False),
    "FAPI": Claim(False, 0.0, False, True),
    "FedSVRPG-M": Claim(True, 1.0, True, True),
    "FedHAPG-M": Claim(True, 1.0, True, True),
}
EVERYBODY = tuple(
    name
    for name in METHODS
    if name not in ("heavy ball", "N-HARPG", "authors' SVRPG", "authors' HAPG", "local only", "pooled", "PAvg, exact")
)
"""HARPG takes N-HARPG's place: steps of constant length settle nowhere. PAvg with exact gradients is PAvg here, and projected
PAvg has a gradient in probabilities, which cannot be compared."""


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "methods": ("PAvg", "FedSVRPG-M", "Fast-FedPG"), "local_steps": (8,), "rest": (150, 4), "noisy": ("PAvg",), "agents": (3, 6, 12),
        "noise": (64, 6), "processes": 1, "threads": 1,
    },
    "full": {
        "methods": EVERYBODY, "local_steps": (1, 8), "rest": (8000, 12), "noisy": EVERYBODY, "agents": (3, 6, 12, 24, 48),
        "noise": (400, 24), "processes": 8, "threads": 4,
    },
}  # fmt: skip


class Rest(NamedTuple):
    """Where a method ended, by seed, (S,) each; NaN where it failed.

    Attributes:
        at: |grad J|^2.
        before: |grad J|^2 at nine tenths of the rounds.
        start: |grad J|^2 at theta_0.
        objective, start_objective: J at the end and at theta_0.
        drift: how far agents moved from theta_0 in round 0, mean of squares.
        identical: `at`, with identical agents.
    """

    at: np.ndarray
    before: np.ndarray
    start: np.ndarray
    objective: np.ndarray
    start_objective: np.ndarray
    drift: np.ndarray
    identical: np.ndarray


def settle(name: str, local_steps: int, rounds: int, seeds: int) -> Rest:
    """Runs one method in double precision, on `seeds` federations and on as many of identical agents; cached."""
    method = METHODS[name]

    def agents(key: jax.Array, seed: jax.Array) -> MDP:
        """Seed S + s has the first agent of seed s three times."""
        different = doors(jax.random.fold_in(jax.random.key(ROOT), seed % seeds))
        return trees.select(seed < seeds, different, trees.broadcast(trees.take(different, 0), AT_REST.agents))

    def make() -> Rest:
        with jax.enable_x64(True):
            problem = AT_REST.problem(method)
            steps = {"local_lr": PATH / local_steps, "global_lr": SERVER} | STEPS.get(name, {})
            sim = simulator(problem, method.make(problem, local_steps=local_steps, **steps), agents, seeds=2 * seeds)
            state, found, late = sim.init(jax.random.key(ROOT)), [], 9 * rounds // 10
            for count in (0, 1, late - 1, rounds - late):  # one round by itself: at the fixed point all agents stand still
                state, info = sim.run(state, count)
                scores, healthy = sim.evaluate(state), np.asarray(state.rows.failed) == HEALTHY
                values = scores.grad_norm_sq, scores.objective.mean(axis=1), info.latest.drift_sq
                found.append(np.where(healthy, np.stack(values), np.nan))
        (start, start_objective, _), (_, _, drift), (before, _, _), (at, objective, _) = found
        own = slice(0, seeds)
        return Rest(at[own], before[own], start[own], objective[own], start_objective[own], drift[own], at[seeds:])

    return cached(("table-1", name, local_steps, rounds, seeds), make)


class Noise(NamedTuple):
    """A method's runs with sampled gradients, for n numbers of agents, E step-sizes and S seeds.

    Attributes:
        agents: every N, (n,).
        gradients: |grad J|^2, mean over the last half of the rounds, as a share of the start's mean over seeds, (S, n, E).
        gains: J after the last round less that of the start, (S, n, E).
        per_agent: trajectories of an agent in a round.
        server: trajectories of the server in a round.
    """

    agents: np.ndarray
    gradients: np.ndarray
    gains: np.ndarray
    per_agent: float
    server: int


def wander(name: str, counts: tuple[int, ...], rounds: int, seeds: int) -> Noise:
    """Runs one method for every N and step-size, one trajectory per local step."""
    first = rounds - (EVALUATIONS - 1) * max(1, rounds // (2 * EVALUATIONS))
    when = [0, *range(first, rounds + 1, max(1, rounds // (2 * EVALUATIONS)))]
    found = [
        measure(dataclasses.replace(NOISY, agents=count), METHODS[name], {"local_lr": ETAS}, seeds=seeds, root=ROOT, rounds=when)
        for count in counts
    ]
    start = np.mean([each.grad_norm_sq[..., 0] for each in found])
    settled = np.stack([each.grad_norm_sq[..., 1:].mean(-1) for each in found]) / start  # (n, E, S)
    gains = np.stack([each.objective[..., -1] - each.objective[..., 0] for each in found])
    # What the federation draws in a round is linear in N: the agents' part, and the server's.
    spent = [(each.trajectories[..., -1] - each.trajectories[..., 0]).max() / rounds for each in found]
    per_agent, server = np.polyfit(counts, spent, 1) if len(counts) > 1 else (spent[0] / counts[0], 0.0)
    shares = np.where(np.isnan(settled), LOST, settled)
    return Noise(np.array(counts), *(np.moveaxis(x, -1, 0) for x in (shares, gains)), round(float(per_agent), 6), round(float(server)))


def exponents(noise: Noise) -> list[Estimate]:
    """p at every step-size, with its interval over seeds."""
    return [bootstrap(noise.gradients[..., e], lambda means: -slope(noise.agents, means)) for e in range(noise.gradients.shape[-1])]


def sent(method: Method) -> dict[str, float]:
    """Floats per agent and round in multiples of d, and exchanges per round, from the types of the messages; nothing is run."""
    (states, actions), agents, key = WIDE, 2, jax.random.key(0)
    environment = tabular.environment("doors", states, actions)
    problem = exact_policy_gradient(environment, policies.make(method.policy, environment), discount=0.9)
    algorithm = method.make(problem, local_lr=0.1, local_steps=8)
    counted = communication(problem, algorithm, doors(key, agents, states, actions))
    size = trees.size(problem.init_params(key)) * agents
    return {"floats up": counted.round_up / size, "floats down": counted.round_down / size, "exchanges": 1 + len(algorithm.prelude)}


def claimed(ruling: verdict.Verdict, paper: bool | None) -> verdict.Verdict:
    """A verdict with what the paper says."""
    return msgspec.structs.replace(ruling, paper=paper)


def rest_rows(name: str, rests: dict[int, Rest], pavg: Rest, best: np.ndarray) -> list[Row]:
    """A method's rows with exact gradients, by K; `pavg` is PAvg at the largest K, `best` the best J that any method found, by seed."""
    rows, many, claim = [], max(rests), CLAIMS.get(name)
    keys = {"task": "doors", "method": name}
    for steps, rest in sorted(rests.items()):
        left = rest.at / rest.start
        share = geometric(left)
        ruling = verdict.Verdict(
            "holds" if share.high < EXACT else "fails", "below", EXACT, paper=claim.exact if claim and steps == many else None
        )
        # Any floor above rounding that moved by 1 % over the last tenth.
        moving = np.nanmax(np.where(left > EXACT, np.abs(rest.before / rest.at - 1.0), 0.0)) > 0.01 and ruling.outcome == "fails"
        rows.append(row("floor", share, K=steps, verdict=ruling, flags=("not settled",) if moving else (), **keys))
    rest, keys = rests[many], keys | {"K": many}
    moved = np.nanmax(rest.drift) > 0
    ruling = verdict.Verdict("holds" if moved else "fails", "above", 0.0, paper=claim.local_updates if claim else None)
    rows.append(exactly("local updates", np.nanmean(rest.drift > 0), len(rest.drift), verdict=ruling, **keys))
    if name != PAVG.name:
        rows.append(row("floor", geometric(rest.at / pavg.at), against=PAVG.name, comparison="/", **keys))
    gain = over_seeds((rest.objective - rest.start_objective) / (best - rest.start_objective))
    rows.append(row("share of gain", gain, verdict=claimed(verdict.at_least(gain, ENOUGH), claim.heterogeneity if claim else None), **keys))
    rows.append(row("heterogeneity cost", geometric(np.maximum(rest.at, LEAST) / np.maximum(rest.identical, LEAST)), **keys))
    return rows


def noise_rows(name: str, noise: Noise) -> tuple[list[Row], list[Row]]:
    """A method's exponents, the paper's beside that of short steps, and what it draws; and points for the methods of the paper."""
    rows, claim, keys = [], CLAIMS.get(name), {"task": "doors", "method": name, "K": NOISY.local_steps}
    for e, (eta, fit) in enumerate(zip(ETAS, exponents(noise), strict=True)):
        collapsed = (np.nan_to_num(noise.gains[..., e], nan=-np.inf).mean(axis=0) < 0).any()
        ruling = {"published": claim.exponent, "verdict": verdict.covers(fit, claim.exponent, TOLERANCE)} if claim and e == 0 else {}
        rows.append(
            row("exponent in N", fit, eta=eta, flags=("J falls below its start for some N",) if collapsed else (), **keys, **ruling)
        )
    rows.append(exactly("trajectories", noise.per_agent, **keys))
    rows += [exactly("server trajectories", noise.server, **keys)] if noise.server else []
    points = line("noise", bootstrap(noise.gradients[..., 0], lambda means: means), "N", noise.agents, eta=ETAS[0], **keys) if claim else []
    return rows, points


def run(
    tell: Tell, methods: tuple[str, ...], local_steps: tuple[int, ...], rest: tuple[int, int], noisy: tuple[str, ...],
    agents: tuple[int, ...], noise: tuple[int, int], processes: int, threads: int,
) -> Result:  # fmt: skip
    """Runs the experiment.

    Args:
        tell: reports progress.
        methods: by name.
        local_steps: K with exact gradients; the largest decides.
        rest: rounds and seeds with exact gradients.
        noisy: the methods whose speed-up is measured, where they draw anything.
        agents: every N of the speed-up.
        noise: rounds and seeds of the speed-up.
        processes, threads: in parallel, exact gradients on the CPU and speed-ups on whatever JAX has.
    """
    rows, points, many = [], [], max(local_steps)
    jobs = [(name, k, *rest) for name in methods for k in local_steps]
    tell("exact gradients", 0.0)
    settled = parallel(settle, jobs, processes=processes, tell=lambda share: tell("exact gradients", 0.4 * share))
    rests: dict[str, dict[int, Rest]] = {name: {} for name in methods}
    for (name, k, *_), found in zip(jobs, settled, strict=True):
        rests[name][k] = found
    noisy = tuple(name for name in noisy if not METHODS[name].exact)
    wandered = parallel(
        wander, [(name, agents, *noise) for name in noisy], threads=threads, tell=lambda share: tell("speed-up", 0.4 + 0.6 * share)
    )
    by_name = dict(zip(noisy, wandered, strict=True))
    best = np.nanmax([own[many].objective for own in rests.values()], axis=0)
    for name, own in rests.items():
        rows += rest_rows(name, own, rests[PAVG.name][many], best)
        rows += [exactly(quantity, value, task="doors", method=name) for quantity, value in sent(METHODS[name]).items()]
        if name in by_name:
            table, drawn = noise_rows(name, by_name[name])
            rows, points = rows + table, points + drawn
    settings = {"exact": dataclasses.asdict(AT_REST), "sampled": dataclasses.asdict(NOISY), "eta K": PATH, "etas": ETAS, "root": ROOT}
    plots = [
        Plot(title=f"Exact gradients, K = {many}", quantity="floor", x="method", where={"K": many, "against": ""}, series=(), y_log=True),
        Plot(title="Speed-up N^p", quantity="exponent in N", x="method", series=("eta",)),
        Plot(title=f"Noise against N, eta = {ETAS[0]:g}", quantity="noise", x="N", x_log=True, y_log=True),
    ]
    return Result(rows=rows, points=points, plots=plots, settings=settings | {"claims from": SOURCE})
