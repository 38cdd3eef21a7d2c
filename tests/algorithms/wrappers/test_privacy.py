"""Clipping and noise of messages: their size and distribution against NumPy, and the key that the noise comes from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedpg import trees
from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.base import Algorithm, ServerState, exchanges_of
from fedpg.algorithms.wrappers import attack, chain, compressed, private
from fedpg.algorithms.wrappers.base import parts
from fedpg.algorithms.wrappers.privacy import clipped, protected, with_secret
from fedpg.errors import UserError
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_trees_close
from helpers.federations import Small, bowl, home, make, rl, run
from helpers.loops import Bowls, walk

MESSAGE = {"a": jnp.array([[3.0, 0.0], [0.0, 4.0]]), "b": jnp.array(12.0)}  # of norm 13
NOTHING = trees.zeros_like(MESSAGE)


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_a_long_message_gets_exactly_the_length_it_may_have_and_keeps_its_direction(scale):
    clip, x = 6.5 * scale, jnp.asarray([3.0, 0.0, 0.0, 4.0, 12.0]) * scale  # of norm 13
    short = clipped(x, clip)
    assert np.linalg.norm(np.asarray(short, np.float64) / clip) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(short, 0.5 * x, rtol=1e-6)
    np.testing.assert_array_equal(clipped(x, 13.1 * scale), x)


def test_only_the_distance_from_the_predicted_message_is_clipped():
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
    ran = run(small, chain(make("fast-fedpg", small.problem, local_lr=1.5), private(clip)), 3)
    b, theta = Bowls(trees.take(ran.state.agents, 0)), np.zeros(4)
    for _ in range(3):
        own = [b.g(i, theta) for i in b.all]
        common = np.mean([g * min(1.0, clip / np.linalg.norm(g)) for g in own], axis=0)
        ends = [walk(theta, lambda th, k, i=i, c=common, own=own: b.g(i, th) + c - own[i], 3, 1.5)[0] - theta for i in b.all]
        assert any(np.linalg.norm(end) > clip for end in ends)
        theta = theta + np.mean([end * min(1.0, clip / np.linalg.norm(end)) for end in ends], axis=0)
    np.testing.assert_allclose(ran.shared.params[0], theta, rtol=1e-12)


def test_noise_of_all_agents_and_rounds_is_independent(float64):
    """theta_{r+1} = theta_r + eta mean g_i + mean sigma xi_i: around the path without noise the variance of an entry with mean
    curvature a is sigma^2 / N (1 + q + ... + q^{R-1}), q = (1 - eta a)^2; 400 seeds, 4.5 standard errors."""
    clip, noise, eta, rounds, seeds = 100.0, 1e-3, 0.1, 12, 400
    small, fixed = bowl(agents=5), bowl(agents=5).agents(jax.random.key(3))
    algorithm = chain(make("pavg", small.problem, local_lr=eta, local_steps=1), private(clip, noise))
    ran = run(Small(small.problem, fixed), algorithm, rounds, seeds)
    b, theta = Bowls(fixed), np.zeros(4)
    for _ in range(rounds):
        theta = theta + eta * b.mean(theta)
    away = np.asarray(ran.shared.params) - theta
    q = (1.0 - eta * np.diag(b.curvature.mean(0))) ** 2
    variance = (noise * clip) ** 2 / 5 * (1.0 - q**rounds) / (1.0 - q)
    assert (np.abs(np.mean(away**2, axis=0) / variance - 1.0) < 4.5 * np.sqrt(2.0 / seeds)).all()
    assert (np.abs(np.corrcoef(away.T) - np.eye(4)) < 4.5 / np.sqrt(seeds)).all()


def test_both_engines_draw_the_same_noise_and_compress_alike():
    small = bowl(agents=2, noise=0.3)
    algorithm = chain(make("pavg", small.problem, local_steps=1), private(0.5, 0.2), compressed("top-k", 0.5))
    fast, plain = (run(small, algorithm, 1, engine=engine).state.rows for engine in (simulator, plain_simulator))
    assert_trees_close(fast, plain, rtol=1e-4, atol=1e-5)
    assert len(np.unique(fast.agents.inner.noise_key)) == 2, "advanced as often by every agent"


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("local-only", "pooled")])
def test_no_algorithm_sends_whole_numbers(name):
    direct = {"policy": "direct", "baseline": "none"} if home(name) == "direct" else {}
    small = rl("random-mdp", **direct)
    algorithm = make(name, small.problem)
    shared = algorithm.init(small.problem.init_params(jax.random.key(0)))[0].shared
    for exchange in exchanges_of(algorithm):
        assert parts(exchange.predicted(shared)).others == []


def test_off_is_the_algorithm_itself_and_what_makes_no_sense_is_refused():
    algorithm = make("pavg", bowl().problem)
    assert chain(algorithm, private(0.0, 0.0)) is algorithm
    for clip, noise, said in (
        (0.0, 1.0, "as --clip"),
        (-1.0, 0.0, "clip must be 0"),
        (1.0, float("nan"), "noise must be 0"),
        (float("inf"), 1.0, "finite"),
    ):
        with pytest.raises(UserError, match=said):
            private(clip, noise)
    for name in ("local-only", "pooled"):
        with pytest.raises(UserError, match=f"{name} sends no messages: leave out --clip and --noise"):
            chain(make(name, bowl().problem), private(1.0))


SECRET = bytes(range(32))


def noises(algorithm, state, keys):
    """What an agent with the message 0 sends, one message for each key, one state after another."""
    found = []
    for key in keys:
        message, state, _ = algorithm.local_update(key, (), state, ())
        found.append(float(message[0]))
    return found


def silent() -> Algorithm:
    def local_update(key, shared, state, agent):
        return jnp.zeros(1), state, ()

    return Algorithm("silent", lambda params: (ServerState(()), ()), local_update, None, predicted=lambda shared: jnp.zeros(1))


def test_noise_comes_from_the_agent_s_own_key_and_never_repeats():
    algorithm = chain(silent(), private(1.0, 1.0))
    _, state = algorithm.init(())
    keys = list(jax.random.split(jax.random.key(1), 3))
    simulated = noises(algorithm, state, keys)
    assert simulated == noises(algorithm, state, keys), "a simulation can be repeated"
    assert len({*simulated, *noises(algorithm, state, keys[::-1])}) > 3, "agents, whose keys differ, differ from the first message on"
    again = noises(algorithm, state, [keys[0]] * 50)
    assert len(set(again)) == 50, "one round's key asked for twice"
    secret = with_secret(state, SECRET)
    assert secret.noise_key.dtype == jnp.uint32
    assert secret.noise_key.shape == (2,)
    assert not {*simulated} & {*noises(algorithm, secret, keys)}, "the server knows the keys, and not the secret"
    assert noises(algorithm, secret, keys) == noises(algorithm, with_secret(state, SECRET), keys)
    assert not np.array_equal(secret.noise_key, with_secret(state, SECRET[::-1]).noise_key)
    assert abs(np.mean(again)) < 4.5 / np.sqrt(50)


def test_a_secret_reaches_the_noise_key_through_other_wrappers():
    algorithm = chain(make("scaffold", bowl().problem), private(1.0, 1.0), compressed("top-k"))
    _, state = algorithm.init(jnp.zeros(4))
    secret = with_secret(state, SECRET)
    assert not np.array_equal(secret.inner.noise_key, state.inner.noise_key)
    assert_trees_close(secret._replace(inner=secret.inner._replace(noise_key=state.inner.noise_key)), state)
    with pytest.raises(UserError, match="has a noise key"):
        with_secret(state.inner.inner, SECRET)
    with pytest.raises(UserError, match="at least 16 bytes, not 4"):
        with_secret(state, b"four")


def test_whole_numbers_are_refused_except_for_the_keys_of_attackers():
    def local_update(key, shared, state, agent):
        return {"sum": jnp.zeros(2), "visits": jnp.arange(3)}, state, ()

    counting = silent()._replace(
        name="counting", local_update=local_update, predicted=lambda shared: {"sum": jnp.zeros(2), "visits": jnp.arange(3)}
    )
    noised = chain(counting, private(1.0, 1.0))
    _, state = noised.init(())
    with pytest.raises(UserError, match="counting sends whole numbers, which noise does not protect"):
        noised.local_update(jax.random.key(0), (), state, ())
    attacked = chain(silent(), attack("zero", 1), private(1.0, 1.0))
    message, _, _ = attacked.local_update(jax.random.key(0), (), state, ())
    assert message.inner[0] != 0
    assert message.attack_key.dtype == jnp.uint32
