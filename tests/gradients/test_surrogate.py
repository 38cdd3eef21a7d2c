"""The clipped surrogate and the divergences, against enumeration of a tiny MDP, finite differences and one another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.gradients import exact, surrogate
from fedpg.gradients.batch import Batch
from fedpg.gradients.surrogate import clipped
from fedpg.policies import distributions, gaussian, softmax
from fedpg.policies.scaled import scaled
from fedpg.problem import policy_gradient
from helpers.enumeration import DISCOUNT, HORIZON, all_trajectories, each, expectation, probabilities, softmax_table, tiny_mdp
from helpers.slide import TRACED, widths

TINY = environment("tiny", 2, 2)
POLICY = softmax(TINY)
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
        return jax.value_and_grad(lambda p: surrogate.of_batch(POLICY, p, params(OLD), one, DISCOUNT).value)(at)

    found, gradient = expectation(each(near)(tau, jnp.zeros((64, HORIZON)), params(new)), chance)
    np.testing.assert_allclose(found, chance @ hand_surrogate(new, OLD, tau), rtol=1e-12)
    np.testing.assert_allclose(gradient["logits"], slopes(lambda at: chance @ hand_surrogate(at, OLD, tau), new), atol=1e-7)
    if new is OLD:
        np.testing.assert_allclose(gradient["logits"], exact.gradient(POLICY, params(OLD), mdp, DISCOUNT, HORIZON)["logits"], atol=1e-12)
    # The exact form has advantages instead of returns: the same slope wherever nothing is clipped.
    log_old = exact.log_table(POLICY, params(OLD), 2, 2)
    tables = exact.tables(mdp, log_old, DISCOUNT, HORIZON)

    def whole(at):
        return surrogate.of_tables(exact.log_table(POLICY, at, 2, 2), log_old, tables)

    if new is not FAR:
        np.testing.assert_allclose(gradient["logits"], jax.grad(lambda at: whole(at).value)(params(new))["logits"], atol=1e-12)
    assert float(whole(params(new)).length) == pytest.approx(1 + DISCOUNT + DISCOUNT**2)


def test_exact_divergences_are_means_over_the_occupancy(float64):
    pi, other, occupancy = softmax_table(FAR), softmax_table(OLD), np.array([0.5, 1.5])
    rows = (other * np.log(other / pi)).sum(1)
    found = surrogate.divergence_of_tables(jnp.log(pi), jnp.log(other), jnp.asarray(occupancy))
    np.testing.assert_allclose(found, [rows @ occupancy / 2, np.sqrt(rows) @ occupancy / 2], rtol=1e-12)


def test_ratios_are_cut_without_nan():
    value, slope = jax.vmap(jax.value_and_grad(clipped))(jnp.array([-1e4, -30.0, 0.0, 1.0, 3.0, 1e4]))
    np.testing.assert_allclose(value, [1e-8, 1e-8, 1.0, np.e, 10.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(slope, [0, 0, 1.0, np.e, 0, 0], rtol=1e-5)


def test_divergences_are_means_over_the_states_visited(float64):
    """Three trajectories that end at different times: each executed step counts once, KL of rows by hand, and its slope."""
    states, mask = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]]), np.array([[1.0, 1, 1], [1, 0, 0], [1, 1, 0]])
    tau = all_trajectories(tiny_mdp())
    drawn = Batch(tau._replace(observation=jnp.asarray(states), mask=jnp.asarray(mask)), jnp.zeros((3, 3)), jnp.ones(()))
    outputs = distributions.outputs_of(POLICY, TINY.action_space)

    def by_hand(new):
        p, q = softmax_table(OLD), softmax_table(new)
        rows = (p * np.log(p / q)).sum(1)
        visited = rows[states[mask > 0]]
        return visited.mean(), np.sqrt(np.maximum(visited, 1e-8)).mean()

    def divergence(at):
        return surrogate.divergence_of_batch(outputs, at, params(OLD), drawn)

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


def test_the_gradient_at_the_behaviour_is_g():
    """For a Gaussian policy on scaled observations, with normalised advantages, on what gradients may move."""
    policy = scaled(gaussian(TRACED, hidden=(3,)), (2,))
    problem = policy_gradient(TRACED, policy, horizon=4, discount=0.9, batch_size=2, normalise_advantages=True)
    at, agent = policy.init(jax.random.key(0)), jax.tree.map(lambda x: x[0], widths(1))

    @jax.jit
    def both(at):
        sample, _ = problem.sample(jax.random.key(1), at, agent, problem.init_memory())
        slope = jax.grad(lambda p: surrogate.of_batch(policy, p, at, sample, 0.9).value)(at)
        return policy.free(slope), problem.gradient(sample, at)

    for a, b in zip(*map(jax.tree.leaves, both(at)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
