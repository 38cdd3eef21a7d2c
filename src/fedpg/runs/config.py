"""The configuration of a run: a frozen dataclass whose fields are also the flags and the keys of a TOML file."""

import contextlib
import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import tomli_w
import tyro
from msgspec import Meta
from tyro.constructors import PrimitiveConstructorSpec

from fedpg.errors import UserError, choose, require

T = TypeVar("T")
LONGEST = 100
"""Characters of a wrong value that an error shows."""


def flag(field: str) -> str:
    """A field's name as people type it: local-lr for local_lr."""
    return field.replace("_", "-")


def parse_options(pairs: list[str], what: str = "option") -> dict[str, Any]:
    """NAME=VALUE pairs as a dictionary; values are TOML or JSON, and bare words are strings. `what` names them in an error.

    >>> parse_options(["length=[0.3, 0.4]", "kernel=uniform"])
    {'length': [0.3, 0.4], 'kernel': 'uniform'}
    """
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        require(bool(equals and name.strip()), f"{what} {pair!r} must be NAME=VALUE")
        values[name.strip()] = text.strip()
        for read in (lambda text: tomllib.loads(f"value = {text}")["value"], json.loads):
            with contextlib.suppress(ValueError):
                values[name.strip()] = read(text)
                break
    return values


def left_out(metavar: str, source: str = "from the preset") -> Any:
    """How --help shows a flag whose value comes from elsewhere when it is left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {source})")


Count = Annotated[int, Meta(ge=1, lt=2**31)]
Many = Annotated[int, Meta(ge=1, le=10**6)]
"""Agents or seeds: more do not fit into any memory."""
Positive = Annotated[float, Meta(gt=0, le=1e30)]
NotNegative = Annotated[float, Meta(ge=0, le=1e30)]
Share = Annotated[float, Meta(gt=0, le=1)]
PresetNotNegative = Annotated[NotNegative | None, left_out("FLOAT")]
Options = Annotated[
    dict[str, Any],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=parse_options,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda options: [f"{name}={json.dumps(value)}" for name, value in options.items()],
    ),
]
Sizes = Annotated[
    tuple[Count, ...] | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT[,INT...]",
        instance_from_str=lambda words: tuple(int(size) for size in words[0].split(",")),
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda sizes: [",".join(map(str, sizes or ()))],
    ),
]


@dataclasses.dataclass(frozen=True)
class Config:
    """One training run. Values that are left out come from the presets of the environment."""

    env: str = "cartpole"
    """The environments: cartpole, random-mdp, conflict; halfcheetah, walker2d, hopper, swimmer (MuJoCo); gym:ID (any Gymnasium
    environment); module:function or file.py:function (your own); spaces (for a server that has no environment)."""
    algorithm: str = "calm"
    """The algorithm: calm (recommended: exact however much agents differ, little noise, one vector up); calm-vr (with variance reduction);
    fedsvrpg-m, fedhapg-m (the paper's, as printed); pavg, heavy-ball, local-only, pooled; scaffold, fedprox, fast-fedpg, mfpo,
    fedavg-m, nharpg, fedkl, fedpg-br (from other papers);
    pavg-softmax, pavg-npg, pavg-projected, fednpg, fapi (finite MDPs, exact gradients); file.py:function (your own)."""
    learner: str = "reinforce"
    """How an agent turns a batch into a direction: reinforce (the paper), or actor-critic (PPO: critic, clipping, Adam)."""
    learner_option: Options = dataclasses.field(default_factory=dict)
    """Options of the learner, as in docs/reference/learners.md: epochs=10 minibatch=64 clip=0.2 of the actor-critic, time_discount=false of
    reinforce (drops the factor gamma^t of every term)."""
    rollout_steps: Annotated[Count | None, left_out("INT")] = None
    """Steps of every environment per local step, only with the actor-critic: the next local step goes on where they stopped."""
    share: Annotated[str | None, left_out("STR")] = None
    """What the actor-critic's agents learn together: policy, or critic (both)."""
    personal: str = "none"
    """What is each agent's own: heads (the policy's last layer), scaling (of observations), critic (unless it is shared), none."""
    agents: Many = 5
    """N, the number of agents, each with its own environment."""
    heterogeneity: PresetNotNegative = None
    """How much the environments differ: 0 = identical, no upper end."""
    env_option: Options = dataclasses.field(default_factory=dict)
    """Options of the environment; a list gives one value per agent: length=[0.3,0.4,0.5,0.6,0.7]."""
    policy: str = "auto"
    """auto (what fits the environment); softmax, direct (tables); categorical, gaussian, gaussian-state (its deviation depends on the
    state), tanh-gaussian (also squashed): tanh networks; file.py:function (your own)."""
    hidden: Annotated[Sizes, left_out("INT[,INT...]", "the policy's own")] = None
    """Sizes of the hidden layers of a network, for example 64,64."""
    rounds: Annotated[Count | None, left_out("INT")] = None
    """R, communication rounds."""
    local_steps: Annotated[Count | None, left_out("INT")] = None
    """K, updates of every agent in a round."""
    batch: Annotated[Count | None, left_out("INT")] = None
    """Trajectories per local step (the paper: 1); with the actor-critic, environments of every agent side by side."""
    beta: Annotated[Share | None, left_out("FLOAT")] = None
    """Momentum, in (0, 1]; 1 is no momentum. Only for calm, calm-vr, fedsvrpg-m, fedhapg-m, heavy-ball, mfpo,
    fedavg-m and nharpg."""
    algorithm_option: Options = dataclasses.field(default_factory=dict)
    """Options of this algorithm only, as on its page in docs/reference/algorithms: server_rate=0.7."""
    local_lr: Annotated[Positive | None, left_out("FLOAT")] = None
    """eta, the step-size of a local step."""
    global_lr: Annotated[Positive | None, left_out("FLOAT", "eta K")] = None
    """lambda, the step-size of the server; eta K takes the mean of the agents' params."""
    horizon: Annotated[Count | None, left_out("INT")] = None
    """H, the most steps of a trajectory."""
    discount: Annotated[Share | None, left_out("FLOAT")] = None
    """gamma."""
    baseline: Annotated[str | None, left_out("STR")] = None
    """What is subtracted from returns: none (the paper), time, linear, value."""
    normalise_advantages: Annotated[bool | None, left_out("BOOL")] = None
    """Standardise advantages over each batch, which biases the gradient: True or False."""
    normalise_observations: Annotated[str | None, left_out("STR")] = None
    """off; fixed (one scale, measured before round 0); running (moments are part of every message and the server merges them);
    auto (running if observations are numbers, off if they are names of states); kept (that of --init-from, which sets it)."""
    weights: Annotated[str | None, left_out("STR")] = None
    """Importance weights: trajectory (the paper), prefix, truncated, truncated-prefix, self-normalised."""
    weight_cap: Positive = 2.0
    """The largest truncated weight."""
    u0: Annotated[int, Meta(ge=0)] | str = "auto"
    """Batches per agent behind the first direction u_0: a number, zero, theorem (ceil(K/(R beta^2))), or auto."""
    aggregation: str = "mean"
    """How the server combines messages: mean, median, trimmed-mean, krum, geometric-median, norm-clipping."""
    trim: Annotated[float, Meta(ge=0, lt=0.5)] = 0.3
    """Share of the agents that trimmed-mean cuts at each end, and that krum takes for attackers; below 0.5."""
    attack: str = "none"
    """What attackers do: zero, noise, sign-flip, fedpg-attack (on messages); reward-flip, random-action, shuffled-reward (on
    trajectories); none."""
    attackers: Annotated[float, Meta(ge=0, le=1)] = 0.3
    """Share of the agents that attack, the first ones, rounded up; only with --attack."""
    participation: Share = 1.0
    """Share of the agents that take part in a round, above 0; 1 is all of them."""
    selection: str = "random"
    """Which agents take part: random; or, by what candidates report, power-of-choice (lowest return), gradient-norm (largest),
    csh-max, csh-min (finite MDPs: tables of visits times advantages, far from zero or near to their mean)."""
    candidates: Share = 1.0
    """Share of the agents that report before --selection chooses among them; at least --participation."""
    compression: str = "none"
    """How messages are made smaller: none, float16, top-k (the largest entries; the rest follows later)."""
    keep: Share = 0.1
    """Share of the entries that top-k sends, above 0; only with --compression top-k."""
    clip: NotNegative = 0.0
    """C: longer messages are cut to this Euclidean norm; 0 is off."""
    noise: NotNegative = 0.0
    """Standard deviation of the noise that agents add to each entry of a message, in units of --clip; 0 is none. Its privacy is
    `epsilon` in metrics.jsonl."""
    privacy_delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """delta of that (epsilon, delta)-differential privacy."""
    seeds: Many = 1
    """The number of independent repetitions, which run side by side."""
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    """Root of all random numbers."""
    init_from: str = ""
    """A run folder, export or policy file to start from instead of untrained params, with the same shapes. With as many seeds as that
    run, each seed starts from its own; otherwise all start from the best. Its network and its scale of observations are kept."""
    eval_every: Annotated[Count | None, left_out("INT")] = None
    """Rounds between evaluations; each is a line of metrics.jsonl and a checkpoint."""
    eval_episodes: Annotated[Count | None, left_out("INT")] = None
    """Episodes per agent of an evaluation; finite MDPs are evaluated exactly instead."""
    engine: str = "simulator"
    """simulator (one compiled program) or plain (plain Python loops that name the stage of an error)."""
    track: tuple[str, ...] = ()
    """Trackers that get the numbers of metrics.jsonl too: tensorboard, wandb, mlflow. May change when a run is resumed."""


FIELDS = tuple(field.name for field in dataclasses.fields(Config))


def convert(values: Any, kind: type[T], what: str = "") -> T:
    """`values` (numbers, strings, lists, dictionaries) as the type `kind`, checked by msgspec.

    In an error they are called `what`, or by the flag of the field that is wrong.

    >>> convert({"agents": 0}, Config)
    Traceback (most recent call last):
        ...
    fedpg.errors.UserError: agents must be int >= 1, not 0
    """
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        expected, _, path = str(error).partition(" - at `$")
        field = re.match(r"\.(\w+)", path)
        expected = expected.removeprefix("Expected ").partition(", got ")[0].replace("`", "").replace(" | null", "")
        expected = expected.replace("array", "a list").replace("object", "a table")
        name, value = (flag(field[1]), values[field[1]]) if field else (what, values)
        shown = repr(value) if len(repr(value)) <= LONGEST else repr(value)[:LONGEST] + "..."
        raise UserError(f"{name} must be {expected}, not {shown}") from None


def make(values: dict[str, Any], where: str = "the configuration") -> Config:
    """The configuration with these fields, names with hyphens or underscores; `where` they are from, for an error."""
    known = [flag(name) for name in FIELDS]
    return convert({choose(f"key in {where}", flag(key), known).replace("-", "_"): value for key, value in values.items()}, Config)


def checked(config: Config) -> Config:
    """The same configuration, its values checked; arrays of NumPy and JAX in options become lists."""
    return make(msgspec.to_builtins(config, enc_hook=lambda array: array.tolist()))


def parse(text: str, where: str) -> dict[str, Any]:
    """The fields that a text in TOML sets, checked; `where` names the text in an error."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not valid TOML: {error}") from None
    config, names = make(table, where), [key.replace("-", "_") for key in table]
    return {name: getattr(config, name) for name in names}


def read(path: Path) -> dict[str, Any]:
    """The fields that a TOML file sets, checked."""
    require(path.is_file(), f"no configuration file at {path}")
    try:
        return parse(path.read_text(), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def to_toml(config: Config) -> str:
    """The configuration as a TOML file; values that are None are left out."""
    values = {flag(name): getattr(config, name) for name in FIELDS if getattr(config, name) is not None}
    try:
        return tomli_w.dumps(values)
    except TypeError:
        raise UserError("an option must have a value: leave it out instead of giving null") from None
