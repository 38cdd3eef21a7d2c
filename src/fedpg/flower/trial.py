"""An agent's environment is made and tried before the agent connects: whatever is wrong with it is said at once, on its own screen."""

import math
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import envs, own
from fedpg.envs.base import Discrete, Environment
from fedpg.envs.host import HostEnvironment, Member
from fedpg.errors import UserError, require
from fedpg.simulate import agents_of_seeds

STEPS = 3
SECONDS = 60.0
"""How long making an environment of your own, or of Gymnasium, and its first steps may take. Ours cannot hang: on a busy machine they
compile slowly."""
LOOK = 0.3
"""Seconds between looks whether it is done."""


def try_environment(name: str, agent: int, heterogeneity: float | None, options: dict[str, Any]) -> Environment | HostEnvironment:
    """Makes an agent's environment, resets it, and takes a few steps.

    Raises:
        UserError: if it cannot be made, raises, hangs, or returns what its spaces do not allow.
    """
    result: list[Any] = []

    def work() -> None:
        try:
            result.append(_try(name, agent, heterogeneity, options))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=work, name="trial", daemon=True)
    thread.start()
    left = max(1, round(SECONDS / LOOK)) if ":" in name else math.inf
    while left > 0 and not result:  # many short waits: the time in which this process is stopped does not count
        thread.join(LOOK)
        left -= 1
    require(bool(result), f"{name} hangs: it was not made, reset and stepped {STEPS} times within {SECONDS:g} seconds")
    if isinstance(result[0], UserError):
        raise result[0]
    if isinstance(result[0], BaseException):
        raise UserError(f"{name} does not work: {own.one_line(result[0])}") from result[0]
    return result[0]


def _try(name: str, agent: int, heterogeneity: float | None, options: dict[str, Any]) -> Environment | HostEnvironment:
    python, count = ":" in name, agent + 1
    # A list has one value per agent; how many agents there are is not known yet.
    chosen = {key: [value[agent]] if isinstance(value, list) and len(value) > agent else value for key, value in options.items()}
    federation = envs.make(name, 1 if python else count, heterogeneity, chosen if python else options)
    environment, key = federation.environment, jax.random.key(0)
    members = jax.tree.map(lambda x: x[0], agents_of_seeds(federation, key, 1))
    if isinstance(environment, HostEnvironment):
        _try_host(name, environment, members, federation.prepare)
    else:
        _try_jax(name, environment, jax.tree.map(lambda x: jnp.asarray(x)[-1], members))
    return environment


def _action(environment: Environment | HostEnvironment) -> np.ndarray:
    """An action that every environment allows: the first choice, or the middle of the range, or zero."""
    space = environment.action_space
    if isinstance(space, Discrete):
        return np.zeros((), int)
    middle = (space.low + space.high) / 2 if np.isfinite(space.low) and np.isfinite(space.high) else 0.0
    return np.full(space.shape, middle)


def _try_host(name: str, environment: HostEnvironment, members: Member, prepare: Any) -> None:
    rows = jax.tree.map(lambda x: np.asarray(x)[None], members)
    member = jax.tree.map(lambda x: np.asarray(x)[0, -1:], prepare(rows) if prepare else rows)
    starts = jax.vmap(environment.start)(jax.random.split(jax.random.key(0), 1), member.start)
    session = environment.host.reset(np.asarray(member.index), np.asarray(starts))
    for _ in range(STEPS):
        if not environment.host.events:
            session.step(np.asarray(_action(environment))[None])
    session.close()
    if environment.host.events:
        raise UserError(f"{name} does not work: {environment.host.events[0].what}")


def _try_jax(name: str, environment: Environment, member: Any) -> None:
    @jax.jit
    def finite(key: jax.Array, member: Any) -> list[jax.Array]:
        state, _ = environment.reset(key, member)
        found = []
        for _ in range(STEPS):
            stepped = environment.step(key, state, jnp.asarray(_action(environment)), member)
            state = stepped.state
            observation = jnp.asarray(stepped.observation, float)
            found.append(jnp.isfinite(stepped.reward) & jnp.all(jnp.isfinite(observation)))
        return found

    for step, fine in enumerate(finite(jax.random.key(0), member)):
        require(bool(fine), f"{name} does not work: step {step + 1} gave a reward or an observation that is not finite")
