"""Families of environments by name: what `--env` takes, and how `--env-option NAME=VALUE` is read."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedpg.envs import cartpole, tabular
from fedpg.envs.base import Environment
from fedpg.errors import UserError, choose, require


class Family(NamedTuple):
    """A kind of environment of which any number of agents can be made.

    Attributes:
        options: frozen dataclass type of what can be set.
        environment: options -> Environment.
        agents: (key, N, heterogeneity, options) -> params with leading axis N.
        heterogeneity: the default.
        spread_by: one line for people: what the number does.
    """

    options: type
    environment: Callable[[Any], Environment]
    agents: Callable[[jax.Array, int, float, Any], Any]
    heterogeneity: float
    spread_by: str


FAMILIES: dict[str, Family] = {
    "random-mdp": Family(
        tabular.RandomMDPOptions,
        lambda o: tabular.environment("random-mdp", o.states, o.actions),
        tabular.random_mdps,
        0.5,
        "kappa of the paper up to 1 (share of an agent's own kernel); beyond 1 those kernels sharpen",
    ),
    "conflict": Family(
        tabular.ConflictOptions,
        lambda o: tabular.environment("conflict", o.states, o.actions),
        tabular.conflicting_mdps,
        1.0,
        "agents want different actions; reward scales run over 2h orders of magnitude",
    ),
    "cartpole": Family(
        cartpole.CartPoleOptions,
        lambda o: cartpole.ENVIRONMENT,
        cartpole.cartpoles,
        0.5,
        "pole length and start range within a factor 2^h of nominal, gravity within 1.5^h",
    ),
}


def family(name: str) -> Family:
    """The family called `name`."""
    return FAMILIES[choose("env", name, FAMILIES)]


def read_options(name: str, kind: type, given: dict[str, Any]) -> Any:
    """The options dataclass `kind` of environment `name`, with `given` values checked for name and type.

    A list where one number is meant is taken as one value per agent; if those differ, the agents' spaces would differ.
    """
    hints = typing.get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(kind)]
    values = {}
    for key, value in given.items():
        choose(f"option of {name}", key, fields)
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(value, tuple) and hints[key] in (int, str, float):
            same = len(value) > 0 and all(v == value[0] for v in value)
            require(same, f"{key} differs between agents {value}: it is one for all, so that they share spaces and policy")
            value = value[0]
        values[key] = _convert(name, key, value, hints[key])
    return kind(**values)


def _convert(name: str, key: str, value: Any, hint: Any) -> Any:
    try:
        if hint is int:
            require(float(value) == int(value) >= 1, f"{key} of {name} must be a whole number of at least 1, not {value}")
            return int(value)
        if hint is str:
            return str(value)
        if isinstance(value, tuple):
            return tuple(float(v) for v in value)
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{key} of {name} must be a number, not {value!r}") from None
