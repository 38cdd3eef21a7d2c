"""`--env module:function` or `--env path/to/file.py:function`: environments of the user's own.

The function is called with each agent's keyword arguments. It returns an environment with Gymnasium's interface, or
`(fedpg.Environment, params)`: an environment in JAX and one agent's constants.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from fedpg.envs.base import Environment, World, federate
from fedpg.envs.python.host import Maker
from fedpg.envs.python.session import one_line
from fedpg.envs.python.world import per_agent, python_world
from fedpg.errors import UserError, choose, require


def own_world(name: str, agents: int, options: dict[str, Any]) -> World:
    """N agents in what `name`'s function returns for each one's values of the options.

    Raises:
        UserError: if there is no such function, it raises, or it returns something else.
    """
    function = _function(name)
    kwargs = per_agent(options, agents)
    singles = [lambda kwargs=kwargs: _call(name, function, kwargs) for kwargs in kwargs]
    made = [single() for single in singles]
    in_jax = [_is_jax(result) for result in made]
    require(all(in_jax) or not any(in_jax), f"{name} returned an environment in JAX for some agents, in Python for others")
    return _jax_world(name, made) if all(in_jax) else python_world(name, [Maker(single) for single in singles], made)


def _is_jax(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Environment)


def _jax_world(name: str, members: list[tuple[Environment, Any]]) -> World:
    try:
        federation = federate(members)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: the agents' params cannot be stacked: {one_line(error)}") from error
    require(bool(jax.tree.leaves(federation.agents)), f"{name}: the params of an environment in JAX must hold at least one number")
    return World(federation.environment, lambda key: federation.agents)


def _call(name: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    try:
        result = function(**kwargs)
    except Exception as error:
        raise UserError(f"{name} raised {_where(error)}") from error
    fits = _is_jax(result) or all(hasattr(result, method) for method in ("reset", "step"))
    belongs = "an environment with Gymnasium's reset and step, or (fedpg.Environment, params), belongs"
    require(fits and not isinstance(result, Environment), f"{name} returned a {type(result).__name__} where {belongs}")
    return result


def _function(name: str) -> Callable[..., Any]:
    place, colon, attribute = name.rpartition(":")
    require(bool(colon and place and attribute), f"env {name!r} must be module:function or path/to/file.py:function")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{place} cannot be imported: {_where(error)}") from error
    if not hasattr(module, attribute):
        mine = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__ and callable(value)]
        choose(f"function of {place}", attribute, mine)
    function = getattr(module, attribute)
    require(callable(function), f"{name} is a {type(function).__name__}, not a function that makes environments")
    return function


def _load_module(place: str) -> ModuleType:
    _search(Path.cwd())
    return importlib.import_module(place)


def _load_file(path: Path) -> ModuleType:
    require(path.is_file(), f"no file {path}")
    _search(path.resolve().parent)  # As `python path/to/file.py` does: its neighbours can be imported.
    # Not its bare name: a user's random.py must not take the place of Python's.
    spec = importlib.util.spec_from_file_location(f"fedpg_own_{path.stem}", path.resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses and pickle look a class's module up.
    spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _where(error: Exception) -> str:
    """The exception, and the line it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if "importlib" not in frame.filename), frames[-1])
    inside = last.filename != __file__
    return one_line(error) + (f" ({Path(last.filename).name}, line {last.lineno})" if inside else "")
