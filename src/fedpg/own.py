"""Functions of the user's own, named as `module:function` or `path/to/file.py:function`: environments, policies, algorithms."""

import functools
import importlib
import importlib.util
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from fedpg.errors import UserError, choose, require


def load(name: str, what: str) -> Callable[..., Any]:
    """Imports the function called `name`.

    Args:
        name: `module:function` or `path/to/file.py:function`.
        what: what the function makes, for error messages: "env", "policy", "algorithm".

    Raises:
        UserError: one line that says why there is no such function, with the file and line of an error in the user's code.
    """
    place, colon, attribute = name.rpartition(":")
    require(bool(colon and place and attribute), f"{what} {name!r} must be module:function or path/to/file.py:function")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{place} cannot be imported: {_with_line(error)}") from error
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__ and callable(value)]
        choose(f"function of {place}", attribute, known)
    function = getattr(module, attribute)
    require(callable(function), f"{what} {name} is a {type(function).__name__}, not a function")
    return function


def call(name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs); an exception becomes a `UserError` with the file and line in the user's code."""
    try:
        return function(*args, **kwargs)
    except (UserError, jax.errors.ConcretizationTypeError):  # a sweep handles the second by compiling one program per setting
        raise
    except Exception as error:
        raise UserError(f"{name} raised {_with_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The type and message of an exception on one line; only the message of a `UserError`."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    return textwrap.shorten(text, 300, placeholder=" ...")


def _import_module(place: str) -> ModuleType:
    _search(Path.cwd())
    return importlib.import_module(place)


def _import_file(path: Path) -> ModuleType:
    require(path.is_file(), f"no file {path}")
    return _import_once(path.resolve(), path.stat().st_mtime_ns)


@functools.cache
def _import_once(path: Path, changed: int) -> ModuleType:
    """The module in a file, run again only if the file has `changed`: twice would define its types twice."""
    _search(path.parent)  # as `python path/to/file.py` does, so that its neighbours can be imported
    # A prefix, because a user's random.py must not replace Python's.
    spec = importlib.util.spec_from_file_location(f"fedpg_own_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look up the module of a class
    spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _with_line(error: Exception) -> str:
    """The exception, and the last line of the user's code before it."""
    library = str(Path(__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(library) and "importlib" not in f.filename]
    mine = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return one_line(error) + (f" ({Path(mine[-1].filename).name}, line {mine[-1].lineno})" if mine else "")
