"""FedSVRPG-S against a recursion by hand, its fixed point, and its identities with PAvg."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import fedsvrpg_m, fedsvrpg_s, pavg
from fedpg.errors import UserError
from fedpg.quadratic import Bowl, quadratic
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, Small, bowl, make, run

BOWLS = Bowl(jnp.stack([jnp.diag(jnp.array([1.0, 2.0])), jnp.diag(jnp.array([3.0, 0.5]))]), jnp.array([[1.0, -1.0], [-2.0, 0.5]]))
GRADIENTS = [lambda th, i=i: -np.asarray(BOWLS.curvature[i], float) @ (th - np.asarray(BOWLS.centre[i], float)) for i in range(2)]
BETA, ETA, STEPS = 0.3, 0.05, 3


def params_after(algorithm, problem, agents, rounds, seeds=1):
    return run(Small(problem, agents), algorithm, rounds, seeds).shared.params


def by_hand(rounds, *, gain=1.0, stretch=1.0, plain_rounds=1, beta=BETA, eta=ETA, steps=STEPS):
    """theta after some rounds without noise, in NumPy."""
    theta, u = np.zeros(2), np.zeros(2)
    for r in range(rounds):
        own, deltas = (beta, []) if u.any() else (1.0, [])
        kappa = min(gain, 1 / own)
        for gradient in GRADIENTS:
            th = theta.copy()
            for _ in range(steps):
                th = th + eta * (own * gradient(th) + (1 - own) * u)
            deltas.append(th - theta)
        u = u + kappa * (np.mean(deltas, 0) / (eta * steps) - u)
        sigma = stretch if own < 1 else 1.0
        theta = theta + sigma * eta * steps * u
        u = u if r + 1 >= plain_rounds else np.zeros(2)
    return theta


@pytest.mark.parametrize("gain", [2.0, 100.0])
def test_the_recursion_is_that_written_by_hand(gain):
    problem = quadratic(2)
    algorithm = fedsvrpg_s(problem, beta=BETA, local_lr=ETA, local_steps=STEPS, gain=gain, stretch=1.3, plain_rounds=1)
    ours = params_after(algorithm, problem, BOWLS, 5)
    np.testing.assert_allclose(ours[0], by_hand(5, gain=gain, stretch=1.3), rtol=2e-5)


@pytest.mark.parametrize("plain_rounds", [2, 3])
def test_it_is_pavg_for_as_long_as_it_is_told_to_be(plain_rounds):
    problem, steps = quadratic(2), {"local_lr": ETA, "local_steps": STEPS}
    algorithm = fedsvrpg_s(problem, beta=BETA, plain_rounds=plain_rounds, gain=2.0, **steps)
    plain = [params_after(pavg(problem, **steps), problem, BOWLS, rounds)[0] for rounds in (plain_rounds, plain_rounds + 1)]
    ours = [params_after(algorithm, problem, BOWLS, rounds)[0] for rounds in (plain_rounds, plain_rounds + 1, 6)]
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-6)
    assert np.abs(ours[1] - plain[1]).max() > 1e-3
    np.testing.assert_allclose(ours[2], by_hand(6, gain=2.0, stretch=1.1, plain_rounds=plain_rounds), rtol=2e-5)


def test_left_alone_it_remembers_at_most_a_quarter_of_k_rounds_and_steps_a_tenth_further():
    problem = quadratic(2)
    ours = params_after(fedsvrpg_s(problem, beta=BETA, local_lr=ETA, local_steps=STEPS), problem, BOWLS, 7)
    np.testing.assert_allclose(ours[0], by_hand(7, gain=4 / (BETA * STEPS), stretch=1.1, plain_rounds=4), rtol=2e-5)


@pytest.mark.parametrize("task", ["bowl", "random-mdp"])
def test_beta_one_is_pavg_bit_for_bit(task):
    small = SMALL[task]()
    ours, plain = (
        params_after(make(n, small.problem, **more), small.problem, small.agents, 3)
        for n, more in (("fedsvrpg-s", {"beta": 1.0}), ("pavg", {}))
    )
    assert_trees_close(ours, plain)


def test_with_one_local_step_it_is_pavg():
    small = bowl(agents=3, noise=0.1)
    steps = {"local_lr": 0.1, "local_steps": 1}
    ours = params_after(fedsvrpg_s(small.problem, beta=0.2, stretch=1.0, **steps), small.problem, small.agents, 8)
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
    assert floor(fedsvrpg_s(small.problem, beta=0.25, **steps), small.problem, small.agents) < 1.3 * 0.25**2 * plain


def test_the_first_round_is_always_plain():
    with pytest.raises(UserError, match="plain_rounds must be at least 1"):
        fedsvrpg_s(quadratic(2), local_lr=0.1, plain_rounds=0)
