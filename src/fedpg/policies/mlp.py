"""Tanh networks: categorical for discrete actions (the paper: 8x8), Gaussian for continuous ones (the paper: 32x32)."""

import itertools
import math

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Environment, space_size, zero
from fedpg.policies.base import Policy, features
from fedpg.policies.distributions import Normal
from fedpg.sampling import look_up, pick, uniforms
from fedpg.trees import Params

LOG_2PI = math.log(2.0 * math.pi)


def _init_layers(key: jax.Array, sizes: list[int], last_scale: float) -> list[dict[str, jax.Array]]:
    """Orthogonal matrices, zero biases; a small last layer, so that all actions are about equally likely at the start."""
    layers = []
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        scale = last_scale if i == len(sizes) - 2 else math.sqrt(2.0)
        matrix = jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, i), (fan_in, fan_out))
        layers.append({"bias": jnp.zeros(fan_out), "matrix": matrix})
    return layers


def _forward(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["matrix"] + layer["bias"])
    return x @ layers[-1]["matrix"] + layers[-1]["bias"]


def categorical(environment: Environment, hidden: tuple[int, ...] = (8, 8)) -> Policy:
    """pi(.|s) = softmax(net(s)). Params: {"layers": [{"matrix", "bias"}, ...]}."""
    space, actions = environment.observation_space, environment.action_space.n
    inputs = features(space, zero(space)).size

    def logits(params: Params, observation: jax.Array) -> jax.Array:
        return _forward(params["layers"], features(space, observation))

    return Policy(
        init=lambda key: {"layers": _init_layers(key, [inputs, *hidden, actions], 0.01)},
        act=lambda uniform, params, obs: pick(uniform, jax.nn.softmax(logits(params, obs))),
        log_prob=lambda params, obs, action: look_up(jax.nn.log_softmax(logits(params, obs)), action),
        draw=uniforms,
        outputs=logits,
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
        return _forward(params["layers"], features(space, observation))

    def log_prob(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        z = (jnp.reshape(action, (-1,)) - mean(params, observation)) * jnp.exp(-params["log_std"])
        return jnp.sum(-0.5 * jnp.square(z) - params["log_std"] - 0.5 * LOG_2PI)

    def act(noise: jax.Array, params: Params, observation: jax.Array) -> jax.Array:
        return jnp.reshape(mean(params, observation) + jnp.exp(params["log_std"]) * noise, action_space.shape)

    return Policy(
        init=lambda key: {"layers": _init_layers(key, [inputs, *hidden, outputs], 0.01), "log_std": jnp.full(outputs, log_std)},
        act=act,
        log_prob=log_prob,
        draw=lambda key, n: jax.random.normal(key, (n, outputs)),
        outputs=lambda params, observation: Normal(mean(params, observation), params["log_std"]),
    )
