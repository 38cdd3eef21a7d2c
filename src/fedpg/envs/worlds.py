"""Every environment by name, whatever runs it: what `--env` takes.

cartpole, random-mdp, conflict       traced, in the jitted program
halfcheetah, walker2d, hopper, ...   MuJoCo: the real engine on the CPU (batch), or in the jitted program (mjx)
gym:ID                               any Gymnasium environment, in Python
module:function, file.py:function    one's own, in Python or in JAX
spaces                               none: for the server of a federation whose agents have the environments
"""

from __future__ import annotations

import functools
from typing import Any

from fedpg.envs import mujoco, stand_in
from fedpg.envs.base import World
from fedpg.envs.families import FAMILIES, family, read_options
from fedpg.envs.python import gym_world, own_world, time_limit
from fedpg.errors import choose, require

SPACES = "spaces"
NAMES = (*FAMILIES, *mujoco.TASKS, SPACES)
BACKENDS = ("auto", *mujoco.BACKENDS)
LONGEST = 1000
"""The longest horizon that is taken from an environment unasked."""
MUJOCO_HETEROGENEITY = 0.5
"""The default for MuJoCo tasks: start ranges within a factor 2^0.5 of the task's own."""
MJX_LANES = 4096
"""From this many lanes `auto` takes MJX on a GPU: between 1,600, where it measured slower than 16 cores, and 16,384, where faster."""


def check_name(name: str) -> str:
    """`name` if it can be an environment's; those with a colon are looked for only when they are made."""
    return name if ":" in name else choose("env", name, NAMES)


def default_heterogeneity(name: str) -> float:
    """What `--heterogeneity` is when it is left out."""
    if name in FAMILIES:
        return family(name).heterogeneity
    return MUJOCO_HETEROGENEITY if name in mujoco.TASKS else 0.0


def own_horizon(name: str) -> int | None:
    """After how many steps the environment itself stops an episode, where that is known by name; at most `LONGEST`."""
    limit = time_limit(name) if name.startswith("gym:") else None
    return min(limit, LONGEST) if limit else None


def choose_backend(name: str, backend: str, lanes: int, device: str) -> str:
    """`backend`, or for "auto" the one that measures faster for this many lanes on this kind of device ("cpu", "gpu")."""
    choose("backend", backend, BACKENDS)
    if name not in mujoco.TASKS:
        require(backend == "auto", f"{name} has one backend only: leave out --backend")
        return backend
    faster = "mjx" if device == "gpu" and lanes >= MJX_LANES else "batch"
    return faster if backend == "auto" else backend


def make_world(name: str, agents: int, heterogeneity: float, options: dict[str, Any], backend: str) -> World:
    """The environment called `name` and how its N agents are made.

    Args:
        name: what `--env` says.
        agents: N.
        heterogeneity: how much they differ.
        options: what `--env-option` says, checked here.
        backend: for MuJoCo, batch or mjx.
    """
    if name in FAMILIES:
        kind = family(name)
        values = read_options(name, kind.options, options)
        return World(kind.environment(values), functools.partial(kind.agents, agents=agents, heterogeneity=heterogeneity, options=values))
    if name == SPACES:
        values = read_options(name, stand_in.SpacesOptions, options)
        return World(stand_in.environment(values), functools.partial(stand_in.members, agents=agents))
    if name in mujoco.TASKS:
        return mujoco.world(name, agents, heterogeneity, read_options(name, mujoco.MujocoOptions, options), backend)
    require(heterogeneity == 0.0, f"{name} knows no --heterogeneity: give each agent its own --env-option values instead")
    return (gym_world if name.startswith("gym:") else own_world)(name, agents, options)
