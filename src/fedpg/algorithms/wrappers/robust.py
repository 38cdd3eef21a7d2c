"""Robust means: what a server may use instead of the mean when some agents attack.

Rows x_i, (N, d), are messages; n of the agents are present, and of these f = ceil(trim n) are assumed to attack, at most (n-1)/2:

    median            of each entry
    trimmed-mean      of each entry, without the f smallest and the f largest
    krum              the x_i with the least sum of |x_i - x_j|^2 over its n - f - 2 nearest neighbours
    geometric-median  argmin_z sum_i |x_i - z|
    norm-clipping     mean of x_i min(1, c / |x_i|), c the median of |x_i|

Absent agents have no influence, whatever their rows contain; all agents present have the same.

Yin et al., "Byzantine-robust distributed learning", 2018 (median, trimmed mean); Blanchard et al., "Machine learning with
adversaries", 2017 (Krum); Pillutla et al., "Robust aggregation for federated learning", 2022 (geometric median).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedpg.algorithms.base import Algorithm, Exchange, RoundInfo, ServerState, exchanges_of, is_known, mean, with_exchanges
from fedpg.algorithms.wrappers.base import Wrapper, as_rows, parts, require_messages
from fedpg.errors import choose, require
from fedpg.trees import Tree

TRIM = 0.3
"""The default share of agents that are assumed to attack."""
ITERATIONS = 50
"""Of Weiszfeld's algorithm: it converges linearly, and each costs no more than a mean."""
SMOOTHING = 1e-4
"""Distances below this share of their median count as that much, which keeps Weiszfeld's weights 1/|x_i - z| finite."""

Mean = Callable[[Tree, jax.Array], Tree]
"""(messages with a leading axis N, present (N,)) -> one message."""


def assumed_attackers(trim: Any, count: jax.Array) -> jax.Array:
    """f among `count` agents, fewer than half of them, ().

    >>> [int(assumed_attackers(0.3, jnp.array(n))) for n in (1, 2, 3, 5, 10)]
    [0, 0, 1, 2, 3]
    """
    wanted = jnp.ceil(trim * count - 1e-4)  # 0.3 * 10 is 3, whatever its last digit
    return jnp.clip(wanted.astype(int), 0, jnp.maximum(count - 1, 0) // 2)


def distances_sq(rows: jax.Array, present: jax.Array) -> jax.Array:
    """|x_i - x_j|^2, (N, N); infinite where either agent is absent."""
    rows = jnp.where(present[:, None], rows, 0.0)
    distances = jax.vmap(lambda row: jnp.sum(jnp.square(rows - row), axis=1))(rows)
    return jnp.where(present[:, None] & present, distances, jnp.inf)


def mean_without_ends(rows: jax.Array, present: jax.Array, cut: Any = 0) -> jax.Array:
    """The mean of each entry without its `cut` smallest and `cut` largest values, (d,); 0 if no agent is present."""
    count, rank = jnp.sum(present), jnp.arange(len(rows))[:, None]
    ordered = jnp.sort(jnp.where(present[:, None], rows, jnp.inf), axis=0)
    used = (rank >= cut) & (rank < count - cut)
    return jnp.sum(jnp.where(used, ordered, 0.0), axis=0) / jnp.maximum(count - 2 * cut, 1).astype(rows.dtype)


def median(rows: jax.Array, present: jax.Array, trim: Any = TRIM) -> jax.Array:
    return mean_without_ends(rows, present, jnp.maximum(jnp.sum(present) - 1, 0) // 2)


def trimmed_mean(rows: jax.Array, present: jax.Array, trim: Any = TRIM) -> jax.Array:
    return mean_without_ends(rows, present, assumed_attackers(trim, jnp.sum(present)))


def krum(rows: jax.Array, present: jax.Array, trim: Any = TRIM) -> jax.Array:
    count = jnp.sum(present)
    neighbours = jnp.clip(count - assumed_attackers(trim, count) - 2, jnp.minimum(1, count - 1), count - 1)
    nearest = jnp.sort(distances_sq(rows, present), axis=1)[:, 1:]  # without itself
    score = jnp.sum(jnp.where(jnp.arange(len(rows) - 1) < neighbours, nearest, 0.0), axis=1)
    return jnp.where(count > 0, rows[jnp.argmin(jnp.where(present, score, jnp.inf))], 0.0)


def geometric_median(rows: jax.Array, present: jax.Array, trim: Any = TRIM) -> jax.Array:
    """Weiszfeld's algorithm, smoothed, started at the median of each entry."""

    def distances(z: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.sum(jnp.square(rows - z), axis=1))

    rows, start = jnp.where(present[:, None], rows, 0.0), median(rows, present)
    least = SMOOTHING * median(distances(start)[:, None], present)[0] + jnp.finfo(rows.dtype).tiny

    def step(_: int, z: jax.Array) -> jax.Array:
        pull = jnp.where(present, least / jnp.maximum(distances(z), least), 0.0)
        return pull @ rows / jnp.maximum(jnp.sum(pull), jnp.finfo(rows.dtype).tiny)

    return jax.lax.fori_loop(0, ITERATIONS, step, start)


def norm_clipping(rows: jax.Array, present: jax.Array, trim: Any = TRIM) -> jax.Array:
    rows = jnp.where(present[:, None], rows, 0.0)
    norm = jnp.sqrt(jnp.sum(jnp.square(rows), axis=1))
    longest = median(norm[:, None], present)[0]
    return mean_without_ends(rows * jnp.minimum(1.0, longest / jnp.where(norm > 0, norm, 1.0))[:, None], present)


ROBUST_MEANS = {
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
    "geometric-median": geometric_median,
    "norm-clipping": norm_clipping,
}
"""Each (rows (N, d), present (N,) bool, trim) -> (d,)."""
NAMES = ("mean", *ROBUST_MEANS)


def mean_of(name: str, trim: Any = TRIM) -> Mean:
    """The mean called `name`, as a function of messages."""
    choose("aggregation", name, NAMES)
    require(not is_known(trim) or 0.0 <= trim < 0.5, f"trim must be from 0 to below 0.5, not {trim}")
    if name == "mean":
        return mean

    def robust_mean(messages: Tree, present: jax.Array) -> Tree:
        rows, message = as_rows(messages)
        return message(ROBUST_MEANS[name](rows, present > 0, trim))

    return robust_mean


def robust(method: str | Mean, trim: Any = TRIM) -> Wrapper:
    """Replaces the mean of messages by a robust one, in every exchange.

    The algorithm keeps its server half: its `aggregate` is called as if every agent had sent the robust mean. `RoundInfo.drift_sq`
    is then the drift of the robust mean.

    Args:
        method: mean (changes nothing), median, trimmed-mean, krum, geometric-median, norm-clipping; or a function, see `Mean`.
        trim: the share of agents that trimmed-mean and krum assume to attack, from 0 to below 1/2.
    """
    robust_mean = mean_of(method, trim) if isinstance(method, str) else method

    def with_robust_mean(exchange: Exchange) -> Exchange:
        def aggregate(state: ServerState, messages: Tree, present: jax.Array) -> tuple[ServerState, RoundInfo]:
            real, others, join = parts(messages)
            if real:
                agreed = robust_mean(real, present)
                messages = join([jnp.broadcast_to(one, leaf.shape) for one, leaf in zip(agreed, real, strict=True)], others)
            return exchange.aggregate(state, messages, present)

        return exchange._replace(aggregate=aggregate)

    def wrap(algorithm: Algorithm) -> Algorithm:
        require_messages(algorithm, "--aggregation")
        return with_exchanges(algorithm, [with_robust_mean(exchange) for exchange in exchanges_of(algorithm)])

    return Wrapper("robust", None if method == "mean" else wrap)
