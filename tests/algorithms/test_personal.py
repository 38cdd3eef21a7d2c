"""Parts of the params that are the agent's own: what travels, what moves, what is deployed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import local_only, pavg
from fedpg.algorithms.personal import deploy_own, join, keep_own, own_parts, split
from fedpg.envs.base import Federation
from fedpg.errors import UserError
from fedpg.learners.actor_critic import Settings
from fedpg.policies import make, softmax
from fedpg.problem import actor_critic, policy_gradient
from fedpg.simulate import simulator
from helpers.compare import assert_trees_close, largest_difference
from helpers.federations import rl
from helpers.slide import TRACED, widths

SETTINGS = Settings(epochs=1, minibatch=16, critic=(3,))
ALL = frozenset({"heads", "scaling", "critic"})


def problem_of(agents=2, scaled=True):
    policy = make("gaussian", TRACED, hidden=(4,), scaled=scaled, critic=(3,))
    sizes = {"horizon": 9, "discount": 0.9, "rollout_steps": 16, "eval_episodes": 2, "watch_observations": scaled}
    return actor_critic(Federation(TRACED, widths(agents)), policy, SETTINGS, **sizes)


def names(tree):
    return {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}


def test_parts_are_what_their_names_say_and_join_again():
    params = problem_of().init_params(jax.random.key(0))
    common, own = split(params, own_parts(params, ALL))
    assert names(common) == {f".inner.policy['layers'][0]['{part}']" for part in ("bias", "matrix")}
    assert names(own) == names(params) - names(common)
    assert_trees_close(join(common, own), params)
    assert names(split(params, own_parts(params, frozenset({"critic"})))[1]) == {name for name in names(params) if "critic" in name}


@pytest.mark.parametrize("parts", [ALL, pytest.param(frozenset({"critic"}), marks=pytest.mark.slow)], ids=["all", "critic"])
def test_one_agent_learns_the_same_wherever_its_params_are_kept(parts, float64):
    """With one agent, PAvg on a part of the params and the rest in its memory is PAvg on all of them."""
    whole = problem_of(1, scaled=False)
    parts = parts - {"scaling"}
    kept = keep_own(whole, parts)
    start = whole.init_params(jax.random.key(0))  # where an agent's own params start in every run
    found = []
    for problem, own, first in ((whole, frozenset(), start), (kept, parts, split(start, own_parts(start, parts))[0])):
        fixed = problem._replace(init_params=lambda key, first=first: first)
        sim = simulator(fixed, deploy_own(pavg(fixed, local_lr=0.05, local_steps=2), own), widths(1))
        state, _ = sim.run(sim.init(jax.random.key(1)), 3)
        found.append((sim, state))
    (one, state), (other, its) = found
    all_params = jax.tree.map(lambda x: x[0], state.rows.server.shared.params)
    agent = jax.tree.map(lambda x: x[0, 0], its.rows.agents)
    assert_trees_close(join(jax.tree.map(lambda x: x[0], its.rows.server.shared.params), agent.params), all_params, atol=1e-9)
    np.testing.assert_allclose(one.evaluate(state).returns, other.evaluate(its).returns, atol=1e-9)
    assert one.communication(state).round_up - other.communication(its).round_up == trees.size(agent.params)


def test_heads_and_scales_differ_between_agents_and_trunks_do_not():
    problem = keep_own(problem_of(), ALL)
    algorithm = deploy_own(pavg(problem, local_lr=0.05), ALL)
    assert algorithm.personal
    sim = simulator(problem, algorithm, widths(2))
    state, _ = sim.run(sim.init(jax.random.key(1)), 2)
    deployed = jax.tree.map(lambda x: x[0], sim.params(state))
    first, second = (trees.take(deployed, i) for i in (0, 1))
    trunk, head = (lambda p, i=i: p.inner.policy["layers"][i] for i in (0, 1))
    assert_trees_close(trunk(first), trunk(second))
    assert largest_difference(head(first), head(second)) > 0
    assert largest_difference(first.inner.policy["log_std"], second.inner.policy["log_std"]) > 0
    assert largest_difference(first.scale, second.scale) > 0
    np.testing.assert_allclose(first.scale.mean, 3.0, atol=0.3)  # observations lie around 3


def test_reinforce_has_heads_too_and_importance_weights_are_gone():
    small = rl("cartpole", horizon=8)
    parts = frozenset({"heads"})
    problem = keep_own(small.problem, parts)
    assert problem.weighted_gradient is None
    sim = simulator(problem, deploy_own(pavg(problem, local_lr=0.1), parts), small.agents)
    state, _ = sim.run(sim.init(jax.random.key(0)), 1)
    layers = sim.params(state)["layers"]
    assert float(jnp.abs(layers[-1]["matrix"][0, 0] - layers[-1]["matrix"][0, 1]).max()) > 0
    assert_trees_close(layers[0]["matrix"][0, 0], layers[0]["matrix"][0, 1])


def test_nothing_to_keep_is_no_change_and_a_table_has_no_head():
    problem = problem_of()
    assert keep_own(problem, frozenset()) is problem
    algorithm = local_only(problem, local_lr=0.1)
    assert deploy_own(algorithm, frozenset({"critic"})) is algorithm
    small = rl("random-mdp")
    table = policy_gradient(small.problem.environment, softmax(small.problem.environment), horizon=3, discount=0.9)
    with pytest.raises(UserError, match="personal heads need a policy of at least two layers"):
        keep_own(table, frozenset({"heads"}))
