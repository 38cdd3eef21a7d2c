"""An algorithm of your own: fedpg train --algorithm examples/own_algorithm.py:sign_averaging

agent    th_{k+1} = th_k + eta g_i(tau|th_k)        K times; sends s_i = sign(th_K - theta_r)
server   theta_{r+1} = theta_r + lambda mean_i s_i
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import Algorithm, Problem, RoundInfo, ServerState, trees
from fedpg.algorithms import base


class Shared(NamedTuple):
    params: Any  # theta_r


def sign_averaging(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    global_lr = base.server_lr(local_lr, global_lr, local_steps)

    def init(params):
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key, shared, memory, agent):
        def local_step(carry, key):
            params, memory = carry
            g, memory, info = base.sample_gradient(problem, key, params, agent, memory)
            return (base.ascend(problem, params, local_lr, g), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return jax.tree.map(jnp.sign, trees.subtract(params, shared.params)), memory, base.total(infos)

    def aggregate(state, signs, present):
        u = base.mean(signs, present)
        params = base.ascend(problem, state.shared.params, global_lr, u)
        return ServerState(Shared(params)), RoundInfo(trees.norm_sq(u), jnp.zeros(()))

    return Algorithm("sign-averaging", init, local_update, aggregate)
