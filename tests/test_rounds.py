"""The order of a round: two exchanges before the main one, a server that works by itself, and numbers that stop being numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, mean
from fedpg.keys import Purpose, agent_key
from fedpg.problem import Usage
from fedpg.quadratic import quadratic
from fedpg.simulate import simulator
from fedpg.simulate_plain import StageError, plain_simulator
from helpers.compare import assert_trees_close
from helpers.federations import Small, bowl, make, rl

PROBLEM = quadratic(2)
KEY = jax.random.key(3)


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

    def aggregate(state: ServerState, messages: Any, present: Any) -> tuple:
        return ServerState(changes(state.shared, mean(messages, present))), RoundInfo(jnp.sum(present), jnp.zeros(()))

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


def agents(*fails: int) -> Agent:
    return Agent(jnp.array([[1.0, 0.0], [0.0, 2.0], [5.0, -1.0]]), jnp.array(fails))


def state_at(sim: Any, round: int) -> Any:
    """The state before the first round, with another round number."""
    return sim.init(KEY)._replace(round=jnp.asarray(round))


def by_hand(round: int, params: np.ndarray, common: np.ndarray, fails: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """params and common after a round, in plain loops."""
    place, out = np.asarray(agents(0).place), set()
    for number in range(3):
        out |= {i for i in range(3) if fails[i] == number}
        sent = []
        for i in set(range(3)) - out:
            key = agent_key(KEY, 0, round, i, Purpose.PRELUDE if number < 2 else Purpose.TRAIN)
            noise = np.asarray(jax.random.normal(jax.random.fold_in(key, number) if number < 2 else key, (2,)))
            sent.append(place[i] + common + noise)
        common = [np.mean(sent, axis=0), -np.mean(sent, axis=0), common][number]
    own = jax.random.normal(agent_key(KEY, 0, round, 0, Purpose.SERVER), (2,))
    return params + np.mean(sent, axis=0) + np.asarray(own) + place.sum(0), common


ENGINES = pytest.mark.parametrize("engine", [simulator, plain_simulator])


@ENGINES
@pytest.mark.parametrize("fails", [(-1, -1, -1), (-1, 0, 2)])
def test_a_round_is_what_plain_loops_make_of_it(engine, fails):
    """A refused agent is absent until the end of the round: its state stays, and it causes no further cost."""
    sim = engine(PROBLEM, TOY, agents(*fails))
    state, params, common = sim.init(KEY), np.zeros(2), np.zeros(2)
    for round in range(2):
        before = state.rows
        state, info = sim.run(state, 1)
        params, common = by_hand(round, params, common, fails)
        np.testing.assert_allclose(state.rows.server.shared.params[0], params, rtol=1e-4)
        exchanges = [3 if failing < 0 else failing for failing in fails]
        assert (state.rows.agents - before.agents).tolist() == [exchanges]
        assert info.refused.tolist() == [[int(failing >= 0) for failing in fails]]
        assert info.latest.direction_sq.tolist() == [sum(failing < 0 for failing in fails)]
        # 1, 2, 3 trajectories in the three exchanges, until and including the one that fails; 7 of the server
        used = 7 + sum(sum(range(1, 2 + min(done, 2))) for done in exchanges)
        assert info.local.usage.trajectories.tolist() == [used]
        assert info.local.usage.env_steps.tolist() == [10 * used]


@ENGINES
@pytest.mark.parametrize("fails", [(1, 1, 1), (0, 1, 2)])
def test_a_seed_that_fails_in_the_middle_of_a_round_is_as_it_was_before_the_round(engine, fails):
    sim = engine(PROBLEM, TOY, agents(*fails))
    before = state_at(sim, 4)
    after, _ = sim.run(before, 1)
    assert after.rows.failed.tolist() == [4]
    assert_trees_close(after.rows._replace(failed=before.rows.failed), before.rows)


@ENGINES
def test_numbers_sent_in_every_exchange(engine):
    """Up: three messages of 2 from each agent. Down: params and common, then what a prelude changed: common, twice."""
    sim = engine(PROBLEM, TOY, agents(-1, -1, -1))
    assert sim.communication(sim.init(KEY))[:7] == (0, 0, 3 * 3 * 2, 3 * (4 + 2 + 2), 0, 0, 3)


def test_the_plain_simulator_names_the_server_and_the_agent():
    def refuse(*args):
        raise ZeroDivisionError("no such thing")

    sim = plain_simulator(PROBLEM, TOY._replace(server_update=refuse), agents(-1, -1, -1))
    with pytest.raises(StageError, match="seed 0, round 4, server_update: ZeroDivisionError: no such thing"):
        sim.run(state_at(sim, 4), 1)
    sim = plain_simulator(PROBLEM, TOY._replace(prelude=(Exchange(refuse, refuse),)), agents(-1, -1, -1))
    with pytest.raises(StageError, match="seed 0, round 4, agent 0, local_update"):
        sim.run(state_at(sim, 4), 1)


def poisoned(small: Small, broken: list[int]) -> Small:
    """The same federation, with a NaN reward (or curvature) for some agents of every seed."""

    def drawn(key: jax.Array, seed: Any) -> Any:
        made = small.agents(key, seed)
        bad = jnp.zeros(3, bool).at[jnp.array(broken)].set(True)
        name = "reward" if hasattr(made, "reward") else "curvature"
        leaf = getattr(made, name)
        return made._replace(**{name: jnp.where(bad.reshape(-1, *[1] * (leaf.ndim - 1)), jnp.nan, leaf)})

    return small._replace(agents=drawn)


@pytest.mark.parametrize("engine", [simulator, pytest.param(plain_simulator, marks=pytest.mark.slow)])
def test_one_broken_agent_is_left_out_and_counted(engine):
    small = poisoned(rl("random-mdp", horizon=2, batch_size=1), [1])
    sim = engine(small.problem, make("fedsvrpg-m", small.problem, u0_batches=0, local_steps=1), small.agents)
    start = sim.init(KEY)
    state, info = sim.run(start, 2)
    assert state.rows.failed.tolist() == [-1]
    assert info.refused.tolist() == [[0, 2, 0]]
    params, before = (np.asarray(x.rows.server.shared.params["logits"]) for x in (state, start))
    assert np.isfinite(params).all()
    assert (params != before).any()
    assert_trees_close(*(trees.take(trees.take(x.rows.agents, 0), 1) for x in (state, start)))


def test_a_seed_without_a_sound_agent_is_frozen_at_its_last_sound_state():
    small = poisoned(bowl(), [0, 1, 2])
    sim = simulator(small.problem, make("pavg", small.problem), small.agents, seeds=2)
    state, _ = sim.run(sim.init(KEY), 3)
    assert state.rows.failed.tolist() == [0, 0]
    assert np.isfinite(sim.params(state)).all()


def test_divergence_is_recorded_with_its_round():
    """A step-size far too large on a quadratic overflows after some rounds; the state before that is kept."""
    small = bowl()
    sim = simulator(small.problem, make("pavg", small.problem, local_lr=1e3, local_steps=2), small.agents)
    start = sim.init(KEY)
    state, _ = sim.run(start, 20)
    failed = int(state.rows.failed[0])
    assert 0 < failed < 20
    sound, _ = sim.run(start, failed)
    assert sound.rows.failed.tolist() == [-1]
    assert_trees_close(sim.params(sound), sim.params(state))


def test_prints_in_an_agent_see_numbers_in_the_plain_simulator(capsys):
    small = bowl()

    def gradient(draw, params):
        print(f"params {float(params[0]):.3f}")
        return small.problem.gradient(draw, params)

    sim = plain_simulator(small.problem, make("pavg", small.problem._replace(gradient=gradient)), small.agents)
    sim.run(sim.init(KEY), 1)
    assert capsys.readouterr().out.count("params ") == 9  # agents x local steps
