"""An algorithm for `--algorithm FILE:signed`: every agent takes plain gradient steps, and the server follows the sign of their mean."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState, ascend, mean, sample_gradient, total


class Shared(NamedTuple):
    params: Any


def signed(problem, *, local_lr, local_steps=1, shrink: float = 1.0) -> Algorithm:
    """theta_{r+1} = theta_r + eta K shrink sign(mean of the agents' mean gradients)."""

    def init(params):
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key, shared: Shared, memory, agent) -> tuple[Any, Any, LocalInfo]:
        def local_step(carry, key):
            params, memory = carry
            g, memory, info = sample_gradient(problem, key, params, agent, memory)
            return (ascend(problem, params, local_lr, g), memory), (g, info)

        (_, memory), (gradients, infos) = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return jax.tree.map(lambda g: g.mean(0), gradients), memory, total(infos)

    def aggregate(state: ServerState, messages, present) -> tuple[ServerState, RoundInfo]:
        direction = jax.tree.map(jnp.sign, mean(messages, present))
        params = ascend(problem, state.shared.params, local_lr * local_steps * shrink, direction)
        size = sum(jnp.sum(u * u) for u in jax.tree.leaves(direction))
        return ServerState(Shared(params)), RoundInfo(size, jnp.zeros(()))

    return Algorithm("signed", init, local_update, aggregate)
