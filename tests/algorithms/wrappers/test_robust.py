"""Robust means against NumPy and brute force, and their wrapper around algorithms."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.base import Algorithm, Exchange, RoundInfo, ServerState, exchanges_of, mean
from fedpg.algorithms.wrappers import chain, robust
from fedpg.algorithms.wrappers.robust import NAMES, mean_of
from fedpg.errors import UserError
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, home, make

ROWS = np.random.default_rng(0).normal(size=(10, 5))
THERE = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1.0])
SENT = np.where(THERE[:, None] > 0, ROWS, np.nan)
PRESENT = ROWS[THERE > 0]


def of(name, rows=SENT, present=THERE, trim=0.3):
    return np.asarray(jax.jit(mean_of(name, trim))(jnp.asarray(rows), jnp.asarray(present)))


@pytest.mark.parametrize("name", NAMES)
def test_equal_messages_are_the_message(name):
    one = {"a": jnp.arange(6.0).reshape(2, 3), "b": [jnp.array(-3.0), jnp.zeros(4)]}
    for count in (1, 4):
        assert_trees_close(jax.jit(mean_of(name))(trees.broadcast(one, count), jnp.ones(count)), one, rtol=1e-6)


def test_median_and_trimmed_mean_are_those_of_numpy():
    np.testing.assert_allclose(of("median"), np.median(PRESENT, axis=0), rtol=1e-6)
    np.testing.assert_allclose(of("median", PRESENT[:7], np.ones(7)), np.median(PRESENT[:7], axis=0), rtol=1e-6)
    ordered = np.sort(PRESENT, axis=0)
    for trim, cut in ((0.0, 0), (0.1, 1), (0.3, 3), (0.49, 3)):  # of 8: never more than 3 at each end
        np.testing.assert_allclose(of("trimmed-mean", trim=trim), ordered[cut : 8 - cut].mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(of("trimmed-mean", ROWS, np.ones(10)), np.sort(ROWS, axis=0)[3:7].mean(0), rtol=1e-5, atol=1e-7)


def test_krum_is_that_of_a_loop():
    for rows, attackers in ((PRESENT, 3), (ROWS, 3), (ROWS[:4], 1)):
        n, scores = len(rows), []
        for i in range(n):
            apart = sorted(np.sum((rows[i] - rows[j]) ** 2) for j in range(n) if j != i)
            scores.append(sum(apart[: max(n - attackers - 2, 1)]))
        np.testing.assert_allclose(of("krum", rows, np.ones(n)), rows[int(np.argmin(scores))], rtol=1e-6)
    np.testing.assert_array_equal(of("krum"), of("krum", PRESENT, np.ones(8)))


def test_the_geometric_median_has_the_least_sum_of_distances():
    """Against a search on ever finer grids, for points in general position and for a majority in one point."""

    def total(rows, z):
        return np.sqrt(((rows - z) ** 2).sum(-1)).sum()

    for rows in (ROWS[:7, :2], np.concatenate([np.tile(ROWS[0, :2], (4, 1)), ROWS[1:4, :2]])):
        best, step = rows.mean(0), 1.0
        for _ in range(40):
            around = [best + step * np.array(move) for move in itertools.product((-1, -0.5, 0, 0.5, 1), repeat=2)]
            best, step = min(around, key=lambda z: total(rows, z)), 0.7 * step
        found = of("geometric-median", rows, np.ones(7))
        assert total(rows, found) <= total(rows, best) * (1 + 1e-5)
        np.testing.assert_allclose(found, best, atol=2e-3)


def test_norm_clipping_shortens_to_the_median_norm():
    rows = np.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0], [0.0, 0.0], [2.0, 0.0]])  # norms 5, 1, 10, 0, 2
    by_hand = np.array([[1.2, 1.6], [0.0, 1.0], [1.2, 1.6], [0.0, 0.0], [2.0, 0.0]]).mean(0)
    np.testing.assert_allclose(of("norm-clipping", rows, np.ones(5)), by_hand, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_absent_agents_have_no_influence(name, float64):
    found = of(name)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, of(name, PRESENT, np.ones(8)), rtol=1e-12)
    np.testing.assert_array_equal(of(name, np.full((3, 2), np.nan), np.zeros(3)), 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_three_of_ten_cannot_drag_a_robust_mean_away(name):
    """Not even with messages whose squares overflow."""
    for lie in (1e3, 1e30):
        rows = np.concatenate([np.full((3, 5), lie), ROWS[3:]])
        assert (np.abs(of(name, rows, np.ones(10))).max() <= np.abs(ROWS).max()) == (name != "mean")


def toy(name="toy", **more):
    """An algorithm whose server keeps the mean of what it was sent, and what agent 0 sent as a count."""

    def exchange(place):
        def aggregate(state, messages, present):
            value = mean(messages["value"], present)
            return state._replace(shared=state.shared | {place: (value, messages["count"][0])}), RoundInfo(value, value)

        return Exchange(None, aggregate)

    main = exchange("main")
    return Algorithm(name, None, None, main.aggregate, (exchange("warmup"),), (exchange("prelude"),), **more)


def test_every_exchange_sees_the_robust_mean_and_counts_stay_as_they_are():
    algorithm = chain(toy(), robust("median"))
    messages = {"value": jnp.array([0.0, 1.0, 50.0]), "count": jnp.array([7, 8, 9])}
    state = ServerState({})
    for aggregate in (algorithm.aggregate, algorithm.warmup[0].aggregate, algorithm.prelude[0].aggregate):
        state, info = aggregate(state, messages, jnp.ones(3))
        assert float(info.direction_sq) == 1.0
    assert {place: (float(value), int(count)) for place, (value, count) in state.shared.items()} == dict.fromkeys(
        ("main", "warmup", "prelude"), (1.0, 7)
    )


def test_the_mean_is_the_algorithm_itself_and_algorithms_without_messages_are_refused():
    algorithm = toy()
    assert chain(algorithm, robust("mean")) is algorithm
    for more in ({"personal": True}, {"pooled": True}):
        with pytest.raises(UserError, match="toy sends no messages: leave out --aggregation"):
            chain(toy(**more), robust("krum"))
    with pytest.raises(UserError, match=r"trim must be from 0 to below 0.5, not 0.5"):
        robust("trimmed-mean", 0.5)
    with pytest.raises(UserError, match="did you mean 'median'"):
        robust("mediam")


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("pooled", "local-only")])
def test_every_algorithm_takes_a_robust_mean(name):
    """Its state has the same shapes and types after each of its exchanges; nothing is compiled."""
    small = SMALL[home(name)]()
    plain = make(name, small.problem)
    algorithm = chain(plain, robust("geometric-median"))
    agent = jax.eval_shape(lambda key: trees.take(small.agents(key), 0), jax.random.key(0))
    server, state = jax.eval_shape(lambda key: algorithm.init(small.problem.init_params(key)), jax.random.key(0))
    for exchange, own in zip(exchanges_of(algorithm), exchanges_of(plain), strict=True):
        message = jax.eval_shape(exchange.local_update, jax.random.key(0), server.shared, state, agent)[0]
        messages = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), message)
        after = [jax.eval_shape(aggregate, server, messages, jnp.ones(3)) for aggregate in (exchange.aggregate, own.aggregate)]
        assert after[0] == after[1]
        server = after[0][0]
