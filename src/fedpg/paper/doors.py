"""Agents behind different doors: finite MDPs whose best common policy is stochastic, so that J has its peak at finite logits.

A corridor of states, each with one door. In agent i's world only one action opens it, its own in every state; any other
action leaves the agent where it is. Passing pays, and behind the last door there is nothing. A deterministic common policy
leaves all agents but one standing forever; one that tries several actions gets everybody through, and how often it tries
which depends on what the agents are paid. A common policy cannot see whose world it is in: it is a memoryless policy of a
partially observed world, whose best is stochastic in general (Singh, Jaakkola and Jordan, "Learning without
state-estimation in partially observable Markovian decision processes", ICML 1994).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpg.envs.tabular import MDP

LEAST_CHANCE = 0.5
"""The right action opens a door with a chance from here to 1."""
PAY_SPREAD = 0.5
"""Standard deviation of the logarithm of an agent's pay."""


def doors(key: jax.Array, agents: int = 3, states: int = 3, actions: int = 3) -> MDP:
    """N corridors of `states` - 1 doors, leading axis N; all start in front of any door."""
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
