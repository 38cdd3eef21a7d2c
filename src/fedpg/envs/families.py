"""Every environment by name, as `--env` takes it, and its options, as `--env-option NAME=VALUE` gives them.

cartpole, random-mdp, conflict       in the compiled program
halfcheetah, walker2d, hopper, ...   MuJoCo, on the cores of the CPU
gym:ID                               any Gymnasium environment, in Python
module:function, file.py:function    the user's own, in Python or in JAX
spaces                               spaces without an environment, for the server of a federation
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import msgspec

from fedpg.envs import cartpole, gym, mujoco, own, spaces_only, tabular
from fedpg.envs.base import Environment, Federation
from fedpg.errors import UserError, choose, require


class Family(NamedTuple):
    """A kind of environment with any number of agents.

    Attributes:
        options: frozen dataclass with the options and their defaults.
        environment: options -> Environment.
        agents: (key, N, heterogeneity, options) -> params with leading axis N.
        heterogeneity: the default.
    """

    options: type
    environment: Callable[[Any], Environment]
    agents: Callable[[jax.Array, int, float, Any], Any]
    heterogeneity: float


SPACES = "spaces"
FAMILIES: dict[str, Family] = {
    "random-mdp": Family(
        tabular.RandomMDPOptions, lambda o: tabular.environment("random-mdp", o.states, o.actions), tabular.random_mdps, 0.5
    ),
    "conflict": Family(
        tabular.ConflictOptions, lambda o: tabular.environment("conflict", o.states, o.actions), tabular.conflicting_mdps, 1.0
    ),
    "cartpole": Family(cartpole.CartPole, lambda o: cartpole.ENVIRONMENT, cartpole.cartpoles, 0.5),
    SPACES: Family(spaces_only.SpacesOptions, spaces_only.environment, spaces_only.members, 0.0),
}
NAMES = (*FAMILIES, *mujoco.TASKS)
LONGEST = 1000
"""Upper bound of a horizon that is taken from the time limit of an environment."""
MUJOCO_HETEROGENEITY = 0.5
"""The default for MuJoCo tasks: start ranges within a factor 2^0.5 of the task's own."""


def family(name: str) -> Family:
    """The family called `name`."""
    return FAMILIES[choose("env", name, FAMILIES)]


def check_name(name: str) -> str:
    """`name` if it can be an environment; names with a colon are looked up only by `make`."""
    return name if ":" in name else choose("env", name, NAMES)


def default_heterogeneity(name: str) -> float:
    """The heterogeneity of an environment when none is given."""
    if name in FAMILIES:
        return FAMILIES[name].heterogeneity
    return MUJOCO_HETEROGENEITY if name in mujoco.TASKS else 0.0


def time_limit(name: str) -> int | None:
    """The number of steps after which the environment itself ends an episode, if its name tells; at most `LONGEST`."""
    limit = gym.time_limit(name) if name.startswith(gym.PREFIX) else None
    return min(limit, LONGEST) if limit else None


def read_options(name: str, kind: type, given: dict[str, Any]) -> Any:
    """The options dataclass `kind` of environment `name` with the `given` values, checked for name and type."""
    for key in given:
        choose(f"option of {name}", key, [field.name for field in dataclasses.fields(kind)])
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        raise UserError(f"option {place.rstrip('`')} of {name}: {reason}") from None


def make(name: str, agents: int = 5, heterogeneity: float | None = None, options: dict[str, Any] | None = None) -> Federation:
    """The environment called `name` with N agents.

    Args:
        name: as in `--env`, see above.
        agents: N.
        heterogeneity: how much the agents differ; None is the environment's default.
        options: as in `--env-option`; a list gives one value per agent.

    Raises:
        UserError: for a name or an option that does not exist, or an environment that cannot be made.
    """
    check_name(name)
    given = {} if options is None else options
    heterogeneity = default_heterogeneity(name) if heterogeneity is None else heterogeneity
    if name in FAMILIES:
        kind = FAMILIES[name]
        values = read_options(name, kind.options, given)
        return Federation(kind.environment(values), lambda key, seed: kind.agents(key, agents, heterogeneity, values))
    if name in mujoco.TASKS:
        return mujoco.federation(name, agents, heterogeneity, read_options(name, mujoco.MujocoOptions, given))
    require(heterogeneity == 0.0, f"{name} has no --heterogeneity: give each agent its own --env-option values instead")
    return (gym if name.startswith(gym.PREFIX) else own).federation(name, agents, given)
