"""Every command of docs/reference/algorithms/single-agent.md is the method it says: against loops written by hand, with one agent."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS, make
from fedpg.cli.parse import parse_run
from fedpg.cli.train import TrainOptions
from fedpg.keys import Purpose, agent_key
from fedpg.quadratic import bowls, quadratic
from fedpg.runs.config import make as config_from
from fedpg.runs.setup import resolve
from fedpg.simulate_plain import plain_simulator
from helpers.federations import Small, run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "algorithms" / "single-agent.md"
RECIPES = dict(re.findall(r"^\| ([^|]+?) \| .* \| `fedpg train ([^`]+)` \|$", PAGE.read_text(), re.MULTILINE))
SIGMA, CURVED, STEP, ROUNDS = 0.3, 0.4, 0.05, 4
ROOT = jax.random.key(0)


class Draws:
    """What the agent draws, by key: a gradient with noise in itself and in its curvature, the same at any point."""

    def __init__(self, problem, bowl):
        self.problem, self.bowl = problem, bowl

    def __call__(self, key):
        draw, _ = self.problem.sample(key, None, self.bowl, ())
        curvature, noise, centre = (np.asarray(x) for x in (draw.bowl.curvature, draw.noise, self.bowl.centre))
        return lambda theta: -curvature @ (theta - centre) + SIGMA * noise

    def batches(self, key, count, theta):
        return np.mean([self(k)(theta) for k in jax.random.split(key, count)], axis=0)


def steps(r, count=1):
    return jax.random.split(agent_key(ROOT, 0, r, 0), count)


def reinforce(draw, theta):
    for r in range(ROUNDS):
        theta = theta + STEP * draw(steps(r)[0])(theta)
    return theta


def storm(draw, theta, b=0.3):
    u, before = draw.batches(agent_key(ROOT, 0, 0, 0, Purpose.WARMUP), 4, theta), theta
    for r in range(ROUNDS):
        g = draw(steps(r)[0])
        u = g(theta) + (1 - b) * (u - g(before))
        before, theta = theta, theta + STEP * u
    return theta


def restarted(draw, theta, change):
    """SVRPG, SRVR-PG, HAPG: v = change(key, th, th~, mu, th', v'), restarted every 5 steps from the mean of 4 batches."""
    for r in range(ROUNDS):
        mu = draw.batches(jax.random.fold_in(agent_key(ROOT, 0, r, 0, Purpose.PRELUDE), 0), 4, theta)
        start, before, v = theta, theta, mu
        for key in steps(r, 5):
            v = change(key, theta, start, mu, before, v)
            before, theta = theta, theta + STEP * v
    return theta


def svrpg(draw, theta):
    return restarted(draw, theta, lambda key, th, start, mu, before, v: mu + draw(key)(th) - draw(key)(start))


def srvr(draw, theta):
    return restarted(draw, theta, lambda key, th, start, mu, before, v: v + draw(key)(th) - draw(key)(before))


def product(draw, key, vector):
    """Lambda: this draw's Hessian times a vector, by a difference, which is exact on a quadratic."""
    g = draw(key)
    return g(vector) - g(0 * vector)


def hapg(draw, theta):
    def change(key, th, start, mu, before, v):
        return v + product(draw, jax.random.split(key)[1], th - before)

    return restarted(draw, theta, change)


def is_mbpg(draw, theta, adaptive=True):
    m, c, seen, b, u, before = 8.0, 20.0, 0.0, 1.0, 0 * theta, theta
    k = STEP * m ** (1 / 3)
    for r in range(ROUNDS):
        g = draw(steps(r)[0])
        u = g(theta) + (1 - b) * (u - g(before))
        seen += g(theta) @ g(theta) if adaptive else 1.0
        a = k / (m + seen) ** (1 / 3)
        before, theta, b = theta, theta + a * u, min(1.0, c * a**2)
    return theta


def harpg(draw, theta, normalised=False):
    d, before = 0 * theta if normalised else draw.batches(agent_key(ROOT, 0, 0, 0, Purpose.WARMUP), 4, theta), theta
    for t in range(ROUNDS):
        e, length = (2 / (t + 2), STEP * 2 / (t + 2)) if normalised else (0.3, STEP)
        _, between, fresh = jax.random.split(steps(t)[0], 3)
        d = e * draw(fresh)(theta) + (1 - e) * (d + product(draw, between, theta - before))
        before, theta = theta, theta + length * (d / np.linalg.norm(d) if normalised else d)
    return theta


METHODS = {
    "REINFORCE, GPOMDP": reinforce,
    "STORM-PG": storm,
    "SVRPG": svrpg,
    "SRVR-PG": srvr,
    "HAPG": hapg,
    "IS-MBPG": is_mbpg,
    "IS-MBPG*": lambda draw, theta: is_mbpg(draw, theta, adaptive=False),
    "N-HARPG": lambda draw, theta: harpg(draw, theta, normalised=True),
    "HARPG": harpg,
}


def algorithm_of(command, problem):
    """The algorithm that a command asks for, on any problem."""
    settings, _ = parse_run(TrainOptions, [*shlex.split(command), "--local-lr", str(STEP)], "fedpg train")
    config = resolve(config_from(settings))
    assert config.agents == 1
    values = vars(config) | {"u0_batches": config.u0} | config.algorithm_option
    taken = inspect.signature(ALGORITHMS[config.algorithm]).parameters
    return make(config.algorithm, problem, **{name: values[name] for name in taken if name in values})


def test_the_page_has_them_all():
    assert set(RECIPES) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_is_the_method(method, float64):
    problem = quadratic(4, SIGMA, CURVED)
    small = Small(problem, lambda key, seed: bowls(key, 1, 0.5))
    ran = run(small, algorithm_of(RECIPES[method], problem), ROUNDS, engine=plain_simulator)
    expected = METHODS[method](Draws(problem, jax.tree.map(lambda x: x[0, 0], ran.state.agents)), np.zeros(4))
    np.testing.assert_allclose(ran.shared.params[0], expected, rtol=1e-11)
    assert float(trees.norm_sq(expected)) > 1e-4
