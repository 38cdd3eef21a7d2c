"""Finite MDPs: the paper's random MDPs, and a family of agents whose rewards conflict.

Observations are state indices; every quantity of the theory can be computed exactly (`fedpg.gradients.exact`).
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment, Step
from fedpg.envs.heterogeneity import Count, mix, positions
from fedpg.errors import choose, require
from fedpg.sampling import pick, uniforms

LARGEST_ORDER = 15.0
"""Rewards of the conflict family are within 10^+-15, so that squared gradients fit in float32."""
KERNELS = ("uniform", "bernoulli", "orthogonal")


class MDP(NamedTuple):
    """The MDP of one agent."""

    transition: jax.Array  # (S, A, S), rows sum to 1
    reward: jax.Array  # (S, A)
    start: jax.Array  # (S,), sums to 1


def _reset(key: jax.Array, mdp: MDP) -> tuple[jax.Array, jax.Array]:
    state = pick(jax.random.uniform(key), mdp.start)
    return state, state


def _transition(uniform: jax.Array, state: jax.Array, action: jax.Array, mdp: MDP) -> Step:
    after = pick(uniform, mdp.transition[state, action])
    never = jnp.zeros((), bool)
    return Step(after, after, mdp.reward[state, action], never, never)


def environment(name: str, states: int, actions: int) -> Environment:
    """A finite MDP as an `Environment`; its params are an `MDP`."""
    return Environment(name, Discrete(states), Discrete(actions), _reset, _transition, uniforms)


def is_tabular(environment: Any) -> bool:
    """Whether it was made by `environment` here and not altered: its `MDP` params then describe it completely."""
    return isinstance(environment, Environment) and environment[3:] == (_reset, _transition, uniforms)


@dataclasses.dataclass(frozen=True)
class RandomMDPOptions:
    """The paper's random MDPs: P_i = h K_i + (1 - h) P_0, with h = min(heterogeneity, 1), the paper's kappa.

    Above heterogeneity 1 the kernels K_i are sharpened (entries to the power `heterogeneity`, then normalised), towards a
    different deterministic system for each agent.
    """

    states: Count = 5
    actions: Count = 5
    kernel: str = "uniform"
    """uniform: entries U[0,1]; bernoulli: the same times a random mask; orthogonal: P_0 has a mask, every K_i its complement."""
    sparsity: float = 0.5
    """Probability that the mask of bernoulli and orthogonal kernels keeps an entry."""
    reward_heterogeneity: float = 0.0
    """Share of an agent's own random reward, 0 (common reward, the paper) to 1."""
    start_heterogeneity: float = 0.0
    """Share of an agent's own random start distribution, 0 (uniform for all, the paper) to 1."""


def _normalise(rows: jax.Array) -> jax.Array:
    """Rows divided by their sum; a row of zeros (all masked) becomes uniform."""
    total = rows.sum(-1, keepdims=True)
    return jnp.where(total > 0, rows / jnp.where(total > 0, total, 1.0), 1.0 / rows.shape[-1])


def random_mdps(key: jax.Array, agents: int, heterogeneity: float, options: RandomMDPOptions) -> MDP:
    """N random MDPs, leading axis N. See `RandomMDPOptions` for what `heterogeneity` does."""
    choose("kernel", options.kernel, KERNELS)
    for name in ("reward_heterogeneity", "start_heterogeneity", "sparsity"):
        require(0.0 <= getattr(options, name) <= 1.0, f"{name} is a share: give a number from 0 to 1")
    states, actions = options.states, options.actions
    keys = iter(jax.random.split(key, 8))
    shape = (states, actions, states)

    common = jax.random.uniform(next(keys), shape)
    own = jax.random.uniform(next(keys), (agents, *shape))
    mask = jax.random.bernoulli(next(keys), options.sparsity, shape)
    if options.kernel == "bernoulli":
        common, own = common * mask, own * jax.random.bernoulli(next(keys), options.sparsity, own.shape)
    elif options.kernel == "orthogonal":
        common, own = common * mask, own * ~mask
    largest = jnp.maximum(own.max(-1, keepdims=True), jnp.finfo(own.dtype).tiny)
    sharpened = (own / largest) ** max(1.0, heterogeneity)  # relative to the largest entry, so that no power underflows
    transition = mix(min(heterogeneity, 1.0), _normalise(sharpened), _normalise(common))

    common_reward, own_reward = jax.random.uniform(next(keys), (states, actions)), jax.random.uniform(next(keys), (agents, states, actions))
    own_start = _normalise(jax.random.exponential(next(keys), (agents, states)))  # uniform on the simplex
    return MDP(
        transition,
        mix(options.reward_heterogeneity, own_reward, common_reward),
        mix(options.start_heterogeneity, own_start, jnp.full(states, 1.0 / states)),
    )


@dataclasses.dataclass(frozen=True)
class ConflictOptions:
    """Agents with conflicting rewards of very different size in one random MDP.

    With k = min(heterogeneity, 1), the reward of agent i is 10^(heterogeneity z_i) [ k 1{a = a_i(s)} + (1-k) 1{a = a_0(s)} ]:
    it prefers its own action a_i(s) in every state, and the scales cover 2 `heterogeneity` orders of magnitude (z_i evenly
    from -1 to 1). Neighbouring agents never prefer the same action when there are enough actions.
    """

    states: Count = 5
    actions: Count = 5


def conflicting_mdps(key: jax.Array, agents: int, heterogeneity: float, options: ConflictOptions) -> MDP:
    """N MDPs with conflicting rewards, leading axis N. See `ConflictOptions`."""
    states, actions = options.states, options.actions
    kernel_key, preference_key = jax.random.split(key)
    kernel = _normalise(jax.random.uniform(kernel_key, (states, actions, states)))
    orders = jax.vmap(lambda k: jax.random.permutation(k, actions))(jax.random.split(preference_key, states))  # (S, A)
    own = jax.nn.one_hot(orders[:, jnp.arange(agents) % actions].T, actions)  # (N, S, A)
    wanted = mix(min(heterogeneity, 1.0), own, own[0])
    scale = 10.0 ** jnp.clip(heterogeneity * positions(agents), -LARGEST_ORDER, LARGEST_ORDER)
    start = jnp.full((agents, states), 1.0 / states)
    return MDP(jnp.broadcast_to(kernel, (agents, *kernel.shape)), scale[:, None, None] * wanted, start)
