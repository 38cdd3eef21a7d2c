"""The stabilised variants against recursions by hand, their fixed point, and what they do with bad measurements."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import fedhapg_s, fedsvrpg_m, fedsvrpg_s, pavg
from fedpg.algorithms import stabilised as module
from fedpg.algorithms.stabilised import Past, few_steps_gain, first_rounds, worth
from fedpg.errors import UserError
from fedpg.quadratic import Bowl, quadratic
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, Small, bowl, make, run

BOWLS = Bowl(jnp.stack([jnp.diag(jnp.array([1.0, 2.0])), jnp.diag(jnp.array([3.0, 0.5]))]), jnp.array([[1.0, -1.0], [-2.0, 0.5]]))
GRADIENTS = [lambda th, i=i: -np.asarray(BOWLS.curvature[i], float) @ (th - np.asarray(BOWLS.centre[i], float)) for i in range(2)]
BETA, ETA, STEPS = 0.3, 0.05, 3


def params_after(algorithm, problem, agents, rounds, seeds=1):
    return run(Small(problem, agents), algorithm, rounds, seeds).shared.params


def by_hand(rounds, *, lookback, gain=1.0, stretch=1.0, plain_rounds=1, beta=BETA, eta=ETA, steps=STEPS):
    """theta after some rounds without noise, in NumPy; `fitted` with a_i = 1: Y is exact on a quadratic, for both variants."""
    theta, u, past = np.zeros(2), np.zeros(2), [None, None]
    for r in range(rounds):
        own, deltas = (beta, []) if u.any() else (1.0, [])
        kappa = min(gain, 1 / own)
        for i, gradient in enumerate(GRADIENTS):
            th, path, slopes = theta.copy(), [], []
            for _ in range(steps):
                g = gradient(th)
                d = np.zeros(2)
                if past[i] is not None and lookback == "memory":
                    d = g - past[i][0]
                elif past[i] is not None and lookback == "fitted":
                    d = g - gradient(past[i][1])
                path.append(th)
                slopes.append(g)
                th = th + eta * (own * g + (1 - own) * u + (1 / kappa - own if own < 1 else 0) * d)
            past[i] = np.mean(slopes, 0), np.mean(path, 0)
            deltas.append(th - theta)
        u = u + kappa * (np.mean(deltas, 0) / (eta * steps) - u)
        sigma = stretch if own < 1 else 1.0
        theta = theta + sigma * eta * steps * u
        u = u if r + 1 >= plain_rounds else np.zeros(2)
    return theta


LOOKS = [("none", 2.0), ("none", 100.0), ("memory", 1.0), ("memory", 2.0), ("fitted", 1.0), ("fitted", 2.0), ("fitted", 100.0)]


@pytest.mark.parametrize("factory", [fedsvrpg_s, fedhapg_s], ids=["fedsvrpg-s", "fedhapg-s"])
@pytest.mark.parametrize(("lookback", "gain"), LOOKS)
def test_the_recursion_is_that_written_by_hand(factory, lookback, gain, monkeypatch):
    monkeypatch.setattr(module, "worth", lambda past: jnp.ones(()))
    problem = quadratic(2)
    algorithm = factory(problem, beta=BETA, local_lr=ETA, local_steps=STEPS, lookback=lookback, gain=gain, stretch=1.3, plain_rounds=1)
    ours = params_after(algorithm, problem, BOWLS, 5)
    np.testing.assert_allclose(ours[0], by_hand(5, lookback=lookback, gain=gain, stretch=1.3), rtol=2e-5)


@pytest.mark.parametrize("plain_rounds", [2, 3])
def test_it_is_pavg_for_as_long_as_it_is_told_to_be(plain_rounds):
    problem, steps = quadratic(2), {"local_lr": ETA, "local_steps": STEPS}
    algorithm = fedsvrpg_s(problem, beta=BETA, plain_rounds=plain_rounds, gain=2.0, **steps)
    plain = [params_after(pavg(problem, **steps), problem, BOWLS, rounds)[0] for rounds in (plain_rounds, plain_rounds + 1)]
    ours = [params_after(algorithm, problem, BOWLS, rounds)[0] for rounds in (plain_rounds, plain_rounds + 1, 6)]
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-6)
    assert np.abs(ours[1] - plain[1]).max() > 1e-3
    np.testing.assert_allclose(ours[2], by_hand(6, lookback="none", gain=2.0, stretch=1.1, plain_rounds=plain_rounds), rtol=2e-5)


def test_left_alone_it_remembers_at_most_a_quarter_of_k_rounds_and_steps_a_tenth_further():
    problem = quadratic(2)
    ours = params_after(fedsvrpg_s(problem, beta=BETA, local_lr=ETA, local_steps=STEPS), problem, BOWLS, 7)
    np.testing.assert_allclose(ours[0], by_hand(7, lookback="none", gain=4 / (BETA * STEPS), stretch=1.1, plain_rounds=4), rtol=2e-5)
    assert [float(few_steps_gain(0.2, steps)) for steps in (1, 8, 10, 128)] == [20.0, 2.5, 2.0, 2.0]
    assert [first_rounds(steps) for steps in (1, 32, 33, 64, 65, 127, 128, 500)] == [4, 4, 4, 2, 2, 2, 1, 1]


@pytest.mark.parametrize(("lookback", "same"), [("memory", True), ("fitted", False)])
def test_who_believes_all_of_the_change_needs_one_plain_round_and_the_printed_server(lookback, same):
    problem, steps = quadratic(2), {"beta": BETA, "local_lr": ETA, "local_steps": STEPS, "lookback": lookback}
    left_alone, told = (
        params_after(fedsvrpg_s(problem, **steps, **more), problem, BOWLS, 5) for more in ({}, {"plain_rounds": 1, "gain": 1.0})
    )
    assert np.array_equal(left_alone, told) == same


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_a_measured_change_is_counted_once(gain, monkeypatch):
    """A gradient that never changes but is said to grow by D: u_{r+1} = gamma g + (1-gamma) (u_r + D) rests at g + (1-gamma)/gamma D."""
    grown = jnp.array([0.3, -0.2])
    monkeypatch.setattr(module, "worth", lambda past: jnp.ones(()))  # the measurement is believed
    steady = quadratic(2)._replace(gradient=lambda draw, params: jnp.array([1.0, 2.0]), hessian_vector=lambda draw, params, vector: grown)
    ran = run(Small(steady, BOWLS), fedhapg_s(steady, beta=BETA, local_lr=ETA, local_steps=30, gain=gain), 60)
    gamma = gain * BETA
    at_rest = np.array([1.0, 2.0]) + (1 - gamma) / gamma * np.asarray(grown)
    np.testing.assert_allclose(ran.shared.direction[0], at_rest, rtol=1e-3)


def test_where_its_hessian_term_is_worth_nothing_fedhapg_s_is_fedsvrpg_s():
    small = SMALL["random-mdp"]()
    blind = small.problem._replace(hessian_vector=lambda sample, params, vector: trees.zeros_like(vector))
    steps = {"beta": 0.2, "local_lr": 0.1, "local_steps": 12}
    ours, other = (params_after(factory(blind, **steps), blind, small.agents, 14) for factory in (fedhapg_s, fedsvrpg_s))
    assert_trees_close(ours, other, rtol=1e-5)


@pytest.mark.parametrize("name", ["fedsvrpg-s", "fedhapg-s"])
@pytest.mark.parametrize("world", ["bowl", "random-mdp"])
def test_beta_one_is_pavg_bit_for_bit(name, world):
    small = SMALL[world]()
    ours, plain = (
        params_after(make(n, small.problem, **more), small.problem, small.agents, 3) for n, more in ((name, {"beta": 1.0}), ("pavg", {}))
    )
    assert_trees_close(ours, plain)


@pytest.mark.parametrize("factory", [fedsvrpg_s, fedhapg_s])
def test_with_one_local_step_there_is_nothing_to_keep_quiet_and_it_is_pavg(factory):
    small = bowl(agents=3, noise=0.1)
    steps = {"local_lr": 0.1, "local_steps": 1}
    ours = params_after(factory(small.problem, beta=0.2, stretch=1.0, **steps), small.problem, small.agents, 8)
    plain = params_after(pavg(small.problem, **steps), small.problem, small.agents, 8)
    assert_trees_close(ours, plain, rtol=1e-4)


def test_the_largest_gain_makes_the_server_step_along_the_mean_gradient_of_the_paths():
    problem = quadratic(2)
    algorithm = fedsvrpg_s(problem, beta=BETA, local_lr=ETA, local_steps=STEPS, gain=1.0 / BETA, plain_rounds=1)
    before, after = (run(Small(problem, BOWLS), algorithm, rounds).shared for rounds in (1, 2))
    theta, u = np.asarray(before.params[0], float), np.asarray(before.direction[0], float)
    slopes = []
    for gradient in GRADIENTS:
        th = theta
        for _ in range(STEPS):
            slopes.append(gradient(th))
            th = th + ETA * (BETA * slopes[-1] + (1 - BETA) * u)
    np.testing.assert_allclose(after.direction[0], np.mean(slopes, 0), rtol=1e-4)


def floor(algorithm, problem, agents):
    """|grad J|^2 where a run without noise comes to rest."""
    ran = run(Small(problem, agents), algorithm, 600)
    return float(ran.sim.evaluate(ran.state).grad_norm_sq[0])


def test_the_bias_of_local_steps_falls_with_beta_squared_and_the_printed_algorithm_keeps_it():
    """At rest u = 0: agents drift by eta k beta g_i, and only the printed algorithm's beta cancels."""
    small = bowl(agents=4)
    steps = {"local_lr": 0.02, "local_steps": 8}
    plain = floor(pavg(small.problem, **steps), small.problem, small.agents)
    assert plain > 1e-4
    assert floor(fedsvrpg_m(small.problem, beta=0.3, **steps), small.problem, small.agents) == pytest.approx(plain, rel=0.02)
    for factory, beta in (
        (fedsvrpg_s, 0.25),
        (partial(fedsvrpg_s, lookback="memory"), 0.25),
        (fedhapg_s, 0.25),
        (fedhapg_s, 0.03),  # a change counted more than once would not settle here
    ):
        assert floor(factory(small.problem, beta=beta, **steps), small.problem, small.agents) < 1.3 * beta**2 * plain


def test_a_measurement_is_worth_what_it_foretold():
    def past(along, size):
        return worth(Past(jnp.ones(()), (), (), (), jnp.asarray(along), jnp.asarray(size)))

    assert [float(past(*sums)) for sums in ((0.0, 0.0), (1.0, 4.0), (-1.0, 4.0), (9.0, 4.0))] == [0.0, 0.25, 0.0, 1.0]


def test_noise_is_worth_nothing_and_an_exact_measurement_much():
    """The same bowls; Lambda is exact there. With it replaced by noise, a_i must fall to about nothing."""
    small = bowl(agents=3, noise=0.1)
    noisy = small.problem._replace(hessian_vector=lambda draw, params, vector: 10.0 * draw.noise)
    found = []
    for problem in (small.problem, noisy):
        ran = run(Small(problem, small.agents), fedhapg_s(problem, beta=0.2, local_lr=0.05, local_steps=20), 4, seeds=4)
        found.append(float(np.mean(jax.vmap(jax.vmap(worth))(ran.state.rows.agents.past))))
    assert found[1] < 0.05 < 0.3 < found[0]


def test_who_does_not_look_back_keeps_nothing():
    small = SMALL["random-mdp"]()
    _, state = make("fedsvrpg-s", small.problem).init(small.problem.init_params(jax.random.key(0)))
    assert state.past == ()


def test_the_first_round_is_always_plain():
    with pytest.raises(UserError, match="plain_rounds must be at least 1"):
        fedsvrpg_s(quadratic(2), local_lr=0.1, plain_rounds=0)


def test_unknown_lookback():
    with pytest.raises(UserError, match="lookback"):
        fedsvrpg_s(quadratic(2), local_lr=0.1, lookback="forward")
