"""`--algorithm-option NAME=VALUE`: what one algorithm takes beyond the flags that all share."""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
from typing import Any

from fedpg.algorithms import ALGORITHMS
from fedpg.errors import choose, require
from fedpg.runs.config import HINTS, flag, parse_options

ELSEWHERE = {"problem", "u0_batches"}
"""Parameters of a factory that neither an option nor a flag of the same name sets."""


def known_options(algorithm: str) -> dict[str, Any]:
    """The options of an algorithm and their defaults, from the signature of its factory.

    >>> known_options("fedsvrpg-s")
    {'lookback': 'auto', 'gain': None, 'stretch': 1.1, 'plain_rounds': None, 'agreement': 0.0}
    """
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters.items()
    return {name: parameter.default for name, parameter in parameters if name not in ELSEWHERE | set(HINTS)}


def resolve_options(algorithm: str, given: tuple[str, ...], preset: dict[str, Any]) -> tuple[str, ...]:
    """The pairs `given`, over those of the presets, checked and in one form and order: a run is resumed by comparing them."""
    values = {
        name.replace("-", "_"): value for source in (preset, parse_options(given, "algorithm-option")) for name, value in source.items()
    }
    return tuple(f"{name}={json.dumps(_checked(algorithm, name, value))}" for name, value in sorted(values.items()))


def _checked(algorithm: str, name: str, value: Any) -> Any:
    """`value` as the type that the factory's annotation asks for; Any is a number, which a sweep may vary."""
    known = known_options(algorithm)
    require(name not in HINTS, f"{flag(name)} has a flag of its own: give --{flag(name)} instead of the algorithm-option")
    require(bool(known), f"{algorithm} takes no algorithm-option: leave out {name!r}")
    choose(f"algorithm-option of {algorithm}", name, known)
    hint = typing.get_type_hints(ALGORITHMS[algorithm])[name]
    kinds = [kind for kind in (typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)) if kind is not types.NoneType]
    kind = float if kinds[0] is Any else kinds[0]
    if kind is float and type(value) is int:
        value = float(value)
    takes = f"{algorithm} takes {', '.join(f'{k}={v}' for k, v in known.items())}"
    require(type(value) is kind, f"algorithm-option {name} must be {kind.__name__}, not {value!r} ({takes})")
    require(kind is not float or math.isfinite(value), f"algorithm-option {name} must be finite, not {value}")
    return value
