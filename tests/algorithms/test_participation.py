"""A share of the agents per round: chosen alike by both engines, the others untouched, nothing counted for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate, trees
from fedpg.algorithms.selection import EVERYONE, Participation
from fedpg.communication import measure
from fedpg.errors import UserError
from fedpg.keys import agent_key
from fedpg.rounds import Participants
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_trees_close
from helpers.federations import bowl, make, rl

AGENTS = 5
BOWLS = bowl(AGENTS, noise=0.3)
MDPS = rl("random-mdp", agents=AGENTS, horizon=3, batch_size=2, baseline="value")


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulate, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


KEY = jax.random.key(7)


def engine_of(engine, small, name, participation, seeds=1, **settings):
    algorithm = make(name, small.problem, agents=AGENTS, **settings)
    return engine(small.problem, algorithm, small.agents, seeds=seeds, participation=participation)


def who_moved(before, after, seed=0):
    """Which agents' states changed, of one seed."""
    leaves = zip(jax.tree.leaves(before.rows.agents), jax.tree.leaves(after.rows.agents), strict=True)
    return np.any([(np.asarray(x[seed]) != np.asarray(y[seed])).reshape(AGENTS, -1).any(1) for x, y in leaves], axis=0)


@pytest.mark.parametrize(
    ("name", "participation"),
    [("pavg", Participation(0.4)), ("fast-fedpg", Participation(0.4, "gradient-norm", 0.8))],
    ids=["random", "gradient-norm"],
)
@pytest.mark.slow
def test_both_engines_choose_and_do_the_same(name, participation):
    fast, plain = (engine_of(engine, BOWLS, name, participation, local_steps=1) for engine in (simulator, plain_simulator))
    state, other = fast.init(KEY), plain.init(KEY)
    assert fast.communication(state) == plain.communication(other)
    for _ in range(2):
        other = other._replace(round=state.round, rows=state.rows)
        state, _ = fast.run(state, 1)
        other, _ = plain.run(other, 1)
        assert_trees_close(state.rows, other.rows, rtol=1e-4, atol=1e-5)


def test_the_absent_keep_their_state_cost_nothing_and_do_not_count():
    """Two of five on SCAFFOLD, whose server counts the agents present: the same round by hand, with `present` 0 for the absent."""
    some, everyone = (engine_of(simulator, BOWLS, "scaffold", one) for one in (Participation(0.4), EVERYONE))
    state = some.init(KEY)
    agents, algorithm = trees.take(jax.tree.map(jnp.asarray, state.agents), 0), make("scaffold", BOWLS.problem)

    @jax.jit
    def by_hand(round, server, states, present):
        keys = jax.vmap(lambda i: agent_key(KEY, 0, round, i))(jnp.arange(AGENTS))
        messages, _, _ = jax.vmap(algorithm.local_update, (0, None, 0, 0))(keys, server.shared, states, agents)
        return algorithm.aggregate(server, messages, present)[0]

    sizes = []
    for round in range(3):
        before = state
        whole, _ = everyone.run(before, 1)
        state, info = some.run(before, 1)
        present = who_moved(before, state)
        sizes.append(present.sum())
        chosen = jnp.flatnonzero(present)
        own, theirs = (trees.take(trees.take(x.rows.agents, 0), chosen) for x in (state, whole))
        assert_trees_close(own, theirs, rtol=1e-5, atol=1e-6)
        assert info.local.usage.trajectories.tolist() == [2 * 3]  # agents, local steps
        assert info.refused.tolist() == [[0] * AGENTS]
        server, states = trees.take(before.rows.server, 0), trees.take(before.rows.agents, 0)
        expected = by_hand(round, server, states, jnp.asarray(present, float))
        assert_trees_close(trees.take(state.rows.server, 0), expected, rtol=1e-5, atol=1e-6)
    assert sizes == [2] * 3


def test_every_agent_comes_in_turn_and_the_choice_depends_on_seed_and_round_only():
    sim = engine_of(simulator, BOWLS, "scaffold", Participation(0.4), seeds=2)
    start = state = sim.init(KEY)
    seen = []
    for _ in range(12):
        before = state
        state, _ = sim.run(before, 1)
        seen.append([who_moved(before, state, seed) for seed in range(2)])
    seen = np.array(seen)  # (rounds, seeds, agents)
    assert (seen.sum(-1) == 2).all()
    assert seen.any(0).all()
    assert (seen[:, 0] != seen[:, 1]).any()
    again, _ = sim.run(start, 12)
    assert_trees_close(again.rows.server, state.rows.server)


def test_a_share_that_is_everyone_is_everyone():
    """round(0.95 * 5) = 5: not even a rule changes anything."""
    ends = []
    for participation in (EVERYONE, Participation(0.95), Participation(0.95, "power-of-choice")):
        sim = engine_of(simulator, BOWLS, "pavg", participation)
        state, _ = sim.run(sim.init(KEY), 2)
        ends.append((state.rows, sim.communication(state)))
    assert ends[0][1] == ends[1][1] == ends[2][1]
    assert_trees_close(ends[1][0], ends[0][0])
    assert_trees_close(ends[2][0], ends[0][0])


def test_refused_messages_are_counted_for_their_sender():
    def agents(key, seed):
        made = BOWLS.agents(key, seed)
        return made._replace(centre=made.centre.at[3].set(jnp.nan))

    sim = engine_of(simulator, BOWLS._replace(agents=agents), "scaffold", Participation(0.6))
    state, info = sim.run(sim.init(KEY), 12)
    assert state.rows.failed.tolist() == [-1]
    assert info.refused[0, 3] > 0
    assert (np.delete(np.asarray(info.refused[0]), 3) == 0).all()


@pytest.mark.parametrize(
    ("name", "participation", "up", "down"),
    [
        ("pavg", Participation(0.4), 2 * 25, 2 * 25),
        ("fedsvrpg-m", Participation(0.4), 2 * 25, 2 * 75),
        ("pavg", Participation(0.4, "power-of-choice", 0.6), 2 * 25 + 3, 3 * 25),
        ("pavg", Participation(0.4, "csh-min"), 2 * 25 + 5 * 25, 5 * 25),
        ("fedsvrpg-m", Participation(0.4, "gradient-norm", 0.8), 2 * 25 + 4, 2 * 75 + 2 * 25),
    ],
)
def test_numbers_sent_by_hand(name, participation, up, down):
    """25 params, a table of 25. Candidates get the params and send a report; participants get the rest of `shared`."""
    found = measure(MDPS.problem, make(name, MDPS.problem), MDPS.agents(KEY, 0), participation)
    assert (found.round_up, found.round_down) == (up, down)


def test_gathering_and_scattering():
    who = Participants(jnp.array([1, 3]), 4)
    assert who.gather(jnp.arange(4) * 10).tolist() == [10, 30]
    assert who.scatter(jnp.array([5.0, 6.0])).tolist() == [0.0, 5.0, 0.0, 6.0]
    assert who.scatter(jnp.array([5, 6]), jnp.arange(4)).tolist() == [0, 5, 2, 6]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"share": 0.0}, "participation is a share"),
        ({"share": 1.5}, "participation is a share"),
        ({"share": float("nan")}, "participation is a share"),
        ({"share": 0.5, "candidates": 0.0, "selection": "csh-max"}, "candidates is a share"),
        ({"selection": "csh-max"}, "nothing to choose"),
        ({"share": 0.5, "selection": "csh"}, "did you mean 'csh-m"),
        ({"share": 0.5, "candidates": 0.7}, "give one of these as --selection"),
        ({"share": 0.5, "candidates": 0.4, "selection": "csh-min"}, "candidates must be at least participation, 0.5, not 0.4"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        Participation(**given)


@pytest.mark.parametrize(
    ("name", "participation", "said"),
    [
        ("pooled", Participation(0.5), "pooled trains in one place"),
        ("local-only", Participation(0.5, "gradient-norm"), "local-only has no common params to choose agents by"),
        ("pavg", Participation(0.5, "csh-max"), "compares tables over states and actions"),
    ],
)
@pytest.mark.parametrize("engine", [simulator, plain_simulator])
def test_what_an_algorithm_or_a_problem_cannot_do_is_refused(engine, name, participation, said):
    with pytest.raises(UserError, match=said):
        engine_of(engine, BOWLS, name, participation).init(KEY)
