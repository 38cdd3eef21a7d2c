"""All trajectories of a tiny MDP with their probabilities, in plain NumPy: what an estimator's mean is computed with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.tabular import MDP
from fedpg.gradients.batch import Batch
from fedpg.gradients.rollout import Trajectory

STATES, ACTIONS, HORIZON, DISCOUNT = 2, 2, 3, 0.9
LAST = 1
"""The terminal state of the worlds that end."""


def tiny_mdp(ending: bool = False) -> MDP:
    """Two states, two actions. With `ending`, reaching state 1 is the end: it is absorbing and pays nothing."""
    transition = np.array([[[0.7, 0.3], [0.1, 0.9]], [[0.4, 0.6], [0.8, 0.2]]])
    reward = np.array([[1.0, 0.2], [-0.5, 2.0]])
    start = np.array([0.6, 0.4])
    if ending:
        transition[LAST], reward[LAST], start = [[0.0, 1.0], [0.0, 1.0]], 0.0, np.array([1.0, 0.0])
    return MDP(*map(jnp.asarray, (transition, reward, start)))


def all_trajectories(mdp: MDP, ending: bool = False) -> Trajectory:
    """Every (s_0, a_0, s_1, a_1, s_2, a_2) as one batch, leading axis 64. With `ending`, masked from state 1 on."""
    steps = itertools.product(*(range(STATES), range(ACTIONS)) * HORIZON)
    paths = np.array(list(steps)).reshape(-1, HORIZON, 2)
    states, actions = paths[..., 0], paths[..., 1]
    mask = states != LAST if ending else np.ones(states.shape)
    return Trajectory(states, actions, np.asarray(mdp.reward)[states, actions] * mask, mask.astype(float))


def probabilities(mdp: MDP, table: Any, tau: Trajectory) -> np.ndarray:
    """p(tau) = start(s_0) prod_t pi(a_t|s_t) prod_t P(s_{t+1}|s_t,a_t), (64,), by plain loops. `table` is pi, (S, A)."""
    transition, start, table = np.asarray(mdp.transition), np.asarray(mdp.start), np.asarray(table)
    result = []
    for s, a in zip(np.asarray(tau.observation), np.asarray(tau.action), strict=True):
        p = start[s[0]] * np.prod([table[s[t], a[t]] for t in range(HORIZON)])
        result.append(p * np.prod([transition[s[t], a[t], s[t + 1]] for t in range(HORIZON - 1)]))
    return np.array(result)


def softmax_table(logits: Any) -> np.ndarray:
    """pi(a|s) from logits, (S, A)."""
    e = np.exp(np.asarray(logits))
    return e / e.sum(1, keepdims=True)


def each(estimate: Callable[..., Any]) -> Callable[..., Any]:
    """estimate(batch, *params) as a jitted function (tau, baseline, *params) of every trajectory alone, leading axis 64."""

    def one(tau: Trajectory, baseline: jax.Array, *params: Any) -> Any:
        return estimate(Batch(jax.tree.map(lambda x: x[None], tau), baseline[None], jnp.ones(())), *params)

    return jax.jit(lambda tau, baseline, *params: jax.vmap(lambda t, b: one(t, b, *params))(tau, baseline))


def expectation(estimates: Any, probability: np.ndarray) -> Any:
    """Mean of estimates (leading axis 64) under the probabilities."""
    return jax.tree.map(lambda x: np.tensordot(probability, np.asarray(x), axes=1), estimates)
