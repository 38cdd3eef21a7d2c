"""Federations in one process: a link that calls the agents directly, bytes in and bytes out, as between machines."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from fedpg.flower import packets, tasks
from fedpg.flower.site import Site
from fedpg.flower.work import Own, Work
from fedpg.runs import setup
from fedpg.runs.config import Config

Meddle = Callable[[int, tasks.Task, bytes, bytes], bytes | str]
"""(agent, task, packet, answer) -> what the server gets instead of `answer`."""


class Direct:
    """A link to agents in this process.

    Args:
        sites: the agents that are there.
        meddle: what happens to answers on their way; nothing by default.

    Attributes:
        away: agents that cannot be reached now.
        seen: every packet that crossed it: (agent, task, packet, answer).
    """

    def __init__(self, sites: dict[int, Site], meddle: Meddle | None = None) -> None:
        self.sites, self.meddle = sites, meddle
        self.away: set[int] = set()
        self.seen: list[tuple[int, tasks.Task, bytes, bytes | str]] = []

    def present(self) -> set[int]:
        return set(self.sites) - self.away

    def ask(self, sent: dict[int, bytes], seconds: float) -> dict[int, bytes | str]:
        found = {}
        for agent, packet in reversed(sent.items()):  # answers come in any order
            task = tasks.read(tasks.Task, packets.unpack(packet).header)
            answer = self.sites[agent].answer(packet)
            found[agent] = self.meddle(agent, task, packet, answer) if self.meddle else answer
            self.seen.append((agent, task, packet, found[agent]))
        return found


@functools.cache
def plan(config: Config) -> setup.Plan:
    """One algorithm for all agents of a configuration, so that it is traced and compiled once."""
    asked = setup.plan(config)
    algorithm = asked.algorithm_of({})
    return asked._replace(algorithm_of=lambda setting: algorithm)


@functools.cache
def work_of(config: Config, own: Own) -> Work:
    """An agent's half of a run, the same for all its sites. Those in Python, which have events, are made anew."""
    return Work(config, own, plan)


def site_of(own: Own, folder: Path, tell: Callable[[str], None] = lambda line: None) -> Site:
    """A site that need not compile what another one has compiled in this process."""
    return Site(own, folder, tell, Work if ":" in own.env else work_of)


def sites_of(config: Config, folder: Path | None = None, **own: object) -> dict[int, Site]:
    """One site for every agent of `config`, each with the environment it would have in the simulator."""
    folder = folder or Path(tempfile.mkdtemp())
    chosen = {"heterogeneity": config.heterogeneity, "env_option": config.env_option} | own
    return {i: site_of(Own(i, config.env, **chosen), folder / f"agent-{i}") for i in range(config.agents)}
