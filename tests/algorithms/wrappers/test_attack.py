"""What attackers do to messages and to trajectories, and what they cannot touch."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies, trees
from fedpg.algorithms.base import Algorithm, Exchange, ServerState
from fedpg.algorithms.wrappers import attack, chain
from fedpg.algorithms.wrappers.attack import NAMES, ON_MESSAGES, attacker_count, with_dishonest_agents
from fedpg.envs.base import Federation
from fedpg.envs.host import Member
from fedpg.errors import UserError
from fedpg.gradients import batch, dishonest
from fedpg.gradients.dishonest import HONEST, RANDOM_ACTION, REWARD_FLIP, SHUFFLED_REWARD, MarkedAgent
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_frequencies, assert_trees_close
from helpers.enumeration import tiny_mdp
from helpers.federations import bowl, make, rl, run
from helpers.slide import SHIFT, TRACED, SlideHost, hosted

ROWS = np.random.default_rng(1).normal(size=(6, 4))
THERE = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
PRESENT = ROWS[THERE > 0]


def sent(name, seed=0):
    """What reaches the server of six agents' messages, of which the first two are attackers', as rows."""
    plain = Algorithm("toy", None, lambda key, shared, state, agent: (agent, state, ()), lambda state, messages, present: (messages, ()))
    attacked = chain(plain, attack(name, 2))
    keys, agents = jax.random.split(jax.random.key(seed), 6), {"a": jnp.asarray(ROWS[:, :3]), "b": jnp.asarray(ROWS[:, 3])}
    if not isinstance(name, str):
        agents = MarkedAgent(agents, jnp.zeros(6))
    messages = jax.vmap(attacked.local_update, (0, None, None, 0))(keys, (), (), agents)[0]
    inner = messages.inner if isinstance(name, str) else messages.inner.constants
    messages = messages._replace(inner=jax.tree.map(lambda x: x.at[4].set(jnp.nan), inner))  # the absent agent
    found = attacked.aggregate(ServerState(()), messages, jnp.asarray(THERE))[0]
    return np.concatenate([found["a"], found["b"][:, None]], axis=1)


@pytest.mark.parametrize("name", ON_MESSAGES)
def test_attacks_on_messages(name):
    found, again = sent(name), sent(name, seed=1)
    np.testing.assert_allclose(found[[2, 3, 5]], ROWS[[2, 3, 5]], rtol=1e-6)
    lies = found[:2]
    if name == "zero":
        np.testing.assert_array_equal(lies, 0.0)
    elif name == "sign-flip":
        np.testing.assert_allclose(lies, -2.5 * ROWS[:2], rtol=1e-6)
    elif name == "noise":
        width = np.ptp(ROWS[:2], axis=1, keepdims=True)
        added = (lies - ROWS[:2]) / width
        assert np.abs(added).max() <= 3.0 < 1.5 * np.abs(added).max()
        assert np.unique(added.round(5)).size == 8, "each entry of each attacker has its own"
    else:
        furthest = max(np.linalg.norm(a - b) for a in PRESENT for b in PRESENT)
        np.testing.assert_allclose(lies[0], lies[1])
        np.testing.assert_allclose(np.linalg.norm(lies[0] - PRESENT.mean(0)), 1.5 * furthest, rtol=1e-5)
    assert np.array_equal(again[:2], lies) == (name in ("zero", "sign-flip")), "other keys, other random numbers"
    np.testing.assert_allclose(sent(jnp.asarray(1 + NAMES.index(name))), found, rtol=1e-5)  # the same by its number


def test_no_attack_is_number_zero_and_algorithms_without_messages_are_refused():
    np.testing.assert_allclose(sent(jnp.asarray(0))[THERE > 0], PRESENT, rtol=1e-6)
    with pytest.raises(UserError, match="lonely sends no messages: leave out --attack"):
        chain(Algorithm("lonely", None, None, None, personal=True), attack("zero", 1))
    with pytest.raises(UserError, match=r"give a number from 0 to 1, not 1.5"):
        attacker_count(1.5, 3)
    with pytest.raises(UserError, match="unknown attack 'sign-flop': did you mean 'sign-flip'"):
        attack("sign-flop", 1)
    assert attack("none", 1).wrap is None


def test_both_engines_draw_the_same_attack():
    small = bowl(noise=0.3)
    algorithm = chain(make("pavg", small.problem, local_steps=1), attack("fedpg-attack", 1))
    fast, plain = (run(small, algorithm, 1, engine=engine) for engine in (simulator, plain_simulator))
    assert_trees_close(fast.state.rows.server, plain.state.rows.server, rtol=1e-4, atol=1e-5)


def test_a_flipped_sign_turns_the_mean_around(float64):
    """Two of three agents send -2.5 Delta: theta_1 = mean of (-2.5 Delta_0, -2.5 Delta_1, Delta_2)."""
    small = bowl()
    ran = run(small, chain(make("pavg", small.problem, local_steps=1), attack("sign-flip", 2)), 1)
    bowls = trees.take(ran.state.agents, 0)
    delta = 0.02 * np.einsum("nij,nj->ni", bowls.curvature, bowls.centre)
    np.testing.assert_allclose(ran.shared.params[0], (-2.5 * delta[0] - 2.5 * delta[1] + delta[2]) / 3, rtol=1e-12)


POLICY = policies.gaussian(TRACED, hidden=(4,))
KEYS = jax.random.split(jax.random.key(3), 64)
WIDTH = jnp.asarray(0.6)


@functools.cache
def reporter(host):
    """(mark, constants) -> what an agent reports of 64 trajectories."""
    environment, params = hosted(SlideHost()) if host else TRACED, POLICY.init(jax.random.key(0))

    def draw(mark, constants):
        return dishonest.sampler(environment, POLICY, 12)(KEYS, params, MarkedAgent(constants, mark))

    return jax.jit(draw)


def report(mark, host=False):
    constants = Member(jnp.asarray(0), WIDTH) if host else WIDTH
    return jax.tree.map(np.asarray, reporter(host)(jnp.asarray(float(mark)), constants))


def test_lies_about_rewards():
    params = POLICY.init(jax.random.key(0))
    honest, flipped, shuffled = (report(mark) for mark in (HONEST, REWARD_FLIP, SHUFFLED_REWARD))
    plain = jax.jit(lambda keys: batch.sampler(TRACED, POLICY, 12)(keys, params, WIDTH))
    assert_trees_close(honest, plain(KEYS), atol=1e-6)
    assert_trees_close(flipped, honest._replace(reward=-honest.reward))
    assert_trees_close(shuffled._replace(reward=()), honest._replace(reward=()))
    assert honest.mask.min() == 0.0 < honest.mask.mean() < 1.0, "some should end early"
    for mine, true, mask in zip(shuffled.reward, honest.reward, honest.mask, strict=True):
        np.testing.assert_array_equal(np.sort(mine[mask > 0]), np.sort(true[mask > 0]))
        np.testing.assert_array_equal(mine[mask == 0], 0.0)
    assert (shuffled.reward != honest.reward).mean() > 0.3


def test_random_actions_are_uniform_executed_and_reported():
    honest, random = report(HONEST), report(RANDOM_ACTION)
    taken = random.action[random.mask > 0].ravel()
    assert_frequencies(np.histogram(taken, bins=5, range=(-1.0, 1.0))[0], np.full(5, 0.2))
    np.testing.assert_array_equal(random.observation[:, 0], honest.observation[:, 0])
    moved = TRACED.transition(None, random.observation[:, 0] - SHIFT, random.action[:, 0], WIDTH).observation
    np.testing.assert_allclose(random.observation[:, 1], moved, atol=1e-5)
    drawn = [int(dishonest.random_action(policies.base.Discrete(3), jnp.array([u]))) for u in (0.0, 0.34, 0.999999)]
    assert drawn == [0, 1, 2]


def test_environments_in_python_are_attacked_alike():
    for mark in (REWARD_FLIP, RANDOM_ACTION):
        found, expected = report(mark, host=True), report(mark)
        np.testing.assert_allclose(found.reward, expected.reward, atol=1e-5)
        executed = expected.mask > 0
        np.testing.assert_allclose(found.action[executed], expected.action[executed], atol=1e-5)


def test_a_flipped_reward_is_a_flipped_gradient_and_evaluation_is_honest():
    plain, doubted = (rl("random-mdp", baseline="none", dishonest=a).problem for a in (False, True))
    mdp = trees.take(rl("random-mdp").agents(jax.random.key(1)), 0)
    params, key = {"logits": jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)))}, jax.random.key(2)
    agents = {mark: MarkedAgent(mdp, jnp.asarray(float(mark))) for mark in (HONEST, REWARD_FLIP)}

    def gradient(problem, agent):
        return problem.gradient(problem.sample(key, params, agent, problem.init_memory())[0], params)["logits"]

    true, lying = jax.jit(lambda mdp: gradient(plain, mdp))(mdp), jax.jit(lambda agent: gradient(doubted, agent))
    np.testing.assert_allclose(lying(agents[HONEST]), true, atol=1e-5)  # from trajectories instead of visit counts
    np.testing.assert_allclose(lying(agents[REWARD_FLIP]), -true, atol=1e-5)
    values = [
        float(jax.jit(lambda agent, problem=problem: problem.evaluate(key, params, agent).objective)(agent))
        for problem, agent in ((plain, mdp), (doubted, agents[REWARD_FLIP]))
    ]
    assert values[0] == values[1]
    assert doubted.exact is None, "exact tables would be those of an honest agent"


def test_marks_of_agents_and_what_a_server_with_an_environment_sees():
    plain = Federation(None, lambda key, seed: trees.broadcast(tiny_mdp(), 4), lambda agents: {"made of": agents})
    federation = with_dishonest_agents(plain, "random-action", 2)
    agents = federation.agents(jax.random.key(0), 0)
    np.testing.assert_array_equal(agents.attack, [2.0, 2.0, 0.0, 0.0])
    assert federation.prepare(agents).constants["made of"] is agents.constants
    assert with_dishonest_agents(plain, "sign-flip", 2) is plain
    fixed = with_dishonest_agents(Federation(None, trees.broadcast(tiny_mdp(), 4)), "reward-flip", 1)
    np.testing.assert_array_equal(fixed.agents.attack, [1.0, 0.0, 0.0, 0.0])

    def local_update(key, shared, state, agent):
        return agent.attack, state, ()

    served = Algorithm("toy", None, local_update, None, (Exchange(local_update, None),), (), lambda key, state, agents: (agents.attack, ()))
    np.testing.assert_array_equal(chain(served, attack("random-action", 2)).server_update(None, None, agents)[0], 0.0)
    by_number = chain(served, attack(jnp.asarray(1 + NAMES.index("shuffled-reward")), 2))
    keys = jax.random.split(jax.random.key(0), 4)
    for update in (by_number.local_update, by_number.warmup[0].local_update):
        messages = jax.vmap(update, (0, None, None, 0))(keys, None, None, agents)[0]
        np.testing.assert_array_equal(messages.inner, [3.0, 3.0, 0.0, 0.0])


def test_an_attack_on_trajectories_without_marked_agents_is_refused():
    """It would otherwise do nothing, and look like a federation that withstands it."""
    small = rl("random-mdp")
    algorithm = chain(make("pavg", small.problem), attack("reward-flip", 2))
    with pytest.raises(UserError, match="with_dishonest_agents"):
        run(small, algorithm, 1)
