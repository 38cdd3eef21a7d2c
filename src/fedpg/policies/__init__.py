"""Policies: what an agent does. `make` knows them by name; `custom` makes one from a user's three functions."""

from collections.abc import Callable

import jax

from fedpg import own
from fedpg.envs.base import Box, Discrete, Environment, zero
from fedpg.envs.host import HostEnvironment
from fedpg.errors import choose, require
from fedpg.policies.base import Policy, custom
from fedpg.policies.critic import with_critic
from fedpg.policies.mlp import categorical, gaussian, gaussian_state, tanh_gaussian
from fedpg.policies.scaled import scaled as scale
from fedpg.policies.tabular import direct, softmax

TABLES: dict[str, Callable[..., Policy]] = {"softmax": softmax, "direct": direct}
GAUSSIAN: dict[str, Callable[..., Policy]] = {"gaussian": gaussian, "gaussian-state": gaussian_state, "tanh-gaussian": tanh_gaussian}
NETWORKS: dict[str, Callable[..., Policy]] = {"categorical": categorical} | GAUSSIAN


def make(
    name: str,
    environment: Environment | HostEnvironment,
    hidden: tuple[int, ...] | None = None,
    scaled: bool = False,
    critic: tuple[int, ...] | None = None,
    log_std: float | None = None,
) -> Policy:
    """The policy called `name` for `environment`.

    Args:
        name: softmax, direct, categorical, gaussian, gaussian-state, tanh-gaussian; auto takes the one that fits; or module:function or
            file.py:function, a function environment -> Policy.
        environment: of the agents.
        hidden: sizes of the hidden layers of a network; None is the paper's.
        scaled: whether observations are scaled, see `fedpg.policies.scaled`.
        critic: sizes of the hidden layers of a critic, see `fedpg.policies.critic`; None is no critic.
        log_std: where the deviation of `gaussian` starts; None is the paper's -0.5. Other policies have their own start.

    Raises:
        UserError: if there is no such policy, or it does not fit.
    """
    finite = isinstance(environment.observation_space, Discrete)
    require(not (scaled and finite), f"the observations of {environment.name} are indices of states, which cannot be scaled: use 'off'")
    policy = _own(name, environment, hidden) if ":" in name else _built_in(name, environment, hidden, log_std)
    if critic is not None:
        policy = with_critic(policy, environment, critic)
    return scale(policy, environment.observation_space.shape) if scaled else policy


def _built_in(
    name: str, environment: Environment | HostEnvironment, hidden: tuple[int, ...] | None, log_std: float | None = None
) -> Policy:
    finite = isinstance(environment.observation_space, Discrete)
    continuous = isinstance(environment.action_space, Box)
    if name == "auto":
        name = "gaussian" if continuous else "softmax" if finite and hidden is None else "categorical"
    choose("policy", name, ("auto", *TABLES, *NETWORKS))
    listed = f"policy {name!r} is a table over states, and those of {environment.name} cannot be listed: use 'auto'"
    require(finite or name not in TABLES, listed)
    require(continuous == (name in GAUSSIAN), f"policy {name!r} does not fit the actions of {environment.name}: use 'auto'")
    given = {"log_std": log_std} if name == "gaussian" and log_std is not None else {}
    if hidden is None:
        return (TABLES | NETWORKS)[name](environment, **given)
    require(name in NETWORKS, f"policy {name!r} is a table and has no hidden layers: leave out --hidden")
    require(all(size >= 1 for size in hidden), f"hidden layers must have at least 1 unit each, not {hidden}")
    return NETWORKS[name](environment, hidden, **given)


def _own(name: str, environment: Environment | HostEnvironment, hidden: tuple[int, ...] | None) -> Policy:
    """The policy that a user's function returns, tried once on shapes."""
    require(hidden is None, f"the layers of {name} are its own: leave out --hidden")
    policy = own.call(name, own.load(name, "policy"), environment)
    require(isinstance(policy, Policy), f"{name} returned a {type(policy).__name__}: expected a fedpg.Policy, see fedpg.policies.custom")
    own.call(name, jax.eval_shape, lambda key: _tried(policy, environment, key), jax.random.key(0))
    return policy


def _tried(policy: Policy, environment: Environment | HostEnvironment, key: jax.Array) -> jax.Array:
    """log pi of an action at an observation of zeros: runs every function of the policy that sampling needs."""
    observation = zero(environment.observation_space)
    params = policy.init(key)
    return policy.log_prob(params, observation, policy.sample(key, params, observation))


__all__ = ["NETWORKS", "TABLES", "Policy", "categorical", "custom", "direct", "gaussian", "make", "softmax"]
