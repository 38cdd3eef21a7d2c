"""Random keys: one function makes every key of every engine."""

import enum
from typing import Any, NamedTuple

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
    SELECT = 7
    REPORT = 8


def agent_key(root: jax.Array, seed: Any, round: Any, agent: Any, purpose: Purpose = Purpose.TRAIN) -> jax.Array:
    """The key of one agent in one round of one seed.

    It does not depend on how many agents, rounds or seeds there are.

    Args:
        root: the key of the whole run.
        seed, round, agent: numbers from 0.
        purpose: what the key is for.
    """
    key = root
    for number in (int(purpose), seed, round, agent):
        key = jax.random.fold_in(key, number)
    return key


class Moment(NamedTuple):
    """One round of one seed: what the keys of that round are made from."""

    root: jax.Array
    seed: Any
    round: Any

    def server_key(self, purpose: Purpose) -> jax.Array:
        """The server's key."""
        return agent_key(*self, 0, purpose)

    def agent_keys(self, ids: jax.Array, purpose: Purpose) -> jax.Array:
        """The keys of the agents `ids`, (m,)."""
        return jax.vmap(lambda i: agent_key(*self, i, purpose))(ids)
