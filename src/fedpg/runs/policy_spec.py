"""What a policy file says of its policy, and the check that its arrays make that policy. No JAX here, as in `fedpg.runs.policy`."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from fedpg.errors import one_line, require

FORMAT = "fedpg-policy-1"
TABLES = {"softmax": "logits", "direct": "probabilities"}
"""Policies that are a table, and the name of the table."""
PER_STATE = ("gaussian-state", "tanh-gaussian")
"""Policies with a deviation that depends on the state: the second half of their outputs, see `fedpg.policies.mlp`."""
NETWORKS = ("categorical", "gaussian", *PER_STATE)
AXES = ((), ("seed",), ("seed", "agent"))
"""The leading axes that the arrays of a file may have."""
MOST_AGENTS = 10**6  # as in `fedpg.runs.config`, which this file must not need
NUMBERS = "biuf"
"""NumPy's kinds of the numbers of a space."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


@dataclasses.dataclass(frozen=True)
class SpaceSpec:
    """A space as the environment has it.

    Attributes:
        kind: discrete (`n` whole numbers from `start`) or box (arrays of `shape`).
        low, high: bounds of every entry of a box, flat; None where there is no bound.
        dtype: of the environment's numbers.
    """

    kind: Literal["discrete", "box"]
    n: Count = 0
    start: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    shape: tuple[Count, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    dtype: str = "float32"


@dataclasses.dataclass(frozen=True)
class Spec:
    """What a policy file holds and where it came from.

    Attributes:
        policy: categorical, gaussian, gaussian-state, tanh-gaussian (networks), softmax, direct (tables), or the user's own function.
        observation, action: the spaces, one for all agents or one for each; actions are clipped to `low` and `high`.
        scaled_actions: whether the policy's -1 and 1 are the bounds of the action space.
        axes: leading axes of every array: seed and agent, or none.
        seeds: the numbers of the seeds along the first axis, or the only one.
        agent: the only agent, if the policy is one agent's own; -1 if it is not.
        personal: whether every agent has its own policy.
        scaled: whether observations are scaled first; observation.mean and observation.deviation are then among the arrays.
        round: rounds of training.
        returns: of each seed at the last evaluation; None if it failed.
        returns_per_agent: mean over seeds; None if withheld.
        config: the complete configuration of the run.
        made_with: versions of the packages.
    """

    policy: str
    observation: Annotated[tuple[SpaceSpec, ...], msgspec.Meta(min_length=1)]
    action: Annotated[tuple[SpaceSpec, ...], msgspec.Meta(min_length=1)]
    scaled_actions: bool
    axes: tuple[str, ...]
    seeds: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]
    personal: bool
    scaled: bool
    round: Count
    returns: tuple[float | None, ...]
    returns_per_agent: tuple[float | None, ...]
    config: dict[str, Any]
    made_with: dict[str, str | None]
    agent: int = -1
    format: str = FORMAT

    @property
    def agents(self) -> int:
        """N of the run."""
        return int(self.config["agents"])

    @property
    def best_seed(self) -> int:
        """The seed with the highest return at the last evaluation; the first if none is known."""
        known = [(-math.inf if value is None else value) for value in self.returns]
        return self.seeds[int(np.argmax(known))]


def require_sound(path: Path, spec: Spec, arrays: dict[str, np.ndarray]) -> None:
    """Raises a `UserError` unless the spec agrees with itself, and the arrays are finite and make the policy that it describes."""

    def check(condition: bool, why: str) -> None:
        require(condition, f"the policy file {path} is damaged or foreign: {why}")

    agents = spec.config.get("agents")
    check(isinstance(agents, int) and 0 < agents <= MOST_AGENTS, f"its configuration has no number of agents from 1 to {MOST_AGENTS}")
    check(spec.axes in AXES and len(spec.returns) == len(spec.seeds), "its seeds, returns and axes do not fit together")
    check("seed" in spec.axes or len(spec.seeds) == 1, "it has several seeds, and its arrays have one")
    whose = "agent" in spec.axes or 0 <= spec.agent < agents if spec.personal else "agent" not in spec.axes
    check(whose, "it does not say whose policy it is")
    for space in (*spec.observation, *spec.action):
        check(_is_sound(space), "a space of its spec cannot be")
    check(
        all(len(found) in (1, agents) for found in (spec.observation, spec.action)),
        f"its spec has not one space for each of {agents} agents",
    )
    axes = {"seed": len(spec.seeds), "agent": agents}
    lead = tuple(axes[name] for name in spec.axes)
    for name, array in arrays.items():
        check(array.shape[: len(lead)] == lead, f"{name} has shape {list(array.shape)}, not {list(lead)} and more")
        check(array.dtype.kind != "f" or bool(np.isfinite(array).all()), f"{name} holds numbers that are not finite")
    if ":" in spec.policy:  # only the user's function knows what it needs
        return
    expected = shapes(spec, arrays, len(lead))
    check(bool(expected) and set(arrays) == set(expected), f"its arrays do not make a {one_line(spec.policy)} policy")
    for name, shape in expected.items():
        array = arrays[name]
        check(array.dtype.kind == "f", f"{name} holds {array.dtype}, not floating-point numbers")
        check(array.shape[len(lead) :] == shape, f"{name} has shape {list(array.shape[len(lead) :])}, where {list(shape)} fits")
    check(not spec.scaled or bool((arrays["observation.deviation"] > 0).all()), "a deviation of its observations is not positive")


def shapes(spec: Spec, arrays: dict[str, np.ndarray], axes: int) -> dict[str, tuple[int, ...]]:
    """The arrays of a built-in policy with the spec's spaces, and their shapes without the `axes` leading ones; empty if there is none.

    The widths of a network's hidden layers are those of its biases.
    """
    observation, action = spec.observation[0], spec.action[0]
    choices = action.n if action.kind == "discrete" else math.prod(action.shape)
    if spec.policy in TABLES:
        both = observation.kind == action.kind == "discrete"
        return {TABLES[spec.policy]: (observation.n, choices)} if both and not spec.scaled else {}
    layers = sum(name.endswith(".matrix") for name in arrays)
    biases = [arrays.get(f"layers.{i}.bias", np.zeros(())) for i in range(layers)]
    network = spec.policy in NETWORKS and (spec.policy != "categorical") == (action.kind == "box")
    if not network or not layers or any(bias.ndim != axes + 1 for bias in biases):
        return {}
    widths = [observation.n if observation.kind == "discrete" else math.prod(observation.shape)]
    widths += [bias.shape[-1] for bias in biases[:-1]] + [2 * choices if spec.policy in PER_STATE else choices]
    expected: dict[str, tuple[int, ...]] = {f"layers.{i}.matrix": (widths[i], widths[i + 1]) for i in range(layers)}
    expected |= {f"layers.{i}.bias": (widths[i + 1],) for i in range(layers)}
    expected |= {"log_std": (choices,)} if spec.policy == "gaussian" else {}
    return expected | (dict.fromkeys(("observation.mean", "observation.deviation"), observation.shape) if spec.scaled else {})


def _is_sound(space: SpaceSpec) -> bool:
    try:
        known = np.dtype(space.dtype).kind in NUMBERS
    except TypeError:
        known = False
    if space.kind == "discrete":
        return known and space.n > 0
    size, low, high = math.prod(space.shape), space.low, space.high
    bounded = zip(low, high, strict=False)
    return known and {len(low), len(high)} <= {0, size} and all(None in (a, b) or a <= b for a, b in bounded)
