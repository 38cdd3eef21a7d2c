"""Doors: proper MDPs whose best common policy is stochastic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.gradients import exact
from fedpg.paper.doors import doors

MDPS = doors(jax.random.key(3), agents=3, states=3, actions=3)


def mean_value(table: jax.Array) -> jax.Array:
    return jnp.mean(jax.vmap(lambda mdp: exact.value(mdp, table, 0.9, None))(MDPS))


def test_a_corridor_with_one_door_a_state():
    np.testing.assert_allclose(MDPS.transition.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(MDPS.start.sum(-1), 1.0)
    assert np.array_equal(MDPS.transition[:, -1, :, -1], np.ones((3, 3)))  # the last state is left by nobody
    assert np.array_equal(MDPS.reward[:, -1], np.zeros((3, 3)))
    works = np.asarray(MDPS.reward)[:, :-1] > 0
    assert np.array_equal(works.sum(-1), np.ones((3, 2)))  # one action a door,
    assert np.array_equal(works.sum(0), np.ones((2, 3)))  # another for every agent
    chance = np.asarray(MDPS.transition)[:, [0, 1], :, [1, 2]][works.swapaxes(0, 1)]
    assert np.all((chance >= 0.5) & (chance <= 1.0))


def test_the_best_common_policy_is_stochastic():
    """Ascent ends at a peak with every door's actions in use, above all deterministic policies."""
    j = jax.jit(jax.value_and_grad(lambda logits: mean_value(jax.nn.softmax(logits))))
    logits = jnp.zeros((3, 3))
    for _ in range(300):
        _, slope = j(logits)
        logits = logits + 5.0 * slope
    peak, slope = j(logits)
    assert float(jnp.abs(slope).max()) < 1e-4
    assert float(jax.nn.softmax(logits)[:-1].min()) > 0.01
    tables = [jnp.eye(3)[jnp.array([first, second, 0])] for first in range(3) for second in range(3)]
    assert float(peak) > 1.05 * max(float(mean_value(table)) for table in tables)
