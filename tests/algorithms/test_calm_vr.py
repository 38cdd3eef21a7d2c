"""CALM-VR against a recursion by hand, its fixed point, the gain of its filter, and how its noise falls with the step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import calm, calm_vr
from fedpg.algorithms.calm_vr import Estimate, Message, over_agents
from fedpg.errors import UserError
from fedpg.quadratic import Bowl, quadratic
from fedpg.simulate import simulator

BOWLS = Bowl(
    jnp.stack([jnp.diag(jnp.array(diagonal)) for diagonal in ([1.0, 2.0], [3.0, 0.5], [0.7, 1.5])]),
    jnp.array([[1.0, -1.0], [-2.0, 0.5], [0.3, 2.0]]),
)
BETA, RATE, ETA, STEPS = 0.3, 0.6, 0.05, 3


def rounds(algorithm, count):
    """The server after some rounds without noise."""
    server, state = algorithm.init(jnp.zeros(2))
    states = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
    local_update = jax.jit(jax.vmap(algorithm.local_update, (0, None, 0, 0)))
    for _ in range(count):
        messages, states, _ = local_update(jax.random.split(jax.random.key(0), 3), server.shared, states, BOWLS)
        server, _ = algorithm.aggregate(server, messages, jnp.ones(3))
    return server


def test_the_recursion_is_that_written_by_hand(float64):
    """On quadratics without noise: the spread of gradients along a path is what counts as their noise, and changes are -A v."""
    A, centre = (np.asarray(x, float) for x in BOWLS)
    theta, u, v, own, variance = np.zeros(2), np.zeros(2), np.zeros(2), [None] * 3, 0.0
    for number in range(4):
        m, changes, spread = [], [], []
        for i in range(3):
            th, gradients = theta, []
            for _ in range(STEPS):
                g = -A[i] @ (th - centre[i])
                gradients.append(g)
                th = th + ETA * (u + BETA * (g - own[i]) if number else g)
            own[i] = np.mean(gradients, 0)
            m.append(own[i])
            changes.append(-A[i] @ v)
            spread.append(np.sum((np.array(gradients) - own[i]) ** 2) / (STEPS * (STEPS - 1)))
        mean, noise = np.mean(m, 0), np.mean(spread) / 3
        if number == 0:
            u, variance = mean, noise
        else:
            u = u + np.mean(changes, 0)  # they are the same for every sample: no noise, full trust
            gain = variance / (variance + noise)
            u, variance = u + gain * (mean - u), (1 - gain) * variance
        v = ETA * STEPS * u
        theta = theta + v
    server = rounds(calm_vr(quadratic(2), beta=BETA, server_rate=RATE, local_lr=ETA, local_steps=STEPS), 4)
    np.testing.assert_allclose(server.shared.params, theta, rtol=1e-12)
    np.testing.assert_allclose(server.shared.direction, u, rtol=1e-12)
    np.testing.assert_allclose(server.private, variance, rtol=1e-9)


def test_it_goes_to_where_the_gradient_is_zero(float64):
    """The gain of exact measurements falls as 1/r, and so does what is left of the start: |grad J|^2 as 1/r^2."""
    sim, left = simulator(quadratic(2), calm_vr(quadratic(2), local_lr=0.02, local_steps=8), BOWLS, seeds=1), []
    state = sim.init(jax.random.key(0))
    for more in (1000, 3000):
        state, _ = sim.run(state, more)
        left.append(float(sim.evaluate(state).grad_norm_sq[0]))
    assert left[0] < 1e-17
    assert left[1] < left[0] / 8


def message(gradient, change, of_gradient, of_change):
    """The messages of two agents that agree."""
    both = lambda x: jnp.broadcast_to(jnp.asarray(x, float), (2, *np.shape(x)))  # noqa: E731
    return Message(Estimate(both(gradient), both(of_gradient)), Estimate(both(change), both(of_change)))


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.7])
def test_without_a_measured_change_the_gain_settles_at_the_server_rate(float64, rate):
    algorithm = calm_vr(quadratic(1), server_rate=rate, local_lr=0.01, local_steps=2)
    server, _ = algorithm.init(jnp.zeros(1))
    for value in [1.0] * 60 + [2.0]:
        before = server.shared.direction
        server, _ = algorithm.aggregate(server, message([value], [5.0], 1.0, 1e12), jnp.ones(2))
    assert float((server.shared.direction - before)[0]) == pytest.approx(rate, rel=1e-4)
    plain = calm(quadratic(1), server_rate=rate, local_lr=0.01, local_steps=2)
    state, _ = plain.init(jnp.zeros(1))
    state = state._replace(shared=state.shared._replace(direction=before))
    state, _ = plain.aggregate(state, jnp.full((2, 1), 2.0), jnp.ones(2))
    np.testing.assert_allclose(server.shared.direction, state.shared.direction, rtol=1e-4)


def test_a_change_measured_without_noise_is_followed_at_once(float64):
    algorithm = calm_vr(quadratic(1), local_lr=0.01, local_steps=2)
    server, _ = algorithm.init(jnp.zeros(1))
    for change in (0.0, 3.0):
        server, _ = algorithm.aggregate(server, message([1.0 + change], [change], 1.0, 0.0), jnp.ones(2))
    np.testing.assert_allclose(server.shared.direction, [4.0], rtol=1e-12)
    assert float(server.private) == pytest.approx(0.25, rel=1e-6)  # two equal measurements of variance 1/2


def test_the_variance_of_a_mean_counts_who_is_absent(float64):
    values, variances = np.array([[1.0], [3.0], [8.0], [100.0]]), np.array([0.5, 0.7, 0.9, 50.0])
    found = over_agents(Estimate(jnp.asarray(values), jnp.asarray(variances)), jnp.array([1.0, 1.0, 1.0, 0.0]))
    assert float(found.mean[0]) == pytest.approx(4.0)
    assert float(found.variance) == pytest.approx(0.7 / 3 + (1 - 3 / 4) * np.var(values[:3], ddof=1) / 3)


def errors(make, rounds, seeds=16):
    """The mean over seeds of |u - grad J|^2 after these rounds, near the optimum of noisy quadratics."""
    problem = quadratic(8, noise=1.0, curvature_noise=2.0)
    agents = Bowl(jnp.broadcast_to(jnp.eye(8), (4, 8, 8)), jnp.zeros((4, 8)))
    sim, found = simulator(problem, make(problem), agents, seeds=seeds), []
    state = sim.init(jax.random.key(0))
    for more in np.diff([0, *rounds]):
        before, _ = sim.run(state, int(more) - 1)
        state, _ = sim.run(before, 1)
        theta, u = before.rows.server.shared.params, state.rows.server.shared.direction
        found.append(float(jnp.mean(jnp.sum((u + theta) ** 2, axis=-1))))  # grad J = -theta
    return np.array(found)


def test_at_small_steps_it_averages_the_noise_of_all_rounds():
    """s^2/r is left after r rounds, where CALM keeps rho/(2-rho) s^2, with s^2 = 8/(4 N) here."""
    step, noise = {"local_lr": 1e-3, "global_lr": 0.05, "local_steps": 4}, 0.5
    ours = errors(lambda problem: calm_vr(problem, **step), (150, 600))
    plain = errors(lambda problem: calm(problem, **step), (150, 600))
    np.testing.assert_allclose(ours, noise / np.array([150, 600]), rtol=0.6)
    np.testing.assert_allclose(plain, 0.25 * noise, rtol=0.4)


def test_it_needs_two_samples_and_a_hessian():
    with pytest.raises(UserError, match="2 or more local steps"):
        calm_vr(quadratic(2), local_lr=0.1, local_steps=1)
    with pytest.raises(UserError, match="hessian vector"):
        calm_vr(quadratic(2)._replace(hessian_vector=None), local_lr=0.1)
    with pytest.raises(UserError, match="server_rate"):
        calm_vr(quadratic(2), local_lr=0.1, server_rate=1.0)
