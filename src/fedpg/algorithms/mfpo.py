"""MFPO: every agent carries a variance-reduced direction along its own path, and the server averages params and directions. Yue, Hua,
Chen, Ren, "Momentum-based federated reinforcement learning with interaction and communication efficiency", INFOCOM 2024.

Agent i, local step t (K of them a round); th' is where it was one step before, and u' its direction there:

    tau ~ p_i(.|th);   u = g(tau|th) + (1-nu) [ u' - w(tau|th', th) g(tau|th') ];   th <- th + eta u
    sends (Delta_i = th - theta_r, u);   server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i,   u_{r+1} = mean u_i

In the next round all start from (theta_{r+1}, u_{r+1}), but th' stays each agent's *own* last point: only so is the mean of
u - grad J_i(th) over the agents multiplied by 1-nu in every step, across rounds too. The very first step has nu = 1, u = g.

    schedule     S after step t         eta_t = local_lr (m / (m + S))^{1/3}     nu of the next step
    constant     0                      local_lr                                  beta, or min(1, c eta_t^2)
    steps        t                      the paper's; IS-MBPG* where N = K = 1     min(1, c eta_t^2), or beta
    gradients    sum |g|^2 up to t      IS-MBPG where N = K = 1                   min(1, c eta_t^2), or beta
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose, require
from fedpg.problem import Problem
from fedpg.trees import Params

SCHEDULES = ("constant", "steps", "gradients")


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    direction: u_r.
    fresh: nu of the next local step, ().
    progress: S, ().
    """

    params: Params
    direction: Params
    fresh: jax.Array
    progress: jax.Array


class AgentState(NamedTuple):
    """Attributes:
    memory: the agent's baseline.
    known: 1 once `previous` is a point of its own, ().
    previous: th', where its last direction was measured.
    """

    memory: Any
    known: jax.Array
    previous: Params


class Message(NamedTuple):
    """Attributes:
    delta: Delta_i.
    direction: the agent's last u.
    growth: what the round added to S, ().
    """

    delta: Params
    direction: Params
    growth: jax.Array


class Carry(NamedTuple):
    """What one local step hands to the next: the agent's baseline, th', u', nu and S."""

    memory: Any
    previous: Params
    latest: Params
    fresh: jax.Array
    progress: jax.Array


def mfpo(
    problem: Problem,
    *,
    beta: Any = 0.2,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    schedule: str = "constant",
    offset: Any = 100.0,
    momentum_constant: Any = None,
) -> Algorithm:
    """MFPO on `problem`.

    Args:
        problem: what is learned.
        beta: nu in (0, 1] unless `momentum_constant` is given; 1 is PAvg.
        local_lr: eta, at the start.
        global_lr: lambda; eta K if None.
        local_steps: K.
        schedule: how eta falls: constant, steps, gradients.
        offset: m, when it begins to.
        momentum_constant: c; nu = min(1, c eta_t^2) follows the step-size, as in the paper's theorem.
    """
    choose("schedule", schedule, SCHEDULES)
    for name, value in (("offset", offset), ("momentum_constant", momentum_constant)):
        require(not isinstance(value, (int, float)) or value > 0, f"{name} must be positive, not {value}")
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps, beta)

    def shrunk(progress: jax.Array) -> jax.Array:
        """eta_t / local_lr, ()."""
        return jnp.ones(()) if schedule == "constant" else (offset / (offset + progress)) ** (1.0 / 3.0)

    def next_fresh(progress: jax.Array) -> jax.Array:
        nu = beta if momentum_constant is None else momentum_constant * (local_lr * shrunk(progress)) ** 2
        return jnp.minimum(nu, jnp.ones(()))

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = jnp.zeros(())
        return ServerState(Shared(params, trees.zeros_like(params), jnp.ones(()), zero)), AgentState(problem.init_memory(), zero, params)

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Message, AgentState, LocalInfo]:
        def direction(key: jax.Array, params: Params, carry: Carry) -> tuple[Params, Carry, LocalInfo]:
            sample, memory = problem.sample(key, params, agent, carry.memory)
            g = problem.gradient(sample, params)
            before, weights = problem.weighted_gradient(sample, carry.previous, params)
            u = jax.tree.map(lambda g, u, f: g + (1.0 - carry.fresh) * (u - f), g, carry.latest, before)
            progress = carry.progress + {"constant": 0.0, "steps": 1.0, "gradients": trees.norm_sq(g)}[schedule]
            after = Carry(memory, params, u, next_fresh(progress), progress)
            return trees.scale(shrunk(progress), u), after, LocalInfo(problem.usage(sample), weights)

        # Who has no point of its own yet starts from the common one, where the correction is exact.
        previous = trees.select(state.known > 0, state.previous, shared.params)
        carry = Carry(state.memory, previous, shared.direction, shared.fresh, shared.progress)
        params, carry, info = base.local_steps(problem, direction, key, shared.params, carry, local_steps, local_lr)
        message = Message(trees.subtract(params, shared.params), carry.latest, carry.progress - shared.progress)
        return message, AgentState(carry.memory, jnp.ones(()), carry.previous), info

    def aggregate(state: ServerState, messages: Message, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        moved, info = base.mean_direction(messages.delta, weights, local_steps, local_lr)
        u, progress = mean(messages.direction, weights), state.shared.progress + mean(messages.growth, weights)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, moved))
        return ServerState(Shared(params, u, next_fresh(progress), progress)), info._replace(direction_sq=trees.norm_sq(u))

    def message(shared: Shared) -> Message:
        return Message(base.like_params(shared), base.like_params(shared), jnp.zeros_like(shared.progress))

    return Algorithm("mfpo", init, local_update, aggregate, predicted=message)
