"""Where every system settles on `doors` without noise: |grad J|^2 in logits, and how much of the way to the best J it went.

The conflict family has no such place: its best common policies are deterministic, and |grad J|^2 falls for ever on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies, trees
from fedpg.envs import tabular
from fedpg.envs.tabular import MDP
from fedpg.exact_problem import exact_problem
from fedpg.gradients import exact
from fedpg.keys import Purpose, agent_key
from fedpg.paper.doors import doors
from fedpg.paper.table_1_systems import BY_LABEL, floor_steps, make
from fedpg.simulate import Simulator

AGENTS, STATES, ACTIONS, DISCOUNT = 3, 3, 3, 0.9
ROOT = 40


class Floor(NamedTuple):
    """Where a system ended, by seed, (S,) each; NaN where it failed.

    Attributes:
        at: |grad J|^2 there.
        before: |grad J|^2 at nine tenths of the rounds.
        start: |grad J|^2 at theta_0.
        objective: J there.
        start_objective: J at theta_0.
        drift: how far agents moved from theta_0 in round 0, mean of squares.
        twins: `at`, with identical agents.
    """

    at: np.ndarray
    before: np.ndarray
    start: np.ndarray
    objective: np.ndarray
    start_objective: np.ndarray
    drift: np.ndarray
    twins: np.ndarray


def key_of(root: int, seed: Any) -> jax.Array:
    """What the engine makes a seed's agents from."""
    return agent_key(root, seed, 0, 0, Purpose.AGENTS)


def doors_and_twins(root: int, seeds: int) -> Any:
    """key -> agents: seeds 0 .. S-1 live behind different doors; seed S + s has seed s's first agent, three times.

    One program then measures both.
    """

    def agents_of(key: jax.Array) -> MDP:
        known = jax.vmap(lambda seed: jax.random.key_data(key_of(root, seed)))(jnp.arange(2 * seeds))
        number = jnp.argmax(jnp.all(known == jax.random.key_data(key), axis=-1))
        different = doors(key_of(root, number % seeds), AGENTS, STATES, ACTIONS)
        same = trees.broadcast(trees.take(different, 0), AGENTS)
        return trees.select(number < seeds, different, same)

    return agents_of


def logits_of(params: dict[str, Any]) -> np.ndarray:
    """A table policy's logits, whatever it calls them."""
    return np.log(params["probabilities"]) if "probabilities" in params else np.asarray(params["logits"])


@jax.jit
def judged(logits: jax.Array, mdps: MDP) -> tuple[jax.Array, jax.Array]:
    """J and |grad J|^2 in logits of rows of policies, (rows, S, A), for rows of agents, (rows, N, ...); (rows,) each."""

    def mean_value(logits: jax.Array, mdp: MDP) -> jax.Array:
        return jnp.mean(jax.vmap(lambda one: exact.value(one, jax.nn.softmax(logits), DISCOUNT, None))(mdp))

    value, slope = jax.vmap(jax.value_and_grad(mean_value))(logits, mdps)
    return value, jnp.sum(jnp.square(slope), axis=(1, 2))


def measure(label: str, local_steps: int, rounds: int, seeds: int) -> Floor:
    """Runs one system in double precision, on `seeds` federations and on their twins."""
    system = BY_LABEL[label]
    with jax.enable_x64(True):
        environment = tabular.environment("doors", STATES, ACTIONS)
        problem = exact_problem(environment, policies.make(system.policy, environment), discount=DISCOUNT)
        algorithm = make(system, problem, local_steps=local_steps, **floor_steps(system, local_steps))
        engine = Simulator(problem, algorithm, doors_and_twins(ROOT, seeds), root=ROOT, seeds=2 * seeds)
        engine.start()
        found, mdps, late = [], jax.tree.map(jnp.asarray, engine.agents()), 9 * rounds // 10
        for done, target in ((0, 0), (0, late), (late, rounds)):
            if done == 0 < target:  # one round by itself: at the fixed point even those who take local steps stand still
                engine.advance(0, 1)
                drift, done = np.asarray(engine.state().latest.drift_sq), 1
            if target > done:
                engine.advance(done, target - done)
            state = engine.state()
            lost = np.where(state.failed >= 0, np.nan, 0.0)
            value, slope = (np.asarray(x) for x in judged(jnp.asarray(logits_of(state.server.shared.params)), mdps))
            found.append((value + lost, slope + lost))
    (start_objective, start), (_, before), (objective, at) = found
    own = slice(0, seeds)
    return Floor(at[own], before[own], start[own], objective[own], start_objective[own], drift[own], at[seeds:])
