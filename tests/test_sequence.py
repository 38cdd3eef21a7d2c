"""A round with everything in it: two exchanges before the main one, and a server that works by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import base
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState
from fedpg.keys import Purpose, agent_key
from fedpg.problem import Usage
from fedpg.quadratic import quadratic
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug, StageError
from helpers.compare import assert_trees_close

PROBLEM = quadratic(2)
ROOT = 3


class Agent(NamedTuple):
    """A place, and the exchange (0, 1: prelude, 2: main) in which the agent's message is not a number."""

    place: Any
    fails: Any


class Shared(NamedTuple):
    params: Any
    common: Any


def cost(trajectories: int) -> LocalInfo:
    return LocalInfo(Usage(jnp.asarray(trajectories), jnp.asarray(10 * trajectories), 2.0 * trajectories), base.no_weights())


def exchange(number: int, changes: Any) -> Exchange:
    """Agents send place + common + noise, and remember how often they did; changes(shared, mean) is the next `shared`."""

    def local_update(key: Any, shared: Shared, done: Any, agent: Agent) -> tuple:
        message = agent.place + shared.common + jax.random.normal(key, (2,))
        return jnp.where(agent.fails == number, jnp.nan, message), done + 1, cost(number + 1)

    def aggregate(state: ServerState, messages: Any, weights: Any) -> tuple:
        return ServerState(changes(state.shared, mean(messages, weights))), RoundInfo(jnp.sum(weights), jnp.zeros(()))

    return Exchange(local_update, aggregate)


def server_update(key: Any, state: ServerState, agents: Agent) -> tuple[ServerState, LocalInfo]:
    moved = state.shared.params + jax.random.normal(key, (2,)) + jnp.sum(agents.place, axis=0)
    return ServerState(state.shared._replace(params=moved)), cost(7)


MAIN = exchange(2, lambda shared, m: shared._replace(params=shared.params + m))
TOY = Algorithm(
    "toy",
    lambda params: (ServerState(Shared(params, jnp.zeros(2))), jnp.zeros(())),
    **MAIN._asdict(),
    prelude=(exchange(0, lambda shared, m: shared._replace(common=m)), exchange(1, lambda shared, m: shared._replace(common=-m))),
    server_update=server_update,
)


def agents_of(*fails: int) -> Any:
    made = Agent(jnp.array([[1.0, 0.0], [0.0, 2.0], [5.0, -1.0]]), jnp.array(fails))
    return lambda key: made


def started(kind: type, *fails: int) -> Any:
    engine = kind(PROBLEM, TOY, agents_of(*fails), root=ROOT)
    engine.start()
    return engine


def by_hand(round: int, params: np.ndarray, common: np.ndarray, fails: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """params and common after a round, in plain loops."""
    place, out = np.asarray(agents_of(0)(None).place), set()
    for number in range(3):
        out |= {i for i in range(3) if fails[i] == number}
        sent = []
        for i in set(range(3)) - out:
            key = agent_key(ROOT, 0, round, i, Purpose.PRELUDE if number < 2 else Purpose.TRAIN)
            noise = np.asarray(jax.random.normal(jax.random.fold_in(key, number) if number < 2 else key, (2,)))
            sent.append(place[i] + common + noise)
        common = [np.mean(sent, axis=0), -np.mean(sent, axis=0), common][number]
    own = jax.random.normal(agent_key(ROOT, 0, round, 0, Purpose.SERVER), (2,))
    return params + np.mean(sent, axis=0) + np.asarray(own) + place.sum(0), common


@pytest.mark.parametrize("kind", [Simulator, Debug])
@pytest.mark.parametrize("fails", [(-1, -1, -1), (-1, 0, 2)])
def test_a_round_is_what_plain_loops_make_of_it(kind, fails):
    """Whoever was refused is out until the end of the round: weight 0, its state as it was, no further cost."""
    engine = started(kind, *fails)
    params = common = np.zeros(2)
    for round in range(2):
        state = engine.state()
        engine.advance(round, 1)
        after, (params, common) = engine.state(), by_hand(round, params, common, fails)
        np.testing.assert_allclose(after.server.shared.params[0], params, rtol=1e-4)
        exchanges = [3 if failing < 0 else failing for failing in fails]
        assert (after.agents - state.agents).tolist() == [exchanges]
        assert (after.refused - state.refused).tolist() == [[int(failing >= 0) for failing in fails]]
        assert after.latest.direction_sq.tolist() == [sum(failing < 0 for failing in fails)]
        # 1, 2, 3 trajectories in the three exchanges, until and including the one that fails; 7 of the server
        used = 7 + sum(sum(range(1, 2 + min(done, 2))) for done in exchanges)
        assert (after.info.usage.trajectories - state.info.usage.trajectories).tolist() == [used]
        assert (after.info.usage.env_steps - state.info.usage.env_steps).tolist() == [10 * used]


@pytest.mark.parametrize("kind", [Simulator, Debug])
@pytest.mark.parametrize("fails", [(1, 1, 1), (0, 1, 2)])
def test_a_seed_that_fails_in_the_middle_of_a_round_is_as_it_was_before_the_round(kind, fails):
    engine = started(kind, *fails)
    before = engine.state()
    engine.advance(4, 1)
    assert engine.state().failed.tolist() == [4]
    assert_trees_close(engine.state()._replace(failed=before.failed), before)


def test_floats_of_every_exchange():
    """Up: three messages of 2 from each agent. Down: params and common, then whatever a prelude changed: common, twice."""
    engine = started(Simulator, -1, -1, -1)
    assert engine.traffic == (0, 0, 3 * 3 * 2, 3 * (4 + 2 + 2), 0, 0, 3)
    assert started(Debug, -1, -1, -1).traffic == engine.traffic


def test_the_debug_engine_names_the_server_and_the_agent():
    def refuse(*args):
        raise ZeroDivisionError("no such thing")

    engine = Debug(PROBLEM, TOY._replace(server_update=refuse), agents_of(-1, -1, -1))
    engine.start()
    with pytest.raises(StageError, match="seed 0, round 4, server_update: ZeroDivisionError: no such thing"):
        engine.advance(4, 1)
    engine = Debug(PROBLEM, TOY._replace(prelude=(Exchange(refuse, refuse),)), agents_of(-1, -1, -1))
    engine.start()
    with pytest.raises(StageError, match="seed 0, round 4, agent 0, local_update"):
        engine.advance(4, 1)
