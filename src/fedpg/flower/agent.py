"""One agent: takes a task, performs it in its own environment, and answers. It does not trust the server.

What leaves is what `Agent.answer` returns: the algorithm's message; unless withheld, a few sums that say what it cost and how good
the params are; and one line for each thing that went wrong. No observation, action or reward leaves, and no code arrives: an algorithm
or policy of the user's own must be given to the agent as its own copy of the file.
"""

import dataclasses
import functools
import json
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from fedpg import named_arrays, trees
from fedpg.algorithms import base
from fedpg.algorithms.base import LocalInfo
from fedpg.algorithms.selection import selector
from fedpg.algorithms.wrappers.attack import ON_MESSAGES
from fedpg.algorithms.wrappers.base import as_rows, parts
from fedpg.algorithms.wrappers.privacy import with_secret
from fedpg.envs.host import HostEnvironment
from fedpg.envs.own import per_agent
from fedpg.errors import UserError, one_line, require
from fedpg.flower.delivery import Delivery
from fedpg.flower.protocol import FIRST_STATE, MAX_EVENTS, Answer, Grade, Refused, Task, Update, pack, read_arrays, shapes_of, unpack
from fedpg.gradients import dishonest
from fedpg.keys import Moment, Purpose
from fedpg.problem import Usage
from fedpg.rounds import Stage, stages_of_round
from fedpg.runs import checkpoint
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.folder import write_atomically
from fedpg.runs.setup import Prepared, prepare, resolve
from fedpg.simulate import COMPILER_OPTIONS, PRECISION, agents_of_seeds
from fedpg.theory.privacy import epsilon, separation

RUNS_KEPT = 3
"""Runs whose states are kept."""
RUN_NAME = re.compile(r"[0-9a-z-]{1,64}")
MAX_DELTA = 1e-5
"""The largest delta of an agent's own account. The delta of a run is the server's choice, and a larger one makes any epsilon small."""
OWN_FIELDS = ("env", "heterogeneity", "env_option")
"""Fields of `Config` that each agent decides for itself."""
OWN_CODE = ("algorithm", "policy")
"""Fields of `Config` that may name a file of the user's own: the server may say that it does, the agent says which."""


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """What an agent decides for itself; the rest of a configuration is the server's."""

    agent: int
    """Its number, from 0."""
    env: str
    """Its environment, as in `Config`; so are the next two."""
    heterogeneity: float | None = None
    env_option: dict[str, Any] = dataclasses.field(default_factory=dict)
    algorithm: str | None = None
    """FILE.py:FUNCTION, this agent's copy of the algorithm where the server runs one from a file."""
    policy: str | None = None
    """FILE.py:FUNCTION, this agent's copy of the policy where the server has one from a file."""
    withhold: bool = False
    """Send nothing but messages: no costs, no scores."""
    least_noise: float = 0.0
    """Refuse to take part with less noise than this."""
    most_epsilon: float = 0.0
    """Stop answering before the privacy loss exceeds this; 0: no limit."""
    attack: str = "none"
    """Act as an attacker, to test a federation's defences."""

    def configuration(self, theirs: Config) -> Config:
        """The server's configuration, completed, with this agent's environment and its copies of the user's own files."""
        own = {name: getattr(self, name) for name in OWN_FIELDS}
        for name in OWN_CODE:
            asked, mine = getattr(theirs, name), getattr(self, name)
            if ":" in asked:
                require(mine is not None, f"the server runs its own {name} {asked}: give fedpg join --{name} FILE.py:FUNCTION, your copy")
                own[name] = mine
            else:
                require(mine is None, f"the server runs the built-in {name} {asked}: leave out --{name}")
        attack = self.attack if self.attack in dishonest.ATTACKS else "none"
        config = resolve(dataclasses.replace(theirs, **own, attack=attack, attackers=1.0))
        if config.noise < self.least_noise:
            raise Refused(f"the server asks for noise {config.noise}, this agent for at least {self.least_noise}")
        if config.noise == 0 and self.most_epsilon > 0:
            raise Refused("the server asks for no noise, and without it no message keeps within this agent's privacy budget")
        if not 0 <= self.agent < config.agents:
            raise Refused(f"there is no agent {self.agent} in a federation of {config.agents}")
        return config


class AgentProgram:
    """An agent's half of a run: its environment, and the compiled functions that work in it.

    Args:
        config: complete, with the agent's own environment.
        settings: what the agent decides for itself.
        prepare: what a configuration asks for; tests share it between agents of one process.
    """

    def __init__(self, config: Config, settings: AgentSettings, prepare: Callable[[Config], Prepared] = prepare) -> None:
        self.config, self._id, self._attack = config, np.array([settings.agent]), settings.attack
        self.single, index = _alone(config, settings.agent)
        self.withheld = settings.withhold or config.noise > 0
        problem, algorithm_of, federation, participation = prepare(self.single)
        algorithm, environment = algorithm_of({}), federation.environment
        self.problem, self.deployed = problem, algorithm.deployed
        self.host = environment.host if isinstance(environment, HostEnvironment) else None
        device = jax.devices("cpu")[0] if self.host else jax.devices()[0]
        self._key = jax.random.key(config.seed)
        drawn = agents_of_seeds(federation, self._key, 1)
        own = (federation.prepare or (lambda agents: agents))(jax.tree.map(lambda x: x[:, index : index + 1], drawn))
        self._environment = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[0, 0], own), device)
        server, state = algorithm.init(problem.init_params(Moment(self._key, 0, 0).server_key(Purpose.PARAMS)))
        self.first_shared, self.first_state, self.first_params = server.shared, state, algorithm.deployed(server.shared, state)
        self.shapes = shapes_of(environment, server.shared)
        stages = [*(Stage(Purpose.WARMUP, i) for i in range(len(algorithm.warmup))), *stages_of_round(algorithm)]
        compiled = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS.get(device.platform))
        self._updates = {stage: compiled(stage.exchange(algorithm).local_update) for stage in stages}
        select = selector(participation, problem, algorithm, trees.broadcast(self._environment, config.agents))
        self._report = compiled(select.report) if select is not None and select.report is not None else None
        self._evaluate = compiled(lambda key, shared, state, agent: problem.evaluate(key, algorithm.deployed(shared, state), agent))

    def update(self, task: Task, shared: Any, state: Any) -> tuple[Update, Any]:
        """The local update of an exchange: what is sent, and the state that follows."""
        stage = next((stage for stage in self._updates if stage == (task.purpose, task.number)), None)
        if stage is None:
            raise Refused("an exchange that this algorithm does not have")
        key = stage.keys(Moment(self._key, 0, task.round), self._id)[0]
        message, state, info = self._updates[stage](key, shared, state, self._environment)
        if self._attack in ON_MESSAGES:
            message = _falsified(message, self._attack)
        # Squares of importance weights may overflow: no reason to do without the message.
        costs = base.no_cost() if self.withheld else LocalInfo(Usage(*info.usage[:3]), jax.tree.map(np.nan_to_num, info.weights))
        return Update(message, costs), state

    def report(self, task: Task, params: Any) -> Update:
        """What it reports on `params` as a candidate for the round."""
        if self._report is None:
            raise Refused("this agent does not report")
        key = Moment(self._key, 0, task.round).agent_keys(self._id, Purpose.REPORT)[0]
        found, info = self._report(key, params, self._environment)
        return Update(found, LocalInfo(Usage(*info.usage[:3]), info.weights))

    def evaluate(self, task: Task, shared: Any, state: Any) -> Grade:
        """The return and objective, in its own environment, of what it would deploy."""
        key = Moment(self._key, 0, task.round).agent_keys(self._id, Purpose.EVALUATE)[0]
        found = self._evaluate(key, shared, state, self._environment)
        return Grade(found.total_return, found.objective)


def load_state(folder: Path, number: int, template: Any) -> Any:
    """The agent's state `number` of a run, shaped like `template`; None if it is gone or damaged."""
    try:
        return named_arrays.unflatten(template, checkpoint.read(folder / f"{number}.safetensors")[0])
    except (UserError, OSError):
        return None


def save_state(folder: Path, number: int, state: Any, keep: set[int]) -> None:
    """Writes the agent's state `number` of a run, all of it or nothing, and deletes older states and older runs.

    States in `keep` stay, and newer ones: a task that is performed late must not undo what came after it.
    """
    checkpoint.write(folder / f"{number}.safetensors", named_arrays.flatten(state), {"number": number})
    for path in folder.glob("*.safetensors"):
        if path.stem.isdigit() and int(path.stem) < number and int(path.stem) not in keep:
            path.unlink(missing_ok=True)
    others = [path for path in folder.parent.glob("*") if path.is_dir() and path != folder]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -(RUNS_KEPT - 1)]:
        shutil.rmtree(old, ignore_errors=True)


class Ledger:
    """The privacy loss of all noisy messages of an agent, over all runs: Gaussian mechanisms compose by adding mu^2."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.json"

    def after(self, noise: float, delta: float) -> tuple[float, float]:
        """mu^2, and epsilon at `delta` or `MAX_DELTA`, after one more message."""
        total = self._spent() + separation(noise, 1) ** 2
        return total, epsilon(2.0 / math.sqrt(total), 1, min(delta, MAX_DELTA))

    def _spent(self) -> float:
        if not self._path.exists():
            return 0.0
        try:
            spent = float(json.loads(self._path.read_text())["mu_squared"])
        except (ValueError, KeyError, TypeError):
            spent = math.nan
        require(0.0 <= spent < math.inf, "the ledger of this agent's privacy loss is damaged: restore it from a copy")
        return spent

    def write(self, total: float) -> None:
        """Records mu^2, before the message leaves."""
        write_atomically(self._path, json.dumps({"mu_squared": total}).encode())


class Agent:
    """Answers tasks, one at a time, and keeps the agent's states on its disk.

    Args:
        settings: what it decides for itself.
        folder: its own, for states.
        tell: called with one line for each thing that people at the agent may want to know.
        make_program: makes its half of a run.
        delivery: writes the policy of every evaluation for the people here; None: nobody wants it.
        leaving: whether it answers nothing but that it leaves for good.

    Attributes:
        over: set when a run has ended, or the server knows that this agent leaves.
    """

    def __init__(
        self,
        settings: AgentSettings,
        folder: Path,
        tell: Callable[[str], None] = lambda line: None,
        make_program: Callable[[Config, AgentSettings], AgentProgram] = AgentProgram,
        delivery: Delivery | None = None,
        leaving: bool = False,
    ) -> None:
        self._delivery, self._leaving = delivery, leaving
        self._settings, self._folder, self._tell, self._make_program = settings, folder, tell, make_program
        self._busy, self.over = threading.Lock(), threading.Event()
        self._returns: dict[str, str] = {}  # run -> its first and its last return here
        self._config, self._program = "", None

    def answer(self, data: bytes) -> bytes:
        """The packet that answers a packet, always: an error becomes an answer too."""
        header = Answer(0, "", self._settings.agent)
        try:
            task, arrays = unpack(data, Task)
            header = Answer(task.serial, task.run, self._settings.agent)
            if not self._busy.acquire(timeout=min(max(task.seconds, 1.0), 1e6)):
                raise Refused("still busy with an earlier task")
            try:
                with jax.default_matmul_precision(PRECISION):
                    fields, sent = self._perform(task, arrays)
            finally:
                self._busy.release()
            return pack(msgspec.structs.replace(header, **fields), named_arrays.flatten(sent))
        except Exception as error:  # whatever it is, the server must hear of it, and the agent must go on
            ours = isinstance(error, (Refused, UserError))
            self._tell(one_line(f"task failed: {error if ours else f'{type(error).__name__}: {error}'}"))
            # The text of another exception may quote what the environment observed.
            line = one_line(str(error) if ours else f"{type(error).__name__}; the agent's own log says more")
            return pack(msgspec.structs.replace(header, error=line, events=self._take_events()), {})

    def _perform(self, task: Task, arrays: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Fields of the answer's header, and the tree that is sent."""
        if not RUN_NAME.fullmatch(task.run):  # it becomes the name of a folder
            raise Refused("invalid run name")
        if task.kind == "refused":
            self._tell(one_line(f"the server refuses this agent: {task.text}"))
            return {}, ()
        if task.kind == "over":
            told = f"the run is over: {self._returns.pop(task.run, 'all rounds are done')}"
            self._tell("the server knows that this agent has left for good" if self._leaving else told)
            self.over.set()
            return {}, ()
        if self._leaving:
            return {"leaving": True}, ()
        if self._program is None or self._config != task.config:
            config = self._settings.configuration(Config(**configs.parse(task.config, "the server's configuration")))
            self._config, self._program = task.config, self._make_program(config, self._settings)
        program = self._program
        if task.kind == "hello":
            return {"shapes": program.shapes}, ()
        if task.kind == "report" and program.withheld:
            return {"withheld": True}, ()
        if task.kind == "report":
            sent = program.report(task, read_arrays(program.first_params, arrays))
            return {"events": self._take_events()}, sent
        shared, folder = read_arrays(program.first_shared, arrays), self._folder / task.run
        found = program.first_state if task.from_state == FIRST_STATE else load_state(folder, task.from_state, program.first_state)
        state = program.first_state if found is None else found
        if task.kind == "evaluate":
            sent = program.evaluate(task, shared, state)
            told = f"return {float(sent.total_return):.2f} here after {task.round} rounds"
            self._tell(told)
            first = self._returns.get(task.run, told).partition(", ")[0]
            self._returns[task.run] = told if first == told else f"{first}, {told}"
            if self._delivery is not None:
                params = program.deployed(shared, state)
                self._delivery.write(task.run, task.round, program.single, program.problem, params, float(sent.total_return))
            if program.withheld:  # its return is for the people here
                return {"withheld": True}, ()
        else:
            sent, state = self._update(program, task, shared, state)
            save_state(folder, task.to_state, state, keep={task.from_state, task.keep_state})
        return {"events": self._take_events(), "fresh": found is None}, sent

    def _update(self, program: AgentProgram, task: Task, shared: Any, state: Any) -> tuple[Update, Any]:
        """What is sent, and the state that follows."""
        began, noise, delta, limit = time.monotonic(), program.config.noise, program.config.privacy_delta, self._settings.most_epsilon
        if noise > 0:
            ledger = Ledger(self._folder)
            total, spent = ledger.after(noise, delta)
            if 0 < limit < spent:
                raise Refused(f"its privacy budget of epsilon {limit} is spent")
            ledger.write(total)
            self._tell(f"with this message epsilon is {spent:.3g} at delta {min(delta, MAX_DELTA):g}")
            # A new secret for every answer: a server that asks twice from one state must not get the same noise twice.
            state = with_secret(state, os.urandom(32))
        sent, state = program.update(task, shared, state)
        # A message that is not finite would be refused; the server hears why there is none instead.
        read_arrays(sent, named_arrays.flatten(sent))
        numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(sent))
        self._tell(f"round {task.round}: sent a message of {numbers:,} numbers in {time.monotonic() - began:.2f} s")
        return sent, state

    def _take_events(self) -> tuple[str, ...]:
        """What the server hears of the events; people at the agent get all of it."""
        if self._program is None or self._program.host is None:
            return ()
        events = [event.what for event in self._program.host.events]
        self._program.host.events.clear()
        for event in events:
            self._tell(f"in the environment: {event}")
        return () if self._program.withheld else tuple(without_numbers(event) for event in events[:MAX_EVENTS])


def without_numbers(event: str) -> str:
    """The part of an event that may leave: after a colon or a digit there may be a number from the environment.

    >>> without_numbers("step raised ValueError: 3.7 is too much"), without_numbers("observation holds 1e+300")
    ('step raised ValueError', 'observation holds')
    """
    return one_line(re.match(r"[^:\d(-]*", event)[0].strip() or "something went wrong")


def _alone(config: Config, agent: int) -> tuple[Config, int]:
    """The configuration with which an agent makes its environment, and its index among the agents of that.

    Families draw the constants of all N agents from one key, and each agent takes its own. Environments in Python are made for one.
    """
    if ":" not in config.env:
        return config, agent
    options = per_agent(config.env_option, config.agents)[agent] if config.env_option else {}
    single = {name: [value] if isinstance(value, list) else value for name, value in options.items()}
    return dataclasses.replace(config, agents=1, env_option=single), 0


def _falsified(message: Any, attack: str) -> Any:
    """What an attacker sends instead of `message`; it knows no other agent's."""
    real, others, join = parts(jax.tree.map(lambda x: x[None], message))
    rows, unflatten = as_rows(real)
    false = ON_MESSAGES[attack](jax.random.key(secrets.randbits(31))[None], rows, np.ones(1, bool))
    return trees.take(join(jax.vmap(unflatten)(false), others), 0)
