"""What `heterogeneity` does in every family: nothing at 0, and more the larger it is."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import FAMILIES, family
from fedpg.envs.cartpole import CartPoleOptions, CartPoleParams, cartpoles
from fedpg.envs.tabular import KERNELS, ConflictOptions, RandomMDPOptions, conflicting_mdps, random_mdps
from fedpg.errors import UserError
from fedpg.gradients import exact
from fedpg.policies import make

AGENTS = 4
HETEROGENEITIES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def some_agents(name: str, heterogeneity: float, seed: int = 0) -> Any:
    kind = family(name)
    return kind.agents(jax.random.key(seed), AGENTS, heterogeneity, kind.options())


@pytest.mark.parametrize("name", FAMILIES)
def test_zero_heterogeneity_is_identical_agents(name: str) -> None:
    """Every agent is agent 0, to the bit; at 1 they differ; every leaf has the leading axis N."""
    for leaf in jax.tree.leaves(some_agents(name, 0.0)):
        assert leaf.shape[0] == AGENTS
        np.testing.assert_array_equal(leaf, jnp.broadcast_to(leaf[:1], leaf.shape))
    assert any(np.ptp(leaf, axis=0).max() > 0 for leaf in jax.tree.leaves(some_agents(name, 1.0)))


@pytest.mark.parametrize("name", FAMILIES)
def test_agents_are_made_from_the_key_and_fit_the_environment(name: str) -> None:
    """Same key, same agents; other key, other agents; the environment runs them."""
    kind = family(name)
    environment, first = kind.environment(kind.options()), some_agents(name, 1.0)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(some_agents(name, 1.0)), strict=True):
        np.testing.assert_array_equal(a, b)
    other = some_agents(name, 1.0, seed=1)
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True))
    agent = jax.tree.map(lambda x: x[0], first)
    state, observation = environment.reset(jax.random.key(0), agent)
    after = environment.step(jax.random.key(0), state, jnp.asarray(0), agent)
    assert after.observation.shape == observation.shape == getattr(environment.observation_space, "shape", ())
    assert np.isfinite(after.reward)


@cache
def gradient_spread(name: str) -> Any:
    """agents -> max_i |grad J_i - grad J|^2 at the uniform policy."""
    kind = family(name)
    policy = make("softmax", kind.environment(kind.options()))

    def spread(agents: Any) -> jax.Array:
        each = jax.vmap(lambda mdp: exact.gradient(policy, policy.init(jax.random.key(0)), mdp, 0.9, 20)["logits"])(agents)
        return jnp.max(jnp.sum(jnp.square(each - each.mean(0)), axis=(1, 2)))

    return jax.jit(spread)


@pytest.mark.parametrize(
    ("name", "options"),
    [*(("random-mdp", RandomMDPOptions(kernel=k)) for k in KERNELS), ("conflict", ConflictOptions())],
    ids=[*KERNELS, "conflict"],
)
def test_gradients_spread_with_heterogeneity(name: str, options: Any) -> None:
    """max_i |grad J_i - grad J|^2 at the uniform policy, averaged over keys, is 0 at 0 and grows."""
    make_agents = family(name).agents
    keys = jax.random.split(jax.random.key(0), 8)
    spread = []
    for h in HETEROGENEITIES:
        spread.append(np.mean([gradient_spread(name)(make_agents(key, AGENTS, h, options)) for key in keys]))
    assert spread[0] < 1e-10
    assert all(b > 1.02 * a for a, b in itertools.pairwise(spread)), spread


def test_poles_spread_with_heterogeneity() -> None:
    """Longest over shortest pole is 4^h, gravities 2.25^h; they are dealt to the agents in independent orders."""
    for h in HETEROGENEITIES:
        agents = some_agents("cartpole", h)
        assert float(agents.length.max() / agents.length.min()) == pytest.approx(4.0**h, rel=1e-4)
        assert float(agents.gravity.max() / agents.gravity.min()) == pytest.approx(2.25**h, rel=1e-4)
    orders = {tuple(np.argsort(x)) for x in (agents.length, agents.gravity)}
    assert len(orders) == 2


def test_one_agent_alone_is_the_nominal_one() -> None:
    """With nobody to differ from, heterogeneity changes no constant."""
    for name, value in zip(CartPoleParams._fields, cartpoles(jax.random.key(0), 1, 2.0, CartPoleOptions()), strict=True):
        np.testing.assert_allclose(value, getattr(CartPoleOptions(), name), rtol=1e-6)
    assert conflicting_mdps(jax.random.key(0), 1, 2.0, ConflictOptions()).reward.max() == 1.0


def test_conflict_at_one() -> None:
    """Neighbours never want the same action, in any state; scales of reward span two orders of magnitude; one world for all."""
    agents = conflicting_mdps(jax.random.key(0), AGENTS, 1.0, ConflictOptions())
    favourite = np.argmax(agents.reward, axis=-1)  # (N, S)
    assert (favourite[1:] != favourite[:-1]).all()
    np.testing.assert_array_equal((np.asarray(agents.reward) > 0).sum(-1), 1)
    scale = np.asarray(agents.reward).max((1, 2))
    assert scale.max() / scale.min() == pytest.approx(100.0, rel=1e-4)
    np.testing.assert_array_equal(agents.transition, jnp.broadcast_to(agents.transition[:1], agents.transition.shape))


def test_per_agent_constants() -> None:
    """A list is taken as it is, whatever the heterogeneity; what is not listed is still spread."""
    agents = cartpoles(jax.random.key(0), 3, 2.0, CartPoleOptions(length=(0.4, 0.5, 0.9), masspole=0.3))
    np.testing.assert_allclose(agents.length, [0.4, 0.5, 0.9])
    np.testing.assert_allclose(agents.masspole, 0.3)
    assert float(agents.gravity.max()) == pytest.approx(9.8 * 2.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": (0.5, 0.6)}, "length lists 2 values for 3 agents"),
        ({"gravity": (9.8, -1.0, 9.8)}, "gravity must be positive"),
        ({"masspole": 0.0}, "masspole must be positive"),
        ({"tau": float("inf")}, "tau must be positive and finite"),
        ({"force_mag": float("nan")}, "force_mag must be positive"),
    ],
)
def test_bad_constants_are_user_errors(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cartpoles(jax.random.key(0), 3, 0.5, CartPoleOptions(**options))


@pytest.mark.parametrize("option", ["reward_heterogeneity", "start_heterogeneity", "sparsity"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_shares_are_from_0_to_1(option: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{option} is a share"):
        random_mdps(jax.random.key(0), 2, 0.5, RandomMDPOptions(**{option: value}))
