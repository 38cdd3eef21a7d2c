"""Lanes that go on where they stopped: in JAX, in Python, in MuJoCo, and restored from what was stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import make as make_envs
from fedpg.envs.base import Box, Discrete, Environment, Step
from fedpg.envs.host import HostEnvironment, Member
from fedpg.learners.host_rollout import host_sampler
from fedpg.learners.rollout import NOT_STARTED, no_lanes, sampler
from fedpg.policies import categorical, gaussian
from helpers.compare import assert_trees_close
from helpers.host_envs import Recorder, Scripted
from helpers.slide import TRACED, SlideHost, hosted


def _count(noise, state, action, params):
    return Step(state + 1, (state + 1.0)[None], state + 1.0, state + 1 >= 5, jnp.zeros((), bool))


COUNTER = Environment("counter", Box((1,)), Discrete(2), lambda key, params: (jnp.zeros((), int), jnp.zeros(1)), _count)
"""Observes and pays how often it was stepped, and terminates after 5 steps."""


def stretches(horizon, steps, rounds, lanes=2):
    policy = categorical(COUNTER, (2,))
    draw, params = jax.jit(sampler(COUNTER, policy, horizon, steps)), policy.init(jax.random.key(0))
    now, found = no_lanes(COUNTER, jnp.zeros((), int), lanes), []
    for r in range(rounds):
        rollout, now = draw(jax.random.key(r), params, jnp.zeros(()), now)
        found.append(rollout)
    return jax.tree.map(lambda *x: np.concatenate(x, 1), *found), now


def test_episodes_go_on_over_rollouts_and_end_where_they_should():
    """Rollouts of 3 steps, episodes of 5: the second rollout is in the middle of the first episode."""
    found, now = stretches(100, 3, 4)
    np.testing.assert_array_equal(found.observation[0, :, 0], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(found.next_observation[0, :, 0], [1, 2, 3, 4, 5] * 2 + [1, 2])
    np.testing.assert_array_equal(np.flatnonzero(found.terminated[0]), [4, 9])
    np.testing.assert_array_equal(found.ended, found.terminated)
    np.testing.assert_array_equal(found.finished[0], [0, 0, 0, 0, 15] * 2 + [0, 0])
    assert (int(now.elapsed[0]), float(now.total[0])) == (2, 3.0)


def test_the_horizon_truncates_and_does_not_terminate():
    found, _ = stretches(3, 7, 1)
    np.testing.assert_array_equal(np.flatnonzero(found.ended[0]), [2, 5])
    assert not found.terminated.any()
    assert found.next_observation[0, 2, 0] == 3
    assert found.observation[0, 3, 0] == 0


POLICY = gaussian(TRACED, hidden=(4,))


def test_lanes_in_python_are_those_of_the_same_environment_in_jax():
    """Three rollouts of agents and seeds of their own, in one call per step; every lane ends and starts again."""
    host, params = SlideHost(), jax.vmap(POLICY.init)(jax.random.split(jax.random.key(1), 3))
    width, member = jnp.array([0.2, 0.4, 0.6]), Member(jnp.arange(3), jnp.array([0.2, 0.4, 0.6]))
    keys = jax.random.split(jax.random.key(7), 3)
    inside, outside = sampler(TRACED, POLICY, 9, 6), host_sampler(hosted(host), POLICY, 9, 6)
    traced = jax.vmap(lambda _: no_lanes(TRACED, jnp.zeros(2), 2))(width)
    there = jax.vmap(lambda _: no_lanes(TRACED, jnp.zeros(4, jnp.uint32), 2))(width)
    ended = 0
    for r in range(3):
        of_round = jax.vmap(jax.random.fold_in, (0, None))(keys, r)
        expected, traced = jax.jit(jax.vmap(inside))(of_round, params, width, traced)
        found, there = jax.jit(jax.vmap(outside))(of_round, params, member, there)
        assert_trees_close(found, expected, atol=1e-5)
        assert_trees_close(there._replace(state=()), traced._replace(state=()), atol=1e-5)
        ended += int(found.ended.sum())
    assert ended > 6
    assert host.closed == 3


def gymnasium_lanes(recorder, horizon, steps):
    environment = HostEnvironment("scripted", Box((2,)), Discrete(3), lambda key, _: jax.random.bits(key, (1,), jnp.uint32), recorder.host)
    policy = categorical(environment, (2,))
    state = jnp.zeros(recorder.host.words(horizon), jnp.uint32)
    return jax.jit(host_sampler(environment, policy, horizon, steps)), policy.init(jax.random.key(0)), no_lanes(environment, state, 2)


def test_an_environment_in_python_that_was_lost_is_led_where_it_stopped():
    """A rollout from the same lanes is the same: in environments that wait there, and in new ones after a restart."""
    draw, params, lanes = gymnasium_lanes(Recorder({"end": 7}), 10, 4)
    member, found = Member(jnp.asarray(0)), []
    for r in range(4):
        rollout, lanes = draw(jax.random.key(r), params, member, lanes)
        found.append((rollout, lanes))
    np.testing.assert_array_equal(found[1][0].observation[:, :, 1], [[4, 5, 6, 0]] * 2)
    fresh = Recorder({"end": 7})
    again, _, _ = gymnasium_lanes(fresh, 10, 4)
    for r in (2, 3):
        assert_trees_close(again(jax.random.key(r), params, member, found[r - 1][1]), found[r])
    assert len(fresh.made[0]) == 2, "the second rollout found its environments waiting"
    assert_trees_close(draw(jax.random.key(1), params, member, found[0][1]), found[1])


def test_a_lane_in_python_that_fails_makes_its_agent_not_finite_and_says_why():
    recorder = Recorder({"fail": "raise", "at": 3}, environment=Scripted)
    draw, params, lanes = gymnasium_lanes(recorder, 10, 4)
    rollout, _ = draw(jax.random.key(0), params, Member(jnp.asarray(0)), lanes)
    assert np.isnan(rollout.reward).any(1).all()
    assert [event.what for event in recorder.host.events] == ["step raised ValueError: boom"]


@pytest.mark.slow
def test_mujoco_goes_on_bit_for_bit_from_what_was_stored():
    """Hoppers with bodies of their own fall and start again; a host that never saw them goes on from the words alone."""
    found = []
    for restored in (False, True):
        federation = make_envs("hopper", 2, 0.5, {"vary": "body"})
        constants = federation.agents(jax.random.key(0), 0)
        prepared = federation.prepare(jax.tree.map(lambda x: np.asarray(x)[None], constants))
        members = jax.tree.map(lambda x: jnp.asarray(x)[0], prepared)
        environment = federation.environment
        policy = gaussian(environment, hidden=(4,))
        state = jnp.zeros(environment.host.words(1000), jnp.uint32)
        draw = jax.jit(jax.vmap(host_sampler(environment, policy, 1000, 30), (0, None, 0, 0)))
        lanes = jax.vmap(lambda _, at=state, of=environment: no_lanes(of, at, 2))(jnp.arange(2))
        params, keys = policy.init(jax.random.key(0)), jax.random.split(jax.random.key(1), (3, 2))
        if restored:
            found.append(draw(keys[2], params, members, found[0][1]))
            break
        assert (lanes.elapsed == NOT_STARTED).all()
        for r in range(2):
            rollout, lanes = draw(keys[r], params, members, lanes)
        found += [(rollout, lanes), draw(keys[2], params, members, lanes)]
        assert rollout.terminated.any()
    assert_trees_close(found[2], found[1])
