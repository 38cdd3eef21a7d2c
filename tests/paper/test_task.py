"""Tasks: families with known properties, and measurements with known numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import calm
from fedpg.gradients import exact
from fedpg.paper.method import CALM, PAVG
from fedpg.paper.task import Task, doors, measure, mixture
from fedpg.runs.sweep import grid
from fedpg.simulate import simulator

MDPS = doors(jax.random.key(3))
ETAS = np.array([1e-4, 1e-2])


def mean_value(table):
    return jnp.mean(jax.vmap(lambda mdp: exact.value(mdp, table, 0.9, None))(MDPS))


def test_doors_are_corridors_with_one_door_a_state():
    np.testing.assert_allclose(MDPS.transition.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(MDPS.start.sum(-1), 1.0)
    assert np.array_equal(MDPS.transition[:, -1, :, -1], np.ones((3, 3)))  # nothing leads out of the last state
    assert np.array_equal(MDPS.reward[:, -1], np.zeros((3, 3)))
    works = np.asarray(MDPS.reward)[:, :-1] > 0
    assert np.array_equal(works.sum(-1), np.ones((3, 2)))  # one action a door,
    assert np.array_equal(works.sum(0), np.ones((2, 3)))  # another for every agent
    chance = np.asarray(MDPS.transition)[:, [0, 1], :, [1, 2]][works.swapaxes(0, 1)]
    assert np.all((chance >= 0.5) & (chance <= 1.0))


def test_the_best_common_policy_of_doors_is_stochastic():
    """Ascent ends at a peak with every door's actions in use, above all deterministic policies."""
    j = jax.jit(jax.value_and_grad(lambda logits: mean_value(jax.nn.softmax(logits))))
    logits = jnp.zeros((3, 3))
    for _ in range(300):
        _, slope = j(logits)
        logits = logits + 5.0 * slope
    peak, slope = j(logits)
    assert float(jnp.abs(slope).max()) < 1e-4
    assert float(jax.nn.softmax(logits)[:-1].min()) > 0.01
    tables = [jnp.eye(3)[jnp.array([first, second, 0])] for first in range(3) for second in range(3)]
    assert float(peak) > 1.05 * max(float(mean_value(table)) for table in tables)


def test_more_agents_repeat_the_three_and_identical_ones_are_the_first():
    six, same = (
        Task("doors", "doors", 6, options=options).federation().agents(jax.random.key(3), 0) for options in ({}, {"identical": True})
    )
    np.testing.assert_array_equal(six.transition[3:], six.transition[:3])
    np.testing.assert_array_equal(six.transition[:3], MDPS.transition)
    assert np.ptp(same.transition, axis=0).max() == 0.0


def test_odd_seeds_of_the_mixture_conflict():
    """Random MDPs share rewards; agents that conflict share the kernel."""
    both = jax.jit(jax.vmap(lambda seed: mixture(jax.random.key(0), seed, 2, 2)))(jnp.array([2, 3]))
    (reward, conflicting), (transition, common) = (
        np.ptp(values, axis=1).max(axis=(1, 2)) for values in (both.reward, both.transition[..., 0])
    )
    assert reward == 0 < transition
    assert common == 0 < conflicting


@pytest.fixture(scope="module")
def found():
    """Five rounds of CALM at beta = 0.2 and 1; axes (beta, eta, seeds, rounds)."""
    curves = measure(Task("conflict"), CALM, grid(beta=(0.2, 1.0), local_lr=ETAS), seeds=2, root=7, rounds=[0, 5])
    return curves.objective.reshape(2, 2, 2, 2)


def test_the_uniform_policy_has_its_known_value_and_longer_steps_learn_more(found):
    pay = np.mean(10.0 ** np.linspace(-1.0, 1.0, 5)) / 5  # each favourite is taken one time in five
    np.testing.assert_allclose(found[..., 0], pay * (1 - 0.9**50) / 0.1, rtol=1e-4)
    assert np.all(found[:, 1, :, 1] > found[:, 0, :, 1] + 0.5)
    assert np.all(found[0, 1, :, 1] != found[1, 1, :, 1])


def test_a_task_measures_what_a_simulator_made_by_hand_does(found):
    task = Task("conflict")
    problem = task.problem(CALM)
    sim = simulator(
        problem,
        lambda s: calm(problem, beta=1.0, local_lr=s, local_steps=32, agents=5),
        task.federation(),
        seeds=2,
        settings=jnp.asarray(ETAS),
    )
    state, _ = sim.run(sim.init(jax.random.key(7)), 5)
    np.testing.assert_allclose(found[1, :, :, 1].ravel(), np.asarray(sim.evaluate(state).objective).mean(1), rtol=1e-5)


def test_mujoco_agents_are_simulated_in_the_environment_that_was_prepared_for_them():
    task = Task("hopper", "hopper", 2, options={"vary": "physics"}, local_steps=1, rounds=1, horizon=5, baseline="none", eval_episodes=2)
    found = measure(task, PAVG, {"local_lr": [1e-4]}, seeds=1)
    assert found.env_steps.tolist() == [[[10]]]
    assert np.all(found.returns > 0)
