"""A policy whose network is written in Flax: once in Linen, once in NNX.

Learn with it: fedpg train --policy examples/flax_policy.py:policy        (or :nnx_policy)
"""

import jax
import jax.numpy as jnp
from flax import linen, nnx

from fedpg import policies


class Network(linen.Module):
    actions: int

    @linen.compact
    def __call__(self, observation):
        hidden = linen.tanh(linen.Dense(16)(observation))
        return linen.Dense(self.actions, kernel_init=linen.initializers.normal(0.01))(hidden)


def policy(environment):
    """A categorical policy for environments with discrete actions."""
    network, start = Network(environment.action_space.n), jnp.zeros(environment.observation_space.shape)
    return policies.custom(
        init=lambda key: network.init(key, start),
        sample=lambda key, params, observation: jax.random.categorical(key, network.apply(params, observation)),
        log_prob=lambda params, observation, action: jax.nn.log_softmax(network.apply(params, observation))[action],
    )


def nnx_policy(environment):
    """The same in NNX: the params are the state of the network, the graph stays outside."""

    def network(key):
        first, rngs = environment.observation_space.shape[0], nnx.Rngs(params=key)
        last = nnx.Linear(16, environment.action_space.n, kernel_init=nnx.initializers.normal(0.01), rngs=rngs)
        return nnx.Sequential(nnx.Linear(first, 16, rngs=rngs), nnx.tanh, last)

    graph = nnx.graphdef(network(jax.random.key(0)))

    def logits(params, observation):
        return nnx.merge(graph, params)(observation)

    return policies.custom(
        init=lambda key: nnx.state(network(key)),
        sample=lambda key, params, observation: jax.random.categorical(key, logits(params, observation)),
        log_prob=lambda params, observation, action: jax.nn.log_softmax(logits(params, observation))[action],
    )


if __name__ == "__main__":
    from fedpg import envs

    cartpole = envs.make("cartpole").environment
    for make in (policy, nnx_policy):
        params = make(cartpole).init(jax.random.key(0))
        print(make.__name__, jax.tree.map(jnp.shape, params))
