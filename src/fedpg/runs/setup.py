"""From a configuration to an engine that is ready to run."""

import dataclasses
import functools
import importlib.resources
import inspect
import math
import tomllib
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from fedpg import algorithms, envs, policies
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.selection import Participation
from fedpg.algorithms.wrappers import attack, chain, compressed, observation_scaling, private, robust
from fedpg.algorithms.wrappers.attack import attacker_count, with_dishonest_agents
from fedpg.algorithms.wrappers.observation_scaling import MODES
from fedpg.envs import Box, Federation, families
from fedpg.errors import choose, require
from fedpg.gradients import baselines, dishonest, importance
from fedpg.problem import Problem, policy_gradient
from fedpg.runs import policy_files, trackers
from fedpg.runs.config import FIELDS, Config, checked, convert, flag
from fedpg.simulate import Simulator, simulator
from fedpg.simulate_plain import plain_simulator
from fedpg.theory import initial_batches

ENGINES = {"simulator": simulator, "plain": plain_simulator}
BETWEEN_MACHINES = "flower"
"""The engine that `fedpg serve` runs."""
TRACED = ("beta", "local_lr", "global_lr")
"""Fields that may differ between the rows of one compiled program."""


@functools.cache
def presets() -> dict[str, Any]:
    """The presets file."""
    return tomllib.loads(importlib.resources.files("fedpg.runs").joinpath("presets.toml").read_text())


def preset_of(env: str, algorithm: str) -> dict[str, Any]:
    """What the presets say for an environment and an algorithm, by field name."""
    values = {}
    for section in ("any", "python" if ":" in env or env == families.SPACES else "", env):
        table = presets().get(section, {})
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        values |= plain | table.get(algorithm, {})
    return {key.replace("-", "_"): value for key, value in values.items()}


def _parameters(algorithm: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(algorithms.factory(algorithm)).parameters


def known_options(algorithm: str) -> dict[str, Any]:
    """The options of an algorithm and their defaults: the parameters of its factory that no flag sets.

    >>> known_options("fedprox")
    {'mu': 1.0}
    """
    elsewhere = {"problem", "u0_batches", *FIELDS}
    return {name: parameter.default for name, parameter in _parameters(algorithm).items() if name not in elsewhere}


def resolve_options(algorithm: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options `given` for an algorithm, checked against the annotations of its factory, in a fixed order."""
    known, hints = known_options(algorithm), typing.get_type_hints(algorithms.factory(algorithm))
    values = {}
    for name, value in sorted((name.replace("-", "_"), value) for name, value in given.items()):
        require(name not in FIELDS, f"{flag(name)} is a flag: give --{flag(name)} instead of the algorithm-option")
        require(bool(known), f"{algorithm} takes no algorithm-option: leave out {name!r}")
        choose(f"algorithm-option of {algorithm}", name, known)
        hint = hints.get(name, object if known[name] is None else type(known[name]))
        # Any is a number that a sweep may vary.
        values[name] = found = convert(value, float if hint is Any else hint, f"algorithm-option {name}")
        finite = not isinstance(found, float) or math.isfinite(found)
        require(finite, f"algorithm-option {name} must be finite, not {found}")
    return values


def resolve(config: Config) -> Config:
    """Checks a configuration and fills in every value that was left out; the result reruns exactly the same run."""
    config = checked(config)
    families.check_name(config.env)
    choose("engine", config.engine, (*ENGINES, BETWEEN_MACHINES))
    trackers.check(config.track)
    takes = _parameters(config.algorithm)
    for name in ("beta", "global_lr"):
        given = getattr(config, name)
        meaningless = given is not None and name not in takes and not (name == "beta" and given == 1.0)
        require(not meaningless, f"{config.algorithm} has no {flag(name)}: leave it out")

    if config.init_from:
        config = dataclasses.replace(config, **policy_files.like(config))
    tuned = preset_of(config.env, config.algorithm)
    tuned["heterogeneity"] = families.default_heterogeneity(config.env)
    if (limit := families.time_limit(config.env)) is not None:
        tuned["horizon"] = limit
    options = resolve_options(config.algorithm, tuned.pop("algorithm_option", {}) | config.algorithm_option)
    filled = {name: value for name, value in tuned.items() if getattr(config, name) is None} | {"algorithm_option": options}
    if config.policy == "auto" and "policy" in tuned:
        filled["policy"] = tuned["policy"]
    if "beta" not in takes:
        filled["beta"] = None
    config = dataclasses.replace(config, **filled)
    if config.global_lr is None and "global_lr" in takes:
        config = dataclasses.replace(config, global_lr=config.local_lr * config.local_steps)
    choose("baseline", config.baseline, baselines.NAMES)
    choose("weights", config.weights, importance.KINDS)
    choose("normalise-observations", config.normalise_observations, ("auto", *MODES))
    participation_of(config)
    _wrappers(config)
    allowed = config.noise == 0 or config.selection == "random"
    require(allowed, f"selection {config.selection} asks agents for reports, which noise does not protect: use --selection random")
    return dataclasses.replace(config, u0=u0_batches(config))


def participation_of(config: Config) -> Participation:
    """Which agents take part in a round; refuses shares and rules that contradict each other."""
    return Participation(config.participation, config.selection, config.candidates)


def u0_batches(config: Config) -> int:
    """Batches per agent behind u_0. The theorem's B = ceil(K/(R beta^2)) trajectories become as many batches.

    "auto" is the theorem's B for algorithms whose factory starts from a u_0 by default.
    """
    if isinstance(config.u0, int):
        return config.u0
    kind = choose("u0", config.u0, ("auto", "theorem", "zero"))
    parameter = _parameters(config.algorithm).get("u0_batches")
    if kind == "zero" or parameter is None or config.beta == 1.0 or (kind == "auto" and not parameter.default):
        return 0
    return initial_batches(config.local_steps, config.rounds, config.beta)


class Prepared(NamedTuple):
    """The parts of an engine; `algorithm_of` maps settings that differ from the configuration (`TRACED`) to an algorithm."""

    problem: Problem
    algorithm_of: Callable[[dict[str, Any]], Algorithm]
    federation: Federation
    participation: Participation


def prepare(config: Config) -> Prepared:
    """Builds problem, algorithm and federation from a resolved configuration; global_lr = None is eta K in every setting."""
    federation = envs.make(config.env, config.agents, config.heterogeneity, config.env_option)
    federation = with_dishonest_agents(federation, config.attack, attacker_count(config.attackers, config.agents))
    environment, scale = federation.environment, config.normalise_observations
    if scale == "auto":
        scale = "running" if isinstance(environment.observation_space, Box) else "off"
    problem = policy_gradient(
        environment,
        policies.make(config.policy, environment, hidden=config.hidden, scaled=scale != "off"),
        horizon=config.horizon,
        discount=config.discount,
        batch_size=config.batch,
        baseline=config.baseline,
        normalise_advantages=config.normalise_advantages,
        importance=config.weights,
        weight_cap=config.weight_cap,
        eval_episodes=config.eval_episodes,
        watch_observations=scale not in ("off", "kept"),
        dishonest=config.attack in dishonest.ATTACKS,
    )
    if config.init_from:
        template = jax.eval_shape(problem.init_params, jax.random.key(0))
        problem = problem._replace(start=policy_files.starting_params(config.init_from, template, config.seeds))
    factory = algorithms.factory(config.algorithm)  # once: a file that is loaded twice defines its types twice
    values = vars(config) | {"u0_batches": config.u0} | config.algorithm_option

    def algorithm_of(setting: dict[str, Any]) -> Algorithm:
        taken = {name: value for name, value in (values | setting).items() if name in inspect.signature(factory).parameters}
        return chain(factory(problem, **taken), *_wrappers(config, problem, scale))

    return Prepared(problem, algorithm_of, federation, participation_of(config))


def _wrappers(config: Config, problem: Problem | None = None, scale: str = "off") -> tuple[Any, ...]:
    """The wrappers of an algorithm, innermost first; each checks its arguments, and does nothing where it is switched off."""
    return (
        robust(config.aggregation, config.trim),
        attack(config.attack, attacker_count(config.attackers, config.agents)),
        observation_scaling(problem, scale),
        private(config.clip, config.noise),
        compressed(config.compression, config.keep),
    )


def build(config: Config, settings: Any = None) -> Simulator:
    """The engine of a resolved configuration; with `settings`, a simulator that runs one row per setting and seed."""
    require(config.engine in ENGINES, f"the engine {config.engine} runs between machines: use fedpg serve, or --engine simulator")
    problem, algorithm_of, federation, participation = prepare(config)
    algorithm, more = (algorithm_of({}), {}) if settings is None else (algorithm_of, {"settings": settings})
    return ENGINES[config.engine](problem, algorithm, federation, seeds=config.seeds, participation=participation, **more)
