"""Rates: the prescribed steps are the theorem's, constants are those of the problems, and what is measured agrees with the engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedpg.algorithms import fedsvrpg_m
from fedpg.paper import rates
from fedpg.paper.method import FEDSVRPG_M
from fedpg.paper.rates import Constants, RateProblem, Steps
from fedpg.quadratic import bowls, quadratic
from fedpg.simulate import simulator
from fedpg.theory import Constants as TheoryConstants
from fedpg.theory import constants as k
from fedpg.theory import prescribe

KEY = jax.random.key(0)
KNOWN = Constants(smoothness=1.0, spread=3.0, sigma=10.0, gap=4.0, start=8.0)
R = np.array([1000, 8000])


def test_the_same_numbers_as_the_theory():
    """With its worst-case constants handed in as known, beta, lambda, B and the stated limits on eta are those of `prescribe`."""
    c = TheoryConstants(horizon=3, agents=4, local_steps=2, rounds=10**7, sigma=30.0, delta=2.0, g0=5.0)
    theory = prescribe(c)
    own = rates.theorem(Constants(k.Lbar(c), k.Lbar(c), 30.0, 2.0, 5.0), 4, 2, np.array([10**7]), stated=True)
    assert own.beta[0] == pytest.approx(theory.beta)
    assert own.global_lr[0] == pytest.approx(theory.global_lr)
    assert own.batches[0] == theory.B
    assert own.local_lr[0] == pytest.approx(min(limit for name, limit in theory.conditions.items() if name.startswith("theorem")))


def test_powers_of_the_prescription():
    """beta ~ R^(-2/3), lambda ~ R^(-1/3), both times 4 with 4 N and R / 4; B N stays."""
    one, many = rates.theorem(KNOWN, 1, 2, R), rates.theorem(KNOWN, 4, 2, R // 4)
    np.testing.assert_allclose(one.beta[0] / one.beta[1], 4.0)
    np.testing.assert_allclose(one.global_lr[0] / one.global_lr[1], 2.0)
    np.testing.assert_allclose(many.beta / one.beta, 4.0)
    np.testing.assert_allclose(many.global_lr / one.global_lr, 4.0)
    np.testing.assert_allclose(4 * many.batches, one.batches, atol=4.0)
    assert not one.capped.any()


def test_smoothness_limits_lambda_where_the_noise_is_small():
    steps = rates.theorem(KNOWN._replace(sigma=0.1), 64, 2, R, boldness=2.0)
    assert steps.capped.all()
    np.testing.assert_allclose(steps.global_lr, 2.0 / 24.0)


def test_the_fourth_condition_binds_for_small_beta_only():
    stated, own = rates.theorem(KNOWN, 1, 2, R, stated=True), rates.theorem(KNOWN, 1, 2, R)
    assert (own.local_lr < 0.2 * stated.local_lr).all()
    np.testing.assert_allclose(own.local_lr, own.beta / (1.0 - own.beta + own.global_lr * own.beta * R) / 6.0)
    one, same = (rates.theorem(KNOWN._replace(sigma=2.0), 4, 2, np.array([2]), stated=stated) for stated in (False, True))
    assert (one.beta[0], one.local_lr[0]) == (1.0, same.local_lr[0])


def test_pavg_balances_its_two_terms():
    """At its lambda Delta/(lambda R) = L lambda sigma^2 / (2 N K), unless capped."""
    steps = rates.plain(KNOWN, 4, 2, R)
    np.testing.assert_allclose(4.0 / (steps.global_lr * R), steps.global_lr * 100.0 / (2.0 * 8))
    assert steps.batches.max() == 0.0
    assert rates.plain(KNOWN._replace(sigma=1e-3), 4, 2, R).global_lr.max() == 0.5


def gradients(on, count, params):
    found = jax.vmap(on.problem.evaluate, (None, None, 0))(KEY, params, jax.tree.map(jnp.asarray, on.agents(count)))
    return np.asarray(found.gradient)


def test_pairs_of_quadratics_differ_but_average_to_the_same():
    on, params = rates.quadratics(), np.linspace(-1.0, 2.0, rates.DIMENSION)
    alone, four = (gradients(on, count, params) for count in (1, 4))
    np.testing.assert_allclose(four.mean(axis=0), alone[0], rtol=1e-4, atol=1e-5)
    optimum = on.agents(1).centre[0]
    assert np.sum(gradients(on, 4, optimum) ** 2, axis=1).min() > 0.05  # no agent is at rest in the common optimum
    assert np.sum(gradients(on, 4, optimum).mean(axis=0) ** 2) < 1e-9


def measured(problem, agent, probes=4000):
    """The constants of one agent's problem: L along exact ascent from theta_0, S and sigma by sampling at theta_0."""
    flat, unravel = ravel_pytree(problem.init_params(KEY))

    def objective(at):
        return problem.evaluate(KEY, unravel(at), agent).objective

    def probe(key):
        sample, _ = problem.sample(key, unravel(flat), agent, problem.init_memory())
        weighted = jax.jacfwd(lambda at: ravel_pytree(problem.weighted_gradient(sample, unravel(at), unravel(flat))[0])[0])(flat)
        return ravel_pytree(problem.gradient(sample, unravel(flat)))[0], weighted.T @ weighted

    def everything():
        last, path = jax.lax.scan(lambda at, _: (at + jax.grad(objective)(at), at), flat, None, length=1000)
        hessians = jax.vmap(jax.jacfwd(jax.grad(objective)))(path[jnp.array([0, 1, 2, 4, 8, 16, 32])])
        samples, squares = jax.vmap(probe)(jax.random.split(KEY, probes))
        return objective(last) - objective(flat), jax.grad(objective)(flat), hessians, samples, squares.mean(0)

    gap, gradient, hessians, samples, squares = (np.asarray(x, float) for x in jax.jit(everything)())
    smoothness = float(np.abs(np.linalg.eigvalsh(hessians)).max())
    spread = max(smoothness, float(np.sqrt(np.linalg.eigvalsh(squares).max())))
    sigma = float(np.sqrt(np.mean(np.sum((samples - gradient) ** 2, axis=1))))
    return Constants(smoothness, spread, sigma, float(gap), float(gradient @ gradient))


def test_constants_of_the_random_mdp_measured_again():
    on = rates.random_mdp()
    agents = on.agents(3)
    assert np.ptp(agents.reward, axis=0).max() == 0.0
    np.testing.assert_allclose(measured(on.problem, jax.tree.map(lambda x: x[0], agents)), on.constants, rtol=0.05)


def test_constants_of_the_quadratics_measured_again():
    """For one agent of a pair: smoothness, spread and gap are its own; together they give what the theorem needs."""
    on = rates.quadratics()
    alone = measured(on.problem, jax.tree.map(lambda x: jnp.asarray(x[0]), on.agents(1)))
    pair = [measured(on.problem, jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), on.agents(2))) for i in range(2)]
    c = on.constants
    assert (alone.smoothness, alone.gap) == (pytest.approx(c.smoothness, rel=1e-3), pytest.approx(c.gap, rel=1e-3))
    assert max(one.spread for one in pair) == pytest.approx(c.spread, rel=0.05)
    assert np.sqrt(np.mean([one.sigma**2 for one in pair])) == pytest.approx(c.sigma, rel=0.05)
    assert np.mean([one.start for one in pair]) == pytest.approx(c.start, rel=1e-3)


def test_running_mean_is_the_sum_over_rounds_before():
    """Exact when every round is known; along a straight line also when few are."""
    rounds, values = np.arange(5), np.array([8.0, 4.0, 2.0, 1.0, 0.5])
    np.testing.assert_allclose(rates.running_mean(rounds, values), [8.0, 8.0, 6.0, 14 / 3, 15 / 4])
    line, few = 100.0 - 3.0 * np.arange(31), np.array([0, 1, 10, 30])
    np.testing.assert_allclose(rates.running_mean(few, line[few]), [line[0]] + [line[:r].mean() for r in few[1:]])


def test_every_end_and_all_early_rounds_are_evaluated():
    found = rates.evaluated(np.array([100, 37, 1000]))
    assert {0, 1, 2, 3, 4, 5, 37, 100, 1000} <= set(found.tolist())
    assert (np.diff(found) <= 1.0 + found[:-1] * (2.0 ** (1.0 / rates.PER_OCTAVE) - 1.0)).all()
    assert rates.evaluated(np.array([1])).tolist() == [0, 1]


SMALL = RateProblem("small", quadratic(4, 0.3, 0.5), lambda count: bowls(jax.random.key(1), count, 0.5), Constants(1, 1, 1, 1, 1))
PARTS = {
    "short": Steps(*(np.array(x) for x in ([3, 7], [0.3, 0.1], [0.2, 0.1], [0.1, 0.1], [2.0, 5.0], [False, False]))),
    "plain": Steps(*(np.array(x) for x in ([5], [1.0], [0.2], [0.1], [0.0], [False]))),
}


def test_measurements_agree_with_the_engine_round_by_round():
    """Averages over each setting's own rounds, B batches behind u_0 counted, and beta = 1 without any."""
    runs = rates.measure(SMALL, FEDSVRPG_M, PARTS, 2, 2, 2)
    short, plain = runs["short"], runs["plain"]
    assert short.averages.shape == (2, 2)
    np.testing.assert_array_equal(short.rounds, np.arange(8))
    np.testing.assert_array_equal(short.per_agent, [2 * 3 + 2, 2 * 7 + 5])
    np.testing.assert_array_equal(plain.per_agent, [10])
    np.testing.assert_allclose(short.ess, 1.0, rtol=1e-6)
    with jax.enable_x64(True):
        members = jax.tree.map(lambda x: jnp.asarray(x, float), SMALL.agents(2))
        pavg = fedsvrpg_m(SMALL.problem, beta=1.0, local_lr=0.1, global_lr=0.2, local_steps=2)
        sim, seen = simulator(SMALL.problem, pavg, members, seeds=2), []
        state = sim.init(jax.random.key(0))
        for _ in range(5):
            seen.append(np.asarray(sim.evaluate(state).grad_norm_sq))
            state, _ = sim.run(state, 1)
    np.testing.assert_allclose(plain.averages[0], np.mean(seen, axis=0), rtol=1e-9)
    assert abs(plain.averages[0, 0] / plain.averages[0, 1] - 1.0) > 1e-3  # seeds differ


def test_the_initial_direction_averages_the_asked_number_of_batches():
    """u_0 is as accurate as B says, and B batches are counted."""

    def direction(batches, key):
        algorithm = fedsvrpg_m(SMALL.problem, beta=0.5, local_lr=0.1)
        (exchange,) = rates.initial_direction(SMALL.problem, jnp.asarray(batches))
        server, memory = algorithm.init(jnp.zeros(4))
        agent = jax.tree.map(lambda x: x[0], SMALL.agents(2))
        u, _, info = exchange.local_update(key, server.shared, memory, agent)
        return u - SMALL.problem.evaluate(key, jnp.zeros(4), agent).gradient, info.usage.trajectories

    both = jax.jit(jax.vmap(jax.vmap(direction, (None, 0)), (0, None)))
    errors, counted = both(jnp.array([1.0, 16.0]), jax.random.split(KEY, 400))
    np.testing.assert_array_equal(counted, np.repeat([[1], [16]], 400, axis=1))
    spread = np.mean(np.sum(np.asarray(errors) ** 2, axis=-1), axis=1)
    np.testing.assert_allclose(spread[0] / spread[1], 16.0, rtol=0.25)
