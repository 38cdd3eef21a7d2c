"""Between policy files and the engine: what a run writes, and params as JAX takes them. `fedpg.runs.policy` reads them without JAX."""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from fedpg import envs, policies, trees
from fedpg.envs.base import Discrete, Space
from fedpg.envs.python_host import PythonHost
from fedpg.envs.spaces import View, shape_of
from fedpg.errors import UserError, one_line, require
from fedpg.policies import distributions
from fedpg.policies.base import Policy
from fedpg.policies.critic import Judged
from fedpg.policies.distributions import outputs_of
from fedpg.policies.scaled import Scaled
from fedpg.problem import Problem
from fedpg.runs import policy as files
from fedpg.runs.config import Config
from fedpg.runs.folder import PACKAGES, version
from fedpg.runs.policy import PolicyFile, SpaceSpec, Spec
from fedpg.trees import Params

HUGE = 1e9
"""Bounds beyond this are those of a number type, not of a space."""


def names(params: Params) -> dict[str, Any]:
    """Every leaf that acting needs under a readable name: layers.0.matrix; the scale of observations as observation.mean."""
    if isinstance(params, Judged):
        return names(params.policy)
    if isinstance(params, Scaled):
        return names(params.inner) | {f"observation.{name}": leaf for name, leaf in params.scale._asdict().items()}
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def params_of(template: Params, arrays: dict[str, np.ndarray], where: Any, axes: int = 0) -> Params:
    """The params with the structure of `template` from the arrays of the policy file `where`, which have `axes` leading axes.

    A critic is in no policy file: that of `template` stays, without leading axes.

    Raises:
        UserError: if names or shapes differ.
    """
    expected = names(template)
    odd = sorted(set(expected) ^ set(arrays))
    require(not odd, f"the policy in {where} is of another kind: {', '.join(odd[:3])} on one side only")
    for name, leaf in expected.items():
        mine, theirs = list(leaf.shape), list(arrays[name].shape[axes:])
        require(mine == theirs, f"the policy in {where} has other shapes: {name} is {theirs}, here {mine}")
    if isinstance(template, Scaled):
        inner = {name: array for name, array in arrays.items() if not name.startswith("observation.")}
        scale = type(template.scale)(*(jnp.asarray(arrays[f"observation.{name}"]) for name in template.scale._fields))
        return Scaled(params_of(template.inner, inner, where, axes), scale)
    if isinstance(template, Judged):
        return Judged(params_of(template.policy, arrays, where, axes), template.critic)
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def kind_of(config: Config, problem: Problem) -> str:
    """Which policy it is: its name, also where `auto` stands for it, or the user's function."""
    if ":" in config.policy or config.policy in policies.NETWORKS:
        return config.policy
    if problem.policy.table:
        return problem.policy.table
    return "categorical" if isinstance(problem.environment.action_space, Discrete) else "gaussian"


def _seen(space: Space) -> SpaceSpec:
    """A space that environment and policy see alike."""
    if isinstance(space, Discrete):
        return SpaceSpec("discrete", n=space.n, dtype="int64")
    size = math.prod(space.shape)
    low, high = ((None if math.isinf(bound) else float(bound),) * size for bound in (space.low, space.high))
    return SpaceSpec("box", shape=space.shape, low=low, high=high)


def _viewed(views: View, actions: bool) -> tuple[SpaceSpec, ...]:
    """The spaces of environments in Python; one if all are the same."""

    def one(i: int) -> SpaceSpec:
        low, high = views.low[i], views.high[i]
        if isinstance(views.space, Discrete):
            return SpaceSpec("discrete", n=views.space.n, start=int(low), dtype=str(views.dtype))
        flat = [tuple(float(x) if abs(x) < HUGE else None for x in bound.reshape(-1)) if actions else () for bound in (low, high)]
        return SpaceSpec("box", shape=shape_of(views.space), low=flat[0], high=flat[1], dtype=str(views.dtype))

    found = tuple(one(i) for i in range(len(views.low)))
    return found[:1] if len(set(found)) == 1 else found


def make_spec(config: Config, problem: Problem, params: Params, row: dict[str, Any]) -> Spec:
    """The spec of what a run deploys.

    Args:
        config: of the run, complete.
        problem: what was learned.
        params: leading axis seeds, or (seeds, N) for personal algorithms.
        row: the line of metrics.jsonl that belongs to them.
    """
    environment, host = problem.environment, getattr(problem.environment, "host", None)
    if isinstance(host, PythonHost):
        observation, action = _viewed(host.observations, False), _viewed(host.actions, True)
    else:
        observation, action = (_seen(environment.observation_space),), (_seen(environment.action_space),)
    extra = jax.tree.leaves(params)[0].ndim - jax.tree.leaves(jax.eval_shape(problem.init_params, jax.random.key(0)))[0].ndim
    return Spec(
        policy=kind_of(config, problem),
        observation=observation,
        action=action,
        scaled_actions=isinstance(host, PythonHost),
        axes=("seed", "agent")[:extra],
        seeds=tuple(range(config.seeds)),
        personal=extra == 2,
        scaled=isinstance(params, Scaled),
        round=row["round"],
        returns=tuple(row["return_per_seed"]),
        returns_per_agent=tuple(row["return_per_agent"]),
        config={name: value for name, value in msgspec.to_builtins(config).items() if value is not None},
        made_with={name: version(name) for name in PACKAGES},
    )


def write(folder: Path, config: Config, problem: Problem, params: Params, row: dict[str, Any]) -> Path:
    """Writes what a run deploys into `folder`; arguments as in `make_spec`."""
    arrays = {name: np.asarray(leaf) for name, leaf in names(params).items()}
    return files.write(folder, make_spec(config, problem, params, row), arrays)


def config_of(spec: Spec) -> Config:
    """The configuration of the run that a policy came from."""
    try:
        return msgspec.convert(spec.config, Config)
    except msgspec.ValidationError as error:
        raise UserError(f"the configuration in this policy file is damaged: {one_line(str(error))}") from None


def policy_of(spec: Spec, environment: Any) -> Policy:
    """The policy of a spec as pure functions, for an environment with the same shapes."""
    config = config_of(spec)
    return policies.make(spec.policy, environment, hidden=config.hidden, scaled=spec.scaled)


def mode(policy: Policy, action_space: Space) -> Policy:
    """`policy` with its most likely action (the mean of a Gaussian) in place of a random one.

    Raises:
        UserError: if the policy does not say what that is.
    """
    outputs = outputs_of(policy, action_space)
    require(outputs is not None, "this policy of your own has no outputs, so its mean is not known: only random actions are possible")

    def act(noise: Any, params: Params, observation: jax.Array) -> jax.Array:
        return distributions.mode(outputs(params, observation), action_space)

    return policy._replace(act=act)


class OwnFunctions(NamedTuple):
    """The functions of a user's policy on a batch of observations."""

    mode: Any
    sample: Any


class Spaces(NamedTuple):
    """What a policy asks of an environment: its name and its spaces."""

    name: str
    observation_space: Space
    action_space: Space


def spaces_of(spec: Spec) -> Spaces:
    """The spaces of the environment that a policy was trained in, as the policy sees them, without the environment."""

    def seen(space: SpaceSpec) -> Space:
        if space.kind == "discrete":
            return Discrete(space.n)
        bounded = space.low and None not in (*space.low, *space.high)
        return envs.Box(space.shape, -1.0, 1.0) if bounded else envs.Box(space.shape)

    return Spaces(spec.config.get("env", ""), seen(spec.observation[0]), seen(spec.action[0]))


def own_functions(spec: Spec, arrays: dict[str, np.ndarray]) -> OwnFunctions:
    """The functions of a policy that the user's own function makes."""
    environment = spaces_of(spec)
    policy = policy_of(spec, environment)
    template = jax.eval_shape(policy.init, jax.random.key(0))
    params = params_of(template, arrays, "this file")

    def most_likely(batch: np.ndarray) -> np.ndarray:
        return np.asarray(jax.vmap(mode(policy, environment.action_space).act, (None, None, 0))(None, params, jnp.asarray(batch)))

    def sample(generator: np.random.Generator, batch: np.ndarray) -> np.ndarray:
        keys = jax.random.split(jax.random.key(int(generator.integers(2**31))), len(batch))
        return np.asarray(jax.vmap(policy.sample, (0, None, 0))(keys, params, jnp.asarray(batch)))

    return OwnFunctions(most_likely, sample)


def like(config: Config) -> dict[str, Any]:
    """Fields of a configuration that follow from the policy it starts from: its network, and a scale of observations that is kept."""
    spec = files.read(config.init_from).spec
    source = config_of(spec)
    kind = spec.policy if config.policy == "auto" and ":" not in spec.policy else config.policy
    return {
        "policy": kind,
        "hidden": config.hidden or source.hidden,
        "normalise_observations": "kept" if spec.scaled else "off",
    }


def starting_params(path: str, template: Params, seeds: int) -> Params:
    """Trained params to start a run from, leading axis seeds: of each seed if the policy has as many, else the best for all.

    A critic starts as it is in `template`, the same for all seeds.

    Raises:
        UserError: if the policy is of another kind or shape, or every agent has its own.
    """
    found: PolicyFile = files.read(path)
    own = found.spec.axes == ("seed", "agent")
    require(not own, f"every agent of {path} has its own policy: export one first (fedpg export {path} --agent 0)")
    arrays = found.arrays
    if found.spec.axes != ("seed",) or len(found.spec.seeds) != seeds:
        arrays = {name: array[None] for name, array in found.one().arrays.items()}
    count = len(next(iter(arrays.values())))
    return with_critics(params_of(template, arrays, path, axes=1), count)


def with_critics(params: Params, count: int) -> Params:
    """`params` with the leading axis of `count` seeds for a critic too."""
    if isinstance(params, Scaled):
        return params._replace(inner=with_critics(params.inner, count))
    return params._replace(critic=trees.broadcast(params.critic, count)) if isinstance(params, Judged) else params


def with_axes(found: PolicyFile) -> PolicyFile:
    """The same policies with the leading axis of seeds, also if there is only one."""
    if "seed" in found.spec.axes:
        return found
    arrays = {name: array[None] for name, array in found.arrays.items()}
    return PolicyFile(found.path, dataclasses.replace(found.spec, axes=("seed",)), arrays)
