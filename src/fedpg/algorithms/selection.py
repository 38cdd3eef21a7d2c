"""Which agents take part in a round: drawn uniformly, or chosen by what candidates report.

m agents take part. With a rule c candidates are drawn first, each of them looks at theta_r in its own environment and sends a
report, and the server takes m of them:

    random            any m of all N; nobody reports
    power-of-choice   the lowest return
    gradient-norm     the largest |grad J_i|
    csh-max           the largest |D_i A_i| - |B_i|         B_i = mean_j D_j A_j - D_i A_i, j over the candidates
    csh-min           the smallest |B_i|

D_i A_i(s,a) = x_i(s) A_i(s,a), an (S, A) table: discounted visits times advantage. |.| of a table is its Frobenius norm.

References: Cho, Wang, Joshi, "Towards understanding biased client selection in federated learning", AISTATS 2022 (power-of-choice);
Xie, Song, "Client selection for federated policy optimization with environment heterogeneity", JMLR 2025 (csh).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, LocalInfo
from fedpg.algorithms.participation import Participation
from fedpg.errors import require
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem, Usage
from fedpg.trees import Params

TABLES = ("csh-max", "csh-min")
"""Rules whose candidates report a table."""

Report = Callable[[jax.Array, Params, Any], tuple[jax.Array, LocalInfo]]
"""(key, params, agent) -> what a candidate tells the server, () or (S, A), and what finding it out cost."""


class Selector(NamedTuple):
    """Attributes:
    taking_part: m.
    rule: one of `RULES`.
    reporting: c; 0 if nobody reports.
    report: what candidates do; None if nobody reports.
    """

    taking_part: int
    rule: str
    reporting: int
    report: Report | None

    def drawn(self, moment: Moment, agents: int, absent: jax.Array | None = None) -> jax.Array:
        """The candidates, (c,), in random order; without a rule the participants themselves, (m,). The `absent`, (N,), come last."""
        order = jax.random.permutation(moment.key(Purpose.SELECT), agents)
        if absent is not None:
            order = order[jnp.argsort(absent[order], stable=True)]
        return order[: self.reporting or self.taking_part]

    def elected(self, candidates: jax.Array, reports: jax.Array) -> jax.Array:
        """The m candidates that the server wants most, (m,); of equals, those drawn first."""
        return candidates[jnp.argsort(-preference(self.rule, reports), stable=True)[: self.taking_part]]


def selector(
    participation: Participation, problem: Problem, algorithm: Algorithm, agents: Any, shapes_of: Callable[..., Any] = jax.eval_shape
) -> Selector | None:
    """How participants are chosen among `agents` (leading axis N); None if all are. `shapes_of` traces an evaluation, or calls it."""
    count = jax.tree.leaves(agents)[0].shape[0]
    chosen, asked, rule = participation.taking_part(count), participation.reporting(count), participation.selection
    if chosen == count:
        return None
    require(not algorithm.pooled, f"{algorithm.name} trains in one place, where nobody is absent: leave out --participation")
    if not asked:
        return Selector(chosen, rule, 0, None)
    require(not algorithm.personal, f"{algorithm.name} has no common params to choose agents by: use --selection random")
    hint = "use --env random-mdp or conflict with --policy softmax or direct, or another --selection"
    require(rule not in TABLES or problem.exact is not None, f"selection {rule} compares tables over states and actions: {hint}")

    def one_evaluation(key: jax.Array, agents: Any) -> Any:
        return problem.evaluate(key, problem.init_params(key), trees.take(agents, 0)).gradient

    exact = bool(jax.tree.leaves(shapes_of(one_evaluation, jax.random.key(0), agents)))
    return Selector(chosen, rule, asked, report_of(rule, problem, exact))


def report_of(rule: str, problem: Problem, exact: bool) -> Report:
    """What a candidate does: evaluates exactly, or draws one batch with a fresh baseline."""
    none = jnp.zeros((), int)
    free = LocalInfo(Usage(none, none, jnp.zeros(())), base.no_weights())

    def table(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        found = problem.exact.solve(params, agent)
        return found.occupancy[:, None] * found.advantages, free

    def known(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        found = problem.evaluate(key, params, agent)
        return found.total_return if rule == "power-of-choice" else jnp.sqrt(trees.norm_sq(found.gradient)), free

    def sampled(key: jax.Array, params: Params, agent: Any) -> tuple[jax.Array, LocalInfo]:
        sample, _ = problem.sample(key, params, agent, problem.init_memory())
        usage = problem.usage(sample)
        info = LocalInfo(usage, base.no_weights())
        if rule == "power-of-choice":
            return usage.total_return / usage.trajectories, info
        return jnp.sqrt(trees.norm_sq(problem.gradient(sample, params))), info

    return table if rule in TABLES else known if exact else sampled


def preference(rule: str, reports: jax.Array) -> jax.Array:
    """How much the server wants each of C candidates, (C,), from their reports, (C,) or (C, S, A). What is not finite, least."""
    fine = jax.vmap(trees.all_finite)(reports)
    if rule in TABLES:
        apart = _norms(mean(reports, fine.astype(float)) - reports)
        wanted = -apart if rule == "csh-min" else _norms(reports) - apart
    else:
        wanted = -reports if rule == "power-of-choice" else reports
    return jnp.where(fine, wanted, -jnp.inf)


def _norms(tables: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(tables), axis=(1, 2)))
