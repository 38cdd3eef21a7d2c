"""Environments of the user's own: `--env module:function` or `--env path/to/file.py:function`.

The function is called with each agent's keyword arguments. It returns an environment with Gymnasium's interface, or
`(fedpg.Environment, params)`: an environment in JAX and the constants of one agent.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Environment, Federation, federate
from fedpg.envs.host import HostEnvironment, Member
from fedpg.envs.python_host import PythonHost
from fedpg.envs.spaces import View, stack, view
from fedpg.errors import UserError, require
from fedpg.own import call, load, one_line


def federation(name: str, agents: int, options: dict[str, Any]) -> Federation:
    """N agents in the environments that the function `name` returns for each agent's options.

    Raises:
        UserError: if there is no such function, it raises, or it returns something else.
    """
    function = load(name, "env")
    return federation_of(name, [functools.partial(make, name, function, kwargs) for kwargs in per_agent(options, agents)])


def per_agent(options: dict[str, Any], agents: int) -> list[dict[str, Any]]:
    """Keyword arguments of N agents: a list has one value per agent; anything else, also a list in a list, is for all.

    >>> per_agent({"insulation": [1.5, 4.0], "target": 20.0, "size": [[3, 4, 5]]}, 2)
    [{'insulation': 1.5, 'target': 20.0, 'size': [3, 4, 5]}, {'insulation': 4.0, 'target': 20.0, 'size': [3, 4, 5]}]
    """
    columns = {}
    for name, value in options.items():
        if not isinstance(value, list):
            value = [value] * agents
        elif len(value) == 1 and isinstance(value[0], list):
            value = value * agents
        advice = "give one per agent, or [[...]] for the same list to all"
        require(len(value) == agents, f"{name} lists {len(value)} values for {agents} agents: {advice}")
        columns[name] = value
    return [{name: column[i] for name, column in columns.items()} for i in range(agents)]


def _is_jax(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Environment)


def make(name: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """One environment that the user's function returns for these keyword arguments."""
    result = call(name, function, **kwargs)
    fits = _is_jax(result) or (hasattr(result, "reset") and hasattr(result, "step") and not isinstance(result, Environment))
    expected = "expected an environment with Gymnasium's reset and step, or (fedpg.Environment, params)"
    require(fits, f"{name} returned a {type(result).__name__}: {expected}")
    return result


def _jax_federation(name: str, members: list[tuple[Environment, Any]]) -> Federation:
    try:
        made = federate(members)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: the agents' params cannot be stacked: {one_line(error)}") from error
    require(bool(jax.tree.leaves(made.agents)), f"{name}: the params of an environment in JAX must hold at least one number")
    return made


def federation_of(name: str, makers: list[Callable[[], Any]]) -> Federation:
    """N agents whose environments are made by `makers`, a function for each agent.

    Raises:
        UserError: if they have another interface than Gymnasium's, or if their spaces differ.
    """
    made = [make() for make in makers]
    in_jax = [_is_jax(result) for result in made]
    require(all(in_jax) or not any(in_jax), f"{name} returned an environment in JAX for some agents, in Python for others")
    if all(in_jax):
        return _jax_federation(name, made)
    for environment in made:
        _check_interface(name, environment)
    observations, actions = (_shared(name, kind, [getattr(one, f"{kind}_space") for one in made]) for kind in ("observation", "action"))
    host = PythonHost(makers, observations, actions, made)

    def start(key: jax.Array, _: Any) -> jax.Array:
        return jax.random.bits(key, (1,), jnp.uint32)

    def prepare(member: Member) -> Member:
        seeds, agents = np.shape(member.index)
        host.make_ready(seeds)
        return member._replace(index=np.arange(seeds * agents, dtype=np.int32).reshape(seeds, agents))

    return Federation(HostEnvironment(name, observations.space, actions.space, start, host), Member(jnp.arange(len(makers))), prepare)


def _check_interface(name: str, environment: Any) -> None:
    kind = type(environment).__name__
    for attribute in ("reset", "step", "observation_space", "action_space"):
        require(hasattr(environment, attribute), f"{name}: {kind} has no {attribute}, which an environment needs")
    require(not hasattr(environment, "num_envs"), f"{name}: {kind} is a vector environment: give a single one")
    try:
        parameters = inspect.signature(environment.reset).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return
    seeded = any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)
    require(seeded, f"{name}: reset of {kind} must take seed=..., so that runs can be repeated")


def _shared(name: str, kind: str, spaces: list[Any]) -> View:
    """The view of a space that all agents share, leading axis N."""
    views = [view(space, kind, name) for space in spaces]
    for i, mine in enumerate(views):
        same = mine.space == views[0].space and (kind == "observation" or mine.dtype == views[0].dtype)
        text = f"agent {i} has {kind}_space {spaces[i]}, agent 0 has {spaces[0]}: one policy cannot serve both"
        require(same, f"{name}: {' '.join(text.split())}")
    return stack(views)
