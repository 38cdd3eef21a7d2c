"""Tanh networks: categorical for discrete actions (the paper: 8x8), Gaussian for continuous ones (the paper: 32x32).

Gaussian policies have a standard deviation that is the same in every state (the paper), or one that depends on the state; the latter
also squashed, so that every action is within its bounds.
"""

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from fedpg.envs.base import Box, Environment, space_size, zero
from fedpg.policies.base import Network, Policy, features
from fedpg.policies.distributions import Normal, Squashed
from fedpg.sampling import look_up, pick, uniforms
from fedpg.trees import Params

LOG_2PI = math.log(2.0 * math.pi)
LOG_STD_RANGE = (-5.0, 2.0)
"""Of a standard deviation that depends on the state."""
BELOW_ONE = 1.0 - 1e-6
"""The largest squashed action whose noise is recovered: 1 itself would come from an infinite one."""


def init_layers(key: jax.Array, sizes: list[int], last_scale: float) -> list[dict[str, jax.Array]]:
    """Orthogonal matrices, zero biases; a small last layer, so that all actions are about equally likely at the start."""
    layers = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        scale = last_scale if i == len(sizes) - 2 else math.sqrt(2.0)
        layers.append({"bias": jnp.zeros(fan_out), "matrix": _orthogonal(scale, (fan_in, fan_out))(jax.random.fold_in(key, i))})
    return layers


def _orthogonal(scale: float, shape: tuple[int, int]) -> Callable[[jax.Array], jax.Array]:
    """key -> an orthogonal matrix, one after the other also under `vmap`.

    On a CPU JAX factorises a batch of matrices on threads that wait for each other: with a layer for each thread, all wait for ever.
    """
    return sequential_vmap(lambda key: jax.nn.initializers.orthogonal(scale)(key, shape))


def forward(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    """The outputs of a tanh network."""
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["matrix"] + layer["bias"])
    return x @ layers[-1]["matrix"] + layers[-1]["bias"]


def categorical(environment: Environment, hidden: tuple[int, ...] = (8, 8)) -> Policy:
    """pi(.|s) = softmax(net(s)). Params: {"layers": [{"matrix", "bias"}, ...]}."""
    space, actions = environment.observation_space, environment.action_space.n
    inputs = features(space, zero(space)).size

    def logits(params: Params, observation: jax.Array) -> jax.Array:
        return forward(params["layers"], features(space, observation))

    def act(uniform: jax.Array, params: Params, observation: jax.Array) -> jax.Array:
        return pick(uniform, jax.nn.softmax(logits(params, observation)))

    def log_prob(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        return look_up(jax.nn.log_softmax(logits(params, observation)), action)

    return Policy(
        init=lambda key: {"layers": init_layers(key, [inputs, *hidden, actions], 0.01)},
        act=act,
        log_prob=log_prob,
        draw=uniforms,
        outputs=logits,
        network=Network(act, log_prob, lambda params: params["layers"], lambda layers, params: {"layers": layers}),
    )


def gaussian(environment: Environment, hidden: tuple[int, ...] = (32, 32), log_std: float = -0.5) -> Policy:
    """pi(.|s) = N(net(s), diag exp(2 log_std)), log_std learned and the same in every state.

    Params: {"layers": [...], "log_std": (A,)}. Actions are not clipped here; environments clip them to what is possible.
    """
    space, action_space = environment.observation_space, environment.action_space
    assert isinstance(action_space, Box)
    inputs = features(space, zero(space)).size
    outputs = space_size(action_space)

    def mean(params: Params, observation: jax.Array) -> jax.Array:
        return forward(params["layers"], features(space, observation))

    def log_prob(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        z = (jnp.reshape(action, (-1,)) - mean(params, observation)) * jnp.exp(-params["log_std"])
        return jnp.sum(-0.5 * jnp.square(z) - params["log_std"] - 0.5 * LOG_2PI)

    def act(noise: jax.Array, params: Params, observation: jax.Array) -> jax.Array:
        return jnp.reshape(mean(params, observation) + jnp.exp(params["log_std"]) * noise, action_space.shape)

    return Policy(
        init=lambda key: {"layers": init_layers(key, [inputs, *hidden, outputs], 0.01), "log_std": jnp.full(outputs, log_std)},
        act=act,
        log_prob=log_prob,
        draw=lambda key, n: jax.random.normal(key, (n, outputs)),
        outputs=lambda params, observation: Normal(mean(params, observation), params["log_std"]),
    )


def gaussian_state(environment: Environment, hidden: tuple[int, ...] = (32, 32), log_std: float = -0.5) -> Policy:
    """pi(.|s) = N(mean(s), diag exp(2 log_std(s))), both from one network; `log_std` is where the latter starts.

    Params: {"layers": [...]}; the last layer gives the means and then the logarithms of the deviations.
    """
    space, action_space = environment.observation_space, environment.action_space
    assert isinstance(action_space, Box)
    inputs, outputs = features(space, zero(space)).size, space_size(action_space)

    def distribution(params: Params, observation: jax.Array) -> Normal:
        both = forward(params["layers"], features(space, observation))
        return Normal(both[:outputs], jnp.clip(log_std + both[outputs:], *LOG_STD_RANGE))

    def log_prob(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        return normal_log_prob(distribution(params, observation), jnp.reshape(action, (-1,)))

    def act(noise: jax.Array, params: Params, observation: jax.Array) -> jax.Array:
        normal = distribution(params, observation)
        return jnp.reshape(normal.mean + jnp.exp(normal.log_std) * noise, action_space.shape)

    return Policy(
        init=lambda key: {"layers": init_layers(key, [inputs, *hidden, 2 * outputs], 0.01)},
        act=act,
        log_prob=log_prob,
        draw=lambda key, n: jax.random.normal(key, (n, outputs)),
        outputs=distribution,
    )


def normal_log_prob(normal: Normal, x: jax.Array) -> jax.Array:
    """log density of x, (D,), under a normal distribution, ()."""
    z = (x - normal.mean) * jnp.exp(-normal.log_std)
    return jnp.sum(-0.5 * jnp.square(z) - normal.log_std - 0.5 * LOG_2PI)


def tanh_gaussian(environment: Environment, hidden: tuple[int, ...] = (32, 32), log_std: float = -0.5) -> Policy:
    """pi(.|s) of a = tanh(x), x ~ `gaussian_state`, for actions in [-1, 1]: log pi(a|s) = log N(x) - sum log(1 - a^2)."""
    inner = gaussian_state(environment, hidden, log_std)

    def log_prob(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        a = jnp.clip(jnp.reshape(action, (-1,)), -BELOW_ONE, BELOW_ONE)
        return normal_log_prob(inner.outputs(params, observation), jnp.arctanh(a)) - jnp.sum(jnp.log1p(-jnp.square(a)))

    return inner._replace(
        act=lambda noise, params, observation: jnp.tanh(inner.act(noise, params, observation)),
        log_prob=log_prob,
        outputs=lambda params, observation: Squashed(*inner.outputs(params, observation)),
    )
