"""What agents on other machines send back, as trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.flower.asking import Heard


class Report(NamedTuple):
    """What a candidate sends: `report`, () or (S, A), and what it cost."""

    report: Any
    info: Any


class Update(NamedTuple):
    """What a participant sends: the algorithm's message, and what it cost."""

    message: Any
    info: Any


class Grade(NamedTuple):
    """What an agent sends when it is asked how good the params are for it, two numbers."""

    total_return: jax.Array
    objective: jax.Array


def stacked(heard: list[Heard], template: Any) -> Any:
    """What was heard, leading axis m; NaN (in counts, 0) from those of whom there is nothing that can be used."""
    nothing = jax.tree.map(lambda x: np.full(x.shape, np.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x.dtype), template)
    return jax.tree.map(lambda *xs: jnp.stack([jnp.asarray(x) for x in xs]), *(nothing if one.tree is None else one.tree for one in heard))
