"""A trajectory ends where it should, is masked after that, and follows start, policy and kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.base import Box, Discrete, Environment, Step
from fedpg.envs.tabular import environment
from fedpg.gradients.rollout import Trajectory, log_probs, rollout
from fedpg.policies import categorical, custom, softmax
from helpers import enumeration
from helpers.compare import assert_frequencies, random_params
from helpers.enumeration import HORIZON, softmax_table
from helpers.environments import CLOCK, NOISE, Clock, clock

COIN = custom(
    init=lambda key: jnp.zeros(2),
    sample=lambda key, params, obs: jax.random.categorical(key, params),
    log_prob=lambda params, obs, action: jax.nn.log_softmax(params)[action],
)


@jax.jit
def play_clock(agent: Clock) -> tuple[Trajectory, jax.Array]:
    """Six steps with the clock and a fair coin, and the log probability of each action."""
    tau = rollout(CLOCK, COIN, 6, jax.random.key(0), jnp.zeros(2), agent)
    return tau, log_probs(COIN, jnp.zeros(2), tau)


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
@pytest.mark.parametrize("end", [1, 3, 6, 9])
def test_masks_and_rewards_after_the_end(end: int, truncates: bool) -> None:
    """The last step counts, nothing after it does; the time limit ends an episode as a failure does."""
    tau, logs = play_clock(clock(end, truncates))
    steps = np.arange(1, 7)
    np.testing.assert_array_equal(tau.mask, steps <= end)
    np.testing.assert_array_equal(tau.reward, np.where(steps <= end, steps, 0))
    np.testing.assert_array_equal(tau.observation[:, 0], np.minimum(steps - 1, end))
    np.testing.assert_allclose(logs, np.where(steps <= end, np.log(0.5), 0.0), rtol=1e-6)


def test_an_ended_episode_stands_still() -> None:
    """States that would run off to infinity after the end never reach the trajectory, nor spoil a gradient."""

    def explode(key: jax.Array, state: jax.Array, action: jax.Array, params: tuple) -> Step:
        after = state * 1e20
        return Step(after, after[None], after, after > 1e10, jnp.zeros((), bool))

    exploding = Environment("explode", Box((1,)), Discrete(2), lambda key, params: (jnp.ones(()), jnp.ones(1)), explode)
    policy = categorical(exploding, (2,))
    params = random_params(policy, 0)
    tau = jax.jit(lambda p: rollout(exploding, policy, 5, jax.random.key(0), p, ()))(params)
    np.testing.assert_array_equal(tau.mask, [1, 0, 0, 0, 0])
    assert np.isfinite(tau.observation).all()
    slope = jax.jit(jax.grad(lambda p: log_probs(policy, p, tau).sum()))(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))


def test_whole_trajectories_follow_the_enumerated_distribution() -> None:
    """Frequencies of all 64 trajectories of the tiny MDP, within binomial error: start, actions and kernel, jointly."""
    mdp, count = enumeration.tiny_mdp(), 20_000
    policy = softmax(environment("tiny", 2, 2))
    params = {"logits": jnp.array([[0.3, -0.8], [1.1, 0.4]])}
    keys = jax.random.split(jax.random.key(0), count)
    tau = jax.jit(jax.vmap(lambda k: rollout(environment("tiny", 2, 2), policy, HORIZON, k, params, mdp)))(keys)
    all_tau = enumeration.all_trajectories(mdp)
    expected = enumeration.probabilities(mdp, softmax_table(params["logits"]), all_tau)

    path = np.stack([tau.observation, tau.action], axis=-1).reshape(count, -1)  # s_0 a_0 s_1 a_1 s_2 a_2, in binary
    assert_frequencies(np.bincount(path @ (1 << np.arange(5, -1, -1)), minlength=64), expected)
    np.testing.assert_array_equal(tau.reward, np.asarray(mdp.reward)[tau.observation, tau.action])
    assert tau.mask.min() == 1.0


def test_every_step_and_every_trajectory_has_its_own_randomness() -> None:
    """With the default `draw` no key is used twice: neither in a trajectory nor between trajectories."""
    keys = jax.random.split(jax.random.key(1), 3)
    tau = jax.jit(jax.vmap(lambda k: rollout(NOISE, COIN, 20, k, jnp.zeros(2), ())))(keys)
    assert np.unique(tau.reward).size == 60
    assert np.unique(tau.action, axis=0).shape[0] == 3


@pytest.mark.parametrize("new_key", [jax.random.key, jax.random.PRNGKey], ids=["typed", "raw"])
def test_single_steps_take_plain_keys(new_key) -> None:
    """`Environment.step` and `Policy.sample` work with a key of either kind, for own and for default `draw`."""
    key, mdp, tiny = new_key(3), enumeration.tiny_mdp(), environment("tiny", 2, 2)
    state, observation = tiny.reset(key, mdp)
    action = softmax(tiny).sample(key, {"logits": jnp.array([[0.0, 99.0], [0.0, 99.0]])}, observation)
    assert int(action) == 1
    after = tiny.step(key, state, action, mdp)
    assert float(after.reward) == float(mdp.reward[int(state), 1])
    assert int(after.state) in (0, 1)
    assert float(CLOCK.step(key, jnp.asarray(4.0), action, clock(9)).reward) == 5.0
    assert int(COIN.sample(key, jnp.array([99.0, 0.0]), observation)) == 0


def test_steps_follow_the_kernel() -> None:
    """`Environment.step` with many keys: next states of every (s, a) as often as the kernel says."""
    mdp, tiny = enumeration.tiny_mdp(), environment("tiny", 2, 2)
    keys = jax.random.split(jax.random.key(5), 4000)
    step = jax.jit(jax.vmap(tiny.step, (0, None, None, None)))
    for s, a in np.ndindex(2, 2):
        after = step(keys, jnp.asarray(s), jnp.asarray(a), mdp).state
        assert_frequencies(np.bincount(after, minlength=2), mdp.transition[s, a])
