"""What the code published with "Momentum for the Win" does (zhili-zh/2023_Fed_MBPG): neither Algorithm 1 nor 2 of the paper.

It is FedAvg over restarted IS-MBPG or HA-MBPG (Huang et al., "Momentum-based policy gradient methods", 2020), here to explain its logs
and not for learning. docs/explanation/authors-code.md lists where it departs from the paper.

    fedpg train --algorithm benchmarks/authors_code.py:authors_svrpg --local-lr 0.75 --local-steps 9 --batch 50 --baseline none

    agent    th_0 = theta_r, nothing kept from earlier rounds; K times, with th_- the params before the last step:
    svrpg        tau ~ th_k;    g = weighted(th_k; th_k),   d_k = g + (1-beta) (d_{k-1} - weighted(th_-; th_k)),  w <= 1.2
    hapg         th_a = a th_k + (1-a) th_-, a ~ U[0,1];  tau ~ th_a;   g = weighted(th_k; th_a),  w in [0.8, 1.2]
                 v = th_k - th_-,   h = <score(th_a), v> score(th_a) + (score(th_a + delta v) - score(th_a - delta v)) / (2 delta)
                 d_k = beta g + (1-beta) (d_{k-1} + h)
    both         d_0 = g;   eta_k = eta / (offset + 5 sum_{j<=k} |g_j|^2)^(1/3)
                 th_{k+1} = (1 - decay) (th_k + eta_k clamp(d_k)),  each entry of d_k cut at min(|g|, g_max); decay 1e-4, hapg 0
    sends    svrpg th_K - theta_r;   hapg (the last th_a) - theta_r
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i

    l_t(th)   = log likelihood of a_t; of the action 0 at the observation 0 after the end of a trajectory, where the code pads
    Adv_t     = sum_{h>=t} gamma^(h-t) r_h, less its mean over the trajectory, divided by its standard deviation there
    w         = exp(sum_t l_t(th) - l_t(behaviour)) over all H steps, padding included; cut to an interval
    weighted  = grad of the mean over executed steps of all trajectories of w Adv_t l_t(th), w held
    score     = grad of the mean over executed steps of l_t(th): no rewards

With the bug, likelihoods of discrete actions come from logits x_t(a) that went through a softmax over *time* first and were then
normalised over actions: l_t = log softmax_a(x_t(a) - log sum_h exp x_h(a)). Sampling never has it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import require
from fedpg.gradients import importance
from fedpg.gradients.batch import Batch
from fedpg.gradients.gpomdp import targets
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import Policy
from fedpg.problem import Problem
from fedpg.sampling import look_up
from fedpg.trees import Params

CLIP = 1.2
"""Upper bound of w on CartPole, Walker and HalfCheetah; `hapg` has the lower bound 2 - 1.2 as well."""
NO_BOUND = 1e-30
"""A lower bound of w that has no effect."""
DELTA = 1e-7
"""Of the finite difference. In float32 it is lost in rounding, as in the code."""
FACTOR = 5.0
"""Of the squared gradients in the adaptive step."""
EPSILON = 1e-8
"""Added to the variance of a trajectory's advantages."""


def whitened(trajectory: Trajectory, discount: float) -> jax.Array:
    """Adv_t of one trajectory, 0 after its end, (H,)."""
    mask = trajectory.mask
    returns, count = targets(trajectory.reward, discount), jnp.maximum(jnp.sum(mask), 2.0)
    centred = mask * (returns - jnp.sum(mask * returns) / jnp.sum(mask))
    return centred / jnp.sqrt(jnp.sum(jnp.square(centred)) / (count - 1.0) + EPSILON)


def padded(trajectory: Trajectory) -> Trajectory:
    """The trajectory with zeros for observations and actions after its end."""

    def zeroed(values: jax.Array) -> jax.Array:
        mask = trajectory.mask.reshape(trajectory.mask.shape + (1,) * (values.ndim - 1))
        return jnp.where(mask > 0, values, jnp.zeros_like(values))

    return trajectory._replace(observation=zeroed(trajectory.observation), action=zeroed(trajectory.action))


class Estimates(NamedTuple):
    """The estimates of the published code for samples that are a `Batch`; the bug affects only policies with logits."""

    policy: Policy
    discount: float
    softmax_bug: bool

    def likelihoods(self, params: Params, tau: Trajectory) -> jax.Array:
        """l_t of every trajectory, (B, H)."""

        def one(tau: Trajectory) -> jax.Array:
            logits = jax.vmap(self.policy.outputs, (None, 0))(params, tau.observation) if self.policy.outputs else None
            if self.softmax_bug and isinstance(logits, jax.Array):
                over_time = logits - jax.nn.logsumexp(logits, axis=0)
                return jax.vmap(look_up)(jax.nn.log_softmax(over_time, axis=1), tau.action)
            return jax.vmap(self.policy.log_prob, (None, 0, 0))(params, tau.observation, tau.action)

        return jax.vmap(lambda tau: one(padded(tau)))(tau)

    def ascent(self, params: Params, tau: Trajectory, coefficient: jax.Array) -> Params:
        """The gradient of the mean over executed steps of coefficient_t l_t; coefficients (B, H) are held."""
        executed = tau.mask / jnp.sum(tau.mask)
        return self.policy.free(jax.grad(lambda at: jnp.sum(executed * coefficient * self.likelihoods(at, tau)))(params))

    def weighted(self, sample: Batch, params: Params, behaviour: Params, lowest: float, highest: float) -> tuple[Params, Weights]:
        """weighted(params; behaviour) with w in [lowest, highest], and statistics of w."""
        tau = sample.trajectory
        ratios = self.likelihoods(params, tau) - self.likelihoods(behaviour, tau)
        w = jnp.exp(jnp.clip(jnp.sum(ratios, axis=1), jnp.log(lowest), jnp.log(highest)))
        advantage = jax.vmap(whitened, (0, None))(tau, self.discount)
        return self.ascent(params, tau, w[:, None] * advantage), importance.statistics(ratios)

    def score(self, sample: Batch, params: Params) -> Params:
        return self.ascent(params, sample.trajectory, jnp.ones_like(sample.trajectory.mask))


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


def _restarted(
    name: str, problem: Problem, hessian: bool, *, beta: Any, local_lr: Any, global_lr: Any, local_steps: int,
    softmax_bug: bool, largest: Any, offset: Any, decay: Any,
) -> Algorithm:  # fmt: skip
    """Either algorithm; `largest` is g_max."""
    require(problem.trajectories is not None, f"{name} needs the trajectories of an environment, which this problem lacks")
    problem = problem.trajectories()
    estimates = Estimates(problem.policy, problem.discount, softmax_bug)
    global_lr = base.server_lr(local_lr, global_lr, local_steps)
    require(not base.is_known(beta) or 0.0 <= beta <= 1.0, f"beta must be in [0, 1], not {beta}")
    for what, value in (("largest", largest), ("offset", offset)):
        require(not base.is_known(value) or value > 0, f"{what} must be positive, not {value}")

    def svrpg_direction(sample: Batch, at: Step) -> tuple[Params, Params, Weights]:
        """g, d_k and the statistics of w."""
        g, _ = estimates.weighted(sample, at.params, at.params, NO_BOUND, CLIP)
        old, weights = estimates.weighted(sample, at.before, at.params, NO_BOUND, CLIP)
        return g, jax.tree.map(lambda g, d, old: g + (1.0 - beta) * (d - old), g, at.direction, old), weights

    def hapg_direction(sample: Batch, at: Step, mixed: Params) -> tuple[Params, Params, Weights]:
        g, weights = estimates.weighted(sample, at.params, mixed, 2.0 - CLIP, CLIP)
        v, score = trees.subtract(at.params, at.before), estimates.score(sample, mixed)
        ahead, behind = (estimates.score(sample, trees.add_scaled(mixed, sign * DELTA, v)) for sign in (1.0, -1.0))
        inner = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, score, v)))
        h = jax.tree.map(lambda s, a, b: inner * s + (a - b) / (2.0 * DELTA), score, ahead, behind)
        return g, jax.tree.map(lambda g, d, h: beta * g + (1.0 - beta) * (d + h), g, at.direction, h), weights

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def local_step(at: Step, key: jax.Array) -> tuple[Step, LocalInfo]:
            mix_key, sample_key = jax.random.split(key)
            share = jax.random.uniform(mix_key) if hessian else 1.0
            mixed = trees.add_scaled(at.before, share, trees.subtract(at.params, at.before))
            mixed = trees.select(at.first > 0, at.params, mixed)
            sample, memory = problem.sample(sample_key, mixed if hessian else at.params, agent, at.memory)
            g, d, weights = hapg_direction(sample, at, mixed) if hessian else svrpg_direction(sample, at)
            d = trees.select(at.first > 0, g, d)
            norm_sq = trees.norm_sq(g)
            squares = at.squares + norm_sq
            cut, eta = jnp.minimum(jnp.sqrt(norm_sq), largest), local_lr / jnp.cbrt(offset + FACTOR * squares)
            ascent = jax.tree.map(lambda d: eta * jnp.clip(d, -cut, cut), d)
            shrunk = trees.add_scaled(ascent, -decay, trees.add_scaled(at.params, 1.0, ascent))
            # Weight decay must not move the scale of observations, if there is one.
            moved = base.ascend(problem, at.params, 1.0, problem.policy.free(shrunk))
            sent = trees.select(at.first > 0, moved, mixed) if hessian else moved
            return Step(moved, at.params, sent, d, squares, jnp.zeros(()), memory), LocalInfo(problem.usage(sample), weights)

        theta, zero = shared.params, trees.zeros_like(shared.params)
        start = Step(theta, theta, theta, zero, jnp.zeros(()), jnp.ones(()), memory)
        end, infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        return trees.subtract(end.sent, theta), end.memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(Shared(base.ascend(problem, state.shared.params, global_lr, u))), info

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
