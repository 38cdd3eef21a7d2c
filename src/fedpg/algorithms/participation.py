"""How many of the N agents take part in a round; `fedpg.algorithms.selection` says which."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.errors import choose, require
from fedpg.trees import Tree

RULES = ("random", "power-of-choice", "gradient-norm", "csh-max", "csh-min")


@dataclasses.dataclass(frozen=True)
class Participation:
    """How many agents take part in a round, and by which rule."""

    share: float = 1.0
    """Of the N agents, in (0, 1]; all by default."""
    selection: str = "random"
    """One of `RULES`."""
    candidates: float = 1.0
    """Share of the N agents that report before a rule chooses among them."""

    def __post_init__(self) -> None:
        for name, value in (("participation", self.share), ("candidates", self.candidates)):
            require(0.0 < value <= 1.0, f"{name} is a share of the agents: give a number above 0 and at most 1, not {value}")
        choose("selection", self.selection, RULES)
        ruled = self.selection != "random"
        require(not ruled or self.share < 1.0, f"selection {self.selection} has nothing to choose: give a --participation below 1")
        require(ruled or self.candidates == 1.0, f"candidates are for {', '.join(RULES[1:])}: give one of these as --selection")
        require(self.candidates >= self.share, f"candidates must be at least participation, {self.share}, not {self.candidates}")

    def taking_part(self, agents: int) -> int:
        """m.

        >>> [Participation(share).taking_part(7) for share in (0.01, 0.5, 1.0)]
        [1, 4, 7]
        """
        return max(1, round(self.share * agents))

    def reporting(self, agents: int) -> int:
        """c, how many candidates report; 0 where nobody is asked."""
        asked = self.selection != "random" and self.taking_part(agents) < agents
        return max(1, round(self.candidates * agents)) if asked else 0


EVERYONE = Participation()


class Who(NamedTuple):
    """The participants of a round.

    Attributes:
        ids: who, (m,), ascending; None for everyone.
        count: N.
    """

    ids: jax.Array | None
    count: int

    def numbers(self) -> jax.Array:
        """Who, (m,), also if everyone."""
        return jnp.arange(self.count) if self.ids is None else self.ids

    def gather(self, tree: Tree) -> Tree:
        """Of what all N have what the participants have, leading axis m."""
        return tree if self.ids is None else trees.take(tree, self.ids)

    def spread(self, tree: Tree, others: Tree = None) -> Tree:
        """For all N: `tree` for the participants, `others` (leading axis N; left out, 0) for the rest."""
        if self.ids is None:
            return tree
        if others is None:
            others = jax.tree.map(lambda x: jnp.zeros((self.count, *x.shape[1:]), x.dtype), tree)
        return jax.tree.map(lambda own, all: all.at[self.ids].set(own), tree, others)
