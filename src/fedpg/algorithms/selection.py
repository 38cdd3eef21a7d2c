"""Which agents take part in a round: all, a random share, or those chosen by what candidates report.

m agents take part. With a rule, c candidates are drawn first. Each of them evaluates theta_r in its own environment and sends a
report, and the server takes m of them:

    random            any m of all N; no reports
    power-of-choice   the lowest return
    gradient-norm     the largest |grad J_i|
    csh-max           the largest |D_i A_i| - |B_i|         B_i = mean_j D_j A_j - D_i A_i, j over the candidates
    csh-min           the smallest |B_i|

D_i A_i(s,a) = x_i(s) A_i(s,a), an (S, A) table: discounted visits times advantage. |.| of a table is its Frobenius norm.

References: Cho, Wang, Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022 (power-of-choice);
Xie, Song, "Client selection for federated policy optimization with environment heterogeneity", JMLR 2025 (csh).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo
from fedpg.errors import choose, require
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem
from fedpg.trees import Params

RULES = ("random", "power-of-choice", "gradient-norm", "csh-max", "csh-min")
TABLE_RULES = ("csh-max", "csh-min")
"""Rules whose candidates report a table."""


@dataclasses.dataclass(frozen=True)
class Participation:
    """The share of agents that take part in a round, and the rule that selects them."""

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

    def participants(self, agents: int) -> int:
        """m.

        >>> [Participation(share).participants(7) for share in (0.01, 0.5, 1.0)]
        [1, 4, 7]
        """
        return max(1, round(self.share * agents))

    def reporting(self, agents: int) -> int:
        """c, the number of candidates that report; 0 where none is asked."""
        asked = self.selection != "random" and self.participants(agents) < agents
        return max(1, round(self.candidates * agents)) if asked else 0


EVERYONE = Participation()

Report = Callable[[jax.Array, Params, Any], tuple[jax.Array, LocalInfo]]
"""(key, params, agent) -> what a candidate reports to the server, () or (S, A), and what it cost."""


class Selector(NamedTuple):
    """The rule that selects the participants of a round.

    Attributes:
        participants: m.
        rule: one of `RULES`.
        reporting: c; 0 if there are no reports.
        report: what candidates compute; None if there are no reports.
    """

    participants: int
    rule: str
    reporting: int
    report: Report | None

    def draw(self, moment: Moment, agents: int, absent: jax.Array | None = None) -> jax.Array:
        """The candidates, (c,), in random order; without a rule the participants, (m,). Agents marked `absent`, (N,), are drawn last."""
        order = jax.random.permutation(moment.server_key(Purpose.SELECT), agents)
        if absent is not None:
            order = order[jnp.argsort(absent[order], stable=True)]
        return order[: self.reporting or self.participants]

    def choose(self, candidates: jax.Array, reports: jax.Array) -> jax.Array:
        """The m candidates with the highest preference, (m,); among equals, those drawn first."""
        return candidates[jnp.argsort(-preference(self.rule, reports), stable=True)[: self.participants]]


def selector(
    participation: Participation, problem: Problem, algorithm: Algorithm, agents: Any, shapes_of: Callable[..., Any] = jax.eval_shape
) -> Selector | None:
    """How participants are chosen among `agents` (leading axis N); None if all take part.

    Args:
        participation: how many, and by which rule.
        problem, algorithm: what is learned, and how.
        agents: leading axis N.
        shapes_of: traces an evaluation (the default), or calls it.
    """
    count = trees.leading_axis(agents)
    chosen, asked, rule = participation.participants(count), participation.reporting(count), participation.selection
    if chosen == count:
        return None
    require(not algorithm.pooled, f"{algorithm.name} trains in one place, where no agent is absent: leave out --participation")
    if not asked:
        return Selector(chosen, rule, 0, None)
    require(not algorithm.personal, f"{algorithm.name} has no common params to choose agents by: use --selection random")
    if rule == "gradient-norm":
        base.require_parts("selection gradient-norm", problem, "gradient")
    hint = "use --env random-mdp or conflict with --policy softmax or direct, or another --selection"
    require(rule not in TABLE_RULES or problem.exact is not None, f"selection {rule} compares tables over states and actions: {hint}")

    def one_gradient(key: jax.Array, agents: Any) -> Any:
        return problem.evaluate(key, problem.init_params(key), trees.take(agents, 0)).gradient

    exact = bool(jax.tree.leaves(shapes_of(one_gradient, jax.random.key(0), agents)))
    return Selector(chosen, rule, asked, report_of(rule, problem, exact))


def report_of(rule: str, problem: Problem, exact: bool) -> Report:
    """What a candidate computes: an exact evaluation, or one from a batch with a fresh baseline."""

    def from_tables(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        tables = problem.exact.solve(params, agent)
        return tables.occupancy[:, None] * tables.advantages, base.no_cost()

    def from_evaluation(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        found = problem.evaluate(key, params, agent)
        return found.total_return if rule == "power-of-choice" else jnp.sqrt(trees.norm_sq(found.gradient)), base.no_cost()

    def from_sample(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        sample, _ = problem.sample(key, params, agent, problem.init_memory())
        usage = problem.usage(sample)
        info = LocalInfo(usage, base.no_weights())
        if rule == "power-of-choice":
            return usage.total_return / usage.trajectories, info
        return jnp.sqrt(trees.norm_sq(problem.gradient(sample, params))), info

    return from_tables if rule in TABLE_RULES else from_evaluation if exact else from_sample


def preference(rule: str, reports: jax.Array) -> jax.Array:
    """The preference for each of c candidates, (c,), from their reports, (c,) or (c, S, A); lowest for reports that are not finite."""
    finite = jax.vmap(trees.all_finite)(reports)
    if rule in TABLE_RULES:
        apart = jnp.linalg.norm(base.mean(reports, finite.astype(float)) - reports, axis=(1, 2))
        wanted = -apart if rule == "csh-min" else jnp.linalg.norm(reports, axis=(1, 2)) - apart
    else:
        wanted = -reports if rule == "power-of-choice" else reports
    return jnp.where(finite, wanted, -jnp.inf)
