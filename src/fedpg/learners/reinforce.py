"""REINFORCE as a learner: one small step, along the gradient of the batch.

direction = tilt(g(sample|params), params)
"""

from collections.abc import Callable
from typing import Any

import jax

from fedpg.trees import Params

Tilt = Callable[[Params, Params], Params]
"""(step, params) -> what an algorithm makes of a small step at params. Steps and tilts are in units of the direction."""
Direction = Callable[[jax.Array, Any, Params, Any, Tilt, Any], tuple[Params, Any]]
"""(key, sample, params, memory, tilt, local_lr) -> direction, memory; the sample was drawn at params."""


def untilted(step: Params, params: Params) -> Params:
    """The step as it is."""
    return step


def along(gradient: Callable[[Any, Params], Params]) -> Direction:
    """The learner that steps along `gradient`, (sample, params) -> g."""

    def direction(key: jax.Array, sample: Any, params: Params, memory: Any, tilt: Tilt, local_lr: Any) -> tuple[Params, Any]:
        return tilt(gradient(sample, params), params), memory

    return direction
