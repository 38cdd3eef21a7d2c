"""The spaces of an environment with Gymnasium's interface, and how the policy sees them.

A space is recognised by its attributes, not its class: `n` (and `start`) make a `Discrete`; `shape`, `low` and `high` (and
`dtype`) make a `Box`. So an environment may use Gymnasium's spaces, fedpg's, or its own objects.
"""

import textwrap
from typing import Any, NamedTuple

import numpy as np

from fedpg.envs.base import Box, Discrete, Space
from fedpg.errors import UserError

ADVICE = {
    "observation": "wrap the environment, e.g. in gymnasium.wrappers.FlattenObservation",
    "action": "wrap the environment, e.g. in gymnasium.wrappers.TransformAction",
}


class View(NamedTuple):
    """A space as an environment has it and as the policy sees it: environment = clip(offset + scale * policy, low, high).

    Attributes:
        space: of the policy: the same shape; bounded actions are scaled to [-1, 1], observations are unbounded.
        dtype: of the environment's numbers.
        offset, scale, low, high: float64, of the space's shape; with a leading axis after `stack` and `rows`.
    """

    space: Space
    dtype: np.dtype
    offset: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def rows(self, agent: np.ndarray) -> "View":
        """The view of agent[l] for each of L lanes, from N stacked views."""
        return View(self.space, self.dtype, *(numbers[agent] for numbers in self[2:]))

    def to_environment(self, action: np.ndarray) -> np.ndarray:
        """Actions of the policy in L lanes, (L, ...), as their environments take them."""
        value = np.clip(self.offset + self.scale * action, self.low, self.high)
        return (np.rint(value) if np.issubdtype(self.dtype, np.integer) else value).astype(self.dtype)

    def to_policy(self, observation: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Observations in L lanes, (L, ...) float64, as the policy takes them, and which are valid, (L,)."""
        if isinstance(self.space, Discrete):
            value = observation - self.offset
            good = (value >= 0) & (value < self.space.n) & (value == np.floor(value))
            return np.where(good, value, 0.0).astype(dtype), good
        with np.errstate(over="ignore"):  # too large numbers become infinite
            value = observation.astype(dtype)
        return value, np.isfinite(value).reshape(len(value), -1).all(1)


def shape_of(space: Space) -> tuple[int, ...]:
    """The shape of one element."""
    return () if isinstance(space, Discrete) else space.shape


def view(space: Any, kind: str, name: str) -> View:
    """The view of a space.

    Args:
        space: of the environment.
        kind: "observation" or "action".
        name: of the environment, for error messages.

    Raises:
        UserError: if the space is neither discrete nor a box.
    """
    if all(hasattr(space, attribute) for attribute in ("shape", "low", "high")):
        return _box(space, kind)
    # Gymnasium's MultiBinary has an n too, but also a shape.
    if hasattr(space, "n") and getattr(space, "shape", None) in ((), None):
        n, start = int(space.n), int(getattr(space, "start", 0))
        numbers = (np.asarray(value, float) for value in (start, 1, start, start + n - 1))
        return View(Discrete(n), _dtype(space, np.int64), *numbers)
    shown = textwrap.shorten(repr(space), 100, placeholder="...")
    raise UserError(f"{name}: its {kind} space {shown} is neither Discrete nor Box: {ADVICE[kind]}")


def _dtype(space: Any, default: type) -> np.dtype:
    given = getattr(space, "dtype", None)
    return np.dtype(default if given is None else given)


def _box(space: Any, kind: str) -> View:
    shape = tuple(int(n) for n in space.shape)
    dtype = _dtype(space, np.float32)
    low, high = (np.array(np.broadcast_to(bound, shape), float) for bound in (space.low, space.high))
    if kind == "observation":
        return View(Box(shape), dtype, np.zeros(shape), np.ones(shape), low, high)
    # An integer box has no infinite bounds; Gymnasium stores which were meant to be.
    bounded = np.broadcast_to(getattr(space, "bounded_below", np.isfinite(low)) & getattr(space, "bounded_above", np.isfinite(high)), shape)
    from_low, to_high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    seen = Box(shape, -1.0, 1.0) if bounded.all() else Box(shape)
    return View(seen, dtype, (to_high + from_low) / 2.0, (to_high - from_low) / 2.0, low, high)


def stack(views: list[View]) -> View:
    """One view of the spaces of N agents, leading axis N. They share one space of the policy; bounds and starts may differ."""
    return View(views[0].space, views[0].dtype, *(np.stack(numbers) for numbers in zip(*(v[2:] for v in views), strict=True)))
