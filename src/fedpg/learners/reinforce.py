"""REINFORCE as a learner: one small step, along the gradient of the batch.

direction = tilt(g(sample|params), params)
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedpg.trees import Params

Tilt = Callable[[Params, Params], Params]
"""(step, params) -> what an algorithm makes of a small step at params. Steps and tilts are in units of the direction."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What REINFORCE does with a batch: `--learner-option NAME=VALUE`."""

    time_discount: bool = True
    """The factor gamma^t of the term of step t: true is the paper. Without it late steps count as much as early ones."""


class Moved(NamedTuple):
    """Where a learner moved, in units of the direction.

    Attributes:
        direction: (params after all small steps - params) / local_lr.
        own: the mean small step before tilting, the gradient of `reinforce`: what the agent itself contributes.
    """

    direction: Params
    own: Params


Direction = Callable[[jax.Array, Any, Params, Any, Tilt, Any], tuple[Moved, Any]]
"""(key, sample, params, memory, tilt, local_lr) -> Moved, memory; the sample was drawn at params."""


def untilted(step: Params, params: Params) -> Params:
    """The step as it is."""
    return step


def along(gradient: Callable[[Any, Params], Params]) -> Direction:
    """The learner that steps along `gradient`, (sample, params) -> g."""

    def direction(key: jax.Array, sample: Any, params: Params, memory: Any, tilt: Tilt, local_lr: Any) -> tuple[Moved, Any]:
        own = gradient(sample, params)
        return Moved(tilt(own, params), own), memory

    return direction
