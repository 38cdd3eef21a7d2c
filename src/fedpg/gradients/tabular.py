"""The estimator for small finite MDPs: g and F from visit counts, without keeping trajectories.

With n[s,a] the visits of a trajectory and b a baseline of the state,

    C[s,a]            = sum_t 1{s_t=s, a_t=a} (G_t - gamma^t b(s))
    g(tau|th)         = grad_th sum_{s,a} C[s,a] log pi_th(a|s)                     C held
    log w(tau|th',th) = sum_{s,a} n[s,a] (log pi_th'(a|s) - log pi_th(a|s))

so a sample is two tables, whatever the horizon, and a gradient reads S A cells instead of B H steps. Sampling uses the same
random numbers in the same order as `rollout`: both visit the same states and take the same actions, up to the rounding of
probabilities. A finite MDP never ends: every trajectory has H steps.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import native
from fedpg.envs.base import Environment
from fedpg.envs.tabular import MDP, is_tabular
from fedpg.gradients import baselines, exact, importance
from fedpg.gradients.baselines import Average
from fedpg.gradients.batch import Choices, Estimator, Usage
from fedpg.gradients.exact import log_table
from fedpg.gradients.gpomdp import discounts, returns_to_go, targets
from fedpg.gradients.importance import Weights
from fedpg.policies.base import Policy
from fedpg.sampling import uniform_pairs, uniforms
from fedpg.trees import Params

BASELINES = ("none", "value")
"""Baselines that depend on nothing but the state."""
MOST_CELLS = 10
"""Tables with more cells than this many times the steps of a sample are slower than trajectories: log pi is computed in every cell."""
MOST_STATES = 64
"""More states than this are slower too: `all_at_once` looks at every state at every step."""


class Visits(NamedTuple):
    """A sample: the visit tables of B trajectories."""

    count: jax.Array  # n, (B, S, A)
    coefficient: jax.Array  # C, (B, S, A)
    total_return: jax.Array  # undiscounted, (B,)


def applies(environment: Any, policy: Policy, choices: Choices) -> bool:
    """Whether visit counts suffice and are faster: a small finite MDP, actions drawn by `pick`, nothing that depends on time."""
    needs_time = choices.importance in importance.PREFIX_KINDS or choices.normalise_advantages or choices.watch_observations
    if (
        needs_time
        or not choices.time_discount
        or choices.baseline not in BASELINES
        or policy.draw is not uniforms
        or not is_tabular(environment)
    ):
        return False
    states, actions = environment.observation_space.n, environment.action_space.n
    return states <= MOST_STATES and states * actions <= MOST_CELLS * choices.horizon * choices.batch_size


def _ascent(policy: Policy, params: Params, coefficient: jax.Array) -> Params:
    """The mean over the batch of grad sum_{s,a} coefficient[s,a] log pi(a|s); coefficients (B, S, A) are held."""
    mean = jnp.mean(coefficient, axis=0)
    return jax.grad(lambda at: jnp.sum(mean * log_table(policy, at, *mean.shape)))(params)


def gradient(policy: Policy, params: Params, visits: Visits) -> Params:
    """Mean of g(tau | params)."""

    def in_kernel(params: Params, coefficient: jax.Array) -> Params:
        logits, to_params = jax.vjp(policy.logits, params)
        return to_params(native.score("cuda", logits, jnp.mean(coefficient, axis=0)))[0]

    in_xla = functools.partial(_ascent, policy)
    has_kernel = _has_kernel(policy, False, params, visits.coefficient[0])
    return (_with_kernel(in_kernel, in_xla) if has_kernel else in_xla)(params, visits.coefficient)


def weighted_gradient(
    policy: Policy, params: Params, behaviour: Params, visits: Visits, kind: str = "trajectory", cap: float = 2.0
) -> tuple[Params, Weights]:
    """Mean of F(params; tau, behaviour), differentiable in params through the weight as well as through g."""
    size, *shape = visits.count.shape

    def in_kernel(params: Params, behaviour: Params, visits: Visits) -> tuple[Params, Weights]:
        logits, to_params = jax.vjp(policy.logits, params)
        tables = logits, visits.coefficient[0], policy.logits(behaviour), visits.count[0]
        weighted, log_ratio = native.weighted_score("cuda", *tables, importance.limit(kind, cap))
        return to_params(weighted)[0], importance.statistics(log_ratio.reshape(1, 1))

    def in_xla(params: Params, behaviour: Params, visits: Visits) -> tuple[Params, Weights]:
        log_ratio = log_table(policy, params, *shape) - log_table(policy, behaviour, *shape)
        ratios = (visits.count * log_ratio).reshape(size, -1)
        w = jnp.exp(importance.log_weights(ratios, kind, cap))
        return _ascent(policy, params, w[:, None, None] * visits.coefficient), importance.statistics(ratios)

    alone = size == 1 and kind in importance.LIMITED_KINDS
    has_kernel = alone and _has_kernel(policy, True, params, visits.coefficient[0], visits.count[0])
    return (_with_kernel(in_kernel, in_xla) if has_kernel else in_xla)(params, behaviour, visits)


def _has_kernel(policy: Policy, weighted: bool, params: Params, *tables: jax.Array) -> bool:
    """Whether a GPU has a kernel for the gradient of this policy, with these tables (S, A)."""
    return policy.logits is not None and native.scores("cuda", weighted, jax.eval_shape(policy.logits, params), *tables)


def _with_kernel(in_kernel: Callable[..., Any], in_xla: Callable[..., Any]) -> Callable[..., Any]:
    """`in_kernel` on an NVIDIA GPU and `in_xla` elsewhere; where it is differentiated, `in_xla` everywhere."""
    both = jax.custom_jvp(lambda *args: jax.lax.platform_dependent(*args, cuda=in_kernel, default=in_xla))
    both.defjvp(lambda primals, tangents: jax.jvp(in_xla, primals, tangents))
    return both


def estimator(environment: Environment, policy: Policy, choices: Choices) -> Estimator:
    """The estimator whose samples are `Visits` and whose memory is the state of the baseline; only where it `applies`."""
    valued = choices.baseline == "value"
    fitted = baselines.make(choices.baseline, environment, choices.horizon)
    rollouts = jax.vmap(functools.partial(rollout_sums, environment, policy, choices.horizon, choices.discount, valued), (0, None, None))

    def sample(key: jax.Array, params: Params, mdp: MDP, memory: Average | tuple[()]) -> tuple[Visits, Average | tuple[()]]:
        sums = rollouts(jax.random.split(key, choices.batch_size), params, mdp)
        if not valued:
            return Visits(sums.visits, sums.returns, sums.total_return), memory
        coefficient = sums.returns - memory.mean()[:, None] * sums.discounts
        memory = memory.add(jnp.sum(sums.targets, axis=0), jnp.sum(sums.visits, axis=(0, 2)))
        return Visits(sums.visits, coefficient, sums.total_return), memory

    def usage(visits: Visits) -> Usage:
        count = choices.batch_size
        return Usage(jnp.asarray(count), jnp.asarray(count * choices.horizon), jnp.sum(visits.total_return))

    return Estimator(
        init_memory=fitted.init,
        sample=sample,
        gradient=lambda visits, params: gradient(policy, params, visits),
        weighted_gradient=lambda visits, params, behaviour: weighted_gradient(
            policy, params, behaviour, visits, choices.importance, choices.weight_cap
        ),
        usage=usage,
    )


class Sums(NamedTuple):
    """Sums over the visits of one trajectory; 1_t[s,a] = 1{s_t=s, a_t=a}. `discounts` and `targets` are () without a baseline."""

    visits: jax.Array  # n = sum_t 1_t, (S, A)
    returns: jax.Array  # sum_t 1_t G_t, (S, A)
    discounts: Any  # sum_t 1_t gamma^t, (S, A)
    targets: Any  # sum_t 1{s_t=s} sum_{h>=t} gamma^(h-t) r_h, (S,)
    total_return: jax.Array  # sum_t r_t, ()


def rollout_sums(
    environment: Environment, policy: Policy, horizon: int, discount: float, valued: bool, key: jax.Array, params: Params, mdp: MDP
) -> Sums:
    """Samples tau ~ p_mdp(. | params) and adds up its visits; `valued` adds what a baseline of the state needs."""
    start_key, noise_key, _ = jax.random.split(key, 3)  # as `rollout` does
    start, _ = environment.reset(start_key, mdp)
    reward = jnp.asarray(mdp.reward, jnp.result_type(mdp.reward, float))
    tables = exact.logits(policy, params, *reward.shape), jnp.asarray(mdp.transition), reward

    def in_xla(way: Callable[..., Sums]) -> Callable[..., Sums]:
        def sums(noise_key: jax.Array, start: jax.Array, logits: jax.Array, kernel: jax.Array, reward: jax.Array) -> Sums:
            noise = uniform_pairs(jax.random.wrap_key_data(noise_key), horizon)  # for every action and every transition, (H,) each
            cumulative = jnp.cumsum(jax.nn.softmax(logits), axis=-1), jnp.cumsum(kernel, axis=-1)
            return way(start, *noise, *cumulative, reward, discount=discount, valued=valued)

        return sums

    def in_kernel(platform: str) -> Callable[..., Sums]:
        def sums(noise_key: jax.Array, start: jax.Array, *tables: jax.Array) -> Sums:
            options = {"horizon": horizon, "discount": discount, "valued": valued}
            visits, returns, total, *extra = native.visits(platform, noise_key, start, *tables, **options)
            return Sums(visits, returns, *(extra or ((), ())), total)

        return sums

    ways = {"cpu": in_xla(step_by_step)} | {name: in_kernel(name) for name in native.PLATFORMS if native.applies(name, *tables)}
    return jax.lax.platform_dependent(jax.random.key_data(noise_key), start, *tables, **ways, default=in_xla(all_at_once))


def _pick(uniform: jax.Array, cumulative: list[jax.Array]) -> jax.Array:
    """`sampling.pick` from cumulative sums, one array for each possible outcome, of any shape."""
    threshold = uniform * cumulative[-1]
    return sum((jnp.asarray(c <= threshold, jnp.int32) for c in cumulative[:-1]), jnp.zeros_like(threshold, jnp.int32))


def step_by_step(
    start: jax.Array, action_noise: jax.Array, step_noise: jax.Array, policy: jax.Array, kernel: jax.Array, reward: jax.Array,
    discount: float, valued: bool,
) -> Sums:  # fmt: skip
    """Adds to one cell at a time in a loop over t: the fastest way on a CPU.

    `policy` and `kernel` are cumulative sums over actions and next states of pi(a|s), (S, A), and P(s'|s,a), (S, A, S).
    sum_t 1_t G_t = G_0 n - D, where D adds up the discounted reward before each visit. The targets of a state are
    sum_t r_t e_t with its eligibility e_t = gamma e_{t-1} + 1{s_t=s}.
    """
    (states, actions), table, number = reward.shape, jnp.zeros_like(reward), jnp.zeros((), reward.dtype)

    def step(carry: tuple, now: tuple) -> tuple:
        s, visits, before, earned, total, extra = carry
        action_uniform, step_uniform, gamma_t = now
        row = policy[s]
        a = _pick(action_uniform, [row[i] for i in range(actions)])
        r, row = reward[s, a], kernel[s, a]
        if valued:
            discounted, eligibility, target = extra
            eligibility = (discount * eligibility).at[s].add(1.0)
            extra = discounted.at[s, a].add(gamma_t), eligibility, target + r * eligibility
        after = _pick(step_uniform, [row[i] for i in range(states)])
        return (after, visits.at[s, a].add(1.0), before.at[s, a].add(earned), earned + gamma_t * r, total + r, extra), None

    carry = (start, table, table, number, number, (table, table[:, 0], table[:, 0]) if valued else ())
    times = (action_noise, step_noise, discounts(discount, action_noise.shape[0]).astype(reward.dtype))
    (_, visits, before, earned, total, extra), _ = jax.lax.scan(step, carry, times)
    discounted, _, target = extra if valued else ((), (), ())
    return Sums(visits, earned * visits - before, discounted, target, total)


def all_at_once(
    start: jax.Array, action_noise: jax.Array, step_noise: jax.Array, policy: jax.Array, kernel: jax.Array, reward: jax.Array,
    discount: float, valued: bool,
) -> Sums:  # fmt: skip
    """Computes the same without a loop over t: for a GPU, where each step of a loop costs several launches and adding to a cell is slow.

    The map f_t from each state to the next one is known beforehand. Composing neighbouring maps, twice as many each time,
    gives f_t o ... o f_0 for every t after log2 H compositions, and with it all states.
    """
    (horizon,), (states, actions) = action_noise.shape, reward.shape
    look_up = functools.partial(jnp.take_along_axis, axis=1, mode="promise_in_bounds")

    def of_cell(table: jax.Array, s: jax.Array, a: jax.Array) -> jax.Array:
        return table.at[s, a].get(mode="promise_in_bounds")

    every = jnp.arange(states)
    action = _pick(action_noise[:, None], [policy[:, i] for i in range(actions)])  # in each state, (H, S)
    reached = _pick(step_noise[:, None], [of_cell(kernel[..., i], every, action) for i in range(states)])  # f_t(s), (H, S)
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
        return Sums(visits, returns, (), (), jnp.sum(r))
    target = jnp.sum(at_visits(targets(r, discount)), axis=1)
    return Sums(visits, returns, at_visits(discounts(discount, horizon)), target, jnp.sum(r))
