"""Many lanes at once: rollouts and gradients of small networks, with the lanes as the last axis of every array.

A lane is one trajectory with its own params. `vmap` puts lanes first, which leaves matrices of a few numbers for inner loops. Here the
same numbers are computed the other way round: every vector instruction, or every thread of a GPU, has a lane to itself, and a network is
written out as sums of products. One backward pass follows every rollout; nothing of it is stored but what it saw and did.

Two versions compute the same from the same random numbers: `fedpg.gradients.lanes_xla` on a CPU, `fedpg.gradients.lanes_cuda` on a GPU.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from fedpg import native
from fedpg.envs.base import Box, Discrete, Elementwise, Environment
from fedpg.envs.host import HostEnvironment
from fedpg.gradients import lanes_cuda, lanes_xla
from fedpg.gradients.rollout import Trajectory, log_probs, rollout
from fedpg.policies.base import Policy, describes
from fedpg.sampling import uniforms
from fedpg.trees import Params

MOST_NUMBERS = 640
"""Params of a network up to which this is faster than matrix products: 16 x 16 units and some more."""
MOST_ACTIONS = 16


def has_network(policy: Policy) -> bool:
    """Whether the gradients of `policy` can be computed here."""
    if policy.network is None or not describes(policy):
        return False
    shapes = jax.eval_shape(lambda key: policy.network.layers(policy.init(key)), jax.random.key(0))
    return sum(x.size for x in jax.tree.leaves(shapes)) <= MOST_NUMBERS and shapes[-1]["bias"].size <= MOST_ACTIONS


def applies(environment: Environment | HostEnvironment, policy: Policy) -> bool:
    """Whether trajectories of `policy` in `environment` can be drawn here."""
    spaces = isinstance(environment.observation_space, Box) and isinstance(environment.action_space, Discrete)
    known = isinstance(environment, Environment) and isinstance(environment.transition, Elementwise)
    return known and spaces and has_network(policy) and policy.draw is uniforms


_lanes_p = Primitive("lanes")
"""A function of arrays with a first axis of lanes: `vmap` adds to the lanes, and the function is traced only when it is compiled."""
_lanes_p.multiple_results = True


def _run(*leaves: jax.Array, function: Callable[..., Any], structure: Any, results: Any) -> list[jax.Array]:
    found = function(*jax.tree.unflatten(structure, [jnp.moveaxis(x, 0, -1) for x in leaves]))
    return [jnp.moveaxis(x, -1, 0) for x in jax.tree.leaves(found)]


def _more_lanes(leaves: Any, axes: Any, **params: Any) -> tuple[list[jax.Array], list[int]]:
    size = next(x.shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None)

    def flat(x: jax.Array, axis: Any) -> jax.Array:
        x = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        return x.reshape(-1, *x.shape[2:])

    found = _lanes_p.bind(*map(flat, leaves, axes), **params)
    return [x.reshape(size, -1, *x.shape[1:]) for x in found], [0] * len(found)


_lanes_p.def_impl(_run)
_lanes_p.def_abstract_eval(lambda *leaves, results, **_: [ShapedArray((leaves[0].shape[0], *x.shape), x.dtype) for x in results])
batching.primitive_batchers[_lanes_p] = _more_lanes
mlir.register_lowering(_lanes_p, mlir.lower_fun(_run, multiple_results=True))


def by_lanes(function: Callable[..., Any], results: Any) -> Callable[..., Any]:
    """`function`, of arrays with a last axis of lanes, as a function of one lane; every `vmap` around it adds to the lanes.

    `results` are the shapes and types of what it returns for one lane.
    """
    flat, shape = jax.tree.flatten(results)

    def of_one(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        found = _lanes_p.bind(*(x[None] for x in leaves), function=function, structure=structure, results=tuple(flat))
        return jax.tree.unflatten(shape, [x[0] for x in found])

    return of_one


def _by_platform(name: str, otherwise: Callable[..., Any], results: Any, *args: Any, **static: Any) -> Any:
    """Function `name` for one lane, in the version for the platform that a program is compiled for; `otherwise` where there is none."""
    ways = {"cpu": by_lanes(functools.partial(getattr(lanes_xla, name), **static), results)}
    if jax.default_backend() == "cpu":
        return ways["cpu"](*args)
    if native.applies("cuda", *(x for x in jax.tree.leaves(args) if jnp.issubdtype(x.dtype, jnp.floating))):
        ways["cuda"] = by_lanes(functools.partial(getattr(lanes_cuda, name), **static), results)
    return jax.lax.platform_dependent(*args, **ways, default=otherwise)


def _view(policy: Policy, params: Params) -> tuple[Any, Any]:
    """The layers of the network as (matrix, bias), and the scale of observations or ()."""
    layers = [(layer["matrix"], layer["bias"]) for layer in policy.network.layers(params)]
    return layers, policy.network.scale(params) or ()


def sampler(environment: Environment, policy: Policy, horizon: int) -> Callable[[jax.Array, Params, Any], Trajectory]:
    """(keys, params, agent) -> one trajectory per key, leading axis B, from the same random numbers as `fedpg.gradients.rollout`."""

    def one(key: jax.Array, params: Params, agent: Any) -> Trajectory:
        def otherwise(*_: Any) -> tuple[jax.Array, ...]:
            return tuple(rollout(environment, policy, horizon, key, params, agent))

        start_key, action_key, _ = jax.random.split(key, 3)
        start, _ = environment.reset(start_key, agent)
        args = *_view(policy, params), agent, start, policy.draw(action_key, horizon)
        number = jax.ShapeDtypeStruct((horizon,), start.dtype)
        seen, acted = jax.ShapeDtypeStruct((horizon, *start.shape), start.dtype), jax.ShapeDtypeStruct((horizon,), jnp.int32)
        found = _by_platform("rollout", otherwise, (seen, acted, number, number), *args, advance=environment.transition.advance)
        return Trajectory(*found)

    return jax.vmap(one, (0, None, None))


class Scorer(NamedTuple):
    """What gradients are made of; trajectories have a leading axis B.

    Attributes:
        score: (params, trajectories, coefficients) -> sum_t coefficient_t grad log pi(a_t|s_t) of each, and log pi(a_t|s_t), zero after
            the end, (B, H). Differentiable, forward only, in params and coefficients.
        log_probs: (params, trajectories) -> log pi(a_t|s_t) alone, to the last bit.
    """

    score: Callable[[Params, Trajectory, jax.Array], tuple[Params, jax.Array]]
    log_probs: Callable[[Params, Trajectory], jax.Array]


def scorer(policy: Policy) -> Scorer:
    """The `Scorer` of a policy that `has_network`."""

    def by_differentiation(params: Params, coefficient: jax.Array, tau: Trajectory) -> tuple[Params, jax.Array]:
        def weighted(params: Params) -> tuple[jax.Array, jax.Array]:
            found = log_probs(policy, params, tau)
            return jnp.sum(coefficient * found), found

        return jax.grad(weighted, has_aux=True)(params)

    @jax.custom_jvp
    def score(params: Params, coefficient: jax.Array, tau: Trajectory) -> tuple[Params, jax.Array]:
        def otherwise(*_: Any) -> tuple[Any, jax.Array]:
            direction, found = by_differentiation(params, coefficient, tau)
            return _view(policy, direction)[0], found

        layers, scale = _view(policy, params)
        results = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (layers, coefficient))
        layers, found = _by_platform("score", otherwise, results, layers, scale, tau.observation, tau.action, coefficient)
        direction = policy.network.like([{"bias": bias, "matrix": matrix} for matrix, bias in layers], params)
        return direction, jnp.where(tau.mask > 0, found, 0.0)

    @score.defjvp
    def score_tangent(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        params, coefficient, tau = primals  # a trajectory is data
        return jax.jvp(lambda params, coefficient: by_differentiation(params, coefficient, tau), (params, coefficient), tangents[:2])

    @jax.custom_jvp
    def judge(params: Params, tau: Trajectory) -> jax.Array:
        def otherwise(*_: Any) -> jax.Array:
            return log_probs(policy, params, tau)

        result = jax.ShapeDtypeStruct(tau.mask.shape, tau.mask.dtype)
        found = _by_platform("log_probs", otherwise, result, *_view(policy, params), tau.observation, tau.action)
        return jnp.where(tau.mask > 0, found, 0.0)

    @judge.defjvp
    def judge_tangent(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        params, tau = primals
        return jax.jvp(lambda params: log_probs(policy, params, tau), (params,), tangents[:1])

    def scores(params: Params, tau: Trajectory, coefficient: jax.Array) -> tuple[Params, jax.Array]:
        params, tau, coefficient = jax.tree.map(jnp.asarray, (params, tau, coefficient))
        return jax.vmap(score, (None, 0, 0))(params, coefficient, tau)

    def judges(params: Params, tau: Trajectory) -> jax.Array:
        return jax.vmap(judge, (None, 0))(*jax.tree.map(jnp.asarray, (params, tau)))

    return Scorer(scores, judges)
