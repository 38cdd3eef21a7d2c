"""Environments by name: their options, and `heterogeneity`, which does nothing at 0 and more the larger it is."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import Discrete, families, family, make
from fedpg.envs.cartpole import CartPole, cartpoles
from fedpg.envs.tabular import KERNELS, ConflictOptions, RandomMDPOptions, conflicting_mdps, random_mdps
from fedpg.errors import UserError
from fedpg.gradients import exact
from fedpg.policies import softmax

AGENTS = 4
HETEROGENEITIES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
FAMILIES = ("random-mdp", "conflict", "cartpole")


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
    policy = softmax(kind.environment(kind.options()))

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
    for name, value in vars(cartpoles(jax.random.key(0), 1, 2.0, CartPole())).items():
        np.testing.assert_allclose(value, getattr(CartPole(), name), rtol=1e-6)
    assert conflicting_mdps(jax.random.key(0), 1, 2.0, ConflictOptions()).reward.max() == 1.0


def test_conflict_at_one() -> None:
    """Neighbours never want the same action, in any state; scales of reward span two orders of magnitude; one kernel for all."""
    agents = conflicting_mdps(jax.random.key(0), AGENTS, 1.0, ConflictOptions())
    favourite = np.argmax(agents.reward, axis=-1)  # (N, S)
    assert (favourite[1:] != favourite[:-1]).all()
    np.testing.assert_array_equal((np.asarray(agents.reward) > 0).sum(-1), 1)
    scale = np.asarray(agents.reward).max((1, 2))
    assert scale.max() / scale.min() == pytest.approx(100.0, rel=1e-4)
    np.testing.assert_array_equal(agents.transition, jnp.broadcast_to(agents.transition[:1], agents.transition.shape))


def test_per_agent_constants() -> None:
    """A list is taken as it is, whatever the heterogeneity; what is not listed is still spread."""
    agents = cartpoles(jax.random.key(0), 3, 2.0, CartPole(length=(0.4, 0.5, 0.9), masspole=0.3))
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
        cartpoles(jax.random.key(0), 3, 0.5, CartPole(**options))


@pytest.mark.parametrize("option", ["reward_heterogeneity", "start_heterogeneity", "sparsity"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_shares_are_from_0_to_1(option: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{option} is a share"):
        random_mdps(jax.random.key(0), 2, 0.5, RandomMDPOptions(**{option: value}))


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("random-mdp", {}, RandomMDPOptions()),
        ("random-mdp", {"states": 7, "kernel": "orthogonal", "sparsity": 1}, RandomMDPOptions(7, 5, "orthogonal", 1.0)),
        ("random-mdp", {"states": "7", "sparsity": "0.25"}, RandomMDPOptions(states=7, sparsity=0.25)),
        ("cartpole", {"length": [0.5, 1], "gravity": 3}, CartPole(length=(0.5, 1.0), gravity=3.0)),
    ],
)
def test_options_are_read_and_converted(name: str, given: dict, expected: object) -> None:
    options = families.read_options(name, family(name).options, given)
    assert options == expected
    assert type(getattr(options, "states", 1)) is int


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("random-mdpp", {}, "unknown env 'random-mdpp': did you mean 'random-mdp'"),
        ("cartpole", {"lenght": 1.0}, "unknown option of cartpole 'lenght': did you mean 'length'"),
        ("random-mdp", {"states": "many"}, "option states of random-mdp: Expected `int`, got `str`"),
        ("random-mdp", {"states": 2.5}, "option states of random-mdp: Expected `int`, got `float`"),
        ("random-mdp", {"actions": 0}, "option actions of random-mdp: Expected `int` >= 1"),
        ("random-mdp", {"states": float("inf")}, "option states of random-mdp: Expected `int`"),
        ("random-mdp", {"sparsity": None}, "option sparsity of random-mdp: Expected `float`, got `null`"),
        ("cartpole", {"gravity": [9.8, "heavy"]}, r"option gravity\[1\] of cartpole: Expected `float`, got `str`"),
        ("random-mdp", {"states": [5, 6]}, "option states of random-mdp: Expected `int`, got `array`"),
    ],
)
def test_invalid_options_are_user_errors(name: str, given: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        families.read_options(name, family(name).options, given)


def test_make_gives_the_family_with_its_options() -> None:
    """The spaces of the options, the agents of the family, the default heterogeneity."""
    made = make("conflict", 3, options={"states": 3, "actions": 4})
    assert (made.environment.observation_space, made.environment.action_space) == (Discrete(3), Discrete(4))
    assert made.prepare is None
    wanted = conflicting_mdps(jax.random.key(5), 3, 1.0, ConflictOptions(3, 4))
    for a, b in zip(made.agents(jax.random.key(5), 0), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_defaults_and_time_limits() -> None:
    assert [families.default_heterogeneity(name) for name in ("conflict", "hopper", "gym:CartPole-v1")] == [1.0, 0.5, 0.0]
    assert families.time_limit("gym:CartPole-v1") == 500
    assert families.time_limit("gym:CartPoll-v1") is families.time_limit("hopper") is None
    with pytest.raises(UserError, match="has no --heterogeneity"):
        make("gym:CartPole-v1", 2, heterogeneity=0.5)
    with pytest.raises(UserError, match="unknown env 'cartpol': did you mean 'cartpole'"):
        make("cartpol")
