"""What an agent can do for a configuration: local updates, reports and evaluations in its own environment, compiled."""

from __future__ import annotations

import dataclasses
import functools
import json
import secrets
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpg import trees
from fedpg.algorithms.aggregation import as_rows, real_part
from fedpg.algorithms.base import LocalInfo
from fedpg.algorithms.selection import selector
from fedpg.algorithms.wrappers.tampering import ON_MESSAGES
from fedpg.envs.python.world import per_agent
from fedpg.flower.answers import Grade, Report, Update
from fedpg.flower.packets import Refused
from fedpg.flower.tasks import Task
from fedpg.gradients import dishonest as suspects
from fedpg.keys import Moment, Purpose, agent_key
from fedpg.problem import Usage
from fedpg.rounds import no_info
from fedpg.runs.config import Config, parse_options
from fedpg.runs.setup import Plan, participation_of, plan
from fedpg.sequence import Stage, stages_of_a_round
from fedpg.simulate import COMPILER_OPTIONS


@dataclasses.dataclass(frozen=True)
class Own:
    """What an agent decides for itself; the rest of a configuration is the server's."""

    agent: int
    """Its number, from 0."""
    env: str
    """What it lives in, as in `Config`; so are the next three."""
    heterogeneity: float | None = None
    env_option: tuple[str, ...] = ()
    backend: str = "auto"
    withhold: bool = False
    """Tell the server nothing but messages: no costs, no scores."""
    least_noise: float = 0.0
    """Refuse to take part with less noise than this."""
    most_epsilon: float = 0.0
    """Stop answering before more than this is given away; 0: no limit."""
    attack: str = "none"
    """Play an attacker, to try out a federation's defences."""

    def configuration(self, theirs: Config) -> Config:
        """The server's configuration with this agent's environment."""
        lies = {"attack": self.attack if self.attack in suspects.ATTACKS else "none", "attackers": 1.0}
        own = {name: getattr(self, name) for name in ("env", "heterogeneity", "env_option", "backend")}
        return dataclasses.replace(theirs, **own, **lies)


def alone(config: Config, agent: int) -> tuple[Config, int]:
    """The configuration with which an agent makes its environment, and its place among the agents of that.

    Families draw the constants of all N agents from one key, and it takes its own. Environments in Python are made for it alone.
    """
    if ":" not in config.env:
        return config, agent
    own = per_agent(parse_options(config.env_option), config.agents)[agent] if config.env_option else {}
    pairs = tuple(f"{name}={json.dumps([value] if isinstance(value, list) else value)}" for name, value in own.items())
    return dataclasses.replace(config, agents=1, env_option=pairs), 0


def lie(message: Any, attack: str) -> Any:
    """What an attacker sends instead of `message`. It knows no other agent's."""
    real, put = real_part(jax.tree.map(lambda x: x[None], message))
    rows, unflatten = as_rows(real)
    false = ON_MESSAGES[attack](jax.random.key(secrets.randbits(31))[None], rows, np.ones(1, bool))
    return trees.take(put(jax.vmap(unflatten)(false)), 0)


class Work:
    """One agent's half of a run.

    Args:
        config: complete, with the agent's own environment.
        own: what it decides for itself.
        plan: what a configuration asks for; agents of one process may share it.

    Attributes:
        withheld: whether it keeps its scores and costs to itself.
    """

    def __init__(self, config: Config, own: Own, plan: Callable[[Config], Plan] = plan) -> None:
        if not 0 <= own.agent < config.agents:
            raise Refused(f"there is no agent {own.agent} in a federation of {config.agents}")
        self.config, self._agent, self._attack = config, own.agent, own.attack
        self.withheld = own.withhold or config.noise > 0
        single, place = alone(config, own.agent)
        asked = plan(single)
        self.problem, self.algorithm, self.host = asked.problem, asked.algorithm_of({}), asked.more["host"]
        self._device = jax.devices("cpu")[0] if self.host else jax.devices()[0]
        drawn = asked.agents_of(agent_key(config.seed, 0, 0, 0, Purpose.AGENTS))
        mine = jax.tree.map(lambda x: np.asarray(x)[None, place : place + 1], drawn)
        prepared = asked.more["prepare"](mine) if asked.more["prepare"] else mine
        self._own = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[0, 0], prepared), self._device)
        self._select = selector(participation_of(config), self.problem, self.algorithm, trees.broadcast(self._own, config.agents))
        self._stages = [*(Stage(Purpose.WARMUP, i) for i in range(len(self.algorithm.warmup))), *stages_of_a_round(self.algorithm)]
        self._compiled = functools.cache(self._compile)

    @functools.cached_property
    def beginning(self) -> tuple[Any, Any]:
        """`shared` and the agent's state before everything."""
        params = self.problem.init_params(agent_key(self.config.seed, 0, 0, 0, Purpose.PARAMS))
        server, agent_state = self.algorithm.init(params)
        return server.shared, agent_state

    def update(self, task: Task, shared: Any, agent_state: Any) -> tuple[Update, Any]:
        """What is sent, and the state that follows."""
        stage = next((stage for stage in self._stages if stage == (task.purpose, task.number)), None)
        if stage is None:
            raise Refused("an exchange that this algorithm does not have")
        message, agent_state, info = self._compiled(stage)(self._key(stage, task.round), shared, agent_state, self._own)
        if self._attack in ON_MESSAGES:
            message = lie(message, self._attack)
        # Squares of weights may be more than a float can hold: no reason to do without the message.
        costs = no_info() if self.withheld else LocalInfo(Usage(*info.usage[:3]), jax.tree.map(np.nan_to_num, info.weights))
        return Update(message, costs), agent_state

    def report(self, task: Task, params: Any) -> Report:
        """What it tells as a candidate for the round."""
        if self._select is None or self._select.report is None or self.withheld:
            raise Refused("this agent does not report")
        stage = Stage(Purpose.REPORT)
        found, info = self._compiled(stage)(self._key(stage, task.round), params, self._own)
        return Report(found, LocalInfo(Usage(*info.usage[:3]), info.weights))

    def evaluate(self, task: Task, shared: Any, agent_state: Any) -> Grade:
        """How good what it would deploy is, in its own environment."""
        stage = Stage(Purpose.EVALUATE)
        found = self._compiled(stage)(self._key(stage, task.round), shared, agent_state, self._own)
        return Grade(found.total_return, found.objective)

    def events(self) -> tuple[str, ...]:
        """What went wrong in the environment since the last call, one line each, for people on the agent's side."""
        if self.host is None:
            return ()
        found, self.host.events[:] = list(self.host.events), []
        return tuple(event.what for event in found)

    def _key(self, stage: Stage, round: int) -> jax.Array:
        return stage.keys(Moment(self.config.seed, 0, round), np.array([self._agent]))[0]

    def _compile(self, stage: Stage) -> Any:
        if stage.purpose is Purpose.REPORT:
            function = self._select.report
        elif stage.purpose is Purpose.EVALUATE:

            def function(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> Any:
                return self.problem.evaluate(key, self.algorithm.deployed(shared, agent_state), agent)
        else:
            function = stage.exchange(self.algorithm).local_update
        return jax.jit(function, compiler_options=COMPILER_OPTIONS.get(self._device.platform))
