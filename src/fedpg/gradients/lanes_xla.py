"""Rollouts and gradients of many lanes as whole arrays with a last axis of lanes: for a CPU, whose compiler vectorises the last axis.

Arguments and results are those of `fedpg.gradients.lanes_cuda`. Nothing here fuses sums over time or over units into what follows:
a barrier keeps the compiler from computing an activation again for every unit that reads it.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.envs.base import Advance
from fedpg.policies.scaled import clipped

BLOCKS = range(25, 9, -1)
"""How many steps are computed at a time, and their gradients added up before they are added to memory: the most that divides H."""

_barrier = jax.lax.optimization_barrier


def seen(entries: Any, scale: Any) -> list[jax.Array]:
    """What the network sees of the entries of an observation, which are arrays of one shape."""
    return [clipped(x, *(part[i] for part in scale)) if scale else x for i, x in enumerate(entries)]


def units(layer: jax.Array) -> list[jax.Array]:
    """The units of (..., units, L), each (..., L)."""
    return [layer[..., i, :] for i in range(layer.shape[-2])]


def affine(matrix: jax.Array, bias: jax.Array, entries: list[jax.Array]) -> jax.Array:
    """matrix^T x + bias of entries (..., L): (..., outputs, L)."""
    total = bias
    for i, x in enumerate(entries):
        total = total + matrix[i] * x[..., None, :]
    return total


def activations(layers: Any, entries: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
    """What the hidden layers put out, and the logits, each (..., units, L)."""
    hidden = []
    for matrix, bias in layers[:-1]:
        hidden.append(_barrier(jnp.tanh(affine(matrix, bias, entries))))
        entries = units(hidden[-1])
    return hidden, _barrier(affine(*layers[-1], entries))


def pick(uniform: jax.Array, logits: jax.Array) -> jax.Array:
    """The action on which a uniform number falls, as `fedpg.sampling.pick` of softmax, (L,) int32; logits (A, L)."""
    powers = _barrier(jnp.exp(logits - jnp.max(logits, axis=0)))
    probability = units(powers / sum(units(powers)))
    cumulative = [probability[0]]
    for p in probability[1:]:
        cumulative.append(cumulative[-1] + p)
    action = sum((c <= uniform * cumulative[-1]).astype(jnp.int32) for c in cumulative)
    return jnp.minimum(action, len(cumulative) - 1)


def rollout(layers: Any, scale: Any, agent: Any, start: jax.Array, uniform: jax.Array, *, advance: Advance) -> tuple[jax.Array, ...]:
    """One trajectory in every lane.

    Args:
        layers: (matrix, bias) of every layer, (inputs, outputs, L) and (outputs, L).
        scale: mean and deviation of observations, (D, L) each, or ().
        agent: constants of the environment, (..., L).
        start: the first state, (D, L).
        uniform: the randomness of the actions, (H, L).
        advance: one step of the environment.

    Returns:
        The fields of a `Trajectory`: observation (H, D, L), action, reward and mask (H, L).
    """

    def step(carry: tuple, uniform: jax.Array) -> tuple:
        state, alive = carry
        action = pick(uniform, activations(layers, seen(state, scale))[1])
        after, reward, terminated = advance(state, action, agent)
        row = (jnp.stack(state), action, jnp.where(alive, reward, 0.0), alive.astype(reward.dtype))
        return (trees.select(alive, after, state), alive & ~terminated), row

    return jax.lax.scan(step, (tuple(start), jnp.ones(start.shape[-1:], bool)), uniform)[1]


def score(layers: Any, scale: Any, observation: jax.Array, action: jax.Array, coefficient: jax.Array) -> tuple[Any, jax.Array]:
    """sum_t coefficient_t grad log pi(a_t|s_t) of every lane, shaped like layers, and log pi(a_t|s_t), (H, L).

    Args:
        layers, scale: as in `rollout`.
        observation, action: as `rollout` returns them.
        coefficient: (H, L).
    """
    horizon, size = len(action), _block(len(action))

    def add(total: Any, block: tuple) -> tuple:
        observation, action, coefficient = block
        entries = seen(units(observation), scale)
        hidden, logits = activations(layers, entries)
        inputs = [_barrier(jnp.stack(entries, axis=1)) if scale else observation, *hidden]
        chosen, powers, total_power, found = _judged(logits, action)
        slope = _barrier(coefficient[:, None] * (chosen - powers / total_power))
        added = []
        for number in reversed(range(len(layers))):
            (matrix_sum, bias_sum), (matrix, _), below = total[number], layers[number], inputs[number]
            for t in range(size):
                matrix_sum, bias_sum = matrix_sum + below[t][:, None] * slope[t], bias_sum + slope[t]
            added.append((matrix_sum, bias_sum))
            if number:
                back = sum(matrix[:, o] * slope[:, o, None] for o in range(matrix.shape[1]))
                slope = _barrier(back * (1.0 - below * below))
        return added[::-1], found

    total, found = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, layers), _blocks(size, observation, action, coefficient))
    return total, found.reshape(-1, found.shape[-1])[:horizon]


def log_probs(layers: Any, scale: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    """log pi(a_t|s_t) of every lane, (H, L), to the last bit what `score` finds."""

    def judge(_: None, block: tuple) -> tuple:
        observation, action = block
        return None, _judged(activations(layers, seen(units(observation), scale))[1], action)[3]

    found = jax.lax.scan(judge, None, _blocks(_block(len(action)), observation, action))[1]
    return found.reshape(-1, found.shape[-1])[: len(action)]


def _block(horizon: int) -> int:
    """How many steps to compute at a time."""
    return next((n for n in BLOCKS if horizon % n == 0), min(horizon, max(BLOCKS)))


def _blocks(size: int, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Arrays (H, ...) as (blocks, size, ...), filled up with zeros."""
    missing = -len(arrays[0]) % size
    return tuple(jnp.pad(x, ((0, missing), *((0, 0),) * (x.ndim - 1))).reshape(-1, size, *x.shape[1:]) for x in arrays)


def _judged(logits: jax.Array, action: jax.Array) -> tuple[jax.Array, ...]:
    """Which action was taken, exp of the logits up to a factor, its sum, and log pi; logits (size, A, L), action (size, L)."""
    shifted = logits - jnp.max(logits, axis=1, keepdims=True)
    powers = _barrier(jnp.exp(shifted))
    total = sum(units(powers))[:, None]
    chosen = action[:, None] == jnp.arange(logits.shape[1])[:, None]
    return chosen, powers, total, sum(units(jnp.where(chosen, shifted, 0.0))) - jnp.log(total[:, 0])
