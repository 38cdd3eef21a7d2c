"""CALM-VR, CALM with a correction of u_r that counts as much as its measured noise allows. It studies the rate of FedSVRPG-M.

    agent    walks as in CALM. On each of its K samples it also takes the change h_k = Lambda(tau|th_k) v,   v = theta_r - theta_{r-1}
             sends m_i = mean_k g_k, d_i = mean_k h_k and the variances of both means, and keeps c_i = m_i
    server   M, D, s^2, q: the means of m_i and d_i over the agents present, and their variances; P: the variance of u_r
             a       = rho^2 / (1-rho) s^2;   trust = a / (a + q)
             u_r     <- u_r + trust D;        P <- P + trust q                             predict
             u_{r+1} = u_r + gain (M - u_r);  P <- (1 - gain) P;   gain = P / (P + s^2)    update
             theta_{r+1} = theta_r + lambda u_{r+1}
    start    as CALM, with P = s^2

This is a Kalman filter for the mean gradient. rho is the steady gain of a filter to which the change is unknown with variance a: with
q = infinity it is CALM. At small steps q vanishes, as |v|^2, and so does the gain: the noise of u then falls with the step, as in STORM
(Cutkosky and Orabona, NeurIPS 2019). There is no constant but rho. docs/reference/algorithms/calm-vr.md derives it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.calm import AgentState
from fedpg.errors import require


class Shared(NamedTuple):
    """What the server broadcasts: theta_r, u_r (0 in round 0) and v, the last step."""

    params: Params
    direction: Params
    step: Params


class Estimate(NamedTuple):
    """The mean of K samples, like params, and the variance of that mean, summed over its entries, ()."""

    mean: Params
    variance: jax.Array


class Message(NamedTuple):
    """What an agent uploads: its gradient along its path, and how that changed along v."""

    gradient: Estimate
    change: Estimate


def calm_vr(
    problem: Problem, *, beta: Any = 0.2, server_rate: Any = 0.4, local_lr: Any, global_lr: Any = None, local_steps: int = 2
) -> Algorithm:
    """CALM-VR on `problem`.

    Args:
        problem: what is learned; it must have Hessian-vector products.
        beta: in (0, 1], as in `calm`.
        server_rate: rho in (0, 1): the gain when the change of the gradient cannot be measured.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K, at least 2: one sample has no variance.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    base.require_parts("calm-vr", problem, "gradient", "hessian_vector")
    require(local_steps >= 2, "calm-vr measures noise from 2 or more local steps: use calm with local-steps 1")
    require(not base.is_known(server_rate) or 0.0 < server_rate < 1.0, f"server_rate must be in (0, 1), not {server_rate}")

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = trees.zeros_like(params)
        return ServerState(Shared(params, zero, zero), jnp.zeros(())), AgentState(problem.init_memory(), zero, jnp.zeros(()))

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Message, AgentState, LocalInfo]:
        started = trees.norm_sq(shared.direction) > 0
        lean = jnp.where(started, beta, 1.0)
        variate = trees.select(started & (state.known > 0), state.variate, shared.direction)

        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], tuple[Params, Params, LocalInfo]]:
            params, memory = carry
            sample, memory = problem.sample(key, params, agent, memory)
            g, change = problem.gradient(sample, params), problem.hessian_vector(sample, params, shared.step)
            moved = jax.tree.map(lambda u_r, g, c: u_r + lean * (g - c), shared.direction, g, variate)
            info = LocalInfo(problem.usage(sample), base.no_weights())
            return (base.ascend(problem, params, local_lr, moved), memory), (g, change, info)

        start = (shared.params, state.memory)
        (_, memory), (g, change, infos) = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        message = Message(over_samples(g), over_samples(change))
        return message, AgentState(memory, message.gradient.mean, jnp.ones(())), base.total(infos)

    def aggregate(state: ServerState, messages: Message, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        (params, u, _), variance = state.shared, state.private
        gradient, change = over_agents(messages.gradient, present), over_agents(messages.change, present)
        started = trees.norm_sq(u) > 0
        unknown = server_rate**2 / (1.0 - server_rate) * gradient.variance
        trust = share(unknown, change.variance)
        u, variance = trees.add_scaled(u, trust, change.mean), variance + trust * change.variance
        gain = jnp.where(started, share(variance, gradient.variance), 1.0)
        u = trees.add_scaled(u, gain, trees.subtract(gradient.mean, u))
        variance = jnp.where(started, (1.0 - gain) * variance, gradient.variance)
        after = base.ascend(problem, params, global_lr, u)
        own_steps = (local_lr * local_steps) ** 2 * base.mean(jax.vmap(trees.norm_sq)(messages.gradient.mean), present)
        shared = Shared(after, u, trees.subtract(after, params))
        return ServerState(shared, variance), RoundInfo(trees.norm_sq(u), own_steps)

    def predicted(shared: Shared) -> Message:
        nothing = Estimate(trees.zeros_like(shared.params), jnp.zeros(()))
        return Message(nothing, nothing)

    return Algorithm("calm-vr", init, local_update, aggregate, predicted=predicted, additive=False)


def share(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / (a + b); 1/2 where both are 0, which only exact gradients have."""
    tiny = jnp.finfo(jnp.result_type(a)).tiny
    return (jnp.maximum(a, 0.0) + tiny) / (jnp.maximum(a, 0.0) + jnp.maximum(b, 0.0) + 2.0 * tiny)


def over_samples(values: Params) -> Estimate:
    """The mean of values with a leading axis K, and its variance."""
    mean, count = trees.mean_axis0(values), trees.leading_axis(values)
    return Estimate(mean, trees.norm_sq(jax.tree.map(lambda x, m: x - m, values, mean)) / (count * (count - 1)))


def over_agents(estimates: Estimate, present: jax.Array) -> Estimate:
    """The mean over the n of N agents present, and its variance: that of their samples, and that of who is present if n < N."""
    count, total = jnp.maximum(jnp.sum(present > 0), 1), len(present)
    mean = base.mean(estimates.mean, present)
    apart = base.mean(jax.vmap(lambda own: trees.norm_sq(trees.subtract(own, mean)))(estimates.mean), present)
    of_samples = base.mean(estimates.variance, present) / count
    return Estimate(mean, of_samples + (1.0 - count / total) * apart / jnp.maximum(count - 1, 1))
