"""The actor-critic: PPO as a learner.

    old        w = pi(a|s) / pi_old(a|s);   A, R = A + V_old by `fedpg.learners.gae`, from T steps in B lanes
    step       s = Adam(clip grad[ surrogate(w, A) - value_weight * value loss(V, V_old, R) + entropy * H(pi) ])     on one minibatch
               th <- th + eta/M tilt(M c s, th)                     M = epochs * minibatches times;   direction = (th' - th) / eta

c is the share of the step-size that the schedule leaves. With `untilted`, th moves by eta c s: eta is Adam's step-size. Params are those
of a policy with a critic. Adam's moments, the scale of rewards and the environments stay in the agent's memory.

`target_kl` ends the agent's own steps on a batch; what an algorithm adds goes on, so that a constant tilt always adds up to itself.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpg import moments, trees
from fedpg.envs.base import Environment, Federation
from fedpg.envs.host import HostEnvironment
from fedpg.errors import choose, require
from fedpg.gradients.batch import Usage
from fedpg.learners.gae import RewardScale, advantages, no_rewards, scale_rewards
from fedpg.learners.host_rollout import host_sampler
from fedpg.learners.losses import clipped_surrogate, clipped_value_loss, divergence_estimate, normalised
from fedpg.learners.reinforce import Direction, Moved, Tilt
from fedpg.learners.rollout import Lanes, Rollout, no_lanes, sampler
from fedpg.policies.base import Policy
from fedpg.policies.distributions import entropy, outputs_of
from fedpg.trees import Params

SCHEDULES = ("constant", "linear")
ADAM_EPS = 1e-5
"""Added to the root of Adam's second moment, as in most implementations of PPO."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the actor-critic does with a batch: `--learner-option NAME=VALUE`."""

    epochs: int = 10
    """Passes over a batch."""
    minibatch: int = 64
    """Steps per minibatch; steps that are left over after a pass are not used in it."""
    clip: float = 0.2
    """How far the ratio of a policy to the old one counts."""
    value_clip: float = 0.0
    """How far a value may move from its old one, in units of scaled rewards; 0 does not clip."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    gae_lambda: float = 0.95
    """lambda of the advantages."""
    max_grad_norm: float = 0.5
    """Gradients are cut to this Euclidean norm."""
    target_kl: float = 0.0
    """An agent stops on a batch when its policy is further than 1.5 times this from the old one; 0 is off."""
    schedule: str = "linear"
    """Of the step-size over the rounds: linear (to 0) or constant."""
    scale_rewards: bool = True
    """Divide rewards by the standard deviation of the discounted return."""
    log_std: float = 0.0
    """Logarithm of the first standard deviation of the policy gaussian."""
    critic: tuple[int, ...] = (64, 64)
    """Sizes of the critic's hidden layers."""


def check(settings: Settings) -> Settings:
    """`settings` if they make sense."""
    require(settings.epochs >= 1 and settings.minibatch >= 1, "epochs and minibatch must be at least 1")
    require(0.0 < settings.clip < 1.0, f"clip must be between 0 and 1, not {settings.clip}")
    require(0.0 <= settings.gae_lambda <= 1.0, f"gae_lambda must be in [0, 1], not {settings.gae_lambda}")
    require(settings.max_grad_norm > 0.0, f"max_grad_norm must be positive, not {settings.max_grad_norm}")
    for name in ("value_clip", "value_weight", "entropy", "target_kl"):
        require(0.0 <= getattr(settings, name) < math.inf, f"{name} must be 0 or more, not {getattr(settings, name)}")
    require(-5.0 <= settings.log_std <= 2.0, f"log_std must be in [-5, 2], not {settings.log_std}")
    choose("schedule", settings.schedule, SCHEDULES)
    return settings


class Memory(NamedTuple):
    """What an agent keeps: its environments, the scale of its rewards, Adam's moments, and the number of batches so far."""

    lanes: Lanes
    rewards: RewardScale
    adam: Any
    batches: jax.Array


class Sample(NamedTuple):
    """T steps in each of B lanes, and their scaled rewards, (B, T)."""

    rollout: Rollout
    reward: jax.Array


class Steps(NamedTuple):
    """n steps as the epochs use them, leading axis n."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array  # of the old policy
    value: jax.Array  # of the old critic
    advantage: jax.Array
    target: jax.Array


class Learner(NamedTuple):
    """Pure functions for one agent, with signatures as in `fedpg.problem.Problem`."""

    init_memory: Callable[[], Memory]
    sample: Callable[[jax.Array, Params, Any, Memory], tuple[Sample, Memory]]
    direction: Direction
    usage: Callable[[Sample], Usage]


def state_of(federation: Federation, horizon: int) -> Any:
    """The shape of one state of an agent's environment."""
    environment = federation.environment
    if isinstance(environment, HostEnvironment):
        return jax.ShapeDtypeStruct((environment.host.words(horizon),), jnp.uint32)
    key = jax.random.key(0)
    drawn = jax.eval_shape(federation.agents, key, 0) if callable(federation.agents) else federation.agents
    return jax.eval_shape(lambda agents: environment.reset(key, trees.take(agents, 0))[0], drawn)


def objective(policy: Policy, environment: Environment | HostEnvironment, settings: Settings, params: Params, steps: Steps) -> Any:
    """What an epoch climbs on a minibatch, (), and how far the policy is from the old one, ()."""
    each = functools.partial(jax.vmap, in_axes=(None, 0))
    log_ratio = jax.vmap(policy.log_prob, (None, 0, 0))(params, steps.observation, steps.action) - steps.log_prob
    gained = clipped_surrogate(log_ratio, normalised(steps.advantage), settings.clip)
    loss = clipped_value_loss(each(policy.value)(params, steps.observation), steps.value, steps.target, settings.value_clip)
    total = gained - settings.value_weight * loss
    if settings.entropy > 0:
        outputs = outputs_of(policy, environment.action_space)
        total += settings.entropy * jnp.mean(each(lambda params, seen: entropy(outputs(params, seen)))(params, steps.observation))
    return total, divergence_estimate(log_ratio)


def learner(
    federation: Federation,
    policy: Policy,
    settings: Settings,
    *,
    horizon: int,
    discount: float,
    rollout_steps: int,
    lanes: int = 1,
    batches: int = 0,
    watch_observations: bool = False,
    pooled: int = 0,
) -> Learner:
    """The actor-critic for one agent of `federation`.

    Args:
        federation: environment and agents.
        policy: with a critic.
        settings: checked.
        horizon: where episodes are truncated.
        discount: gamma.
        rollout_steps: T.
        lanes: B, environments of an agent side by side.
        batches: after which the schedule ends; 0: it is constant.
        watch_observations: report the moments of the observations with the usage of a sample.
        pooled: N for one learner that holds the environments of N agents, which then have a leading axis; 0 for one agent.
    """
    environment = federation.environment
    draw = (host_sampler if isinstance(environment, HostEnvironment) else sampler)(environment, policy, horizon, rollout_steps)
    state, count = state_of(federation, horizon), max(pooled, 1) * lanes * rollout_steps
    size = min(settings.minibatch, count)
    small_steps = settings.epochs * (count // size)
    adam = optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), optax.scale_by_adam(eps=ADAM_EPS))

    def init_memory() -> Memory:
        one = no_lanes(environment, state, lanes)
        params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(policy.init, jax.random.key(0)))
        all_lanes = trees.broadcast(one, pooled) if pooled else one
        return Memory(all_lanes, no_rewards(max(pooled, 1) * lanes), adam.init(params), jnp.zeros((), int))

    def sample(key: jax.Array, params: Params, agent: Any, memory: Memory) -> tuple[Sample, Memory]:
        if pooled:
            rollout, after = jax.vmap(draw, (0, None, 0, 0))(jax.random.split(key, pooled), params, agent, memory.lanes)
            rollout = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)
        else:
            rollout, after = draw(key, params, agent, memory.lanes)
        reward, rewards = rollout.reward, memory.rewards
        if settings.scale_rewards:
            reward, rewards = scale_rewards(rewards, reward, rollout.ended, discount)
        return Sample(rollout, reward), memory._replace(lanes=after, rewards=rewards)

    def prepared(sample: Sample, params: Params) -> Steps:
        """The steps of a sample that was drawn at params, as the epochs use them."""
        seen = sample.rollout
        value, next_value = (
            jax.vmap(jax.vmap(policy.value, (None, 0)), (None, 0))(params, x) for x in (seen.observation, seen.next_observation)
        )
        each = jax.vmap(advantages, (0, 0, 0, 0, 0, None, None))
        advantage = each(sample.reward, value, next_value, seen.terminated, seen.ended, discount, settings.gae_lambda)
        log_prob = jax.vmap(jax.vmap(policy.log_prob, (None, 0, 0)), (None, 0, 0))(params, seen.observation, seen.action)
        rows = Steps(seen.observation, seen.action, log_prob, value, advantage, advantage + value)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

    def step_share(done: jax.Array) -> jax.Array:
        """c, the share of the step-size that is left after so many batches, ()."""
        left = 1.0 - done / batches if batches and settings.schedule == "linear" else 1.0
        return jnp.maximum(left, 1.0 / max(batches, 1))

    def direction(key: jax.Array, sample: Sample, params: Params, memory: Memory, tilt: Tilt, local_lr: Any) -> tuple[Moved, Memory]:
        steps, factor = prepared(sample, params), small_steps * step_share(memory.batches)
        shuffled = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(key, settings.epochs))
        minibatches = shuffled[:, : count // size * size].reshape(small_steps, size)

        def small_step(carry: tuple, ids: jax.Array) -> tuple[tuple, None]:
            at, added, moments, going = carry
            climbed = functools.partial(objective, policy, environment, settings, steps=trees.take(steps, ids))
            gradient, far = jax.grad(climbed, has_aux=True)(at)
            own, after = adam.update(policy.free(gradient), moments)
            own = trees.scale(factor, own)
            if settings.target_kl > 0:
                going = going & (far <= 1.5 * settings.target_kl)
                own, after = trees.select(going, own, trees.zeros_like(own)), trees.select(going, after, moments)
            end = policy.project(trees.add_scaled(at, local_lr / small_steps, tilt(own, at)))
            return (end, trees.add_scaled(added, 1.0 / small_steps, own), after, going), None

        start = (params, trees.zeros_like(params), memory.adam, jnp.ones((), bool))
        (end, own, moments, _), _ = jax.lax.scan(small_step, start, minibatches)
        moved = Moved(trees.scale(1.0 / local_lr, trees.subtract(end, params)), own)
        return moved, memory._replace(adam=moments, batches=memory.batches + 1)

    def usage(sample: Sample) -> Usage:
        seen, watched = sample.rollout, ()
        if watch_observations:
            watched = moments.observed(seen.observation.reshape(count, -1), jnp.ones(count))
        return Usage(jnp.sum(seen.ended).astype(int), jnp.asarray(count), jnp.sum(seen.finished), watched)

    return Learner(init_memory, sample, direction, usage)
