"""A trained policy: loaded from a run, an export or a delivery, and used with NumPy alone.

    policy = fedpg.load("runs/mine")
    action, _ = policy.predict(observation)

This file must not import JAX: a policy is used on machines that have none. A policy file is one safetensors file of params with flat
names, its spec as metadata, and a digest; policy.json beside it is a copy of the spec to read.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedpg.errors import UserError, one_line, require
from fedpg.runs import checkpoint
from fedpg.runs.folder import write_atomically
from fedpg.runs.policy_spec import FORMAT, PER_STATE, TABLES, SpaceSpec, Spec, require_sound

FILE = "policy.safetensors"
SPEC = "policy.json"
FURTHEST = 10.0
"""As in `fedpg.policies.scaled`: scaled observations are clipped to +- this."""
FIRST_LOG_STD, LOG_STD_RANGE = -0.5, (-5.0, 2.0)
"""As in `fedpg.policies.mlp`: a log deviation that depends on the state is an output added to the first and clipped to the second."""


class PolicyFile:
    """The content of a policy file: its spec, and its arrays with the spec's leading axes."""

    def __init__(self, path: Path, spec: Spec, arrays: dict[str, np.ndarray]) -> None:
        self.path, self.spec, self.arrays = path, spec, arrays

    def one(self, seed: int | None = None, agent: int | None = None) -> "PolicyFile":
        """The policy of one seed and, for personal algorithms, one agent, without leading axes.

        Args:
            seed: its number; None is the best at the last evaluation.
            agent: its number; None where all agents have the same.
        """
        spec, arrays = self.spec, self.arrays
        seed = spec.best_seed if seed is None else seed
        listed = ", ".join(map(str, spec.seeds[:8])) + (", ..." if len(spec.seeds) > 8 else "")
        require(seed in spec.seeds, f"{self.path} has no seed {seed}: give one of {listed}")
        require(agent is None or 0 <= agent < spec.agents, f"{self.path} has no agent {agent}: give one from 0 to {spec.agents - 1}")
        alone = spec.personal and "agent" not in spec.axes  # one agent's own, exported
        require(not alone or agent in (None, spec.agent), f"{self.path} is the policy of agent {spec.agent}, not of agent {agent}")
        at = spec.seeds.index(seed)
        if "seed" in spec.axes:
            arrays = {name: array[at] for name, array in arrays.items()}
        if "agent" in spec.axes:
            require(agent is not None, f"every agent of {self.path} has its own policy: choose one with agent=0 (--agent 0)")
            arrays = {name: array[agent] for name, array in arrays.items()}
        number = agent if spec.personal and agent is not None else spec.agent
        spaces = {}
        for kind in ("observation", "action"):
            found = getattr(spec, kind)
            require(len(found) == 1 or agent is not None, f"the agents of {self.path} differ in {kind} bounds: choose one with agent=0")
            spaces[kind] = found if len(found) == 1 else (found[agent],)
        spec = dataclasses.replace(spec, axes=(), seeds=(seed,), returns=(spec.returns[at],), agent=number, **spaces)
        return PolicyFile(self.path, spec, arrays)


def find(path: Path | str) -> Path:
    """The policy file of a run folder, an export, a delivery, or itself.

    Raises:
        UserError: if there is none.
    """
    path = Path(path)
    try:
        require(path.exists(), f"no run and no policy at {path}")
        if path.is_file():
            return path.with_name(FILE) if path.name == SPEC else path
        for candidate in (path / FILE, path / "policy" / FILE):
            if candidate.is_file():
                return candidate
        run = (path / "config.toml").exists()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if run:
        raise UserError(f"the run {path} has no policy yet: fedpg train --resume --out {path} writes it")
    raise UserError(f"{path} is neither a run folder nor an exported policy: it holds no {FILE}")


def read(path: Path | str) -> PolicyFile:
    """The content of a policy file.

    Raises:
        UserError: if it is missing, damaged, or something else.
    """
    found = find(path)
    arrays, about = checkpoint.read(found, "policy file", "it is cut short, changed, or no policy of fedpg; write it again")
    require(isinstance(about, dict) and about.get("format") == FORMAT, f"{found} is no policy of this version of fedpg: expected {FORMAT}")
    try:
        spec = msgspec.convert(about, Spec)
    except msgspec.ValidationError as error:
        raise UserError(f"the policy file {found} is damaged: {one_line(str(error))}") from None
    require_sound(found, spec, arrays)
    return PolicyFile(found, spec, arrays)


def write(folder: Path, spec: Spec, arrays: dict[str, np.ndarray]) -> Path:
    """Writes a policy file, and its spec to read, into `folder`; returns the policy file."""
    about = msgspec.to_builtins(spec)
    checkpoint.write(folder / FILE, {name: np.ascontiguousarray(array) for name, array in arrays.items()}, about)
    write_atomically(folder / SPEC, msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")
    return folder / FILE


def load(path: Path | str, *, seed: int | None = None, agent: int | None = None) -> "TrainedPolicy":
    """The trained policy of a run, an export or a delivery, ready to act.

        policy = fedpg.load("runs/mine")
        action, _ = policy.predict(observation)

    Args:
        path: a run folder, an exported or delivered folder, or a policy file.
        seed: which seed of the run; None is the best at the last evaluation.
        agent: whose policy, for algorithms that leave every agent its own; also whose bounds, where they differ.

    Raises:
        UserError: if there is no such policy, or its file is damaged.
    """
    one = read(path).one(seed, agent)
    return TrainedPolicy(one.spec, one.arrays)


class TrainedPolicy:
    """A policy with fixed params. Observations and actions are those of the environment; scaling is inside.

    Args:
        spec: of one policy.
        params: its arrays, by name.
    """

    def __init__(self, spec: Spec, params: dict[str, np.ndarray]) -> None:
        self.spec, self.params = spec, params
        self._observation, self._action = spec.observation[0], spec.action[0]
        self._random = np.random.default_rng()
        self._jax: Any = None
        if ":" in spec.policy:  # the user's own function, which only JAX can run
            from fedpg.runs.policy_files import own_functions

            self._jax = own_functions(spec, params)

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True) -> tuple[np.ndarray, Any]:
        """The action for one observation or a batch of them, and the state, as in Stable-Baselines3. Policies here have no state.

        Args:
            observation: one observation, or several along a leading axis.
            state: returned as it is.
            episode_start: ignored.
            deterministic: take the most likely action (the mean of a Gaussian) instead of sampling.
        """
        if not deterministic:
            return self.sample(observation, self._random), state
        batch, single = self._batch(observation)
        if self._jax:
            return self._answer(self._jax.mode(batch), single), state
        outputs = self.outputs(batch)
        return self._answer(self._squashed(outputs) if self._action.kind == "box" else outputs.argmax(-1), single), state

    def sample(self, observation: Any, key: Any) -> np.ndarray:
        """A random action for one observation or each of a batch.

        Args:
            observation: as in `predict`.
            key: the source of randomness: a whole number, a NumPy generator, or a JAX key. The same key gives the same action.
        """
        batch, single = self._batch(observation)
        generator = key if isinstance(key, np.random.Generator) else np.random.default_rng(_seed(key))
        if self._jax:
            return self._answer(self._jax.sample(generator, batch), single)
        normal = self._action.kind == "box"
        noise = generator.standard_normal((len(batch), math.prod(self._action.shape))) if normal else generator.uniform(size=len(batch))
        return self._answer(self.act(noise.astype(np.float32), batch), single)

    def act(self, noise: np.ndarray, batch: np.ndarray) -> np.ndarray:
        """The policy's actions for noise as `fedpg.Policy.draw` draws it and observations as the policy takes them, (B, ...) each."""
        outputs = self._network(batch)
        if self._action.kind == "box":
            mean, log_std = self._normal(outputs)
            return self._squashed(mean + np.exp(log_std) * noise.reshape(len(batch), -1))
        cumulative = np.cumsum(_softmax(outputs), axis=-1)
        index = np.sum(cumulative <= noise.reshape(-1, 1) * cumulative[:, -1:], axis=-1)
        return np.minimum(index, outputs.shape[-1] - 1)

    def outputs(self, batch: np.ndarray) -> np.ndarray:
        """Logits, (B, A), or the mean of a Gaussian before squashing, (B, D), for observations as the policy takes them."""
        found = self._network(batch)
        return self._normal(found)[0] if self._action.kind == "box" else found

    def _normal(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and log deviation of a Gaussian from what its network gives."""
        if self.spec.policy not in PER_STATE:
            return outputs, self.params["log_std"]
        mean, raw = np.split(outputs, 2, axis=-1)
        return mean, np.clip(FIRST_LOG_STD + raw, *LOG_STD_RANGE)

    def _squashed(self, action: np.ndarray) -> np.ndarray:
        return np.tanh(action) if self.spec.policy == "tanh-gaussian" else action

    def _network(self, batch: np.ndarray) -> np.ndarray:
        """What the table or the network gives for a batch."""
        if self.spec.policy in TABLES:
            rows = self.params[TABLES[self.spec.policy]][batch]
            return np.log(rows) if self.spec.policy == "direct" else rows
        if self._observation.kind == "discrete":
            x = np.eye(self._observation.n, dtype=np.float32)[batch]
        else:
            x = batch
            if self.spec.scaled:
                scaled = (x - self.params["observation.mean"]) / self.params["observation.deviation"]
                x = np.clip(scaled, -FURTHEST, FURTHEST)
            x = x.reshape(len(batch), -1)
        layers = sum(name.endswith(".matrix") for name in self.params)
        for i in range(layers):
            x = x @ self.params[f"layers.{i}.matrix"] + self.params[f"layers.{i}.bias"]
            x = np.tanh(x) if i < layers - 1 else x
        return x

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations as the policy takes them, (B, ...), and whether it was a single one."""
        space, shape = self._observation, self._observation.shape
        try:
            values = np.asarray(observation, float)
        except (TypeError, ValueError):
            raise UserError(f"an observation must be numbers, not a {type(observation).__name__}") from None
        single = values.shape == shape
        fits = single or values.shape[1:] == shape
        require(fits, f"an observation has shape {list(shape)}, a batch [n, ...] of them, not {list(values.shape)}")
        values = values[None] if single else values
        if space.kind == "box":
            return values.astype(np.float32), single
        index = values - space.start
        valid = np.all((index >= 0) & (index < space.n) & (index == np.floor(index)))
        require(bool(valid), f"an observation must be one of {space.start} to {space.start + space.n - 1}")
        return index.astype(np.int64), single

    def _answer(self, actions: np.ndarray, single: bool) -> np.ndarray:
        """Actions as the environment takes them; one of them if a single one was asked for."""
        found = to_environment(self.spec, self._action, actions)
        return found[0] if single else found


def to_environment(spec: Spec, space: SpaceSpec, actions: np.ndarray) -> np.ndarray:
    """Actions of the policy, (B, ...), as the environment takes them: index + start, or offset + scale * action within the bounds."""
    if space.kind == "discrete":
        return (np.asarray(actions) + space.start).astype(space.dtype)
    value = np.asarray(actions).reshape(len(actions), *space.shape)
    low, high = bounds(space)
    if spec.scaled_actions:
        both = np.isfinite(low) & np.isfinite(high)
        from_low, to_high = np.where(both, low, -1.0), np.where(both, high, 1.0)
        value = np.clip((to_high + from_low) / 2.0 + (to_high - from_low) / 2.0 * value, low, high)
    return (np.rint(value) if np.issubdtype(np.dtype(space.dtype), np.integer) else value).astype(space.dtype)


def bounds(space: SpaceSpec) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of a box, with its shape; infinite where there are none."""

    def full(bound: tuple[float | None, ...], missing: float) -> np.ndarray:
        numbers = [missing if value is None else value for value in bound]
        return np.array(numbers).reshape(space.shape) if numbers else np.full(space.shape, missing)

    return full(space.low, -math.inf), full(space.high, math.inf)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _seed(key: Any) -> Any:
    """What NumPy makes a generator from: whole numbers; those of a JAX key."""
    if hasattr(key, "dtype") and "key<" in str(key.dtype):  # a new-style JAX key; JAX is there if its keys are
        import jax

        key = jax.random.key_data(key)
    return np.asarray(key).astype(np.uint64).tolist()
