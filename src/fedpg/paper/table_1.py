"""Table 1 of the paper, measured: exactness, local updates, heterogeneity, speed-up in N, and what every method sends and draws.

Fixed points are measured on `doors` with exact gradients: on the conflict family the best common policies are deterministic, and |grad J|^2
falls forever on the way to them. At a constant step-size noise settles at c eta N^-p plus what local steps leave. To come down to a given
eps a federation may take steps that grow as N^p, and needs N^-p as many trajectories per agent: p is the exponent of the speed-up.

FedKL and FAPI are listed in the paper as making no local updates; their published codes make 5 to 50 local iterations a round, and ours
make K. *not settled*: in some seed |grad J|^2, above rounding, still moved by 1 % over the last tenth of the rounds. Floats are in
multiples of d, the number of params.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import msgspec
import numpy as np

from fedpg import policies, trees
from fedpg.communication import measure as communication
from fedpg.envs import tabular
from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap, geometric, slope
from fedpg.paper.jobs import parallel
from fedpg.paper.method import METHODS, PAVG, Method
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, exactly, line, over_seeds, row, select
from fedpg.paper.task import Task, doors, measure
from fedpg.problem import exact_policy_gradient
from fedpg.runs.sweep import Curves

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
    """A row of the paper's Table 1; `exact` is None for "asymptotic", `exponent` is p of "N^p times faster", 0 for "No speedup"."""

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
LEFT_OUT = ("CALM-VR", "heavy ball", "N-HARPG", "local only", "pooled", "PAvg, exact", "PAvg, projected")
"""HARPG takes N-HARPG's place, whose steps of constant length settle nowhere. PAvg with exact gradients is PAvg here, and the gradient of
projected PAvg is one in probabilities, which cannot be compared."""
EVERYBODY = tuple(name for name in METHODS if name not in LEFT_OUT)
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
    """A method with exact gradients at rounds 0, 9R/10 and R, also with identical agents, and how far agents moved in the first round."""

    different: Curves
    identical: Curves
    drift: float


def settle(name: str, local_steps: int, rounds: int, seeds: int) -> Rest:
    """Runs one method in double precision."""
    task, when = dataclasses.replace(AT_REST, local_steps=local_steps), [0, 9 * rounds // 10, rounds]
    steps = {"local_lr": PATH / local_steps, "global_lr": SERVER} | STEPS.get(name, {})
    settings = {"local_lr": [steps.pop("local_lr")]}
    twins = dataclasses.replace(task, options={"identical": True})
    found = [measure(each, METHODS[name], settings, seeds=seeds, root=ROOT, rounds=when, **steps) for each in (task, twins)]
    sim = task.simulator(METHODS[name], settings, 1, **steps)
    _, info = sim.run(sim.init(jax.random.key(ROOT)), 1)  # at the fixed point all agents stand still
    return Rest(*found, float(info.latest.drift_sq[0]))


def wander(name: str, counts: tuple[int, ...], rounds: int, seeds: int) -> list[Curves]:
    """Runs one method for every N and step-size, one trajectory per local step; evaluated at round 0 and in the last half."""
    when = [0, *np.unique(np.linspace(rounds / 2, rounds, EVALUATIONS).astype(int))]
    tasks = [dataclasses.replace(NOISY, agents=count) for count in counts]
    return [measure(task, METHODS[name], {"local_lr": ETAS}, seeds=seeds, root=ROOT, rounds=when) for task in tasks]


def sent(method: Method) -> dict[str, float]:
    """Floats per agent and round in multiples of d, and exchanges per round, from the types of the messages; nothing is run."""
    (states, actions), agents, key = WIDE, 2, jax.random.key(0)
    environment = tabular.environment("doors", states, actions)
    problem = exact_policy_gradient(environment, policies.make(method.policy, environment), discount=0.9)
    algorithm = method.make(problem, local_lr=0.1, local_steps=8)
    counted = communication(problem, algorithm, doors(key, agents, states, actions))
    size = trees.size(problem.init_params(key)) * agents
    return {"floats up": counted.round_up / size, "floats down": counted.round_down / size, "exchanges": 1 + len(algorithm.prelude)}


def rest_rows(name: str, rests: dict[int, Rest], pavg: np.ndarray, best: np.ndarray) -> list[Row]:
    """A method's rows with exact gradients, by K; `pavg` is PAvg's |grad J|^2 at the largest K, `best` the best J of any method, (S,)."""
    rows, many, claim, keys = [], max(rests), CLAIMS.get(name), {"task": "doors", "method": name}
    for steps, rest in sorted(rests.items()):
        start, before, at = rest.different.grad_norm_sq[0].T
        share = geometric(at / start)
        paper = claim.exact if claim and steps == many else None
        ruling = verdict.Verdict("holds" if share.high < EXACT else "fails", "below", EXACT, paper=paper)
        # Any floor above rounding that moved by 1 % over the last tenth.
        moving = np.nanmax(np.where(at / start > EXACT, np.abs(before / at - 1.0), 0.0)) > 0.01 and ruling.outcome == "fails"
        rows.append(row("floor", share, K=steps, verdict=ruling, flags=("not settled",) if moving else (), **keys))
    keys |= {"K": many}
    moves = rests[many].drift > 0
    ruling = verdict.Verdict("holds" if moves else "fails", "above", 0.0, paper=claim.local_updates if claim else None)
    rows.append(exactly("local updates", float(moves), verdict=ruling, **keys))
    if name != PAVG.name:
        rows.append(row("floor", geometric(at / pavg), against=PAVG.name, comparison="/", **keys))
    first, _, last = rests[many].different.objective[0].T
    gain = over_seeds((last - first) / (best - first))
    ruling = msgspec.structs.replace(verdict.at_least(gain, ENOUGH), paper=claim.heterogeneity if claim else None)
    rows.append(row("share of gain", gain, verdict=ruling, **keys))
    twins = rests[many].identical.grad_norm_sq[0, :, -1]
    return [*rows, row("heterogeneity cost", geometric(np.maximum(at, LEAST) / np.maximum(twins, LEAST)), **keys)]


def noise_rows(name: str, found: list[Curves], counts: tuple[int, ...], rounds: int) -> tuple[list[Row], list[Row]]:
    """A method's exponents, the paper's beside that of short steps, and what it draws; and points for the methods of the paper."""
    rows, points, claim, keys = [], [], CLAIMS.get(name), {"task": "doors", "method": name, "K": NOISY.local_steps}
    start = np.mean([each.grad_norm_sq[..., 0] for each in found])
    settled = np.stack([each.grad_norm_sq[..., 1:].mean(-1) for each in found], axis=-1) / start  # (E, S, n)
    gains = np.stack([each.objective[..., -1] - each.objective[..., 0] for each in found], axis=-1)
    for eta, shares, gain in zip(ETAS, np.where(np.isnan(settled), LOST, settled), gains, strict=True):
        fit = bootstrap(shares, lambda means: -slope(np.array(counts), means))
        collapsed = (np.nan_to_num(gain, nan=-np.inf).mean(axis=0) < 0).any()
        ruling = {}
        if claim and eta == ETAS[0]:
            ruling = {"published": claim.exponent, "verdict": verdict.covers(fit, claim.exponent, TOLERANCE)}
            points += line("noise", bootstrap(shares, lambda means: means), "N", counts, eta=eta, **keys)
        rows.append(
            row("exponent in N", fit, eta=eta, flags=("J falls below its start for some N",) if collapsed else (), **keys, **ruling)
        )
    # What the federation draws in a round is linear in N: the agents' part, and the server's.
    spent = [(each.trajectories[..., -1] - each.trajectories[..., 0]).max() / rounds for each in found]
    per_agent, server = np.polyfit(counts, spent, 1)
    rows.append(exactly("trajectories", round(per_agent, 6), **keys))
    return rows + ([exactly("server trajectories", round(server), **keys)] if round(server) else []), points


def run(
    tell: Tell, methods: tuple[str, ...], local_steps: tuple[int, ...], rest: tuple[int, int], noisy: tuple[str, ...],
    agents: tuple[int, ...], noise: tuple[int, int], processes: int, threads: int,
) -> Result:  # fmt: skip
    """Runs the experiment.

    Args:
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
    best = np.nanmax([own[many].different.objective[0, :, -1] for own in rests.values()], axis=0)
    pavg = rests[PAVG.name][many].different.grad_norm_sq[0, :, -1]
    for name, own in rests.items():
        rows += rest_rows(name, own, pavg, best)
        rows += [exactly(quantity, value, task="doors", method=name) for quantity, value in sent(METHODS[name]).items()]
        if name in by_name:
            table, drawn = noise_rows(name, by_name[name], agents, noise[0])
            rows, points = rows + table, points + drawn
    settings = {"exact": dataclasses.asdict(AT_REST), "sampled": dataclasses.asdict(NOISY), "eta K": PATH, "etas": ETAS, "root": ROOT}
    return Result(rows=rows, points=points, settings=settings | {"claims from": SOURCE})


def figures(result: Result) -> list[Figure]:
    """One panel for each question, with the same methods beside all of them; and |grad J|^2 against N."""
    many, names = max(row.K for row in select(result.rows, quantity="floor")), tuple(dict.fromkeys(row.method for row in result.rows))
    look = {"names": "method", "order": names}
    plots = [
        Plot(title="Exact?", quantity="floor", where={"K": many, "against": ""}, series=(), x_scale="log", guides=(EXACT,),
             x_label="|grad J|^2 at rest\n/ at the start", **look),
        Plot(title="Local steps?", quantity="local updates", series=(), x_label="share of seeds with\nlocal steps", **look),
        Plot(title="Heterogeneity?", quantity="share of gain", series=(), guides=(ENOUGH,), x_label="share of the best\ngain in J", **look),
        Plot(title="Speed-up?", quantity="exponent in N", series=("eta",), x_label="p of\n|grad J|^2 ~ N^-p", **look),
        Plot(title="What is sent?", quantity="floats", series=("task",), markers="^v", x_label="floats per agent\nand round, in d", **look),
    ]  # fmt: skip
    rows = [msgspec.structs.replace(row, quantity="floats", task="sent" if row.quantity == "floats up" else "received")
            for row in select(result.rows, quantity=["floats up", "floats down"])]  # fmt: skip
    noise = Plot(title=f"eta = {ETAS[0]:g}", quantity="noise", x="N", x_scale="log", y_scale="log")
    found = [Figure(plots=plots, rows=result.rows + rows, columns=len(plots), height=0.9 + 0.2 * len(names))]
    return found + [Figure(plots=[noise], rows=result.points, suffix="noise", columns=1, height=3.2)] * bool(result.points)
