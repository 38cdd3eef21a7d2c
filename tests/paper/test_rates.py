"""What the theorem bounds is measured right: against every round of the plain engine, and against the sums by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.algorithms import fedsvrpg_m
from fedpg.paper import rates
from fedpg.paper.grounds import Ground, Known
from fedpg.paper.prescribed import Steps
from fedpg.quadratic import bowls, quadratic
from fedpg.simulate import Simulator

GROUND = Ground("bowls", quadratic(4, 0.3, 0.5), lambda count: bowls(jax.random.key(1), count, 0.5), Known(1, 1, 1, 1, 1))
STEPS = {
    "short": Steps(*(np.array(x) for x in ([3, 7], [0.3, 0.1], [0.2, 0.1], [0.1, 0.1], [2.0, 5.0], [False, False]))),
    "plain": Steps(*(np.array(x) for x in ([5], [1.0], [0.2], [0.1], [0.0], [False]))),
}


def test_running_mean_is_the_sum_over_rounds_before() -> None:
    """Exact when every round is known; along a straight line also when few are."""
    rounds, values = np.arange(5), np.array([8.0, 4.0, 2.0, 1.0, 0.5])
    np.testing.assert_allclose(rates.running_mean(rounds, values), [8.0, 8.0, 6.0, 14 / 3, 15 / 4])
    line = 100.0 - 3.0 * np.arange(31)
    few = np.array([0, 1, 10, 30])
    expected = [line[0]] + [line[:r].mean() for r in few[1:]]
    np.testing.assert_allclose(rates.running_mean(few, line[few]), expected)


def test_marks_hold_every_end_and_all_early_rounds() -> None:
    found = rates.marks(np.array([100, 37, 1000]))
    assert {0, 1, 2, 3, 4, 5, 37, 100, 1000} <= set(found.tolist())
    # nowhere further apart than asked, give or take rounding to whole rounds
    assert (np.diff(found) <= 1.0 + found[:-1] * (2.0 ** (1.0 / rates.PER_OCTAVE) - 1.0)).all()
    assert rates.marks(np.array([1])).tolist() == [0, 1]


def test_measure_agrees_with_the_engine_round_by_round() -> None:
    """Averages over each setting's own rounds, B batches behind u_0 counted, and beta = 1 without any."""
    runs = rates.measure(GROUND, fedsvrpg_m, STEPS, agents=2, local_steps=2, seeds=2)
    short, plain = runs["short"], runs["plain"]
    assert short.averages.shape == (2, 2)
    np.testing.assert_array_equal(short.rounds, np.arange(8))
    np.testing.assert_array_equal(short.per_agent, [2 * 3 + 2, 2 * 7 + 5])
    np.testing.assert_array_equal(plain.per_agent, [10])
    np.testing.assert_allclose([short.effective, short.largest], 1.0, rtol=1e-6)

    with jax.enable_x64(True):
        members = jax.tree.map(lambda x: jnp.asarray(x, float), GROUND.agents(2))
        pavg = fedsvrpg_m(GROUND.problem, beta=1.0, local_lr=0.1, global_lr=0.2, local_steps=2)
        engine = Simulator(GROUND.problem, pavg, lambda key: members, seeds=2)
        engine.start()
        seen = []
        for r in range(5):
            seen.append(engine.evaluate(r).grad_norm_sq)
            engine.advance(r, 1)
    np.testing.assert_allclose(plain.averages[0], np.mean(seen, axis=0), rtol=1e-9)
    assert abs(plain.averages[0, 0] / plain.averages[0, 1] - 1.0) > 1e-3  # seeds differ


def test_opening_averages_the_asked_number_of_batches() -> None:
    """u_0 is as accurate as B says, and B batches are counted."""

    def direction(batches: float, key: jax.Array) -> tuple:
        algorithm = fedsvrpg_m(GROUND.problem, beta=0.5, local_lr=0.1)
        (exchange,) = rates.opening(GROUND.problem, jnp.asarray(batches))
        server, memory = algorithm.init(jnp.zeros(4))
        agent = jax.tree.map(lambda x: x[0], GROUND.agents(2))
        u, _, info = exchange.local_update(key, server.shared, memory, agent)
        return u - GROUND.problem.evaluate(key, jnp.zeros(4), agent).gradient, info.usage.trajectories

    both = jax.jit(jax.vmap(jax.vmap(direction, (None, 0)), (0, None)))
    errors, counted = both(jnp.array([1.0, 16.0]), jax.random.split(jax.random.key(0), 400))
    np.testing.assert_array_equal(counted, np.repeat([[1], [16]], 400, axis=1))
    spread = np.mean(np.sum(np.asarray(errors) ** 2, axis=-1), axis=1)
    np.testing.assert_allclose(spread[0] / spread[1], 16.0, rtol=0.25)


def test_weights_at_worst() -> None:
    def run(share: float, largest: float) -> rates.Measured:
        return rates.Measured(*[np.zeros(1)] * 4, np.array([[1.0, 1.0], [share, 1.0]]), np.array([[largest, 1.0]]))

    assert rates.weights_at_worst([run(0.6, 3.0), run(0.8, 9.0)]) == {"effective share of weights": 0.8, "largest weight": 9.0}
