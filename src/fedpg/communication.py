"""How many numbers and bytes an algorithm sends, counted from the types of what crosses the wire."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.selection import EVERYONE, Participation, selector
from fedpg.envs.base import space_size
from fedpg.problem import Problem


class Communication(NamedTuple):
    """Numbers sent by the whole federation.

    Attributes:
        start_up, start_down: in the warm-up.
        round_up, round_down: in every round.
        step_up: for every environment step; not 0 only where trajectories themselves travel (pooled).
        start_messages, round_messages: messages that one agent sends in the warm-up, and in every round in which it takes part.
        in_bytes: the same in bytes, without the headers of packets; None in that one itself.
    """

    start_up: int
    start_down: int
    round_up: int
    round_down: int
    step_up: int
    start_messages: int = 0
    round_messages: int = 0
    in_bytes: Any = None

    def messages(self, rounds: int) -> int:
        """The most messages that an agent has sent after so many rounds."""
        return self.start_messages + rounds * self.round_messages

    def total(self, rounds: int, env_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers sent up and down since round 0, one entry for each of `env_steps`."""
        up = self.start_up + rounds * self.round_up + self.step_up * env_steps
        return up, np.full_like(env_steps, self.start_down + rounds * self.round_down)


def measure(
    problem: Problem,
    algorithm: Algorithm,
    agents: Any,
    participation: Participation = EVERYONE,
    shapes_of: Callable[..., Any] = jax.eval_shape,
) -> Communication:
    """The communication of `algorithm` among `agents`.

    Candidates that are asked for a report get the params; those of them that take part then get the rest of `shared`.

    Args:
        problem, algorithm: what is learned, and how.
        agents: leading axis N.
        participation: how many take part in a round.
        shapes_of: traces one local update (the default), or calls it.
    """
    select = selector(participation, problem, algorithm, agents, shapes_of)
    if algorithm.pooled:
        step = _step_size(problem)
        return Communication(0, 0, 0, 0, step, in_bytes=Communication(0, 0, 0, 0, step * jnp.zeros(()).dtype.itemsize))

    def one_of_each(key: jax.Array, agents: Any) -> dict[str, Any]:
        agent = trees.take(agents, 0)
        server, agent_state = algorithm.init(problem.init_params(key))
        shared, params = server.shared, algorithm.deployed(server.shared, agent_state)
        first = [exchange.local_update(key, shared, agent_state, agent)[0] for exchange in algorithm.warmup]
        report = () if select is None or select.report is None else select.report(key, params, agent)[0]
        up, down = [], [shared]
        for exchange in algorithm.prelude:
            message, agent_state, _ = exchange.local_update(key, server.shared, agent_state, agent)
            held = {id(leaf) for leaf in jax.tree.leaves(server.shared)}
            server, _ = exchange.aggregate(server, jax.tree.map(lambda x: x[None], message), jnp.ones(1))
            up.append(message)
            # What the server did not change since the round began is with the agents already.
            down.append([leaf for leaf in jax.tree.leaves(server.shared) if id(leaf) not in held])
        up.append(algorithm.local_update(key, server.shared, agent_state, agent)[0])
        return {"shared": shared, "params": params, "first": first, "report": report, "up": up, "down": down}

    sent, count = shapes_of(one_of_each, jax.random.key(0), agents), trees.leading_axis(agents)
    chosen, asked = (count, 0) if select is None else (select.participants, select.reporting)

    def counted(size_of: Callable[[Any], int]) -> Communication:
        size = {name: size_of(tree) for name, tree in sent.items()}
        return Communication(
            start_up=count * size["first"],
            start_down=count * len(algorithm.warmup) * size["shared"],
            round_up=chosen * size["up"] + asked * size["report"],
            round_down=chosen * size["down"] + max(asked - chosen, 0) * size["params"],
            step_up=0,
            start_messages=len(algorithm.warmup),
            round_messages=len(algorithm.prelude) + 1,
        )

    return counted(trees.size)._replace(in_bytes=counted(trees.nbytes))


def _step_size(problem: Problem) -> int:
    """Numbers in one recorded environment step (observation, action, reward); 0 where there is no environment."""
    if problem.environment is None:
        return 0
    return space_size(problem.environment.observation_space) + space_size(problem.environment.action_space) + 1
