"""The actor-critic against a plain PPO in NumPy, through the simulator, in both engines, and inside other algorithms."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import calm, fedavg_m, fedprox, local_only, pavg, pooled, scaffold
from fedpg.algorithms.base import LEARNER_STREAM
from fedpg.envs.base import Federation
from fedpg.errors import UserError
from fedpg.keys import agent_key
from fedpg.learners.actor_critic import Settings
from fedpg.learners.reinforce import untilted
from fedpg.policies import gaussian, make
from fedpg.policies.critic import with_critic
from fedpg.problem import actor_critic
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_trees_close, largest_difference, normal_like
from helpers.federations import make as make_algorithm
from helpers.numpy_ppo import PPO
from helpers.slide import TRACED, SlideHost, hosted, members, prepare, widths

SETTINGS = Settings(epochs=3, minibatch=7, value_clip=0.2, entropy=0.01, max_grad_norm=0.4, critic=(5,))
SIZES = {"horizon": 9, "discount": 0.9, "rollout_steps": 8, "lanes": 2, "eval_episodes": 2}
RATE = 0.05
POLICY = with_critic(gaussian(TRACED, hidden=(4, 3)), TRACED, SETTINGS.critic)


def problem_of(agents=1, settings=SETTINGS, **more):
    return actor_critic(Federation(TRACED, widths(agents)), POLICY, settings, **SIZES | more)


def as_numpy(params):
    """The params in NumPy, as `PPO` has them; every array is a copy."""
    copied = jax.tree.map(np.array, params)
    return {"policy": copied.policy, "critic": copied.critic}


def minibatches(key, count, settings):
    """The indices that the learner draws, in order."""
    size = min(settings.minibatch, count)
    each = [np.asarray(jax.random.permutation(one, count)) for one in jax.random.split(key, settings.epochs)]
    return np.concatenate([ids[: count // size * size].reshape(-1, size) for ids in each])


def test_one_agent_and_one_local_step_is_ppo(float64):
    """Four rounds of PAvg with K = N = 1 against PPO in NumPy: every derivative, Adam, the schedule and scaled rewards, to 1e-8."""
    rounds = 4
    problem = problem_of(batches=rounds)
    sim = simulator(problem, pavg(problem, local_lr=RATE), widths(1))
    state = sim.init(jax.random.key(3))
    params = jax.tree.map(lambda x: x[0], state.rows.server.shared.params)
    ppo, memory, width = PPO(as_numpy(params), SETTINGS, 0.9), problem.init_memory(), widths(1)[0]
    for r in range(rounds):
        key = jax.random.split(agent_key(jax.random.key(3), 0, r, 0), 1)[0]
        sample, memory = jax.jit(problem.sample)(key, params, width, memory)
        state, _ = sim.run(state, 1)
        params = jax.tree.map(lambda x: x[0], state.rows.server.shared.params)
        rollout, reward = jax.tree.map(np.asarray, sample)
        ppo.update(rollout, reward, minibatches(jax.random.fold_in(key, LEARNER_STREAM), 16, SETTINGS), RATE * (1.0 - r / rounds))
        found = as_numpy(params)
        assert_trees_close(found, ppo.params, atol=1e-8)
    assert largest_difference(found, as_numpy(problem.init_params(jax.random.key(3)))) > 0.1
    assert memory.lanes.elapsed.tolist() == jax.tree.map(lambda x: x[0, 0], state.rows.agents).lanes.elapsed.tolist()


def test_a_tilt_acts_at_every_small_step_and_adds_up(float64):
    """A constant tilt is the direction; half of every step is half the step-size; a pull grows along the path."""
    problem, key = problem_of(), jax.random.key(0)
    params = problem.init_params(key)
    sample, memory = jax.jit(problem.sample)(key, params, widths(1)[0], problem.init_memory())
    push = normal_like(1, params)

    def direction(tilt, rate=RATE):
        return jax.jit(lambda: problem.direction(key, sample, params, memory, tilt, rate)[0].direction)()

    assert_trees_close(direction(lambda step, at: push), push, atol=1e-10)
    own = direction(untilted)
    halved = direction(lambda step, at: trees.scale(0.5, step))
    assert_trees_close(trees.scale(RATE, halved), trees.scale(RATE / 2, direction(untilted, RATE / 2)), atol=1e-10)
    pulled = direction(lambda step, at: jax.tree.map(lambda s, x, y: s - 5.0 * (x - y), step, at, params))
    assert float(trees.norm_sq(pulled)) < 0.8 * float(trees.norm_sq(own))


def test_a_target_divergence_ends_the_agents_own_steps_but_not_the_tilt(float64):
    key, width = jax.random.key(0), widths(1)[0]
    near, far = (problem_of(settings=dataclasses.replace(SETTINGS, target_kl=kl)) for kl in (1e-9, 1e9))
    params = near.init_params(key)
    sample, memory = jax.jit(near.sample)(key, params, width, near.init_memory())

    def direction(problem, tilt=untilted):
        moved, memory_after = jax.jit(lambda: problem.direction(key, sample, params, memory, tilt, RATE))()
        return moved.direction, moved.own, memory_after

    (stopped, own, after), (free, _, _) = direction(near), direction(far)
    assert_trees_close(free, direction(problem_of())[0], atol=1e-9)
    assert_trees_close(own, stopped, atol=1e-9)
    assert float(trees.norm_sq(stopped)) < float(trees.norm_sq(free))
    assert int(after.adam[1].count) == 1, "the first step starts from the old policy and cannot be stopped"
    push = normal_like(1, params)
    pushed, own, _ = direction(near, lambda step, at: trees.add_scaled(step, 1.0, push))
    assert_trees_close(own, stopped, atol=1e-9)
    assert_trees_close(trees.subtract(pushed, push), stopped, atol=1e-6)


ALGORITHMS = {
    "pavg": lambda problem: pavg(problem, local_lr=RATE),
    "fedavg-m": lambda problem: fedavg_m(problem, local_lr=RATE, beta=0.3),
    "scaffold": lambda problem: scaffold(problem, local_lr=RATE),
    "calm": lambda problem: calm(problem, local_lr=RATE, beta=0.3),
    "fedprox": lambda problem: fedprox(problem, local_lr=RATE, mu=0.5),
    "local-only": lambda problem: local_only(problem, local_lr=RATE),
    "pooled": lambda problem: pooled(problem, agents=2, local_lr=RATE),
}
FEW = dataclasses.replace(SETTINGS, epochs=1, minibatch=4)
ENGINES = [name if name == "calm" else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS]


@pytest.mark.parametrize("name", ENGINES)
def test_both_engines_agree_round_by_round(name, float64):
    problem = problem_of(2, FEW, rollout_steps=4, eval_episodes=1)
    algorithm = ALGORITHMS[name](problem)
    fast, plain = (engine(problem, algorithm, widths(2)) for engine in (simulator, plain_simulator))
    state, other = fast.init(jax.random.key(0)), plain.init(jax.random.key(0))
    for _ in range(2):
        (state, info), (other, _) = fast.run(state, 1), plain.run(other, 1)
        assert_trees_close(state.rows, other.rows, atol=1e-9)
    assert int(info.local.usage.env_steps[0]) == 2 * 8
    assert_trees_close(fast.evaluate(state), plain.evaluate(other), atol=1e-9)


@pytest.mark.slow
def test_agents_in_python_learn_as_if_traced():
    host = hosted(SlideHost())
    there = Federation(host, lambda key, seed: members(3), prepare)
    problem = actor_critic(there, POLICY, FEW, **SIZES)
    sim = simulator(problem, ALGORITHMS["scaffold"](problem), there, seeds=2)
    inside = problem_of(3, FEW)
    traced = simulator(inside, ALGORITHMS["scaffold"](inside), widths(3), seeds=2)
    (state, _), (other, _) = (one.run(one.init(jax.random.key(0)), 2) for one in (sim, traced))
    # Adam turns the last digits of small gradients into steps of full length.
    assert_trees_close(state.rows.server.shared.params, other.rows.server.shared.params, atol=1e-3)
    assert_trees_close(sim.evaluate(state), traced.evaluate(other), rtol=1e-2, atol=1e-3)


def test_pooled_is_one_learner_on_the_steps_of_all_agents(float64):
    """N agents in one place: PPO in NumPy on 3 x 2 lanes, with one critic and one Adam."""
    problem = problem_of(3).pooled(3)
    key, params = jax.random.key(5), problem.init_params(jax.random.key(0))
    sample, memory = problem.sample(key, params, widths(3), problem.init_memory())
    assert sample.reward.shape == (6, 8)
    ppo = PPO(as_numpy(params), SETTINGS, 0.9)
    moved, _ = problem.direction(key, sample, params, memory, untilted, RATE)
    ppo.update(*jax.tree.map(np.asarray, sample), minibatches(key, 48, SETTINGS), RATE)
    assert_trees_close(as_numpy(trees.add_scaled(params, RATE, moved.direction)), ppo.params, atol=1e-8)


@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m", "nharpg", "mfpo", "fedpg-br", "fast-fedpg", "fedkl"])
def test_algorithms_that_need_more_than_directions_are_refused(name):
    with pytest.raises(UserError, match=rf"{name} needs a problem with a .*: use pavg"):
        make_algorithm(name, problem_of())


def test_a_policy_without_a_critic_and_settings_out_of_range_are_refused():
    federation = Federation(TRACED, widths(1))
    with pytest.raises(UserError, match="needs a policy with a critic"):
        actor_critic(federation, gaussian(TRACED), **SIZES)
    for wrong, message in (({"clip": 1.5}, "clip must be"), ({"epochs": 0}, "epochs and"), ({"schedule": "cosine"}, "schedule")):
        with pytest.raises(UserError, match=message):
            problem_of(settings=dataclasses.replace(SETTINGS, **wrong))


def test_params_of_the_policy_start_the_same_with_and_without_a_critic():
    plain, judged = (make("gaussian", TRACED, hidden=(4,), critic=critic) for critic in (None, (3,)))
    assert_trees_close(judged.init(jax.random.key(0)).policy, plain.init(jax.random.key(0)))
    assert judged.value(judged.init(jax.random.key(0)), jnp.zeros(2)).shape == ()
