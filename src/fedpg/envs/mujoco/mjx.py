"""MuJoCo in JAX (MJX): pays on an accelerator with thousands of lanes; on a CPU use `batch`.

MuJoCo compiles each agent's model on the host, because MJX does not recompute derived constants. The numbers in which any
two agents differ belong to the agent; all others are constants of the program.

docs/mujoco.md says how far its numbers are from those of MuJoCo itself.
"""

import contextlib
import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from fedpg.envs.base import Environment, Step
from fedpg.envs.mujoco import models
from fedpg.envs.mujoco.options import Knobs
from fedpg.envs.mujoco.tasks import Task, healthy, observation, reward, sound, start

with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that it has found no Warp, which is not needed
    from mujoco import mjx

ITERATIONS = 4
"""Most Newton steps of the contact solver per physics step; MuJoCo's own limit of 100 is four times slower on a GPU."""
LS_ITERATIONS = 8
"""Most steps of its line search."""


class State(NamedTuple):
    """The state between two steps; MJX's own data would be copied whole at every step of a rollout."""

    qpos: jax.Array  # positions, (nq,)
    qvel: jax.Array  # velocities, (nv,)
    warmstart: jax.Array  # the last acceleration, where the solver starts, (nv,)


class Agent(NamedTuple):
    """One agent."""

    leaves: dict[str, jax.Array]  # the numbers of its model that agents differ in, by their name in MJX's model
    knobs: Knobs


def put(model: mujoco.MjModel) -> tuple[list[str], list[jax.Array], Any]:
    """A model in MJX: the names of its leaves, the leaves, and their structure."""
    model = mjx.put_model(model)
    model = model.replace(opt=model.opt.replace(iterations=ITERATIONS, ls_iterations=LS_ITERATIONS))
    named, structure = jax.tree_util.tree_flatten_with_path(model)
    return [jax.tree_util.keystr(path) for path, _ in named], [leaf for _, leaf in named], structure


def environment(task: Task) -> Environment:
    """The task in JAX, in float64 if JAX is set to that, else in float32. Its agents are `Agent`s, made by `prepare`."""
    nominal = models.build(task.name)
    names, leaves, structure = put(nominal)
    blank = mjx.make_data(jax.tree.unflatten(structure, leaves))

    def reset(key: jax.Array, agent: Agent) -> tuple[State, jax.Array]:
        noise = start(task, key, agent.knobs.start_range)
        state = State(nominal.qpos0 + noise[: task.nq], noise[task.nq :], jnp.zeros(task.nv))
        return state, observation(jnp, task, state.qpos, state.qvel)

    def transition(noise: jax.Array, state: State, action: jax.Array, agent: Agent) -> Step:
        del noise  # the dynamics are deterministic
        model = jax.tree.unflatten(structure, [agent.leaves.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)])
        action = action + agent.knobs.action_offset

        def substep(_: int, at: State) -> State:
            data = mjx.step(model, blank.replace(qpos=at.qpos, qvel=at.qvel, qacc_warmstart=at.warmstart, ctrl=action))
            return State(data.qpos, data.qvel, data.qacc_warmstart)

        after = jax.lax.fori_loop(0, task.frame_skip, substep, state)
        fine, lost = healthy(jnp, task, after.qpos, after.qvel), ~sound(jnp, after.qpos, after.qvel)
        x_velocity = (after.qpos[0] - state.qpos[0]) / task.dt
        paid = reward(jnp, task, x_velocity, action, fine, agent.knobs.target_speed, agent.knobs.direction)
        # A simulation that failed ends where it was, with a reward that makes the engine leave its agent out.
        after = jax.tree.map(lambda new, old: jnp.where(lost, old, new), after, state)
        seen = observation(jnp, task, after.qpos, after.qvel)
        return Step(after, seen, jnp.where(lost, jnp.nan, paid), lost | ~fine, jnp.zeros((), bool))

    return Environment(task.name, task.observation_space, task.action_space, reset, transition, lambda key, n: jnp.zeros(n))


def prepare(task: Task, environment: Environment, knobs: Knobs) -> Agent:
    """The agents of constants with axes (seeds, N): compiles every model and stacks the numbers that differ."""
    compiled = models.build_all(task, jax.tree.map(lambda x: np.asarray(x).reshape(-1), knobs))
    distinct = list({id(model): model for model in compiled}.values())
    place = {id(model): i for i, model in enumerate(distinct)}
    each = [put(model) for model in distinct]
    which = np.array([place[id(model)] for model in compiled]).reshape(np.shape(knobs.mass))
    leaves = {}
    for i, name in enumerate(each[0][0]):
        values = np.stack([np.asarray(model[1][i]) for model in each])
        if (values != values[:1]).any():
            leaves[name] = jnp.asarray(values[which])
    return Agent(leaves, jax.tree.map(jnp.asarray, knobs))
