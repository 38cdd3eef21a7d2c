"""Families of finite tasks that others defined: RiverSwim, and Gymnasium's FrozenLake, CliffWalking and Taxi, read from its tables."""

import ast
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.envs import Federation, gym, outcomes, tabular
from fedpg.envs.heterogeneity import log_spread, shuffled_positions
from fedpg.envs.outcomes import Outcomes
from fedpg.envs.own import per_agent
from fedpg.envs.tabular import MDP
from fedpg.errors import choose, require

IDS = {"frozen-lake": "FrozenLake-v1", "cliff-walking": "CliffWalking-v1", "taxi": "Taxi-v4"}
"""What Gymnasium calls them."""
NAMES = ("riverswim", *IDS)
SWIMS, DRIFTS, HOLDS = 0.3, 0.1, 0.3
"""RiverSwim: swimming upstream gains a state, loses one, and stays at the upper end with these probabilities."""
SMALL_PAY = 5 / 10_000
"""RiverSwim: pay at the lower end, where that of the upper end is 1."""
LAKES = 64
"""Different maps of FrozenLake, from which every seed draws its agents."""


def river_swim(swims: Any, mirrored: Any = False) -> MDP:
    """RiverSwim, with rewards divided by 10,000: six states, action 0 goes downstream, action 1 swims upstream.

    Staying at the upper end pays 1, action 0 at the lower end 5/10,000. A swimmer starts in the second or third state. Reference: Strehl
    and Littman, "An analysis of model-based interval estimation for Markov decision processes", JCSS 2008, figure 2.

    Args:
        swims: probability that swimming gains a state, here 0.3; at most 0.9.
        mirrored: the river flows the other way: states and actions are reversed.
    """
    below, here, above = jnp.eye(6, k=-1).at[0, 0].set(1.0), jnp.eye(6), jnp.eye(6, k=1)
    inside = DRIFTS * below + (1.0 - DRIFTS - swims) * here + swims * above
    lower, upper = (1.0 - swims) * here + swims * above, (1.0 - HOLDS) * below + HOLDS * here
    place = jnp.arange(6)[:, None]
    swim = jnp.where(place == 0, lower, jnp.where(place == 5, upper, inside))
    transition = jnp.stack([below, swim], axis=1)
    reward = jnp.zeros((6, 2)).at[0, 0].set(SMALL_PAY).at[5, 1].set(HOLDS)
    start = jnp.zeros(6).at[1:3].set(0.5)
    other = MDP(transition[::-1, ::-1, ::-1], reward[::-1, ::-1], start[::-1])
    return trees.select(jnp.asarray(mirrored), other, MDP(transition, reward, start))


def river_swims(key: jax.Array, agents: int, heterogeneity: float, mirrored: bool) -> MDP:
    """N swimmers. Chances to gain a state lie within a factor 2^heterogeneity of 0.3, evenly on a log scale, in random order.

    With `mirrored` the river of every second agent flows the other way.
    """
    swims = SWIMS * log_spread(heterogeneity, 2.0, shuffled_positions(key, agents))
    return jax.vmap(river_swim)(swims, mirrored & (jnp.arange(agents) % 2 == 1))


@functools.cache
def lakes(count: int = LAKES, size: int = 4) -> tuple[list[str], ...]:
    """Different random maps of FrozenLake: those of Gymnasium's seeds 0, 1, ... without repetitions."""
    found: dict[str, list[str]] = {}
    for seed in itertools.count():
        if len(found) == count:
            return tuple(found.values())
        drawn = gym.random_lake(size, seed)
        found.setdefault("".join(drawn), drawn)


@functools.cache
def _read(name: str, every: str) -> Outcomes:
    """The tables of several Gymnasium tasks, leading axis their number; `every` is the repr of their options, by which they are kept."""
    read = [gym.outcomes(name, **options) for options in ast.literal_eval(every)]
    most = max(one.after.shape[-1] for one in read)

    def stacked(*parts: np.ndarray) -> np.ndarray:  # with impossible outcomes where others have more of them
        return np.stack([np.pad(x, ((0, 0), (0, 0), (0, most - x.shape[-1]))) if x.ndim == 3 else x for x in parts])

    return jax.tree.map(stacked, *read)


def federation(name: str, agents: int, heterogeneity: float, options: dict[str, Any]) -> Federation:
    """N agents of a family.

    riverswim: option `mirrored`; see `river_swims`.
    frozen-lake: every agent has a map of its own, drawn for each seed from `lakes`; options of Gymnasium's FrozenLake-v1.
    cliff-walking, taxi: options of Gymnasium's CliffWalking-v1 and Taxi-v4, where a list has one value per agent. A fickle passenger is
    left out, whose whim is not in Gymnasium's table.

    Tasks of at most 50 states are an `MDP`, which is evaluated exactly; Taxi is not.
    """
    choose("env", name, NAMES)
    if name == "riverswim":
        require(0.0 <= heterogeneity <= 1.5, "heterogeneity of riverswim must be from 0 to 1.5: probabilities stay below 0.9")
        mirrored = bool(options.get("mirrored", False))
        return Federation(tabular.environment(name, 6, 2), lambda key, seed: river_swims(key, agents, heterogeneity, mirrored))
    require(heterogeneity == 0.0, f"{name} has no heterogeneity: give each agent its own options instead")
    require(not options.get("fickle_passenger"), "a fickle passenger is not in Taxi's table: leave it out")
    each = [options | {"desc": lake} for lake in lakes()] if name == "frozen-lake" else per_agent(options, agents)
    read = _read(IDS[name], repr(each))
    states, actions = read.after.shape[1:3]
    if name == "taxi":
        return Federation(outcomes.environment(name, states, actions), jax.tree.map(jnp.asarray, read))
    members = jax.vmap(outcomes.mdp)(jax.tree.map(jnp.asarray, read))
    if name == "cliff-walking":
        return Federation(tabular.environment(name, states, actions), members)

    def drawn(key: jax.Array, seed: Any) -> MDP:
        return trees.take(members, jax.random.choice(key, LAKES, (agents,), replace=False))

    return Federation(tabular.environment(name, states, actions), drawn)
