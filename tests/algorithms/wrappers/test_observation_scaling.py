"""The scale of observations, against NumPy on every observation that the agents saw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import moments
from fedpg.algorithms import ALGORITHMS, Algorithm
from fedpg.algorithms.wrappers import chain, observation_scaling
from fedpg.algorithms.wrappers.observation_scaling import MessageWithMoments
from fedpg.envs.base import Federation
from fedpg.moments import Moments
from fedpg.policies import gaussian
from fedpg.policies.scaled import scaled
from fedpg.problem import Problem, policy_gradient
from fedpg.simulate import Simulator, simulator
from helpers.federations import SELDOM, claims, each, make
from helpers.slide import TRACED, SlideHost, hosted, members, prepare


def parts_of(name: str, mode: str, host: SlideHost, **settings) -> tuple[Problem, Algorithm]:
    problem = policy_gradient(
        hosted(host), scaled(gaussian(TRACED, hidden=(4,)), (2,)),
        horizon=8, discount=0.9, batch_size=3, baseline="time", eval_episodes=4, watch_observations=True,
    )  # fmt: skip
    return problem, chain(make(name, problem, **settings), observation_scaling(problem, mode))


def simulator_of(name: str, mode: str, host: SlideHost, **settings) -> Simulator:
    problem, algorithm = parts_of(name, mode, host, **settings)
    return simulator(problem, algorithm, Federation(problem.environment, members(3), prepare))


class Watching(SlideHost):
    """Keeps the observations on which an action was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.acted: list[np.ndarray] = []

    def reset(self, index, start):
        session = super().reset(index, start)
        step = session.step

        def watched(action):
            self.acted.extend((session.state + 3.0)[session.alive])
            return step(action)

        session.step = watched
        return session


COMMON = [name for name in ALGORITHMS if name not in ("local-only", "fedpg-br") and claims(name, "slide")]
"""fedpg-br's server samples too, which does not change the scale: it has its own test."""


@pytest.mark.parametrize("name", each(COMMON, (*SELDOM, "fedhapg-m", "pavg")))
def test_running_statistics_are_those_of_everything_seen(name):
    host = Watching()
    sim = simulator_of(name, "running", host)
    state, _ = sim.run(sim.init(jax.random.key(0)), 3)
    seen, state = np.array(host.acted), state.rows
    scale = state.server.shared.params.scale
    np.testing.assert_allclose(scale.mean[0], seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(scale.deviation[0], seen.std(0), rtol=1e-3)
    assert state.server.private.seen.count[0] == len(seen)


def test_the_scale_of_a_federation_whose_server_works_too_is_that_of_the_agents():
    """The messages alone move the scale; the server's steps go on from it and leave it as it is."""
    problem, algorithm = parts_of("fedpg-br", "running", SlideHost())
    state, agent_state = algorithm.init(problem.init_params(jax.random.key(0)))
    agents = jax.tree.map(lambda x: x[0], prepare(jax.tree.map(lambda x: np.asarray(x)[None], members(3))))
    update = jax.jit(jax.vmap(algorithm.local_update, (0, None, None, 0)))
    messages, _, _ = update(jax.random.split(jax.random.key(1), 3), state.shared, agent_state, agents)
    moved, _ = algorithm.aggregate(state, messages, np.ones(3))
    after, info = jax.jit(algorithm.server_update)(jax.random.key(2), moved, agents)
    merged = moments.merge(messages.seen)
    np.testing.assert_allclose(after.shared.params.scale.mean, merged.mean, rtol=1e-5)
    np.testing.assert_allclose(after.shared.params.scale.deviation, np.sqrt(moments.variance(merged)), rtol=1e-5)
    assert after.private.seen.count == merged.count
    assert int(info.usage.trajectories) > 0
    assert any((x != y).any() for x, y in zip(*(jax.tree.leaves(s.shared.params.inner) for s in (moved, after)), strict=True))


def test_a_fixed_scale_is_that_of_the_warm_up_for_theta_0_and_theta_minus_1():
    host = Watching()
    sim = simulator_of("fedsvrpg-m", "fixed", host, u0_batches=0)
    state = sim.init(jax.random.key(0))
    seen = np.array(host.acted)
    shared = sim.run(state, 2)[0].rows.server.shared
    for params in (shared.params, shared.previous):
        np.testing.assert_allclose(params.scale.mean[0], seen.mean(0), rtol=1e-4)
        np.testing.assert_allclose(params.scale.deviation[0], seen.std(0), rtol=1e-3)
    assert not any(leaf.any() for leaf in jax.tree.leaves(shared.direction.scale))


def test_the_first_direction_is_sampled_with_the_scale():
    sim = simulator_of("fedsvrpg-m", "fixed", SlideHost(), u0_batches=2)
    state = sim.init(jax.random.key(0))
    shared, sent = state.rows.server.shared, sim.communication(state)
    assert np.abs(shared.params.scale.mean).max() > 1.0
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(shared.direction.inner))
    assert sent.start_up == 3 * (1 + 2 + 2) + 3 * (sent.round_up // 3)


@pytest.mark.parametrize("mode", ["fixed", "running"])
def test_a_personal_algorithm_keeps_a_scale_for_each_agent_and_sends_nothing(mode):
    sim = simulator_of("local-only", mode, SlideHost())
    start = sim.init(jax.random.key(0))
    after, _ = sim.run(start, 2)
    scales = [state.rows.agents.inner.params.scale.mean for state in (start, after)]
    sent = sim.communication(after)
    assert sent.round_up == sent.start_up == 0
    assert len(np.unique(scales[1][0], axis=0)) == 3
    assert (mode == "fixed") == np.array_equal(*scales)
    assert np.isfinite(sim.evaluate(after).returns).all()


def test_absent_agents_and_moments_that_are_not_numbers_do_not_count():
    problem, algorithm = parts_of("pavg", "running", SlideHost())
    server, _ = algorithm.init(problem.init_params(jax.random.key(0)))
    server = server._replace(private=server.private._replace(seen=Moments(jnp.array(30.0), jnp.array([4.0, 5.0]), jnp.ones(2))))
    params = server.shared.params
    messages = MessageWithMoments(
        jax.tree.map(lambda x: jnp.zeros((3, *x.shape)), params),
        Moments(jnp.array([10.0, 10.0, jnp.nan]), jnp.array([[1.0, 1.0], [9.0, 9.0], [jnp.nan] * 2]), jnp.zeros((3, 2))),
    )
    before = server.private.seen
    after, _ = algorithm.aggregate(server, messages, jnp.array([1.0, 0.0, 0.0]))
    expected = (before.count * before.mean + 10.0 * 1.0) / (before.count + 10.0)
    np.testing.assert_allclose(after.private.seen.mean, expected, rtol=1e-5)
    np.testing.assert_allclose(after.shared.params.scale.mean, expected, rtol=1e-5)


def test_off_is_the_algorithm_itself():
    problem = policy_gradient(TRACED, gaussian(TRACED), horizon=2, discount=0.9)
    algorithm = make("pavg", problem)
    assert chain(algorithm, observation_scaling(problem, "off")) is algorithm
