"""What an agent does: policies by name, and the contract for one's own."""

from __future__ import annotations

from collections.abc import Callable

from fedpg.envs.base import Box, Discrete, Environment
from fedpg.envs.host import HostEnvironment
from fedpg.errors import choose, require
from fedpg.policies.base import Policy, custom
from fedpg.policies.mlp import categorical, gaussian
from fedpg.policies.normalised import normalised as normalise
from fedpg.policies.tabular import direct, softmax

POLICIES: dict[str, Callable[[Environment], Policy]] = {
    "softmax": softmax,
    "direct": direct,
    "categorical": categorical,
    "gaussian": gaussian,
}


def make(name: str, environment: Environment | HostEnvironment, normalised: bool = False) -> Policy:
    """The policy called `name` for `environment`, on normalised observations or not; "auto" takes the natural one."""
    finite = isinstance(environment.observation_space, Discrete)
    continuous = isinstance(environment.action_space, Box)
    if name == "auto":
        name = "gaussian" if continuous else "softmax" if finite else "categorical"
    choose("policy", name, ("auto", *POLICIES))
    table = name in ("softmax", "direct")
    require(finite or not table, f"policy {name!r} is a table over states, and those of {environment.name} cannot be listed: use 'auto'")
    require(continuous == (name == "gaussian"), f"policy {name!r} does not fit the actions of {environment.name}: use 'auto'")
    made = POLICIES[name](environment)
    if not normalised:
        return made
    require(not finite, f"the states of {environment.name} are names, not numbers: they cannot be normalised, use 'off'")
    return normalise(made, environment.observation_space.shape)


__all__ = ["POLICIES", "Policy", "categorical", "custom", "direct", "gaussian", "make", "softmax"]
