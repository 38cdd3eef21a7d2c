"""FedPG-BR: a server that drops messages far from the majority, and takes variance-reduced steps in an environment of its own.

    agent    sends mu_i = mean of g(tau|theta_r) over B trajectories                                B = local_steps batches of b
    server   T = 2 sigma sqrt(V/B),  V = 2 ln(2N/delta)
             S = { i : |mu_j - mu_i| <= T for more than N/2 of all j },    mu_med = the member of S nearest to mean(S)
             G = { i : |mu_i - mu_med| <= T };    if |G| < (1-alpha) N: S, mu_med and G again, with 2 sigma for T
             mu = mean over G of mu_i,    th_0 = theta_r
             N_t times: b trajectories tau ~ p(.|th_n) in a copy of the environment of an agent drawn uniformly,
                 v = mean[ g(tau|th_n) - F(theta_r; tau, th_n) ] + mu,    th_{n+1} = th_n + eta v
             theta_{r+1} = th_{N_t}

At th_0 the correction is 0, so the first step is eta mu and draws nothing. N and B count the agents present and their trajectories.
Without `sigma` the thresholds are measured, see `measured_filter`. Fan et al., "Fault-tolerant federated reinforcement learning with
theoretical guarantee", NeurIPS 2021.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.algorithms.wrappers.base import as_rows
from fedpg.algorithms.wrappers.robust import distances_sq, mean_without_ends, median
from fedpg.errors import require
from fedpg.problem import Problem, Usage

MARGIN = 1.5
"""How far a measured T exceeds the distance within which most honest messages lie."""
LONGEST = 4
"""A random number of inner steps is cut at this many times its mean."""


class Private(NamedTuple):
    """What the server keeps: theta_r, mu, and the baseline of its own environment."""

    start: Params
    direction: Params
    memory: Any


def distance_from_centre(distances: jax.Array, rows: jax.Array, present: jax.Array, threshold: jax.Array) -> jax.Array:
    """The distance of every message from mu_med, (N,); where S is empty, from the message nearest to the median of all."""
    in_s = present & (2 * jnp.sum(distances <= threshold, axis=1) > jnp.sum(present))
    centre = jnp.where(jnp.any(in_s), mean_without_ends(rows, in_s), median(rows, present))
    away = jnp.sum(jnp.square(jnp.where(present[:, None], rows, 0.0) - centre), axis=1)
    candidates = jnp.where(jnp.any(in_s), in_s, present)
    return distances[jnp.argmin(jnp.where(candidates, away, jnp.inf))]


def paper_filter(rows: jax.Array, present: jax.Array, sigma: Any, trajectories: int, delta: Any, alpha: Any) -> jax.Array:
    """The members of G, (N,), with the paper's thresholds for a given sigma."""
    distances, count = jnp.sqrt(distances_sq(rows, present)), jnp.sum(present)
    first, second = 2.0 * sigma * jnp.sqrt(2.0 * jnp.log(2.0 * count / delta) / trajectories), 2.0 * sigma
    kept = distance_from_centre(distances, rows, present, first) <= first
    again = distance_from_centre(distances, rows, present, second) <= second
    return jnp.where(jnp.sum(kept) < (1.0 - alpha) * count - 1e-4, again, kept)


def measured_filter(rows: jax.Array, present: jax.Array, alpha: Any) -> jax.Array:
    """The members of G, (N,), with thresholds from the messages themselves.

    r_i is the distance within which agent i has more than N/2 of all messages, its own among them. Honest agents are the majority, so
    the median of r_i is at most the largest distance between two of them, whatever attackers send, and T = 1.5 median_i r_i. Where
    |G| < (1-alpha) N, the smallest T that is enough around the same mu_med takes its place.
    """
    distances, count = jnp.sqrt(distances_sq(rows, present)), jnp.sum(present)
    radius = jnp.take(jnp.sort(distances, axis=1), jnp.minimum(count // 2, len(rows) - 1), axis=1)
    threshold = MARGIN * median(radius[:, None], present)[0]
    away = distance_from_centre(distances, rows, present, threshold)
    needed = jnp.ceil((1.0 - alpha) * count - 1e-4).astype(int)
    return away <= jnp.maximum(threshold, jnp.sort(away)[jnp.clip(needed - 1, 0, len(rows) - 1)])


def fedpg_br(
    problem: Problem,
    *,
    local_lr: Any,
    local_steps: int = 1,
    batch: int = 1,
    sigma: Any = None,
    delta: Any = 0.6,
    alpha: Any = 0.4,
    filtered: bool = True,
    inner_steps: int | None = None,
    geometric: bool = False,
) -> Algorithm:
    """FedPG-BR on `problem`.

    Args:
        problem: what is learned; one sample of it is b trajectories. It must have importance-weighted gradients.
        local_lr: eta.
        local_steps: batches that an agent averages, B/b. Agents do not move.
        batch: b, as the problem has it; only a given `sigma` needs to know.
        sigma: bound on |g(tau|theta) - grad J|, in the units of g; None measures the thresholds instead.
        delta: chance that the bound on mu_i does not hold.
        alpha: largest share of attackers.
        filtered: False keeps every message.
        inner_steps: N_t; B/b if None.
        geometric: N_t is random with that mean: geometric on 1, 2, ..., cut at 4 times the mean.
    """
    base.server_lr(local_lr, None, local_steps)
    base.require_parts("fedpg-br", problem, "weighted_gradient")
    count = local_steps if inner_steps is None else inner_steps
    require(count >= 1, f"inner_steps must be at least 1, not {count}")
    for name, value in (("delta", delta), ("alpha", alpha)):
        require(not base.is_known(value) or 0.0 < value < 1.0, f"{name} must be between 0 and 1, not {value}")
    require(not base.is_known(sigma) or sigma > 0, f"sigma must be positive, not {sigma}")

    def init(params: Params) -> tuple[ServerState, Any]:
        private = Private(params, trees.zeros_like(params), problem.init_memory())
        return ServerState(Shared(params), private), problem.init_memory()

    def aggregate(state: ServerState, messages: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        rows, message = as_rows(messages)
        here = good = present > 0
        if filtered and sigma is None:
            good = measured_filter(rows, here, alpha)
        elif filtered:
            good = paper_filter(rows, here, sigma, batch * local_steps, delta, alpha)
        mu = message(mean_without_ends(rows, here & good))
        params = base.ascend(problem, state.shared.params, local_lr, mu)
        private = Private(state.shared.params, mu, state.private.memory)
        return ServerState(Shared(params), private), RoundInfo(trees.norm_sq(mu), jnp.zeros(()))

    def server_update(key: jax.Array, state: ServerState, agents: Any) -> tuple[ServerState, LocalInfo]:
        private = state.private

        def inner_step(n: jax.Array, carry: tuple) -> tuple:
            params, memory, info = carry
            agent_key, sample_key = jax.random.split(jax.random.fold_in(key, n))
            agent = jax.random.randint(agent_key, (), 0, trees.leading_axis(agents))
            sample, memory = problem.sample(sample_key, params, trees.take(agents, agent), memory)
            g, (f, weights) = problem.gradient(sample, params), problem.weighted_gradient(sample, private.start, params)
            v = jax.tree.map(lambda g, f, mu: g - f + mu, g, f, private.direction)
            cost = LocalInfo(Usage(*problem.usage(sample)[:3]), weights)
            return base.ascend(problem, params, local_lr, v), memory, base.total(trees.stack([info, cost]))

        steps = count
        if geometric:
            chance = jax.random.uniform(jax.random.fold_in(key, 0), minval=jnp.finfo(float).tiny)
            drawn = jnp.ceil(jnp.log(chance) / jnp.log1p(-1.0 / count)) if count > 1 else 1
            steps = jnp.clip(drawn, 1, LONGEST * count).astype(int)
        params, memory, info = jax.lax.fori_loop(1, steps, inner_step, (state.shared.params, private.memory, base.no_cost()))
        return ServerState(Shared(params), private._replace(memory=memory)), info

    agent_half = base.mean_gradient(problem, local_steps)
    return Algorithm("fedpg-br", init, agent_half, aggregate, server_update=server_update if count > 1 else None)
