"""How noise falls with the number of agents: E |grad J|^2 on `doors` once a run only wanders, for 3, 6, 12, ... agents.

At a constant step-size it settles at c eta N^-p, plus what local steps leave (`table_1_floors`). To come down to a given eps a
federation may then take steps that grow as N^p, and needs N^-p as many trajectories per agent: p is the exponent of the speed-up.

Every N is in one program.
All N_max agents work, and the server hears agent i mod N in place of agent i: with N a divisor of N_max its state is that of a
federation of N. Agents i and i + 3 live behind the same doors, so that J is the same for every N.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies, trees
from fedpg.algorithms.base import Aggregate, Algorithm, Exchange, RoundInfo, ServerState
from fedpg.envs import tabular
from fedpg.paper.doors import doors
from fedpg.paper.fits import Fit, fitted, slope
from fedpg.paper.sweep import cross
from fedpg.paper.table_1_floors import ACTIONS, AGENTS, DISCOUNT, ROOT, STATES, judged, logits_of
from fedpg.paper.table_1_systems import BY_LABEL, make
from fedpg.problem import policy_gradient
from fedpg.simulate import Simulator

HORIZON, BASELINE, LOCAL_STEPS = 20, "value", 8
ETAS = (0.04, 0.32)
"""Short steps, where noise is all there is, and long ones, where it is not."""
LOOKS = 12
"""Evaluations in the last half of a run, over which |grad J|^2 is averaged."""
LOST = 1e3
"""A run that failed counts as this many times the |grad J|^2 of the start."""


class Wandering(NamedTuple):
    """One system's runs, for n numbers of agents, E step-sizes and S seeds.

    Attributes:
        agents: every N, (n,).
        slopes: |grad J|^2, mean over the last half of the rounds, as a share of the start's mean over seeds, (S, n, E).
        gains: J after the last round less that of the start, (S, n, E).
        per_agent: trajectories of an agent in a round.
        server: trajectories of the server in a round.
    """

    agents: np.ndarray
    slopes: np.ndarray
    gains: np.ndarray
    per_agent: float
    server: int


def heard(algorithm: Algorithm, count: jax.Array) -> Algorithm:
    """`algorithm` whose server hears agent i mod `count` in place of agent i."""

    def repeated(aggregate: Aggregate) -> Aggregate:
        def aggregated(state: ServerState, messages: Any, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
            index = jnp.arange(len(weights)) % count
            return aggregate(state, trees.take(messages, index), weights[index])

        return aggregated

    def exchanges(given: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        return tuple(each._replace(aggregate=repeated(each.aggregate)) for each in given)

    own = algorithm._replace(aggregate=repeated(algorithm.aggregate))
    return own._replace(warmup=exchanges(algorithm.warmup), prelude=exchanges(algorithm.prelude))


def server_cost(algorithm: Algorithm, params: Any, agents: Any) -> int:
    """Trajectories that the server itself draws in a round."""
    if algorithm.server_update is None:
        return 0
    used = jax.jit(lambda: algorithm.server_update(jax.random.key(0), algorithm.init(params)[0], agents)[1].usage.trajectories)
    return int(used())


def measure(label: str, counts: tuple[int, ...], rounds: int, seeds: int) -> Wandering:
    """Runs one system for every N and step-size, K = LOCAL_STEPS, one trajectory per local step."""
    system, most = BY_LABEL[label], max(counts)
    environment = tabular.environment("doors", STATES, ACTIONS)
    policy = policies.make(system.policy, environment)
    problem = policy_gradient(environment, policy, horizon=HORIZON, discount=DISCOUNT, baseline=BASELINE)

    def algorithm_of(setting: dict[str, jax.Array]) -> Algorithm:
        own = make(system, problem, local_lr=system.factor * setting["eta"], local_steps=LOCAL_STEPS)
        return heard(own, setting["agents"].astype(int))

    def agents_of(key: jax.Array) -> Any:
        return trees.take(doors(key, AGENTS, STATES, ACTIONS), jnp.arange(most) % AGENTS)

    grid = {name: jnp.asarray(values, float) for name, values in cross(agents=counts, eta=ETAS).items()}
    looks = [rounds - (LOOKS - 1 - i) * max(1, rounds // (2 * LOOKS)) for i in range(LOOKS)]
    found, done = [], 0
    with jax.default_matmul_precision("highest"):
        engine = Simulator(problem, algorithm_of, agents_of, root=ROOT, seeds=seeds, settings=grid)
        engine.start()
        engine.reset_info()
        drawn = jax.tree.map(lambda x: jnp.asarray(x[:, :AGENTS]), engine.agents())
        everybody = jax.tree.map(lambda x: jnp.tile(x, (len(grid["eta"]), *(1,) * (x.ndim - 1))), drawn)
        for target in (0, *looks):
            if target > done:
                engine.advance(done, target - done)
            state, done = engine.state(), target
            value, slopes = (np.asarray(x) for x in judged(jnp.asarray(logits_of(state.server.shared.params)), everybody))
            found.append([np.where(state.failed >= 0, np.nan, x).reshape(len(counts), len(ETAS), seeds) for x in (value, slopes)])
    server = server_cost(algorithm_of({"eta": 0.1, "agents": jnp.asarray(most)}), policy.init(jax.random.key(0)), trees.take(drawn, 0))
    values, slopes = (np.moveaxis(np.stack([entry[i] for entry in found]), -1, 1) for i in (0, 1))  # (T, S, n, E)
    wandering, start = slopes[1:].mean(axis=0), slopes[0].mean()
    # `usage` is that of every agent since the start, of a row that did not fail
    per_agent = (float(state.info.usage.trajectories.max()) / rounds - server) / most
    return Wandering(np.array(counts), np.where(np.isnan(wandering), LOST, wandering / start), values[-1] - values[0], per_agent, server)


def exponents(found: Wandering) -> list[Fit]:
    """p at every step-size, with its interval over seeds."""
    return [fitted(found.slopes[..., e], lambda means: -slope(found.agents, means)) for e in range(found.slopes.shape[-1])]
