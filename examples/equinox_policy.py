"""A policy whose network is written in Equinox.

Learn with it: fedpg train --policy examples/equinox_policy.py:policy
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpg import policies


def policy(environment):
    """A categorical policy for environments with discrete actions. The arrays of the network are the params."""

    def network(key):
        return eqx.nn.MLP(environment.observation_space.shape[0], environment.action_space.n, 16, 1, jax.nn.tanh, key=key)

    _, static = eqx.partition(network(jax.random.key(0)), eqx.is_array)

    def logits(params, observation):
        return eqx.combine(params, static)(observation)

    return policies.custom(
        init=lambda key: eqx.filter(network(key), eqx.is_array),
        sample=lambda key, params, observation: jax.random.categorical(key, logits(params, observation)),
        log_prob=lambda params, observation, action: jax.nn.log_softmax(logits(params, observation))[action],
    )


if __name__ == "__main__":
    from fedpg import envs

    params = policy(envs.make("cartpole").environment).init(jax.random.key(0))
    print(sum(x.size for x in jax.tree.leaves(params)), "params:", [jnp.shape(x) for x in jax.tree.leaves(params)])
