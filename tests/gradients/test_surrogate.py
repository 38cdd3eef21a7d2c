"""The clipped surrogate and the divergences, against enumeration of a tiny MDP, finite differences and one another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.exact_problem import exact_problem
from fedpg.gradients import batch
from fedpg.gradients.batch import Batch
from fedpg.gradients.surrogate import clipped
from fedpg.gradients.visits import Visits
from fedpg.policies import distributions, gaussian, softmax
from fedpg.policies.normalised import normalised
from fedpg.problem import policy_gradient
from helpers.enumeration import DISCOUNT, HORIZON, all_trajectories, each, expectation, probabilities, softmax_table, tiny_mdp
from helpers.slide import TRACED, widths

WORLD = environment("tiny", 2, 2)
POLICY = softmax(WORLD)
OLD, NEW = np.array([[0.4, -0.3], [0.1, 0.9]]), np.array([[1.0, -0.2], [-0.5, 0.3]])
FAR = np.array([[6.0, -6.0], [0.2, 0.1]])


def params(logits):
    return {"logits": jnp.asarray(logits)}


def hand_surrogate(new, old, tau):
    """sum_t clip(ratio) G_t of every trajectory by plain loops."""
    pi, behaviour, values = softmax_table(new), softmax_table(old), []
    for s, a, r in zip(tau.observation, tau.action, tau.reward, strict=True):
        to_go = [sum(DISCOUNT**h * r[h] for h in range(t, HORIZON)) for t in range(HORIZON)]
        ratio = [np.clip(pi[s[t], a[t]] / behaviour[s[t], a[t]], 1e-8, 10.0) for t in range(HORIZON)]
        values.append(np.dot(ratio, to_go))
    return np.array(values)


def slopes(function, at, h=1e-6):
    """Central differences of a function of a (2, 2) table."""
    units = np.eye(4).reshape(4, 2, 2)
    return np.array([(function(at + h * e) - function(at - h * e)) / (2 * h) for e in units]).reshape(2, 2)


@pytest.mark.parametrize("new", [OLD, NEW, FAR])
def test_its_value_and_gradient_are_those_of_the_definition(new, float64):
    """Every trajectory with its probability, on a policy far enough away to be clipped too; at the behaviour it is grad J."""
    mdp, tau = tiny_mdp(), all_trajectories(tiny_mdp())
    chance = probabilities(mdp, softmax_table(OLD), tau)

    def near(one, at):
        return jax.value_and_grad(lambda p: batch.near(POLICY, p, params(OLD), one, DISCOUNT).value)(at)

    found, gradient = expectation(each(near)(tau, jnp.zeros((64, HORIZON)), params(new)), chance)
    np.testing.assert_allclose(found, chance @ hand_surrogate(new, OLD, tau), rtol=1e-12)
    np.testing.assert_allclose(gradient["logits"], slopes(lambda at: chance @ hand_surrogate(at, OLD, tau), new), atol=1e-7)
    exact = exact_problem(WORLD, POLICY, discount=DISCOUNT, horizon=HORIZON)
    if new is OLD:
        np.testing.assert_allclose(gradient["logits"], exact.gradient(mdp, params(OLD))["logits"], atol=1e-12)
    # the problem without sampling has advantages for returns: the same slope wherever nothing is clipped
    if new is not FAR:
        whole = jax.grad(lambda p: exact.surrogate(mdp, p, params(OLD)).value)(params(new))
        np.testing.assert_allclose(gradient["logits"], whole["logits"], atol=1e-12)
    assert float(exact.surrogate(mdp, params(new), params(OLD)).length) == pytest.approx(1 + DISCOUNT + DISCOUNT**2)


def test_ratios_are_cut_without_nan():
    value, slope = jax.vmap(jax.value_and_grad(clipped))(jnp.array([-1e4, -30.0, 0.0, 1.0, 3.0, 1e4]))
    np.testing.assert_allclose(value, [1e-8, 1e-8, 1.0, np.e, 10.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(slope, [0, 0, 1.0, np.e, 0, 0], rtol=1e-5)


def test_divergences_are_means_over_the_states_visited(float64):
    """Three trajectories that end at different times: each executed step counts once, KL of rows by hand, and its slope."""
    states, mask = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]]), np.array([[1.0, 1, 1], [1, 0, 0], [1, 1, 0]])
    tau = all_trajectories(tiny_mdp())
    drawn = Batch(tau._replace(observation=jnp.asarray(states), mask=jnp.asarray(mask)), jnp.zeros((3, 3)), jnp.ones(()))
    outputs = distributions.outputs_of(POLICY, WORLD.action_space)

    def by_hand(new):
        p, q = softmax_table(OLD), softmax_table(new)
        rows = (p * np.log(p / q)).sum(1)
        visited = rows[states[mask > 0]]
        return visited.mean(), np.sqrt(np.maximum(visited, 1e-8)).mean()

    def divergence(at):
        return batch.divergence(outputs, at, params(OLD), drawn)

    both = jax.jit(lambda at: (divergence(at), jax.jacobian(divergence)(at)))
    found, steep = both(params(NEW))
    np.testing.assert_allclose(found, by_hand(NEW), rtol=1e-9)
    for field in (0, 1):
        np.testing.assert_allclose(steep[field]["logits"], slopes(lambda at, field=field: by_hand(at)[field], NEW), atol=1e-7)
    # at the policy itself both have slope 0, the root too
    found, flat = both(params(OLD))
    np.testing.assert_allclose(found, [0.0, 1e-4], atol=1e-12)
    for slope in flat:
        np.testing.assert_allclose(slope["logits"], 0.0, atol=1e-12)


def test_visit_counts_say_the_same_as_trajectories(float64):
    tau = all_trajectories(tiny_mdp())
    one_hot = np.eye(4)[2 * tau.observation + tau.action].reshape(64, HORIZON, 2, 2)
    to_go = np.array([[sum(DISCOUNT**h * r[h] for h in range(t, HORIZON)) for t in range(HORIZON)] for r in tau.reward])
    counted = Visits(jnp.asarray(one_hot.sum(1)), jnp.asarray((one_hot * to_go[..., None, None]).sum(1)), jnp.zeros(64))
    drawn = Batch(jax.tree.map(jnp.asarray, tau), jnp.zeros((64, HORIZON)), jnp.ones(()))
    problem = policy_gradient(WORLD, POLICY, horizon=HORIZON, discount=DISCOUNT)
    assert isinstance(jax.eval_shape(problem.sample, jax.random.key(0), params(OLD), tiny_mdp(), ())[0], Visits)
    outputs = distributions.outputs_of(POLICY, WORLD.action_space)

    @jax.jit
    def said(new, old):
        gained = problem.surrogate(counted, new, old), batch.near(POLICY, new, old, drawn, DISCOUNT)
        return gained, (problem.divergence(counted, new, old), batch.divergence(outputs, new, old, drawn))

    (ours, theirs), away = said(params(NEW), params(OLD))
    np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-12)
    assert float(ours.length) == HORIZON
    assert 0 < float(ours.largest) <= float(theirs.largest)  # of the mean over a cell's visits, and of single steps
    np.testing.assert_allclose(*away, rtol=1e-12)


def test_the_scale_of_observations_is_not_moved():
    """Both are differentiated through what gradients may move, and through nothing else."""
    policy = normalised(gaussian(TRACED, hidden=(3,)), (2,))
    problem = policy_gradient(TRACED, policy, horizon=4, discount=0.9, batch_size=2, normalise_advantages=True)
    at, agent = policy.init(jax.random.key(0)), jax.tree.map(lambda x: x[0], widths(1))

    @jax.jit
    def both(at):
        sample, _ = problem.sample(jax.random.key(1), at, agent, problem.init_memory())
        other = jax.tree.map(lambda x: x + 0.1, at)

        def loss(p):
            return problem.surrogate(sample, p, other).value - problem.divergence(sample, p, other).root

        return jax.grad(loss)(at), jax.grad(lambda p: problem.surrogate(sample, p, at).value)(at), problem.gradient(sample, at)

    slope, here, g = both(at)
    assert not any(leaf.any() for leaf in slope.scale)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slope.inner))
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(g), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
