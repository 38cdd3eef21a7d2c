"""Finite tasks as lists of outcomes: a few for each state and action, so that hundreds of states need no (S, A, S) table."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment, Step
from fedpg.envs.tabular import MDP
from fedpg.sampling import pick, uniforms


class Outcomes(NamedTuple):
    """The task of one agent, with at most B outcomes of a state and an action; missing ones have probability 0."""

    after: jax.Array  # next state, (S, A, B)
    probability: jax.Array  # (S, A, B), rows sum to 1
    reward: jax.Array  # (S, A, B)
    terminated: jax.Array  # whether the task ends there, (S, A, B)
    start: jax.Array  # (S,), sums to 1


def _reset(key: jax.Array, task: Outcomes) -> tuple[jax.Array, jax.Array]:
    state = pick(jax.random.uniform(key), task.start)
    return state, state


def _transition(uniform: jax.Array, state: jax.Array, action: jax.Array, task: Outcomes) -> Step:
    which = pick(uniform, task.probability[state, action])
    after, reward, terminated = (values[state, action, which] for values in (task.after, task.reward, task.terminated))
    return Step(after, after, reward, terminated, jnp.zeros((), bool))


def environment(name: str, states: int, actions: int) -> Environment:
    """A finite task as an `Environment`; its params are `Outcomes`."""
    return Environment(name, Discrete(states), Discrete(actions), _reset, _transition, uniforms)


def mdp(task: Outcomes) -> MDP:
    """The same task as an `MDP` with expected rewards, whose J is the same; a state in which it ends becomes absorbing and pays nothing.

    Such a state must not be reached in any other way, nor be a start.
    """
    states, actions, _ = task.after.shape
    likely = task.probability > 0
    final = jnp.zeros(states, bool).at[jnp.where(likely & task.terminated, task.after, states)].set(True, mode="drop")
    s, a = jnp.arange(states)[:, None, None], jnp.arange(actions)[:, None]
    transition = jnp.zeros((states, actions, states)).at[s, a, task.after].add(task.probability)
    reward = jnp.sum(task.probability * task.reward, axis=-1)
    return MDP(
        jnp.where(final[:, None, None], jnp.eye(states)[:, None], transition),
        jnp.where(final[:, None], 0.0, reward),
        jnp.asarray(task.start),
    )
