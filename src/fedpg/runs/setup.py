"""From a configuration to an engine that is ready to run."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import inspect
import math
import tomllib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from fedpg import policies
from fedpg.algorithms.wrappers import attack as attacks
from fedpg.algorithms.wrappers import compression
from fedpg.algorithms.wrappers import observation_scaling as observations
from fedpg.algorithms.wrappers import privacy
from fedpg.algorithms import ALGORITHMS, Algorithm, aggregation
from fedpg.algorithms.pooled import pool
from fedpg.algorithms.wrappers.robust import robust
from fedpg.simulate_plain import Debug
from fedpg.events import EventLog
from fedpg.algorithms.selection import Participation
from fedpg.rounds import Scores, SeedState
from fedpg.simulate import AgentsOf, Simulator
from fedpg.communication import Traffic
from fedpg.envs import Box, worlds
from fedpg.envs.host import HostEnvironment
from fedpg.errors import UserError, choose, require
from fedpg.gradients import dishonest as suspects
from fedpg.gradients import baselines, importance
from fedpg.problem import Problem, policy_gradient
from fedpg.runs.config import Config, flag, parse_options
from fedpg.runs import sending
from fedpg.runs.options import resolve_options

ENGINES = {"simulator": Simulator, "debug": Debug}
BETWEEN_MACHINES = "flower"
"""The engine that `fedpg serve` runs."""
OWN_U0 = ("fedsvrpg-m", "fedhapg-m", "nharpg")
"""Algorithms that start from an initial direction, as the theorem of the first two prescribes."""


class Engine(Protocol):
    """What the training loop asks of an engine.

    Attributes:
        seeds, constants, traffic, log: as of the simulator.
        save_every: seconds between checkpoints when evaluations are further apart than that.
        withheld: whether agents keep to themselves how good the params are.
    """

    save_every: float
    withheld: bool
    seeds: int
    constants: Any
    traffic: Traffic
    log: EventLog

    def agents(self) -> Any: ...
    def template(self) -> SeedState: ...
    def start(self) -> None: ...
    def advance(self, first: int, count: int) -> None: ...
    def evaluate(self, round: int) -> Scores: ...
    def state(self) -> SeedState: ...
    def load(self, state: SeedState) -> None: ...
    def reset_info(self) -> None: ...


@functools.cache
def presets() -> dict[str, Any]:
    """The presets file."""
    return tomllib.loads(importlib.resources.files("fedpg.runs").joinpath("presets.toml").read_text())


def preset_of(env: str, algorithm: str) -> dict[str, Any]:
    """What the presets say for an environment and an algorithm, by field name."""
    values = {}
    for section in ("any", "python" if ":" in env or env == worlds.SPACES else "", env):
        table = presets().get(section, {})
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        values |= plain | table.get(algorithm, {})
    return {key.replace("-", "_"): value for key, value in values.items()}


def _accepts(config: Config, name: str) -> bool:
    return name in inspect.signature(ALGORITHMS[config.algorithm]).parameters


def resolve(config: Config) -> Config:
    """Checks a configuration and fills in every value that was left out; the result reruns exactly the same run."""
    worlds.check_name(config.env)
    choose("algorithm", config.algorithm, ALGORITHMS)
    choose("engine", config.engine, (*ENGINES, BETWEEN_MACHINES))
    sending.check(config.track)
    for name in ("agents", "seeds", "eval_every", "eval_episodes"):
        require(getattr(config, name) >= 1, f"{flag(name)} must be at least 1, not {getattr(config, name)}")
    require(0 <= config.seed < 2**31, f"seed must be from 0 to 2147483647, not {config.seed}")
    for name in ("beta", "global_lr"):
        given = getattr(config, name)
        meaningless = given is not None and not _accepts(config, name) and not (name == "beta" and given == 1.0)
        require(not meaningless, f"{config.algorithm} has no {flag(name)}: leave it out")

    tuned = preset_of(config.env, config.algorithm)
    if (own_horizon := worlds.own_horizon(config.env)) is not None:
        tuned["horizon"] = own_horizon
    options = resolve_options(config.algorithm, config.algorithm_option, tuned.pop("algorithm_option", {}))
    filled = {name: value for name, value in tuned.items() if getattr(config, name) is None} | {"algorithm_option": options}
    if config.policy == "auto" and "policy" in tuned:
        filled["policy"] = tuned["policy"]
    if not _accepts(config, "beta"):
        filled["beta"] = None
    if config.heterogeneity is None:
        filled["heterogeneity"] = worlds.default_heterogeneity(config.env)
    config = dataclasses.replace(config, **filled)
    lanes = config.agents * config.batch * config.seeds
    filled = {"backend": worlds.choose_backend(config.env, config.backend, lanes, jax.default_backend())}
    config = dataclasses.replace(config, **filled)
    if config.global_lr is None and _accepts(config, "global_lr"):
        config = dataclasses.replace(config, global_lr=config.local_lr * config.local_steps)
    _check_numbers(config)
    return dataclasses.replace(config, u0=str(u0_batches(config)))


def _check_numbers(config: Config) -> None:
    for name in ("rounds", "local_steps", "horizon", "batch"):
        require(getattr(config, name) >= 1, f"{flag(name)} must be at least 1, not {getattr(config, name)}")
    require(0.0 <= config.heterogeneity < math.inf, f"heterogeneity must be 0 or more and finite, not {config.heterogeneity}")
    require(config.beta is None or 0.0 < config.beta <= 1.0, f"beta must be in (0, 1], not {config.beta}")
    for name in ("local_lr", "global_lr"):
        value = getattr(config, name)
        require(value is None or 0.0 < value < math.inf, f"{flag(name)} must be positive and finite, not {value}")
    require(0.0 < config.discount <= 1.0, f"discount must be in (0, 1], not {config.discount}")
    choose("baseline", config.baseline, baselines.NAMES)
    choose("weights", config.weights, importance.KINDS)
    choose("normalise-observations", config.normalise_observations, ("auto", *observations.MODES))
    aggregation.make(config.aggregation, config.trim)
    choose("attack", config.attack, ("none", *attacks.NAMES))
    attacks.attacker_count(config.attackers, config.agents)
    participation_of(config)
    compression.check(config.compression, config.keep)
    privacy.check(config.clip, config.noise)
    require(0.0 < config.privacy_delta < 1.0, f"privacy-delta must be between 0 and 1, not {config.privacy_delta}")
    silent = config.noise == 0 or config.selection == "random"
    require(silent, f"selection {config.selection} asks agents for reports, which noise does not protect: use --selection random")


def participation_of(config: Config) -> Participation:
    """Who takes part in a round; refuses shares and rules that make no sense."""
    return Participation(config.participation, config.selection, config.candidates)


def u0_batches(config: Config) -> int:
    """Batches per agent behind u_0. The theorem's B = ceil(K/(R beta^2)) trajectories become as many batches."""
    if config.u0.isdigit():
        return int(config.u0)
    kind = choose("u0", config.u0, ("auto", "theorem", "zero"))
    momentum = _accepts(config, "u0_batches") and config.beta < 1.0
    if kind == "zero" or not momentum or (kind == "auto" and config.algorithm not in OWN_U0):
        return 0
    return math.ceil(config.local_steps / (config.rounds * config.beta**2))


class Plan(NamedTuple):
    """What an engine is made from.

    Attributes:
        problem: what is learned.
        algorithm_of: settings that differ from the configuration (beta, local_lr; may be traced) -> algorithm.
        agents_of: key -> agents.
        more: what else engines take.
    """

    problem: Problem
    algorithm_of: Callable[[dict[str, Any]], Algorithm]
    agents_of: AgentsOf
    more: dict[str, Any]


def plan(config: Config) -> Plan:
    """What a resolved configuration asks for. With global_lr = None it is eta K, also where a setting changes eta."""
    options = parse_options(config.env_option)
    world = worlds.make_world(config.env, config.agents, config.heterogeneity, options, config.backend)
    attackers = attacks.attacker_count(config.attackers, config.agents)
    world = attacks.infiltrated(world, config.attack, attackers)
    environment = world.environment
    scale = config.normalise_observations
    if scale == "auto":
        scale = "running" if isinstance(environment.observation_space, Box) else "off"
    hint = "give --normalise-observations off, or leave out --clip and --noise"
    require(scale == "off" or config.clip == 0, f"the moments of observations would travel as they are: {hint}")
    problem = policy_gradient(
        environment,
        policies.make(config.policy, environment, normalised=scale != "off"),
        horizon=config.horizon,
        discount=config.discount,
        batch_size=config.batch,
        baseline=config.baseline,
        normalise_advantages=config.normalise_advantages,
        weights=config.weights,
        weight_cap=config.weight_cap,
        eval_episodes=config.eval_episodes,
        watch_observations=scale != "off",
        attackable=config.attack in suspects.ATTACKS,
    )
    factory = ALGORITHMS[config.algorithm]
    own = parse_options(config.algorithm_option, "algorithm-option")
    known = dataclasses.asdict(config) | {"u0_batches": int(config.u0)} | own

    def algorithm_of(setting: dict[str, Any]) -> Algorithm:
        wanted = known | setting
        algorithm = factory(problem, **{k: wanted[k] for k in inspect.signature(factory).parameters if k in wanted})
        algorithm = robust(algorithm, aggregation.make(config.aggregation, config.trim))
        algorithm = attacks.attacked(algorithm, config.attack, attackers)
        seen_by = pool(problem, config.agents) if algorithm.pooled else problem
        algorithm = privacy.private(observations.normalise(algorithm, seen_by, scale), config.clip, config.noise)
        return compression.compressed(algorithm, config.compression, config.keep)

    host = environment.host if isinstance(environment, HostEnvironment) else None
    more = {"prepare": world.prepare, "host": host, "root": config.seed, "seeds": config.seeds, "participation": participation_of(config)}
    return Plan(problem, algorithm_of, world.agents_of, more)


def build(config: Config) -> Engine:
    """The engine of a resolved configuration."""
    require(config.engine in ENGINES, f"the engine {config.engine} runs between machines: use fedpg serve, or --engine simulator")
    asked = plan(config)
    try:
        return ENGINES[config.engine](asked.problem, asked.algorithm_of({}), asked.agents_of, **asked.more)
    except MemoryError as error:
        raise UserError("not enough memory for this run: fewer agents, a smaller batch or a shorter horizon would help") from error
