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
from fedpg.algorithms.personal import PARTS, deploy_own, keep_own
from fedpg.algorithms.selection import Participation
from fedpg.algorithms.wrappers import attack, chain, compressed, observation_scaling, private, robust
from fedpg.algorithms.wrappers.attack import attacker_count, with_dishonest_agents
from fedpg.algorithms.wrappers.observation_scaling import MODES
from fedpg.envs import Box, Federation, families
from fedpg.errors import choose, require
from fedpg.gradients import baselines, dishonest, importance
from fedpg.learners import LEARNERS, reinforce
from fedpg.learners.actor_critic import Settings, check
from fedpg.problem import Problem, actor_critic, policy_gradient
from fedpg.runs import policy_files, trackers
from fedpg.runs.config import FIELDS, Config, checked, convert, flag
from fedpg.simulate import Simulator, simulator
from fedpg.simulate_plain import plain_simulator
from fedpg.theory import initial_batches

ENGINES = {"simulator": simulator, "plain": plain_simulator}
BETWEEN_MACHINES = "flower"
"""The engine that `fedpg serve` runs."""
ONLY_REINFORCE = ("baseline", "weights", "normalise_advantages")
"""Fields that mean nothing to the actor-critic."""
TRACED = ("beta", "local_lr", "global_lr")
"""Fields that may differ between the rows of one compiled program."""


@functools.cache
def presets() -> dict[str, Any]:
    """The presets file."""
    return tomllib.loads(importlib.resources.files("fedpg.runs").joinpath("presets.toml").read_text())


def preset_of(env: str, algorithm: str, learner: str = "reinforce") -> dict[str, Any]:
    """What the presets say for an environment, an algorithm and a learner, by field name; options of a learner add up."""
    values, options = {}, {}
    tables = [presets().get(section, {}) for section in ("any", "python" if ":" in env or env == families.SPACES else "", env)]
    for table in [*tables, *(table.get(learner, {}) for table in tables)]:
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        values |= plain | table.get(algorithm, {})
        options |= table.get("learner-option", {})
    return {key.replace("-", "_"): value for key, value in values.items()} | {"learner_option": options}


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

    by_critic = choose("learner", config.learner, LEARNERS) == "actor-critic"
    for name in ONLY_REINFORCE if by_critic else ("rollout_steps",):
        require(getattr(config, name) is None, f"{flag(name)} means nothing to the learner {config.learner}: leave it out")

    if config.init_from:
        config = dataclasses.replace(config, **policy_files.like(config))
    tuned = preset_of(config.env, config.algorithm, config.learner)
    tuned["heterogeneity"] = families.default_heterogeneity(config.env)
    longer = tuned.pop("server_step", 1.0)
    tuned["share"] = "policy" if config.personal == "critic" else tuned.get("share", "policy")
    if (limit := families.time_limit(config.env)) is not None:
        tuned["horizon"] = limit
    options = resolve_options(config.algorithm, tuned.pop("algorithm_option", {}) | config.algorithm_option)
    learner = resolve_learner(config.learner, tuned.pop("learner_option") | config.learner_option)
    weighted = learner.get("time_discount", True) or config.algorithm != "fedkl"
    require(weighted, "fedkl's objective has the factor gamma^t: leave out the learner-option time_discount")
    filled = {name: value for name, value in tuned.items() if getattr(config, name) is None}
    filled |= {"algorithm_option": options, "learner_option": learner} | (dict.fromkeys(ONLY_REINFORCE) if by_critic else {})
    if "hidden" in filled:
        filled["hidden"] = None if ":" in config.policy or config.policy in policies.TABLES else tuple(filled["hidden"])
    if config.policy == "auto" and "policy" in tuned:
        filled["policy"] = tuned["policy"]
    if "beta" not in takes:
        filled["beta"] = None
    config = dataclasses.replace(config, **filled)
    if config.global_lr is None and "global_lr" in takes:
        config = dataclasses.replace(config, global_lr=longer * config.local_lr * config.local_steps)
    own_parts(config)
    if not by_critic:
        choose("baseline", config.baseline, baselines.NAMES)
        choose("weights", config.weights, importance.KINDS)
    choose("normalise-observations", config.normalise_observations, ("auto", *MODES))
    participation_of(config)
    _wrappers(config)
    allowed = config.noise == 0 or config.selection == "random"
    require(allowed, f"selection {config.selection} asks agents for reports, which noise does not protect: use --selection random")
    return dataclasses.replace(config, u0=u0_batches(config))


def resolve_learner(learner: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options `given` for a learner, checked, with the defaults of those left out."""
    values = {name.replace("-", "_"): value for name, value in given.items()}
    kind = Settings if learner == "actor-critic" else reinforce.Options
    known = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        choose(f"learner-option of {learner}", name, known)
    settings = convert(values, kind, "learner-option")
    if isinstance(settings, Settings):
        check(settings)
    resolved = {name: getattr(settings, name) for name in known}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in resolved.items()}


def own_parts(config: Config) -> frozenset[str]:
    """What every agent keeps to itself of its params; refuses combinations that make no sense."""
    choose("share", config.share, ("policy", "critic"))
    choose("personal", config.personal, ("none", *PARTS))
    critic, alone = config.learner == "actor-critic", config.algorithm in ("local-only", "pooled")
    require(critic or config.share == "policy", "reinforce has no critic to share: leave out --share, or give --learner actor-critic")
    require(critic or config.personal != "critic", "reinforce has no critic: leave out --personal, or give --learner actor-critic")
    require({config.share, config.personal} != {"critic"}, "a critic is shared or personal, not both: leave out one of the two flags")
    require(not alone or config.personal == "none", f"{config.algorithm} shares nothing that could be personal: leave out --personal")
    own = {config.personal} - {"none"} | ({"critic"} if critic and config.share != "critic" else set())
    return frozenset() if alone else frozenset(own)


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
    parts = own_parts(config)
    require("scaling" not in parts or scale == "running", "personal scaling needs --normalise-observations running")
    problem = keep_own(make_problem(config, federation, scale), parts)
    if config.init_from:
        template = problem.init_params(jax.random.key(config.seed))
        problem = problem._replace(start=policy_files.starting_params(config.init_from, template, config.seeds))
    scale = "off" if "scaling" in parts else scale
    factory = algorithms.factory(config.algorithm)  # once: a file that is loaded twice defines its types twice
    values = vars(config) | {"u0_batches": config.u0} | config.algorithm_option

    def algorithm_of(setting: dict[str, Any]) -> Algorithm:
        taken = {name: value for name, value in (values | setting).items() if name in inspect.signature(factory).parameters}
        return deploy_own(chain(factory(problem, **taken), *_wrappers(config, problem, scale)), parts)

    return Prepared(problem, algorithm_of, federation, participation_of(config))


def make_problem(config: Config, federation: Federation, scale: str, batches: int | None = None) -> Problem:
    """What is learned, and by which learner.

    Args:
        config: resolved.
        federation: of the agents.
        scale: one of the modes of `observation_scaling`.
        batches: after which a learner's schedule ends; None: at the end of the run.
    """
    environment = federation.environment
    make_policy = functools.partial(policies.make, config.policy, environment, hidden=config.hidden, scaled=scale != "off")
    common = {"horizon": config.horizon, "discount": config.discount, "eval_episodes": config.eval_episodes}
    common["watch_observations"] = scale not in ("off", "kept")
    if config.learner == "actor-critic":
        require(config.attack not in dishonest.ATTACKS, f"attack {config.attack} is for --learner reinforce: choose one on messages")
        settings = convert(config.learner_option, Settings, "learner-option")
        return actor_critic(
            federation,
            make_policy(critic=settings.critic, log_std=settings.log_std),
            settings,
            rollout_steps=config.rollout_steps,
            lanes=config.batch,
            batches=batches or math.ceil(config.rounds * config.local_steps * config.participation),
            **common,
        )
    return policy_gradient(
        environment,
        make_policy(),
        batch_size=config.batch,
        baseline=config.baseline,
        normalise_advantages=config.normalise_advantages,
        importance=config.weights,
        weight_cap=config.weight_cap,
        eval_deterministic=True,
        time_discount=config.learner_option["time_discount"],
        dishonest=config.attack in dishonest.ATTACKS,
        **common,
    )


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
