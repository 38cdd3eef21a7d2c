"""The paper's Table 1, measured: exactness, local updates, heterogeneity, speed-up in N, and what every system sends and draws."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from fedpg import communication as traffic
from fedpg import policies, trees
from fedpg.envs import tabular
from fedpg.exact_problem import exact_problem
from fedpg.paper import table_1_floors, table_1_speedup
from fedpg.paper.doors import doors
from fedpg.paper.kept import part
from fedpg.paper.outcome import Outcome, Tell
from fedpg.paper.processes import side_by_side
from fedpg.paper.table_1_floors import Floor
from fedpg.paper.table_1_rows import EXACT, PLAIN, Counted, Found, pictures, rows_of
from fedpg.paper.table_1_speedup import Wandering
from fedpg.paper.table_1_systems import BETA, BY_LABEL, PATH, SOURCE, make

WIDE = (20, 50)
"""States and actions of the policy whose messages are counted: d = 1000, so that a single number more does not show."""
Job = TypeVar("Job")
Result = TypeVar("Result")


class Scale(NamedTuple):
    """Attributes:
    systems: by label.
    local_steps: K of the floors; the largest decides.
    floor_rounds, floor_seeds: with exact gradients.
    noisy: the systems whose speed-up is measured; those that draw nothing have none.
    agents, rounds, seeds: of the speed-up.
    processes, threads: side by side, floors on the CPU and speed-ups on whatever JAX has.
    """

    systems: tuple[str, ...]
    local_steps: tuple[int, ...]
    floor_rounds: int
    floor_seeds: int
    noisy: tuple[str, ...]
    agents: tuple[int, ...]
    rounds: int
    seeds: int
    processes: int
    threads: int


SCALES = {
    "smoke": Scale((PLAIN, "FedSVRPG-M", "Fast-FedPG"), (8,), 150, 4, (PLAIN,), (3, 6, 12), 64, 6, 1, 1),
    "full": Scale(tuple(BY_LABEL), (1, 8), 8000, 12, tuple(BY_LABEL), (3, 6, 12, 24, 48), 400, 24, 8, 4),
}


def counted(label: str) -> Counted:
    """What the engine counts for one system, from the types of its messages; nothing is run."""
    system, (states, actions), agents = BY_LABEL[label], WIDE, 2
    environment = tabular.environment("doors", states, actions)
    problem = exact_problem(environment, policies.make(system.policy, environment), discount=0.9)
    algorithm, key = make(system, problem, local_lr=0.1, local_steps=8), jax.random.key(0)
    sent = traffic.measure(problem, algorithm, doors(key, agents, states, actions))
    size = trees.size(problem.init_params(key)) * agents
    return Counted(sent.round_up / size, sent.round_down / size, 1 + len(algorithm.prelude))


def together(make_one: Callable[[Job], Result], jobs: list[Job], threads: int, tell: Callable[[Job, float], None]) -> list[Result]:
    """make_one(job) for every job, in order; in several threads, because most of the time is spent compiling on one core."""
    done = []

    def one(job: Job) -> Result:
        tell(job, len(done) / len(jobs))
        result = make_one(job)
        done.append(job)
        return result

    if threads == 1:
        return [one(job) for job in jobs]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, jobs))


def settle(label: str, local_steps: int, rounds: int, seeds: int) -> Floor:
    """One floor, kept."""
    return part(("table-1 floor", label, local_steps, rounds, seeds), lambda: table_1_floors.measure(label, local_steps, rounds, seeds))


def run(scale: str, tell: Tell) -> Outcome:
    """Measures every system and puts the paper's claims beside it."""
    size = SCALES[scale]
    found, many = measured(size, tell), max(size.local_steps)
    best = np.nanmax([each.floors[many].objective for each in found.values()], axis=0)
    table = [row for label, each in found.items() for row in rows_of(label, each, found[PLAIN].floors[many], best, many)]
    settings: dict[str, Any] = size._asdict() | {
        "floors": {"env": "doors", "agents": 3, "discount": 0.9, "eta K": PATH, "root": table_1_floors.ROOT, "precision": "float64"},
        "speed-up": {"horizon": table_1_speedup.HORIZON, "K": table_1_speedup.LOCAL_STEPS, "etas": table_1_speedup.ETAS},
        "beta": BETA, "options": {label: BY_LABEL[label].options for label in found}, "claims from": SOURCE,
    }  # fmt: skip
    return Outcome("table-1", "Table 1, measured", scale, settings, table, NOTES, pictures(found, many))


def measured(size: Scale, tell: Tell) -> dict[str, Found]:
    """Floors and speed-ups of every system of a scale."""
    jobs = [(label, k, size.floor_rounds, size.floor_seeds) for label in size.systems for k in size.local_steps]
    tell("floors", 0.0)
    floors = side_by_side(settle, jobs, size.processes, lambda share: tell("floors", 0.4 * share))

    def wandering(label: str) -> Wandering:
        asked = size.agents, size.rounds, size.seeds
        return part(("table-1 noise", label, asked), lambda: table_1_speedup.measure(label, *asked))

    noisy = [label for label in size.noisy if not BY_LABEL[label].exact]
    noise = together(wandering, noisy, size.threads, lambda label, share: tell(f"speed-up of {label}", 0.4 + 0.6 * share))
    by_label = dict(zip(noisy, noise, strict=True))
    return {
        label: Found(
            {k: floor for (name, k, *_), floor in zip(jobs, floors, strict=True) if name == label},
            by_label.get(label), counted(label), BY_LABEL[label].claim,
        )
        for label in size.systems
    }  # fmt: skip


NOTES = [
    "Floors are measured on `doors`, with exact gradients in double precision: on the conflict family the best common policies are "
    "deterministic, |grad J|^2 falls for ever on the way to them, and no floor can be told from patience. Every system moves an agent by "
    f"eta K = {PATH:g} gradients in a round, except where its step is no gradient (natural, projected, FAPI, FedNPG): compare those with "
    f"their own claim only. Exact means below {EXACT:g} of the start.",
    "The step-size is constant. FedSVRPG-M and FedHAPG-M then settle where PAvg does, for every beta: what their theorem calls exact comes "
    "from step-sizes that shrink with the number of rounds, which would make PAvg exact as well (docs/algorithms/fedsvrpg-s.md).",
    "Identical agents (the first one, three times) have a deterministic best policy: their |grad J|^2 is what is left after as many "
    "rounds, not a floor, and a ratio far above 1 is the price of different agents. The verdict on heterogeneity is on J: at least nine "
    "tenths of the best gain that any system found in the same federation.",
    "The first policy, uniform, is nearly the best on `doors`: the gain is small, and who averages something else than gradients of J "
    "(natural gradients, values or improved policies of agents with different kernels) may end below it.",
    "The exponent is that of E |grad J|^2 over the last half of a run at a constant step-size, where noise is what is left: eps is then "
    "reached with N^-p as many trajectories per agent. The paper's column is what had been proven, and 'no speedup' there means that no "
    "proof is known, not that averaging N noisy directions does not help. Systems that draw nothing have no exponent.",
    "Known mismatches: Table 1 says that FedKL and FAPI have no local updates; their published codes make 5 to 50 local iterations a "
    "round, and ours make K. FedPG-BR assumes identical agents: its filter takes honest agents that differ for attackers. Its server draws "
    "trajectories of its own, here from a mixture of the agents' environments, which a real server would not have. Its agents average K "
    "batches at theta_r and do not move.",
    "HARPG is N-HARPG with steps that are not normalised: those of constant length settle nowhere.",
]
