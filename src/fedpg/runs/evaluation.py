"""Trained policies in environments: those of training, unseen ones of the same family, or any other with the same shapes."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import envs, policies, trees
from fedpg.envs import families
from fedpg.envs.base import Federation, Space
from fedpg.errors import UserError, require
from fedpg.gradients import batch
from fedpg.keys import Purpose, agent_key
from fedpg.policies.distributions import outputs_of
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs import policy as files
from fedpg.runs.config import Config
from fedpg.runs.policy import PolicyFile, Spec
from fedpg.runs.policy_files import config_of, mode, params_of, policy_of, spaces_of, with_axes
from fedpg.simulate import COMPILER_OPTIONS, PRECISION, agents_of_seeds
from fedpg.trees import Params

UNSEEN = 1_000_003
"""Folded into a run's key where agents are drawn that it did not train on."""
QUANTILES = (5, 25, 50, 75, 95)
"""Percentiles over episodes that are reported."""
MODES = ("stochastic", "deterministic")
CHOICE = 0xC401CE
"""The seed of episodes that choose between policies, which must not be those that are reported."""


class Trained(NamedTuple):
    """The policies of one run.

    Attributes:
        name: what to call it.
        spec: of the file.
        params: axes (S, P): seeds, and one policy or N personal ones.
    """

    name: str
    spec: Spec
    params: Params

    @property
    def count(self) -> int:
        """P."""
        return jax.tree.leaves(self.params)[0].shape[1]


class Place(NamedTuple):
    """N environments for each of S seeds.

    Attributes:
        agents: axes (S, N, ...).
        training: whether they are those of the training agents, so that agent i has policy i of a personal algorithm.
    """

    name: str
    federation: Federation
    agents: Any
    horizon: int
    training: bool

    @property
    def count(self) -> int:
        """N."""
        return jax.tree.leaves(self.agents)[0].shape[1]

    def of_agent(self, agent: int) -> "Place":
        """Only the environment of one agent."""
        return self._replace(agents=jax.tree.map(lambda x: x[:, agent : agent + 1], self.agents))


class Scored(NamedTuple):
    """Returns of the episodes of one run.

    Attributes:
        how: one of `MODES`.
        returns: axes (S, P, N, E): seeds, policies, environments, episodes; NaN where nothing was run.
        paired: whether environment i is that of the agent with policy i.
    """

    name: str
    how: str
    returns: np.ndarray
    paired: bool

    def own(self) -> np.ndarray:
        """Of every agent with the policy that it would deploy, (S, N, E); in environments of nobody all policies, (S, P N, E)."""
        seeds, policies, count, episodes = self.returns.shape
        if self.paired and policies > 1:
            return np.stack([self.returns[:, i, i] for i in range(count)], 1)
        return self.returns.reshape(seeds, policies * count, episodes)

    def mean(self) -> Estimate:
        """Over seeds, of the mean over agents."""
        return estimate(self.own().mean((1, 2)))

    def worst(self) -> Estimate:
        """Over seeds, of the worst agent's mean."""
        return estimate(self.own().mean(2).min(1))

    def quantiles(self) -> dict[str, float]:
        """Over all episodes of all seeds and agents."""
        return {str(q): float(np.percentile(self.own(), q)) for q in QUANTILES}

    def matrix(self) -> np.ndarray:
        """Policies x environments, mean over seeds and episodes, (P, N)."""
        return self.returns.mean((0, 3))


def best_mode(trained: Trained) -> str:
    """deterministic, or stochastic where the most likely action is not known (policies of the user's own)."""
    environment = spaces_of(trained.spec)
    known = outputs_of(policy_of(trained.spec, environment), environment.action_space) is not None
    return "deterministic" if known else "stochastic"


def read(path: str | Path, agent: int | None = None, seed: int | None = None) -> Trained:
    """The policies of a run folder or an export; with `agent` or `seed`, only those."""
    found: PolicyFile = files.read(path)
    if seed is not None or (agent is not None and found.spec.personal):
        found = found.one(seed, agent)
    found = with_axes(found)
    template = jax.eval_shape(policy_of(found.spec, spaces_of(found.spec)).init, jax.random.key(0))
    params = params_of(template, found.arrays, path, axes=len(found.spec.axes))
    if "agent" not in found.spec.axes:
        params = jax.tree.map(lambda x: x[:, None], params)
    return Trained(Path(path).name or str(path), found.spec, params)


@functools.lru_cache(maxsize=16)  # several runs of one task share a program
def _drawer(env: str, agents: int, heterogeneity: float | None, options: str) -> Any:
    """(key, seed numbers) -> the agents of every seed; compiled."""
    draw = envs.make(env, agents, heterogeneity, json.loads(options)).agents
    return jax.jit(lambda key, seeds: jax.vmap(lambda seed: draw(agent_key(key, seed, 0, 0, Purpose.AGENTS), seed))(seeds))


def _drawn(config: Config, federation: Federation, key: jax.Array, seeds: int) -> Any:
    """What `fedpg.simulate.agents_of_seeds` draws."""
    if not callable(federation.agents):
        return agents_of_seeds(federation, key, seeds)
    draw = _drawer(config.env, config.agents, config.heterogeneity, json.dumps(config.env_option, sort_keys=True))
    return jax.tree.map(np.asarray, draw(key, np.arange(seeds)))


def _training(config: Config) -> Federation:
    return envs.make(config.env, config.agents, config.heterogeneity, config.env_option)


def modes(trained: Trained) -> tuple[str, ...]:
    """The ways in which its policies can act: `MODES`, or only stochastic."""
    return MODES if best_mode(trained) == "deterministic" else MODES[:1]


def place(spec: Spec, horizon: int | None = None, **changes: Any) -> Place:
    """Where policies are evaluated: on their training agents, or, with `changes` of the configuration, on newly drawn agents.

    Args:
        spec: of the policies.
        horizon: of the episodes; None is that of training.
        changes: env, env_option, agents, heterogeneity; what is left out is as in training.
    """
    config, unseen = config_of(spec), bool(changes)
    known = config.env != families.SPACES or "env" in changes
    require(known, "the run's server had no environment, only spaces: give --env, and --env-option if it needs options")
    if changes.get("env", config.env) != config.env:  # another environment has its own options and its own default heterogeneity
        changes = {"env_option": {}, "heterogeneity": None} | changes
    elif "agents" in changes and "env_option" not in changes:  # one value per training agent says nothing about others
        changes["env_option"] = {name: value for name, value in config.env_option.items() if not isinstance(value, list)}
    config = dataclasses.replace(config, **changes)
    federation = _training(config)
    for kind in ("observation_space", "action_space"):
        _require_same(kind, getattr(federation.environment, kind), getattr(spec, kind.partition("_")[0])[0], config.env)
    key = jax.random.key(config.seed)
    key = jax.random.fold_in(key, UNSEEN) if unseen else key
    with jax.default_matmul_precision(PRECISION):
        drawn = trees.take(_drawn(config, federation, key, max(spec.seeds) + 1), np.array(spec.seeds))
        agents = jax.tree.map(np.asarray, federation.prepare(drawn)) if federation.prepare else drawn
    name = f"{config.agents} unseen agents of {config.env}" if unseen else "the training agents"
    return Place(name, federation, agents, horizon or config.horizon, not unseen)


def _require_same(kind: str, found: Space, expected: Any, env: str) -> None:
    shape = (found.n,) if hasattr(found, "n") else found.shape
    wanted = (expected.n,) if expected.kind == "discrete" else expected.shape
    what = kind.replace("_", " ")
    same = hasattr(found, "n") == (expected.kind == "discrete") and shape == wanted
    require(
        same, f"the policy has {what} {expected.kind} {list(wanted)}, {env} has {list(shape)}: give an environment with the same shapes"
    )


def evaluate(trained: Trained, where: Place, *, episodes: int, how: str = "stochastic", matrix: bool = False, seed: int = 0) -> Scored:
    """Runs every policy for `episodes` episodes in the environments of `where`.

    Args:
        trained: the policies.
        where: the environments, as many seeds.
        episodes: of each policy in each environment.
        how: stochastic (actions are sampled, as in training) or deterministic (the most likely action).
        matrix: also personal policies in the environments of other agents.
        seed: of the episodes.
    """
    environment, hidden = where.federation.environment, config_of(trained.spec).hidden
    program = _program(environment, trained.spec.policy, hidden, trained.spec.scaled, how, where.horizon, episodes)
    own_only = where.training and trained.count > 1 and not matrix
    returns = np.full((len(trained.spec.seeds), trained.count, where.count, episodes), np.nan)
    keys = jax.random.split(jax.random.key(seed), where.count)
    for p in range(trained.count):
        params = jax.tree.map(lambda x, p=p: x[:, p], trained.params)
        for n in range(where.count):
            if not own_only or p == n:
                returns[:, p, n] = program(keys[n], params, jax.tree.map(lambda x, n=n: x[:, n], where.agents))
    found = Scored(trained.name, how, returns, where.training)
    _require_finite(returns if not own_only else found.own(), environment)
    return found


def better(old: Trained, new: Trained, where: Place, *, episodes: int, how: str) -> Trained:
    """For every agent its own policy of `new` where that has the higher return in its environment, else its policy of `old`.

    Args:
        old, new: policies of the agents of `where`, one for all or one each.
        where: the agents.
        episodes: of each policy in each environment, with the same start states and noise for both.
        how: as in `evaluate`.
    """
    before, after = (evaluate(each, where, episodes=episodes, how=how, seed=CHOICE).own().mean(2) for each in (old, new))
    gained = after > before  # (S, N)
    return new._replace(
        params=jax.tree.map(lambda x, y: jnp.where(gained.reshape(*gained.shape, *(1,) * (x.ndim - 2)), y, x), old.params, new.params)
    )


@functools.lru_cache(maxsize=16)  # several runs of one task share a program
def _program(environment: Any, kind: str, hidden: Any, scaled: bool, how: str, horizon: int, episodes: int) -> Any:
    """(key, params, agents) -> returns, leading axis seeds of params, agents and returns; compiled."""
    policy = policies.make(kind, environment, hidden=hidden, scaled=scaled)
    policy = mode(policy, environment.action_space) if how == "deterministic" else policy
    draw = batch.sampler(environment, policy, horizon)

    def one(key: jax.Array, params: Params, agent: Any) -> jax.Array:
        return jnp.sum(draw(jax.random.split(key, episodes), params, agent).reward, axis=1)

    hosted = isinstance(environment, envs.HostEnvironment)
    device = jax.devices("cpu")[0] if hosted else jax.devices()[0]
    compiled = jax.jit(jax.vmap(one), compiler_options=COMPILER_OPTIONS.get(device.platform))

    def call(key: jax.Array, params: Params, agents: Any) -> np.ndarray:
        keys = jax.random.split(key, jax.tree.leaves(agents)[0].shape[0])
        with jax.default_matmul_precision(PRECISION), jax.default_device(device):
            return np.asarray(compiled(keys, params, agents))

    return call


def _require_finite(returns: np.ndarray, environment: Any) -> None:
    if np.isfinite(returns).all():
        return
    events = getattr(getattr(environment, "host", None), "events", [])
    reason = events[0].what if events else "a return is not finite"
    raise UserError(f"{environment.name} failed during evaluation: {reason}")


def constants(config: Config) -> tuple[dict[str, list[Any]], str]:
    """What the agents of a run's first seed differ in: one value per agent of each constant that is not the same for all, and a note."""
    lists = {name: list(value) for name, value in config.env_option.items() if isinstance(value, (list, tuple))}
    given = {name: values for name, values in lists.items() if len(set(map(str, values))) > 1 and len(values) == config.agents}
    if config.env not in families.NAMES or config.env == families.SPACES:
        return given, "" if given else "The agents' environments have the same options; how else they differ is not known here."
    federation = _training(config)
    drawn = trees.take(_drawn(config, federation, jax.random.key(config.seed), config.seeds), 0)
    found, whole = {}, False
    for path, leaf in jax.tree_util.tree_flatten_with_path(drawn)[0]:
        name, values = jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf, float)
        if not (values == values[:1]).all():
            whole = whole or values.ndim > 1
            distance = np.sqrt(np.square(values - values.mean(0)).reshape(len(values), -1).sum(1))
            found[name] = (values if values.ndim == 1 else distance).tolist()
    note = "Of arrays: the distance from the mean over agents." if whole else ""
    return found, note if found else "Nothing: all agents have the same environment."
