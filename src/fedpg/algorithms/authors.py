"""What the code published with "Momentum for the Win" does (zhili-zh/2023_Fed_MBPG), which is neither Algorithm 1 nor 2 of the
paper: FedAvg over restarted IS-MBPG or HA-MBPG (Huang et al., "Momentum-based policy gradient methods", 2020). For explaining
its logs, not for learning. Estimates g, w g, score as in `fedpg.gradients.published`; docs/algorithms/authors-mode.md lists
where each departs from the paper.

    agent    th_0 = theta_r, nothing kept from earlier rounds; K times, with th_- the params before the last step:
    svrpg        tau ~ th_k;    g = weighted(th_k; th_k),   d_k = g + (1-beta) (d_{k-1} - weighted(th_-; th_k)),  w <= 1.2
    hapg         th_a = a th_k + (1-a) th_-, a ~ U[0,1];  tau ~ th_a;   g = weighted(th_k; th_a),  w in [0.8, 1.2]
                 v = th_k - th_-,   h = <score(th_a), v> score(th_a) + (score(th_a + delta v) - score(th_a - delta v)) / (2 delta)
                 d_k = beta g + (1-beta) (d_{k-1} + h)
    both         d_0 = g;   eta_k = eta / (offset + 5 sum_{j<=k} |g_j|^2)^(1/3)
                 th_{k+1} = (1 - decay) (th_k + eta_k clamp(d_k)),  each entry of d_k cut at min(|g|, g_max); decay 1e-4, hapg 0
    sends    svrpg th_K - theta_r;   hapg (the last th_a) - theta_r
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import require
from fedpg.gradients.published import Published
from fedpg.problem import Problem
from fedpg.trees import Params

CLIP = 1.2
"""Where w is cut on CartPole, Walker and HalfCheetah; `hapg` cuts at 2 - 1.2 below as well."""
DELTA = 1e-7
"""Of the finite difference. In float32 it is lost in rounding, as in the code."""
FACTOR = 5.0
"""Of the squared gradients in the adaptive step."""
NEVER = 1e-30
"""A lower bound for w that is none."""


class Step(NamedTuple):
    """Where an agent is within a round.

    Attributes:
        params: th_k.
        before: th_-; th_0 at the start.
        sent: what would be sent now.
        direction: d_{k-1}.
        squares: sum |g_j|^2 so far, ().
        first: 1 before the first step of a round, then 0, ().
        memory: the problem's.
    """

    params: Params
    before: Params
    sent: Params
    direction: Params
    squares: jax.Array
    first: jax.Array
    memory: Any


def _estimates(name: str, problem: Problem, softmax_bug: bool) -> Published:
    told = "needs whole trajectories, which finite MDPs do not keep with the baselines none and value: use --baseline time"
    require(problem.published is not None, f"{name} {told}")
    return problem.published(softmax_bug)


def _restarted(
    name: str, problem: Problem, hessian: bool, *, beta: Any, local_lr: Any, global_lr: Any, local_steps: int,
    softmax_bug: bool, largest: Any, offset: Any, decay: Any,
) -> Algorithm:  # fmt: skip
    """Either algorithm; `largest` is g_max."""
    estimates = _estimates(name, problem, softmax_bug)
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    require(not isinstance(beta, (int, float)) or 0.0 <= beta <= 1.0, f"beta must be in [0, 1], not {beta}")
    base.check_step(local_lr, global_lr, local_steps)
    for what, value in (("largest", largest), ("offset", offset)):
        require(not isinstance(value, (int, float)) or value > 0, f"{what} must be positive, not {value}")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), problem.init_memory()

    def corrected(sample: Any, at: Step, mixed: Params) -> tuple[Params, Params, Any]:
        """g, d_k and the statistics of w."""
        if not hessian:
            g, _ = estimates.weighted(sample, at.params, at.params, NEVER, CLIP)
            old, weights = estimates.weighted(sample, at.before, at.params, NEVER, CLIP)
            return g, jax.tree.map(lambda g, d, o: g + (1.0 - beta) * (d - o), g, at.direction, old), weights
        g, weights = estimates.weighted(sample, at.params, mixed, 2.0 - CLIP, CLIP)
        v, score = trees.subtract(at.params, at.before), estimates.score(sample, mixed)
        ahead, behind = (estimates.score(sample, trees.add_scaled(mixed, sign * DELTA, v)) for sign in (1.0, -1.0))
        inner = trees.inner(score, v)
        h = jax.tree.map(lambda s, a, b: inner * s + (a - b) / (2.0 * DELTA), score, ahead, behind)
        return g, jax.tree.map(lambda g, d, h: beta * g + (1.0 - beta) * (d + h), g, at.direction, h), weights

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def step(at: Step, key: jax.Array) -> tuple[Step, LocalInfo]:
            mix_key, sample_key = jax.random.split(key)
            share = jax.random.uniform(mix_key) if hessian else 1.0
            mixed = trees.add_scaled(at.before, share, trees.subtract(at.params, at.before))
            mixed = trees.select(at.first > 0, at.params, mixed)
            sample, memory = problem.sample(sample_key, mixed if hessian else at.params, agent, at.memory)
            g, d, weights = corrected(sample, at, mixed)
            d = trees.select(at.first > 0, g, d)
            norm_sq = trees.norm_sq(g)
            squares = at.squares + norm_sq
            cut, eta = jnp.minimum(jnp.sqrt(norm_sq), largest), local_lr / jnp.cbrt(offset + FACTOR * squares)
            ascent = jax.tree.map(lambda d: eta * jnp.clip(d, -cut, cut), d)
            shrunk = trees.add_scaled(ascent, -decay, trees.add_scaled(at.params, 1.0, ascent))
            # Weight decay must not move the scale of observations, if there is one.
            moved = problem.project(trees.add_scaled(at.params, 1.0, estimates.free(shrunk)))
            sent = trees.select(at.first > 0, moved, mixed) if hessian else moved
            return Step(moved, at.params, sent, d, squares, jnp.zeros(()), memory), LocalInfo(problem.usage(sample), weights)

        theta, nothing = shared.params, trees.zeros_like(shared.params)
        start = Step(theta, theta, theta, nothing, jnp.zeros(()), jnp.ones(()), memory)
        end, infos = jax.lax.scan(step, start, jax.random.split(key, local_steps))
        return trees.subtract(end.sent, theta), end.memory, base.total(infos)

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        return ServerState(Shared(problem.project(trees.add_scaled(state.shared.params, global_lr, u)))), info

    return Algorithm(name, init, local_update, aggregate)


def authors_svrpg(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 9,
    softmax_bug: bool = True, largest: Any = 0.05, offset: Any = 1.0, decay: Any = 1e-4,
) -> Algorithm:  # fmt: skip
    """The published "FedSVRPG-M", with its CartPole numbers as defaults.

    Args:
        problem: what is learned.
        beta: in [0, 1].
        local_lr: eta, before the adaptive step divides it.
        global_lr: lambda; eta K if None, the code of January 2024. That of October 2023 had 0.08 times that on CartPole.
        local_steps: K; the code's flag 10 made 9 steps.
        softmax_bug: likelihoods through a softmax over time.
        largest: g_max, where the entries of a direction are cut.
        offset: what is added to the squared gradients in the adaptive step.
        decay: weight decay of a local step.
    """
    return _restarted(
        "authors-svrpg", problem, False, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
        softmax_bug=softmax_bug, largest=largest, offset=offset, decay=decay,
    )  # fmt: skip


def authors_hapg(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 9,
    softmax_bug: bool = True, largest: Any = 0.1, offset: Any = 2.0,
) -> Algorithm:  # fmt: skip
    """The published "FedHAPG-M", with its CartPole numbers as defaults; the arguments are those of `authors_svrpg`."""
    return _restarted(
        "authors-hapg", problem, True, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
        softmax_bug=softmax_bug, largest=largest, offset=offset, decay=0.0,
    )  # fmt: skip
