"""How one number, `heterogeneity`, makes agents differ (0 = identical, no upper end), and constants given per agent.

Physical constants are spread on a log scale, so that they stay positive for every heterogeneity.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import msgspec

from fedpg.errors import require

PerAgent = float | tuple[float, ...]
"""One number for all agents, or one per agent."""
Count = Annotated[int, msgspec.Meta(ge=1)]
"""A whole number of at least 1."""


def listed(name: str, value: PerAgent, agents: int) -> tuple[float, ...]:
    """The constant called `name` of each of N agents.

    >>> listed("mass", 1.5, 2)
    (1.5, 1.5)
    """
    values = value if isinstance(value, tuple) else (value,) * agents
    require(len(values) == agents, f"{name} lists {len(values)} values for {agents} agents: give one per agent")
    return values


def positions(n: int) -> jax.Array:
    """Evenly spaced positions of n agents between -1 and 1, (n,); a single agent is at 0."""
    return jnp.linspace(-1.0, 1.0, n) if n > 1 else jnp.zeros(1)


def shuffled_positions(key: jax.Array, n: int) -> jax.Array:
    """The same positions in random order, (n,): the spread is that of every seed, the combination of constants is not."""
    return jax.random.permutation(key, positions(n))


def log_spread(heterogeneity: float, factor: float, position: jax.Array) -> jax.Array:
    """factor^(heterogeneity * position), (n,): multiplies a constant; from 1/factor to factor at heterogeneity 1.

    >>> log_spread(1.0, 2.0, positions(3)).tolist()
    [0.5, 1.0, 2.0]
    """
    return jnp.power(factor, heterogeneity * position)


def mix(share: float, own: jax.Array, common: jax.Array) -> jax.Array:
    """share * own + (1 - share) * common; `share` is kappa of the paper."""
    return share * own + (1.0 - share) * common
