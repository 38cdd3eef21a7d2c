"""One run's configuration: a frozen dataclass, the same names as flags and in a TOML file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tomllib
import types
import typing
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedpg.errors import UserError, choose, require


def _left_out(metavar: str, source: str = "from the preset") -> Any:
    """How --help shows a flag whose value is found elsewhere when it is left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {source})")


PresetFloat = Annotated[float | None, _left_out("FLOAT")]
PresetInt = Annotated[int | None, _left_out("INT")]
PresetBool = Annotated[bool | None, _left_out("BOOL")]
PresetStr = Annotated[str | None, _left_out("STR")]


@dataclasses.dataclass(frozen=True)
class Config:
    """What one training run is. Values left out are filled in from the presets of the environment."""

    env: str = "cartpole"
    """What the agents live in: cartpole, random-mdp, conflict; halfcheetah, walker2d, hopper, swimmer (MuJoCo); gym:ID (any
    Gymnasium environment); module:function or file.py:function (your own); spaces (for a server that has no environment)."""
    algorithm: str = "fedsvrpg-s"
    """How they learn: fedsvrpg-s, fedhapg-s (stabilised, for practice); fedsvrpg-m, fedhapg-m (the paper's, as printed); pavg,
    heavy-ball, local-only, pooled; scaffold, fedprox, fast-fedpg, mfpo, fedavg-m, nharpg, fedkl, fedpg-br (the rivals);
    pavg-softmax, pavg-npg, pavg-projected, fednpg, fapi (finite MDPs, nothing sampled); authors-svrpg, authors-hapg (the paper's
    published code)."""
    agents: int = 5
    """N, how many agents, each with its own environment."""
    heterogeneity: PresetFloat = None
    """How much the environments differ: 0 = identical, no upper end."""
    env_option: tuple[str, ...] = ()
    """NAME=VALUE pairs for the environment; a list gives one value per agent: length=[0.3,0.4,0.5,0.6,0.7]."""
    policy: str = "auto"
    """auto, softmax, direct (tables), categorical or gaussian (tanh networks)."""
    rounds: PresetInt = None
    """R, communication rounds."""
    local_steps: PresetInt = None
    """K, updates of every agent in a round."""
    batch: PresetInt = None
    """Trajectories per local step (the paper: 1)."""
    beta: PresetFloat = None
    """Momentum, in (0, 1]; 1 is no momentum. Only for fedsvrpg-m, fedhapg-m, fedsvrpg-s, fedhapg-s, heavy-ball,
    mfpo, fedavg-m and nharpg."""
    algorithm_option: tuple[str, ...] = ()
    """NAME=VALUE pairs for what only this algorithm takes, as on its page in docs/algorithms: lookback=memory gain=1."""
    local_lr: PresetFloat = None
    """eta, step-size of a local step."""
    global_lr: Annotated[float | None, _left_out("FLOAT", "eta K")] = None
    """lambda, step-size of the server; eta K takes the mean of the agents' params."""
    horizon: PresetInt = None
    """H, the most steps of a trajectory."""
    discount: PresetFloat = None
    """gamma."""
    baseline: PresetStr = None
    """What is subtracted from returns: none (the paper), time, linear, value."""
    normalise_advantages: PresetBool = None
    """Standardise advantages over each batch: True or False (biased)."""
    normalise_observations: PresetStr = None
    """off; fixed (one scale, found before round 0); running (moments travel with every message and the server merges them);
    auto (running if observations are numbers, off if they are names of states)."""
    weights: PresetStr = None
    """Importance weights: trajectory (the paper), prefix, truncated, truncated-prefix, self-normalised."""
    weight_cap: float = 2.0
    """Where truncated weights are cut."""
    u0: str = "auto"
    """Batches per agent behind the first direction u_0: a number, zero, theorem (ceil(K/(R beta^2))), or auto."""
    aggregation: str = "mean"
    """What the server makes of the agents' messages: mean, median, trimmed-mean, krum, geometric-median, norm-clipping."""
    trim: float = 0.3
    """Share of the agents that trimmed-mean cuts at each end, and that krum takes for attackers; below 0.5."""
    attack: str = "none"
    """What attackers do: zero, noise, sign-flip, fedpg-attack (on messages); reward-flip, random-action, shuffled-reward (on
    trajectories); none."""
    attackers: float = 0.3
    """Share of the agents that attack, the first ones, rounded up; only with --attack."""
    participation: float = 1.0
    """Share of the agents that take part in a round, above 0; 1 is all of them."""
    selection: str = "random"
    """Which: random; or, by what candidates report, power-of-choice (lowest return), gradient-norm (largest), csh-max, csh-min
    (finite MDPs: tables of visits times advantages, far from zero or near to their mean)."""
    candidates: float = 1.0
    """Share of the agents that report before --selection chooses among them; at least --participation."""
    compression: str = "none"
    """How the agents' messages are made smaller: none, float16, top-k (the largest entries; the rest follows later)."""
    keep: float = 0.1
    """Share of the entries that top-k sends, above 0; only with --compression top-k."""
    clip: float = 0.0
    """C: longer messages are cut to this Euclidean norm; 0 is off."""
    noise: float = 0.0
    """Standard deviation of the noise that agents add to each entry of a message, in units of --clip; 0 is none. Its privacy is
    `epsilon` in metrics.jsonl."""
    privacy_delta: float = 1e-5
    """delta of that (epsilon, delta)-differential privacy."""
    seeds: int = 1
    """How many independent repetitions, all at once."""
    seed: int = 0
    """Root of all random numbers."""
    eval_every: int = 10
    """Rounds between evaluations, each a line of metrics.jsonl and a checkpoint."""
    eval_episodes: int = 32
    """Episodes per agent of an evaluation; finite MDPs are evaluated exactly instead."""
    backend: str = "auto"
    """What steps MuJoCo: batch (the real engine, on the CPU), mjx (in the compiled program, for GPUs), auto (the faster)."""
    engine: str = "simulator"
    """simulator (everything in one compiled program) or debug (plain Python, names the stage of an error)."""
    track: tuple[str, ...] = ()
    """Where else the numbers of metrics.jsonl go, besides the run folder: tensorboard, wandb, mlflow. May change when resumed."""


def flag(field: str) -> str:
    """`local_lr` as people type it."""
    return field.replace("_", "-")


HINTS = typing.get_type_hints(Config)


def check_value(name: str, value: Any) -> Any:
    """`value` as the type of field `name`; a `UserError` where it does not fit."""
    hint = HINTS[name]
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(h for h in typing.get_args(hint) if h is not types.NoneType)
    if hint == tuple[str, ...]:
        pairs = name != "track"
        if pairs and isinstance(value, dict):
            value = [f"{k}={json.dumps(v)}" for k, v in value.items()]
        listed = isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)
        require(listed, f"{flag(name)} must be {'a table, or a list of NAME=VALUE' if pairs else 'a list of names'}")
        return tuple(value)
    if hint is float and type(value) is int:
        value = float(value)
    if hint is str and type(value) is int:
        value = str(value)
    require(type(value) is hint, f"{flag(name)} must be {hint.__name__}, not {value!r}")
    return value


def read(path: Path) -> dict[str, Any]:
    """The fields that a TOML file sets."""
    try:
        return parse(path.read_bytes().decode(), str(path))
    except FileNotFoundError:
        raise UserError(f"no configuration file at {path}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def parse(text: str, where: str) -> dict[str, Any]:
    """The fields that a text in TOML sets; `where` names it in an error."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not valid TOML: {error}") from None
    names = [flag(field.name) for field in dataclasses.fields(Config)]
    fields = {choose(f"key in {where}", flag(key), names).replace("-", "_"): value for key, value in table.items()}
    return {field: check_value(field, value) for field, value in fields.items()}


def to_toml(config: Config) -> str:
    """The configuration as a TOML file; values that are None are left out."""
    set_values = {k: v for k, v in dataclasses.asdict(config).items() if v is not None}
    # JSON's strings, numbers, booleans and lists are TOML's too.
    return "".join(f"{flag(key)} = {json.dumps(value)}\n" for key, value in set_values.items())


def parse_options(pairs: tuple[str, ...], what: str = "env-option") -> dict[str, Any]:
    """NAME=VALUE pairs as a dictionary; values are TOML or JSON, and bare words are strings. `what` names them in an error."""
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        require(bool(equals and name.strip()), f"{what} {pair!r} must be NAME=VALUE")
        values[name.strip()] = _parse_value(text)
    return values


def _parse_value(text: str) -> Any:
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text)
    return text.strip()
