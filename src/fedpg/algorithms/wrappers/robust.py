"""Robust aggregation around any algorithm.

    z = aggregator(messages of the agents present);      the algorithm's own aggregate sees z from everybody

So an algorithm keeps its server half, whatever it does with the mean of messages, and its mean is z. Every exchange is treated so:
those before round 0, those that open a round, and the round's own. `RoundInfo.drift_sq` is then that of z.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedpg.algorithms.aggregation import Aggregator, mean, real_part
from fedpg.algorithms.base import Aggregate, Algorithm, RoundInfo, ServerState, exchanges_of, with_exchanges
from fedpg.errors import require
from fedpg.trees import Tree


def consensus(aggregator: Aggregator, messages: Tree, weights: jax.Array) -> Tree:
    """What `aggregator` makes of the messages, sent by everybody; leaves that are no real numbers stay as they are."""
    real, put = real_part(messages)
    if not real:
        return messages
    return put([jnp.broadcast_to(agreed, leaf.shape) for agreed, leaf in zip(aggregator(real, weights), real, strict=True)])


def robust(algorithm: Algorithm, aggregator: Aggregator) -> Algorithm:
    """`algorithm` with `aggregator` (see `fedpg.algorithms.aggregation`) instead of its mean; with `mean`, itself."""
    if aggregator is mean:
        return algorithm
    require(not (algorithm.personal or algorithm.pooled), f"{algorithm.name} sends no messages: leave out --aggregation")

    def agreed(aggregate: Aggregate) -> Aggregate:
        def aggregated(state: ServerState, messages: Any, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
            return aggregate(state, consensus(aggregator, messages, weights), weights)

        return aggregated

    changed = [exchange._replace(aggregate=agreed(exchange.aggregate)) for exchange in exchanges_of(algorithm)]
    return with_exchanges(algorithm, changed)
