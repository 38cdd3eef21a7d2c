"""The grounds: J does not depend on N, and the constants are those of the problem."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.paper import grounds
from fedpg.quadratic import Bowl, quadratic

KEY = jax.random.key(0)


def mean_gradient(ground: grounds.Ground, count: int, params: np.ndarray) -> np.ndarray:
    found = jax.vmap(ground.problem.evaluate, (None, None, 0))(KEY, params, jax.tree.map(jnp.asarray, ground.agents(count)))
    return np.asarray(found.gradient)


def test_pairs_of_bowls_differ_but_average_to_the_same() -> None:
    ground = grounds.bowls()
    params = np.linspace(-1.0, 2.0, grounds.DIMENSION)
    alone, four = (mean_gradient(ground, count, params) for count in (1, 4))
    np.testing.assert_allclose(four.mean(axis=0), alone[0], rtol=1e-4, atol=1e-5)
    optimum = ground.agents(1).centre[0]
    apart = np.sum(mean_gradient(ground, 4, optimum) ** 2, axis=1)
    assert apart.min() > 0.05  # every agent wants to go elsewhere from the common optimum
    assert np.sum(mean_gradient(ground, 4, optimum).mean(axis=0) ** 2) < 1e-9


def test_constants_of_the_bowls() -> None:
    """The gap is J(c) - J(0); sigma and the start are what sampling and evaluating at theta_0 = 0 find."""
    ground = grounds.bowls()
    agents = jax.tree.map(jnp.asarray, ground.agents(2))
    alone = jax.tree.map(lambda x: jnp.asarray(x[0]), ground.agents(1))
    assert ground.known.gap == pytest.approx(-float(ground.problem.evaluate(KEY, jnp.zeros(grounds.DIMENSION), alone).objective), rel=1e-4)
    zero = jnp.zeros(grounds.DIMENSION)

    def error(key: jax.Array, agent: Bowl) -> jax.Array:
        sample, _ = ground.problem.sample(key, zero, agent, ())
        return jnp.sum((ground.problem.gradient(sample, zero) - ground.problem.evaluate(key, zero, agent).gradient) ** 2)

    errors = jax.vmap(lambda key: jax.vmap(error, (None, 0))(key, agents))(jax.random.split(KEY, 2000))
    assert ground.known.sigma == pytest.approx(np.sqrt(errors.mean()), rel=0.05)
    assert ground.known.start == pytest.approx(
        np.mean(np.sum(mean_gradient(ground, 2, np.zeros(grounds.DIMENSION)) ** 2, axis=1)), rel=1e-4
    )


def test_measured_constants_of_a_quadratic() -> None:
    """All of them are known there: L the steepest side, S^2 = L^2 + s^2, sigma^2 = d sigma^2 + s^2 |c|^2, J* = 0."""
    sides, centre = np.array([0.9, 0.5]), np.array([1.0, -2.0])
    known = grounds.measured(quadratic(2, 0.5, 1.5), Bowl(jnp.diag(sides), jnp.asarray(centre)))
    assert known.smoothness == pytest.approx(0.9, rel=1e-4)
    assert known.spread == pytest.approx(np.hypot(0.9, 1.5), rel=0.05)
    assert known.sigma == pytest.approx(np.sqrt(2 * 0.25 + 2.25 * 5.0), rel=0.05)
    assert known.gap == pytest.approx(0.5 * np.sum(sides * centre**2), rel=1e-4)
    assert known.start == pytest.approx(np.sum((sides * centre) ** 2), rel=1e-4)


def test_the_mdp_is_the_same_for_every_agent_and_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(grounds, "measured", lambda problem, agent: seen.append(agent))
    ground = grounds.mdp()
    agents = ground.agents(3)
    assert agents.transition.shape == (3, 3, 2, 3)
    assert np.ptp(agents.reward, axis=0).max() == 0.0
    np.testing.assert_array_equal(agents.reward[0], ground.agents(1).reward[0])
    np.testing.assert_array_equal(agents.reward[0], seen[0].reward)  # its constants are those of that MDP
