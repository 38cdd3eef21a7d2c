"""FedKL: local policy optimisation with penalties on the divergence from the sampling policy and from the round's common policy.

agent    K times: sample a batch with pi_old = pi_th; then `epochs` times th <- th + eta grad L(th), with, per step,
             L = mean[ clip(pi_th/pi_old, 1e-8, 10) Adv ] - b mean KL(pi_old||pi_th) - s mean sqrt(max(KL(pi_{theta_r}||pi_th), 1e-8))
         and, once per batch, with D the first mean, or the second, at the new th, and D* its target:
             D < D*/1.1: halve b (or s);   D > 1.1 D*: double it;   then cut to [lowest, min(max|Adv| / D, 20)]
         lowest is 1e-8 for b and its first value for s. b and s stay with the agent. Sends Delta_i = th - theta_r
server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = theta_r + lambda u_{r+1}

Here L is multiplied by the mean number of steps of a trajectory, and Adv is what multiplies the scores in g, so that
grad L = g at th = pi_old: with one epoch and s = 0 this is PAvg, at the same step-size. Xie & Song, "FedKL: tackling data
heterogeneity in federated reinforcement learning by penalizing KL divergence", 2023.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import require
from fedpg.gradients import surrogate
from fedpg.gradients.exact import log_table
from fedpg.gradients.surrogate import Divergence, Surrogate
from fedpg.policies.distributions import outputs_of

TOLERANCE, STEP, LOWEST, HIGHEST = 1.1, 2.0, 1e-8, 20.0
"""Of the rule that adapts the coefficients, as in the authors' code."""


class AgentState(NamedTuple):
    """What an agent keeps: its baseline, b and s, ()."""

    memory: Any
    near: jax.Array
    anchored: jax.Array


Measured = tuple[Surrogate, Divergence, Divergence]
"""What L is made of: the surrogate, and the divergences from the sampling policy and from the common policy."""


def measure_batch(problem: Problem, sample: Any, params: Params, old: Params, common: Params) -> Measured:
    """From a batch of trajectories."""
    outputs = outputs_of(problem.policy, problem.environment.action_space)
    from_old, from_common = (surrogate.divergence_of_batch(outputs, params, other, sample) for other in (old, common))
    return surrogate.of_batch(problem.policy, params, old, sample, problem.discount), from_old, from_common


def measure_exactly(problem: Problem, mdp: Any, params: Params, old: Params, common: Params) -> Measured:
    """From the tables of a finite MDP; a divergence is over the states that the other policy visits."""
    log_pi, log_old, log_common = (log_table(problem.policy, at, *mdp.reward.shape) for at in (params, old, common))
    tables, at_common = problem.exact.solve(old, mdp), problem.exact.solve(common, mdp)
    from_old = surrogate.divergence_of_tables(log_pi, log_old, tables.occupancy)
    from_common = surrogate.divergence_of_tables(log_pi, log_common, at_common.occupancy)
    return surrogate.of_tables(log_pi, log_old, tables), from_old, from_common


def adapted(coefficient: jax.Array, measured: jax.Array, target: Any, lowest: Any, largest: jax.Array) -> jax.Array:
    """b or s after a batch with the divergence D = `measured` and D* = `target`; `largest` is max |Adv|. A coefficient of 0 stays 0.

    >>> [float(adapted(jnp.array(1.0), d, 0.01, 1e-8, jnp.array(3.0))) for d in (0.001, 0.01, 0.02, 2.0)]
    [0.5, 1.0, 2.0, 1.5]
    """
    factor = jnp.where(measured < target / TOLERANCE, 1.0 / STEP, jnp.where(measured > target * TOLERANCE, STEP, 1.0))
    highest = jnp.minimum(largest / jnp.maximum(measured, jnp.finfo(jnp.result_type(measured)).tiny), HIGHEST)
    return jnp.where(coefficient > 0, jnp.minimum(jnp.maximum(factor * coefficient, lowest), highest), coefficient)


def fedkl(
    problem: Problem,
    *,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    epochs: int = 10,
    near: Any = 1.0,
    near_target: Any = 0.01,
    anchored: Any = 1e-4,
    anchored_target: Any = 0.6,
) -> Algorithm:
    """FedKL on `problem`; the defaults of the penalties are those of the authors' Reacher runs.

    Args:
        problem: what is learned; its policy must be known as a distribution. Without sampling, a finite MDP with a table.
        local_lr: eta, of every epoch.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        epochs: gradient steps on each batch.
        near: b at the start, on KL(pi_old||pi); 0 switches it off.
        near_target: D* of that divergence after a batch.
        anchored: s at the start and at least, on sqrt KL(pi_{theta_r}||pi); 0 switches it off.
        anchored_target: D* of that root after a batch.
    """
    base.require_parts("fedkl", problem, "gradient")
    sampled = problem.trajectories is not None
    known = outputs_of(problem.policy, problem.environment.action_space) is not None if sampled else problem.exact is not None
    require(known, "fedkl needs a policy whose distribution is known: discrete actions, or the gaussian policy")
    problem, measure = (problem.trajectories(), measure_batch) if sampled else (problem, measure_exactly)
    require(epochs >= 1, f"epochs must be at least 1, not {epochs}")
    for name, value in (("near", near), ("anchored", anchored), ("near_target", near_target), ("anchored_target", anchored_target)):
        least = 0.0 if name in ("near", "anchored") else LOWEST
        require(not base.is_known(value) or value >= least, f"{name} must be at least {least}, not {value}")
    global_lr = base.server_lr(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        start = (jnp.asarray(value, float) for value in (near, anchored))
        return ServerState(Shared(params)), AgentState(problem.init_memory(), *start)

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        def local_step(carry: tuple[Params, AgentState], key: jax.Array) -> tuple[tuple[Params, AgentState], LocalInfo]:
            old, state = carry
            sample, memory = problem.sample(key, old, agent, state.memory)

            def penalised(params: Params) -> jax.Array:
                gained, from_old, from_common = measure(problem, sample, params, old, shared.params)
                return gained.value - gained.length * (state.near * from_old.mean + state.anchored * from_common.root)

            def epoch(_: int, params: Params) -> Params:
                return base.ascend(problem, params, local_lr, problem.policy.free(jax.grad(penalised)(params)))

            params = jax.lax.fori_loop(0, epochs, epoch, old)
            gained, from_old, from_common = measure(problem, sample, params, old, shared.params)
            b = adapted(state.near, from_old.mean, near_target, LOWEST, gained.largest)
            s = adapted(state.anchored, from_common.root, anchored_target, anchored, gained.largest)
            return (params, AgentState(memory, b, s)), LocalInfo(problem.usage(sample), base.no_weights())

        (params, state), infos = jax.lax.scan(local_step, (shared.params, state), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), state, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(Shared(base.ascend(problem, state.shared.params, global_lr, u))), info

    return Algorithm("fedkl", init, local_update, aggregate)
