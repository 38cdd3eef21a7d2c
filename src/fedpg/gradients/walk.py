"""One trajectory through a finite MDP, of which only sums over its visits are kept.

It sees the same random numbers in the same order as `rollout`, so both visit the same states and take the same actions, up to
the rounding of probabilities. A finite MDP never ends: every trajectory has H steps.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Environment
from fedpg.envs.tabular import MDP
from fedpg.gradients import exact
from fedpg.gradients.baselines import targets
from fedpg.gradients.gpomdp import discounts, returns_to_go
from fedpg.policies.base import Policy
from fedpg.trees import Params


class Walk(NamedTuple):
    """What one trajectory leaves behind; 1_t[s,a] = 1{s_t=s, a_t=a}.

    Attributes:
        visits: n = sum_t 1_t, (S, A).
        returns: sum_t 1_t G_t, (S, A).
        discounts: sum_t 1_t gamma^t, (S, A); () unless a baseline needs it.
        targets: sum_t 1{s_t=s} sum_{h>=t} gamma^(h-t) r_h, (S,); () likewise.
        total_return: sum_t r_t, ().
    """

    visits: jax.Array
    returns: jax.Array
    discounts: Any
    targets: Any
    total_return: jax.Array


class Chances(NamedTuple):
    """What is known before the first step, all of it drawn or added up beforehand.

    Attributes:
        start: s_0, ().
        action_noise: a uniform number for every action, (H,).
        step_noise: one for every transition, (H,).
        policy: cumulative sums over actions of pi(a|s), (S, A).
        kernel: cumulative sums over next states of P(s'|s,a), (S, A, S).
        reward: (S, A).
    """

    start: jax.Array
    action_noise: jax.Array
    step_noise: jax.Array
    policy: jax.Array
    kernel: jax.Array
    reward: jax.Array


def _fall(uniform: jax.Array, cumulative: list[jax.Array]) -> jax.Array:
    """`draws.pick` from cumulative sums, one array for each possible outcome, of any shape."""
    threshold = uniform * cumulative[-1]
    return sum((jnp.asarray(c <= threshold, jnp.int32) for c in cumulative[:-1]), jnp.zeros_like(threshold, jnp.int32))


def step_by_step(chances: Chances, discount: float, valued: bool) -> Walk:
    """In a loop over t that adds to one cell at a time: the fastest on a CPU.

    sum_t 1_t G_t = G_0 n - D, where D adds up what was earned (discounted) before each visit. The targets of a state are
    sum_t r_t e_t with its eligibility e_t = gamma e_{t-1} + 1{s_t=s}.
    """
    start, action_noise, step_noise, policy, kernel, reward = chances
    (states, actions), table, number = reward.shape, jnp.zeros_like(reward), jnp.zeros((), reward.dtype)

    def step(carry: tuple, now: tuple) -> tuple:
        s, visits, before, earned, total, extra = carry
        action_uniform, step_uniform, gamma_t = now
        row = policy[s]
        a = _fall(action_uniform, [row[i] for i in range(actions)])
        r, row = reward[s, a], kernel[s, a]
        if valued:
            discounted, eligibility, target = extra
            eligibility = (discount * eligibility).at[s].add(1.0)
            extra = discounted.at[s, a].add(gamma_t), eligibility, target + r * eligibility
        after = _fall(step_uniform, [row[i] for i in range(states)])
        return (after, visits.at[s, a].add(1.0), before.at[s, a].add(earned), earned + gamma_t * r, total + r, extra), None

    carry = (start, table, table, number, number, (table, table[:, 0], table[:, 0]) if valued else ())
    times = (action_noise, step_noise, discounts(discount, action_noise.shape[0]).astype(reward.dtype))
    (_, visits, before, earned, total, extra), _ = jax.lax.scan(step, carry, times)
    discounted, _, target = extra if valued else ((), (), ())
    return Walk(visits, earned * visits - before, discounted, target, total)


def all_at_once(chances: Chances, discount: float, valued: bool) -> Walk:
    """Without a loop over t: for a GPU, where each step of a loop costs several launches, and adding to a cell is slow.

    What step t makes of each state, f_t(s), is known before the walk. Composing neighbouring maps, twice as many at each
    turn, gives f_t o ... o f_0 for every t in log2 H turns, and with it all states.
    """
    start, action_noise, step_noise, policy, kernel, reward = chances
    (horizon,), (states, actions) = action_noise.shape, reward.shape
    look_up = functools.partial(jnp.take_along_axis, axis=1, mode="promise_in_bounds")

    def of_cell(table: jax.Array, s: jax.Array, a: jax.Array) -> jax.Array:
        return table.at[s, a].get(mode="promise_in_bounds")

    every = jnp.arange(states)
    action = _fall(action_noise[:, None], [policy[:, i] for i in range(actions)])  # in each state, (H, S)
    reached = _fall(step_noise[:, None], [of_cell(kernel[..., i], every, action) for i in range(states)])  # f_t(s), (H, S)
    for span in (2**i for i in range((horizon - 1).bit_length())):
        reached = jnp.concatenate([reached[:span], look_up(reached[span:], reached[:-span])])
    s = jnp.concatenate([start[None], reached[:-1].at[:, start].get(mode="promise_in_bounds")])  # (H,)
    a = look_up(action, s[:, None])[:, 0]
    visited = (s * actions + a)[:, None] == jnp.arange(states * actions)  # 1_t, (H, S A)

    def at_visits(values: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(visited, values[:, None], 0), axis=0, dtype=reward.dtype).reshape(reward.shape)

    r = of_cell(reward, s, a)
    visits, returns = at_visits(jnp.ones_like(r)), at_visits(returns_to_go(r, discount))
    if not valued:
        return Walk(visits, returns, (), (), jnp.sum(r))
    target = jnp.sum(at_visits(targets(r, discount)), axis=1)
    return Walk(visits, returns, at_visits(discounts(discount, horizon)), target, jnp.sum(r))


def walk(
    environment: Environment, policy: Policy, horizon: int, discount: float, valued: bool, key: jax.Array, params: Params, mdp: MDP
) -> Walk:
    """Samples tau ~ p_mdp(. | params). `valued` walks also keep what a baseline of the state needs."""
    start_key, action_key, step_key = jax.random.split(key, 3)
    start, _ = environment.reset(start_key, mdp)
    chances = Chances(
        start,
        policy.draw(action_key, horizon),
        environment.draw(step_key, horizon),
        jnp.cumsum(exact.table(policy, params, mdp), axis=-1),
        jnp.cumsum(mdp.transition, axis=-1),
        jnp.asarray(mdp.reward, jnp.result_type(mdp.reward, float)),
    )
    return jax.lax.platform_dependent(
        chances,
        cpu=functools.partial(step_by_step, discount=discount, valued=valued),
        default=functools.partial(all_at_once, discount=discount, valued=valued),
    )
