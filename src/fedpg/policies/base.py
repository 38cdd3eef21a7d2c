"""The contract of a policy: pure functions of params, written for one observation.

init(key)                     -> params
sample(key, params, obs)      -> action
log_prob(params, obs, action) -> ()
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.envs.base import Discrete, Space
from fedpg.trees import Params


class Network(NamedTuple):
    """A policy over finite actions as a tanh network, for code that computes many lanes at once.

    Attributes:
        act, log_prob: the functions of the policy that this describes; a policy with others is not it.
        layers: params -> [{"matrix", "bias"}, ...].
        scale: params -> the mean and the deviation by which observations are scaled, each like an observation; None: they are not.
        like: (layers, params) -> a direction with these layers, and zeros for what they do not contain.
    """

    act: Callable[..., Any]
    log_prob: Callable[..., Any]
    layers: Callable[[Params], list[dict[str, jax.Array]]]
    like: Callable[[list[dict[str, jax.Array]], Params], Params]
    scale: Callable[[Params], tuple[jax.Array, jax.Array] | None] = lambda params: None


class Policy(NamedTuple):
    """A stochastic policy.

    Attributes:
        init: key -> params.
        act: (noise, params, observation) -> action. The noise is one row of `draw(key, n)`.
        log_prob: (params, observation, action) -> log density of the action, ().
        draw: (key, n) -> the randomness of n actions, leading axis n. The default splits the key, so that `act`
            is then simply `sample(key, params, observation)`.
        project: params -> the nearest allowed params; called after every update.
        free: direction -> the same with zeros where gradients do not move the params.
        outputs: (params, observation) -> logits or `Normal`, see `fedpg.policies.distributions`; None: only log_prob is known.
        table: "softmax" or "direct" if the params are one table over (state, action), else "".
        logits: params -> log_prob of every state and action up to a constant in each state, (S, A): faster than one by one. None where
            it is not known.
        value: (params, observation) -> V(s), (); None without a critic, see `fedpg.policies.critic`.
        network: what the policy is inside, if that is a tanh network over finite actions.
    """

    init: Callable[[jax.Array], Params]
    act: Callable[[Any, Params, jax.Array], jax.Array]
    log_prob: Callable[[Params, jax.Array, jax.Array], jax.Array]
    draw: Callable[[jax.Array, int], Any] = jax.random.split
    project: Callable[[Params], Params] = lambda params: params
    free: Callable[[Params], Params] = lambda direction: direction
    outputs: Callable[[Params, jax.Array], Any] | None = None
    table: str = ""
    logits: Callable[[Params], jax.Array] | None = None
    value: Callable[[Params, jax.Array], jax.Array] | None = None
    network: Network | None = None

    def sample(self, key: jax.Array, params: Params, observation: jax.Array) -> jax.Array:
        """One action with its own key."""
        return self.act(trees.take(self.draw(key, 1), 0), params, observation)


def describes(policy: Policy) -> bool:
    """Whether the policy's network, if it has one, is all that it does, without scaled observations."""
    network = policy.network
    return network is not None and network.act is policy.act and network.log_prob is policy.log_prob


def custom(
    init: Callable[[jax.Array], Params],
    sample: Callable[[jax.Array, Params, jax.Array], jax.Array],
    log_prob: Callable[[Params, jax.Array, jax.Array], jax.Array],
) -> Policy:
    """A policy from three functions of the user."""
    return Policy(init, sample, log_prob)


def features(space: Space, observation: jax.Array) -> jax.Array:
    """An observation as a flat vector; a discrete one as one-hot."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(observation, space.n)
    return jnp.reshape(observation, (-1,))
