"""Doors: finite MDPs whose best common policy is stochastic, so that J has its peak at finite logits.

States form a corridor with a door between neighbours. Each agent has one action that opens a door; any other action leaves it in
place. Passing a door pays, and the last state pays nothing. A deterministic common policy opens the doors of one agent only. A common
policy cannot observe which agent it serves, so it is a memoryless policy of a partially observed MDP, whose best is stochastic in general
(Singh, Jaakkola and Jordan, "Learning without state-estimation in partially observable Markovian decision processes", ICML 1994).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpg.envs.tabular import MDP

LEAST_CHANCE = 0.5
"""The right action opens a door with a probability from here to 1."""
PAY_SPREAD = 0.5
"""Standard deviation of the logarithm of an agent's pay."""


def doors(key: jax.Array, agents: int = 3, states: int = 3, actions: int = 3) -> MDP:
    """N corridors of `states` - 1 doors, leading axis N; an agent starts in front of a random door."""
    order_key, chance_key, pay_key = jax.random.split(key, 3)
    orders = jax.vmap(lambda k: jax.random.permutation(k, actions))(jax.random.split(order_key, states - 1))  # (S-1, A)
    opens = jax.nn.one_hot(orders[:, jnp.arange(agents) % actions].T, actions)  # (N, S-1, A)
    passes = opens * jax.random.uniform(chance_key, (agents, states - 1, 1), minval=LEAST_CHANCE)
    passes = jnp.concatenate([passes, jnp.zeros((agents, 1, actions))], axis=1)  # (N, S, A): no door in the last state
    here, beyond = jnp.eye(states)[:, None], jnp.eye(states, k=1)[:, None]
    pay = jnp.exp(PAY_SPREAD * jax.random.normal(pay_key, (agents, 1, 1)))
    start = jnp.where(jnp.arange(states) < states - 1, 1.0 / (states - 1), 0.0)
    transition = passes[..., None] * beyond + (1.0 - passes[..., None]) * here
    return MDP(transition, pay * passes, jnp.broadcast_to(start, (agents, states)))
