"""Clipping and noise of messages: their size and their law, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedpg import simulate as simulator
from fedpg import trees
from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.aggregation import real_part
from fedpg.algorithms.base import exchanges_of
from fedpg.algorithms.wrappers import privacy
from fedpg.algorithms.wrappers.compression import compressed
from fedpg.algorithms.wrappers.privacy import private, protected, shortened
from fedpg.errors import UserError
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug
from helpers.compare import assert_trees_close
from helpers.federations import bowl, home, make, rl
from helpers.loops import Bowls, walk

MESSAGE = {"a": jnp.array([[3.0, 0.0], [0.0, 4.0]]), "b": jnp.array(12.0)}  # of norm 13
NOTHING = trees.zeros_like(MESSAGE)


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_a_long_message_gets_exactly_the_length_it_may_have_and_keeps_its_direction(scale):
    clip = 6.5 * scale
    leaves = [scale * leaf for leaf in jax.tree.leaves(MESSAGE)]
    short = shortened(leaves, clip)
    norm = np.sqrt(sum(float(np.sum(np.square(np.asarray(leaf, np.float64) / clip))) for leaf in short))
    assert norm == pytest.approx(1.0, abs=1e-6)
    assert_trees_close(short, trees.scale(0.5, leaves), rtol=1e-6)
    assert_trees_close(shortened(leaves, 13.1 * scale), leaves)  # bit for bit


def test_it_is_what_goes_beyond_the_expected_that_is_clipped():
    sent = protected(trees.scale(11.0, MESSAGE), trees.scale(10.0, MESSAGE), jax.random.key(0), 6.5, 0.0)
    assert_trees_close(sent, trees.scale(10.5, MESSAGE), rtol=1e-6)
    assert_trees_close(protected(NOTHING, NOTHING, jax.random.key(0), 1.0, 0.0), NOTHING)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_what_is_not_finite_is_not_made_small(bad):
    sent = protected(MESSAGE | {"b": jnp.array(bad)}, NOTHING, jax.random.key(0), 1.0, 1.0)
    assert not any(bool(jnp.any(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(sent))


def test_the_noise_has_the_stated_covariance():
    """sigma^2 I over all leaves together, around the clipped message; 40,000 draws, 4.5 standard errors."""
    count, clip, noise = 40_000, 2.6, 1.5
    keys = jax.random.split(jax.random.key(5), count)
    drawn = jax.jit(jax.vmap(lambda key: protected(MESSAGE, NOTHING, key, clip, noise)))(keys)
    rows = np.concatenate([np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(drawn)], axis=1).astype(float)
    centre = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(MESSAGE)]) * clip / 13.0
    sigma = noise * clip
    assert np.abs(rows.mean(0) - centre).max() < 4.5 * sigma / np.sqrt(count)
    covariance = (rows - centre).T @ (rows - centre) / count
    error = sigma**2 / np.sqrt(count) * np.where(np.eye(5) > 0, np.sqrt(2.0), 1.0)
    assert (np.abs(covariance - sigma**2 * np.eye(5)) < 4.5 * error).all()
    assert stats.kstest(((rows - centre) / sigma).ravel(), "norm").pvalue > 1e-3


def test_clipped_fast_fedpg_by_hand(float64):
    """Both exchanges of a round are clipped; agents go on with what they measured."""
    clip, small = 0.15, bowl()
    engine = Simulator(small.problem, private(make("fast-fedpg", small.problem, local_lr=1.5), clip), small.agents)
    engine.start()
    engine.advance(0, 3)
    b, theta = Bowls(trees.take(engine.agents(), 0)), np.zeros(4)
    for _ in range(3):
        own = [b.g(i, theta) for i in b.all]
        common = np.mean([g * min(1.0, clip / np.linalg.norm(g)) for g in own], axis=0)
        ends = [walk(theta, lambda th, k, i=i, c=common, own=own: b.g(i, th) + c - own[i], 3, 1.5)[0] - theta for i in b.all]
        assert any(np.linalg.norm(end) > clip for end in ends)
        theta = theta + np.mean([end * min(1.0, clip / np.linalg.norm(end)) for end in ends], axis=0)
    np.testing.assert_allclose(engine.state().server.shared.params[0], theta, rtol=1e-12)


def test_noise_of_all_agents_and_rounds_is_independent(float64):
    """theta_{r+1} = theta_r + eta mean g_i + mean sigma xi_i: around the path without noise the variance of an entry with mean
    curvature a is sigma^2 / N (1 + q + ... + q^{R-1}), q = (1 - eta a)^2; 400 seeds, 4.5 standard errors."""
    clip, noise, eta, rounds, seeds = 100.0, 1e-3, 0.1, 12, 400
    small, fixed = bowl(agents=5), bowl(agents=5).agents(jax.random.key(3))
    engine = Simulator(
        small.problem, private(make("pavg", small.problem, local_lr=eta, local_steps=1), clip, noise), lambda key: fixed, seeds=seeds
    )
    engine.start()
    engine.advance(0, rounds)
    b, theta = Bowls(fixed), np.zeros(4)
    for _ in range(rounds):
        theta = theta + eta * b.mean(theta)
    away = engine.state().server.shared.params - theta
    q = (1.0 - eta * np.diag(b.curvature.mean(0))) ** 2
    variance = (noise * clip) ** 2 / 5 * (1.0 - q**rounds) / (1.0 - q)
    assert (np.abs(np.mean(away**2, axis=0) / variance - 1.0) < 4.5 * np.sqrt(2.0 / seeds)).all()
    assert (np.abs(np.corrcoef(away.T) - np.eye(4)) < 4.5 / np.sqrt(seeds)).all()


def test_both_engines_roll_the_same_dice_and_pack_alike():
    small = bowl(agents=2, noise=0.3)
    algorithm = compressed(private(make("pavg", small.problem, local_steps=1), 0.5, 0.2), "top-k", 0.5)
    fast, plain = (built(small.problem, algorithm, small.agents) for built in (Simulator, Debug))
    for engine in (fast, plain):
        engine.start()
        engine.advance(0, 1)
    assert_trees_close(fast.state(), plain.state(), rtol=1e-4, atol=1e-5)
    assert len(np.unique(fast.state().agents.inner.dice)) == 2, "rolled as often by every agent"


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("local-only", "pooled")])
def test_no_algorithm_sends_whole_numbers(name):
    direct = {"policy": "direct", "baseline": "none"} if home(name) == "direct" else {}
    small = rl("random-mdp", **direct)
    algorithm = make(name, small.problem)
    shared = algorithm.init(small.problem.init_params(jax.random.key(0)))[0].shared
    for exchange in exchanges_of(algorithm):
        assert len(real_part(exchange.message(shared))[0]) == len(jax.tree.leaves(exchange.message(shared)))


def test_off_is_the_algorithm_itself_and_what_makes_no_sense_is_refused():
    algorithm = make("pavg", bowl().problem)
    assert private(algorithm, 0.0, 0.0) is algorithm
    for clip, noise, said in (
        (0.0, 1.0, "as --clip"),
        (-1.0, 0.0, "clip must be 0"),
        (1.0, float("nan"), "noise must be 0"),
        (float("inf"), 1.0, "finite"),
    ):
        with pytest.raises(UserError, match=said):
            privacy.check(clip, noise)
    for name in ("local-only", "pooled"):
        with pytest.raises(UserError, match=f"{name} sends no messages: leave out --clip and --noise"):
            private(make(name, bowl().problem), 1.0)
