"""MFPO: every agent carries a variance-reduced direction along its own path; the server averages params and directions.

Local step t of agent i, K a round; th' is where the agent was one step before, and u' its direction there:

    agent    tau ~ p_i(.|th);   u = g(tau|th) + (1-nu) [ u' - w(tau|th', th) g(tau|th') ];   th <- th + eta_t u
             sends (Delta_i = th - theta_r, u)
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i,   u_{r+1} = mean u_i

In the next round all start from (theta_{r+1}, u_{r+1}), but th' stays each agent's *own* last point: only then is the mean of
u - grad J_i(th) over the agents multiplied by 1-nu in every step, across rounds too. The very first step has nu = 1, u = g.

    schedule     S after step t         eta_t = local_lr (m / (m + S))^{1/3}     nu of the next step
    constant     0                      local_lr                                  beta, or min(1, c eta_t^2)
    steps        t                      the paper's; IS-MBPG* where N = K = 1     min(1, c eta_t^2), or beta
    gradients    sum |g|^2 up to t      IS-MBPG where N = K = 1                   min(1, c eta_t^2), or beta

Yue, Hua, Chen, Ren, "Momentum-based federated reinforcement learning with interaction and communication efficiency", INFOCOM 2024.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.errors import choose, require


class Shared(NamedTuple):
    """What the server broadcasts: theta_r, u_r, nu of the next local step, (), and S, ()."""

    params: Params
    direction: Params
    nu: jax.Array
    progress: jax.Array


class AgentState(NamedTuple):
    """What an agent keeps: its baseline, 1 once it has a point of its own, (), and that point th'."""

    memory: Any
    known: jax.Array
    previous: Params


class Message(NamedTuple):
    """What an agent sends: Delta_i, its last u, and what the round added to S, ()."""

    delta: Params
    direction: Params
    growth: jax.Array


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
        problem: what is learned; it must have importance-weighted gradients.
        beta: nu in (0, 1] unless `momentum_constant` is given; 1 is PAvg.
        local_lr: eta at the start.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        schedule: how eta falls: constant, steps, gradients.
        offset: m, when it begins to fall.
        momentum_constant: c; nu = min(1, c eta_t^2) follows the step-size, as in the paper's theorem.
    """
    choose("schedule", schedule, ("constant", "steps", "gradients"))
    for name, value in (("offset", offset), ("momentum_constant", momentum_constant)):
        require(not base.is_known(value) or value > 0, f"{name} must be positive, not {value}")
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    base.require_parts("mfpo", problem, "weighted_gradient")

    def decay(progress: jax.Array) -> jax.Array:
        """eta_t / local_lr, ()."""
        return jnp.ones(()) if schedule == "constant" else (offset / (offset + progress)) ** (1.0 / 3.0)

    def next_nu(progress: jax.Array) -> jax.Array:
        nu = beta if momentum_constant is None else momentum_constant * (local_lr * decay(progress)) ** 2
        return jnp.minimum(nu, jnp.ones(()))

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = jnp.zeros(())
        return ServerState(Shared(params, trees.zeros_like(params), jnp.ones(()), zero)), AgentState(problem.init_memory(), zero, params)

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Message, AgentState, LocalInfo]:
        def local_step(carry: tuple, key: jax.Array) -> tuple[tuple, LocalInfo]:
            params, memory, previous, u, nu, progress = carry
            sample, memory = problem.sample(key, params, agent, memory)
            g = problem.gradient(sample, params)
            w_g, weights = problem.weighted_gradient(sample, previous, params)
            u = jax.tree.map(lambda g, u, w_g: g + (1.0 - nu) * (u - w_g), g, u, w_g)
            progress = progress + {"constant": 0.0, "steps": 1.0, "gradients": trees.norm_sq(g)}[schedule]
            moved = base.ascend(problem, params, local_lr, trees.scale(decay(progress), u))
            return (moved, memory, params, u, next_nu(progress), progress), LocalInfo(problem.usage(sample), weights)

        # An agent without a point of its own starts from the common one, where the correction is exact.
        previous = trees.select(state.known > 0, state.previous, shared.params)
        start = (shared.params, state.memory, previous, shared.direction, shared.nu, shared.progress)
        (params, memory, previous, u, _, progress), infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        message = Message(trees.subtract(params, shared.params), u, progress - shared.progress)
        return message, AgentState(memory, jnp.ones(()), previous), base.total(infos)

    def aggregate(state: ServerState, messages: Message, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        moved, info = base.mean_direction(messages.delta, present, local_steps, local_lr)
        params = base.ascend(problem, state.shared.params, global_lr, moved)
        u, progress = base.mean(messages.direction, present), state.shared.progress + base.mean(messages.growth, present)
        return ServerState(Shared(params, u, next_nu(progress), progress)), info._replace(direction_sq=trees.norm_sq(u))

    def predicted(shared: Shared) -> Message:
        return Message(base.like_params(shared), base.like_params(shared), jnp.zeros_like(shared.progress))

    return Algorithm("mfpo", init, local_update, aggregate, predicted=predicted)
