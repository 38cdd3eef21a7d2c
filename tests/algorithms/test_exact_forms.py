"""PAvg's exact forms and FedNPG, against loops and closed forms written out, and on problems they must refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies, trees
from fedpg.algorithms.fednpg import fednpg
from fedpg.algorithms.pavg_exact import pavg_npg, pavg_projected, pavg_softmax
from fedpg.envs.tabular import MDP, environment
from fedpg.errors import UserError
from fedpg.gradients import exact
from fedpg.problem import exact_policy_gradient
from helpers.enumeration import softmax_table
from helpers.federations import SMALL

WORLD = environment("three", 3, 2)
SOFTMAX, DIRECT = (policies.make(name, WORLD) for name in ("softmax", "direct"))
START = np.array([[0.3, -0.2], [0.0, 1.0], [-0.5, 0.4]])
DISCOUNT = 0.8
MASS = 1 / (1 - DISCOUNT)


def agents(count: int, same_kernel: bool = False) -> MDP:
    random = np.random.default_rng(0)
    kernels, starts = random.dirichlet(np.ones(3), size=(count, 3, 2)), random.dirichlet(np.ones(3), size=count)
    kernels = np.repeat(kernels[:1], count, axis=0) if same_kernel else kernels
    return MDP(*map(jnp.asarray, (kernels, random.uniform(size=(count, 3, 2)), starts)))


def problem_of(policy=SOFTMAX, horizon=None):
    return exact_policy_gradient(WORLD, policy, discount=DISCOUNT, horizon=horizon)


def after(algorithm, params, members, rounds=1):
    """The params of the server after some rounds, and what the first round's infos say."""
    server, state = algorithm.init(params)
    count = len(members.start)

    @jax.jit
    def round_of(server):
        update = jax.vmap(algorithm.local_update, (0, None, None, 0))
        messages, _, infos = update(jax.random.split(jax.random.key(0), count), server.shared, state, members)
        return algorithm.aggregate(server, messages, jnp.ones(count))[0], infos

    for _ in range(rounds):
        server, infos = round_of(server)
    return jax.tree.map(np.asarray, server.shared.params), infos


def advantages(mdp, pi):
    """x and A of one agent without a horizon, by linear algebra in NumPy."""
    p, r, rho = (np.asarray(x) for x in mdp)
    left = np.eye(3) - DISCOUNT * np.einsum("sa,sat->st", pi, p)
    q = r + DISCOUNT * p @ np.linalg.solve(left, (pi * r).sum(1))
    return np.linalg.solve(left.T, rho), q - (pi * q).sum(1, keepdims=True), q


def test_one_agent_one_step_of_pavg_softmax_is_gradient_ascent(float64):
    """Three rounds, by differentiating J itself."""
    members, params = agents(1), {"logits": jnp.asarray(START)}
    found, infos = after(pavg_softmax(problem_of(), local_lr=0.7), params, members, rounds=3)
    slope = jax.jit(jax.grad(lambda p: exact.objective(SOFTMAX, p, trees.take(members, 0), DISCOUNT, None)))
    for _ in range(3):
        params = trees.add_scaled(params, 0.7, slope(params))
    np.testing.assert_allclose(found["logits"], params["logits"], rtol=1e-10)
    assert [int(x.sum()) for x in infos.usage[:2]] == [0, 0]


def test_a_step_of_pavg_npg_is_multiplicative(float64):
    members, lr = agents(1), 0.3
    found, _ = after(pavg_npg(problem_of(), local_lr=lr), {"logits": jnp.asarray(START)}, members)
    pi = softmax_table(START)
    grown = pi * np.exp(lr * MASS * advantages(trees.take(members, 0), pi)[1])
    np.testing.assert_allclose(softmax_table(found["logits"]), grown / grown.sum(1, keepdims=True), rtol=1e-10)


def test_local_steps_and_the_mean_of_logits_by_hand(float64):
    members, lr = agents(3), 0.2
    found, _ = after(pavg_npg(problem_of(), local_lr=lr, local_steps=2), {"logits": jnp.asarray(START)}, members)
    ends = []
    for i in range(3):
        logits = START
        for _ in range(2):
            logits = logits + lr * MASS * advantages(trees.take(members, i), softmax_table(logits))[1]
        ends.append(logits)
    np.testing.assert_allclose(found["logits"], np.mean(ends, axis=0), rtol=1e-10)


def test_pavg_projected_by_hand_stays_on_the_simplex(float64):
    """Two rounds of two steps along x Q, each row projected by a search for its threshold."""
    members, lr, start = agents(2), 0.5, np.full((3, 2), 0.5)
    found, _ = after(pavg_projected(problem_of(DIRECT), local_lr=lr, local_steps=2), {"probabilities": jnp.asarray(start)}, members, 2)

    def projected(row, floor=1e-3):
        low, high = row.min() - 2.0, row.max()
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(row - middle, floor).sum() > 1 else (low, middle)
        return np.maximum(row - low, floor)

    common = start
    for _ in range(2):
        ends = []
        for i in range(2):
            pi = common
            for _ in range(2):
                x, _, q = advantages(trees.take(members, i), pi)
                pi = np.array([projected(row) for row in pi + lr * x[:, None] * q])
            ends.append(pi)
        common = np.mean(ends, axis=0)
    np.testing.assert_allclose(found["probabilities"], common, atol=1e-9)
    np.testing.assert_allclose(found["probabilities"].sum(1), 1.0, atol=1e-12)
    assert found["probabilities"].min() >= 1e-3 - 1e-12


def test_fednpg_with_equal_agents_is_the_closed_form_and_pavg_npg(float64):
    one, lr, params = agents(1), 0.3, {"logits": jnp.asarray(START)}
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), one)
    found, infos = after(fednpg(problem_of(), local_lr=lr), params, twice)
    natural, _ = after(pavg_npg(problem_of(), local_lr=lr), params, one)
    np.testing.assert_allclose(softmax_table(found["logits"]), softmax_table(natural["logits"]), rtol=1e-10)
    assert int(infos.usage.trajectories.sum()) == 0


def test_fednpg_with_entropy_settles_at_the_soft_optimum(float64):
    """One agent: pi proportional to exp(Q*/tau), with Q* from soft value iteration."""
    members, tau = agents(1), 0.4
    p, r, _ = (np.asarray(x[0]) for x in members)
    v = np.zeros(3)
    for _ in range(300):
        v = tau * np.log(np.exp((r + DISCOUNT * p @ v) / tau).sum(1))
    best = softmax_table((r + DISCOUNT * p @ v) / tau)
    lr = 0.5 / (tau * MASS)
    found, _ = after(fednpg(problem_of(), local_lr=lr, temperature=tau), {"logits": jnp.asarray(START)}, members, rounds=60)
    np.testing.assert_allclose(softmax_table(found["logits"]), best, atol=1e-8)


def test_weighting_by_occupancy_is_the_natural_gradient_of_the_mean(float64):
    """With different kernels: a small step changes log pi by mean_i x_i A_i / mean_i x_i, and the plain mean does not."""
    members, lr, pi = agents(2), 1e-6, softmax_table(START)
    xs, aa, _ = zip(*(advantages(trees.take(members, i), pi) for i in range(2)), strict=True)
    slope = sum(x[:, None] * a for x, a in zip(xs, aa, strict=True)) / sum(xs)[:, None]
    moved = {}
    for weighting in ("occupancy", "mean"):
        found, _ = after(fednpg(problem_of(), local_lr=lr, weighting=weighting), {"logits": jnp.asarray(START)}, members)
        change = (np.log(softmax_table(found["logits"])) - np.log(pi)) / (lr * MASS)
        moved[weighting] = change
    np.testing.assert_allclose(moved["occupancy"], slope, atol=1e-4)
    np.testing.assert_allclose(moved["mean"], np.mean(aa, axis=0), atol=1e-4)
    assert np.abs(moved["mean"] - slope).max() > 1e-2


@pytest.mark.parametrize("factory", [pavg_softmax, pavg_npg, pavg_projected, fednpg])
def test_other_problems_are_refused_in_one_line(factory):
    wrong = "softmax" if factory is pavg_projected else "direct"
    for problem in (SMALL["cartpole"]().problem, SMALL["bowl"]().problem, problem_of(policies.make(wrong, WORLD))):
        with pytest.raises(UserError, match="whole table of a finite MDP: use --env random-mdp or conflict, and --policy"):
            factory(problem, local_lr=0.1)


@pytest.mark.parametrize(
    ("values", "message"), [({"temperature": -1.0}, "temperature"), ({"local_lr": 0.0}, "local-lr"), ({"weighting": "x"}, "weighting")]
)
def test_mistakes_are_named(values, message):
    with pytest.raises(UserError, match=message):
        fednpg(problem_of(), **({"local_lr": 0.1} | values))
