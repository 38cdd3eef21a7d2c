"""Federations in one process: a link that calls the agents directly, bytes in and bytes out, as between machines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fedpg.flower.agent import Agent, AgentProgram, AgentSettings
from fedpg.flower.protocol import Task, unpack
from fedpg.runs import setup
from fedpg.runs.config import Config, to_toml

Meddle = Callable[[int, Task, bytes, bytes], bytes | str]
"""(agent, task, packet, answer) -> what the server gets instead of `answer`."""


class Direct:
    """A link to agents in this process.

    Args:
        agents: the agents that are there.
        meddle: what happens to answers on their way; nothing by default.

    Attributes:
        away: agents that cannot be reached now.
        going: agents that have said that they leave for good.
        seen: every packet that crossed it: (agent, task, packet, answer).
    """

    def __init__(self, agents: dict[int, Agent], meddle: Meddle | None = None) -> None:
        self.agents, self.meddle = agents, meddle
        self.away: set[int] = set()
        self.going: set[int] = set()
        self.seen: list[tuple[int, Task, bytes, bytes | str]] = []

    def present(self) -> set[int]:
        return set(self.agents) - self.away

    def late(self) -> dict[int, bytes]:
        return {}

    def leaving(self) -> set[int]:
        return set(self.going)

    def farewell(self, agent: int) -> None:
        self.going.discard(agent)
        self.away.add(agent)

    def ask(self, packets: dict[int, bytes], seconds: float, enough: object = None) -> Iterator[tuple[int, bytes | str]]:
        for agent, packet in reversed(packets.items()):  # answers come in any order
            task, _ = unpack(packet, Task)
            answer = self.agents[agent].answer(packet)
            answer = self.meddle(agent, task, packet, answer) if self.meddle else answer
            self.seen.append((agent, task, packet, answer))
            yield agent, answer


_PREPARED: dict[str, setup.Prepared] = {}
_PROGRAMS: dict[str, AgentProgram] = {}


def prepare(config: Config) -> setup.Prepared:
    """One algorithm for all agents of a configuration, so that it is traced and compiled once."""
    name = to_toml(config)
    if name not in _PREPARED:
        found = setup.prepare(config)
        algorithm = found.algorithm_of({})
        _PREPARED[name] = found._replace(algorithm_of=lambda setting: algorithm)
    return _PREPARED[name]


def shared_program(config: Config, settings: AgentSettings) -> AgentProgram:
    """An agent's half of a run, the same for all agents of this process with the same settings."""
    name = f"{to_toml(config)} {settings}"
    if name not in _PROGRAMS:
        _PROGRAMS[name] = AgentProgram(config, settings, prepare)
    return _PROGRAMS[name]


def agent_of(settings: AgentSettings, folder: Path, tell: Callable[[str], None] = lambda line: None) -> Agent:
    """An agent that need not compile what another one has compiled in this process. Those in Python, which have events, do."""
    return Agent(settings, folder, tell, AgentProgram if ":" in settings.env else shared_program)


def agents_of(config: Config, folder: Path | None = None, **settings: object) -> dict[int, Agent]:
    """Every agent of `config`, each with the environment it would have in the simulator."""
    folder = folder or Path(tempfile.mkdtemp())
    chosen = {"heterogeneity": config.heterogeneity, "env_option": config.env_option} | settings
    return {i: agent_of(AgentSettings(i, config.env, **chosen), folder / f"agent-{i}") for i in range(config.agents)}
