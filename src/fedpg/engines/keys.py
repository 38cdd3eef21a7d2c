"""Where every random key comes from, in every engine."""

from __future__ import annotations

import enum
from typing import Any

import jax


class Purpose(enum.IntEnum):
    """What a key is for; two purposes never share a key."""

    TRAIN = 0
    WARMUP = 1
    EVALUATE = 2
    PARAMS = 3
    AGENTS = 4
    PRELUDE = 5
    SERVER = 6


def agent_key(root: Any, seed: Any, round: Any, agent: Any, purpose: Purpose = Purpose.TRAIN) -> jax.Array:
    """The key of one agent in one round of one seed. It does not depend on how many agents, rounds or seeds there are."""
    key = jax.random.key(root)
    for number in (int(purpose), seed, round, agent):
        key = jax.random.fold_in(key, number)
    return key
