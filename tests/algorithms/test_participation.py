"""A share of the agents per round: chosen alike by both engines, the others untouched, nothing counted for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate as simulator
from fedpg import trees
from fedpg.algorithms.selection import EVERYONE, Participation, Who
from fedpg.errors import UserError
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug
from helpers.compare import assert_trees_close
from helpers.federations import bowl, make, rl

AGENTS = 5
BOWLS = bowl(AGENTS, noise=0.3)
MDPS = rl("random-mdp", agents=AGENTS, horizon=3, batch_size=2, baseline="value")


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


def started(kind, small, name, participation, seeds=1, **settings):
    algorithm = make(name, small.problem, agents=AGENTS, **settings)
    engine = kind(small.problem, algorithm, small.agents_of, root=7, seeds=seeds, participation=participation)
    engine.start()
    return engine


def who_moved(before, after):
    """Which agents' states changed, of one seed."""
    leaves = zip(jax.tree.leaves(before.agents), jax.tree.leaves(after.agents), strict=True)
    return np.any([(x[0] != y[0]).reshape(AGENTS, -1).any(1) for x, y in leaves], axis=0)


@pytest.mark.parametrize(
    ("small", "name", "participation"),
    [
        (BOWLS, "pavg", Participation(0.4)),
        (BOWLS, "fast-fedpg", Participation(0.4, "gradient-norm", 0.8)),
    ],
    ids=["random", "gradient-norm"],
)
def test_both_engines_choose_and_do_the_same(small, name, participation):
    fast, plain = (started(kind, small, name, participation, local_steps=1) for kind in (Simulator, Debug))
    assert fast.traffic == plain.traffic
    for round in range(2):
        plain.load(fast.state())
        for engine in (fast, plain):
            engine.advance(round, 1)
        assert_trees_close(fast.state(), plain.state(), rtol=1e-4, atol=1e-5)


def test_the_absent_keep_their_state_cost_nothing_and_have_no_weight():
    """Two of five on SCAFFOLD, whose server counts the present: the same round by hand, with a weight of 0 for the absent."""
    engine, everyone = (started(Simulator, BOWLS, "scaffold", one) for one in (Participation(0.4), EVERYONE))
    agents = jax.tree.map(lambda x: jnp.asarray(x[0]), engine.agents())
    algorithm = make("scaffold", BOWLS.problem)

    @jax.jit
    def by_hand(round, server, states, present):
        keys = jax.vmap(lambda i: simulator.agent_key(7, 0, round, i))(jnp.arange(AGENTS))
        messages, _, _ = jax.vmap(algorithm.local_update, (0, None, 0, 0))(keys, server.shared, states, agents)
        return algorithm.aggregate(server, messages, present)[0]

    sizes = []
    for round in range(3):
        before = engine.state()
        everyone.load(before)
        engine.reset_info()
        engine.advance(round, 1)
        everyone.advance(round, 1)
        after, whole = engine.state(), everyone.state()
        present = who_moved(before, after)
        sizes.append(present.sum())
        chosen = jnp.flatnonzero(present)
        assert_trees_close(
            trees.take(trees.take(after.agents, 0), chosen), trees.take(trees.take(whole.agents, 0), chosen), rtol=1e-5, atol=1e-6
        )
        assert after.info.usage.trajectories.tolist() == [2 * 3]  # agents, local steps
        assert after.refused.tolist() == [[0] * AGENTS]

        expected = by_hand(round, trees.take(before.server, 0), trees.take(before.agents, 0), jnp.asarray(present, float))
        assert_trees_close(trees.take(after.server, 0), expected, rtol=1e-5, atol=1e-6)
    assert sizes == [2] * 3


def test_every_agent_comes_in_turn_and_the_choice_depends_on_seed_and_round_only():
    engine, again = (started(Simulator, BOWLS, "scaffold", Participation(0.4), seeds=2) for _ in range(2))
    seen = []
    for round in range(12):
        before = engine.state()
        engine.advance(round, 1)
        after = engine.state()
        seen.append([who_moved(trees.take(before, slice(s, s + 1)), trees.take(after, slice(s, s + 1))) for s in range(2)])
    seen = np.array(seen)  # (rounds, seeds, agents)
    assert (seen.sum(-1) == 2).all()
    assert seen.any(0).all()
    assert (seen[:, 0] != seen[:, 1]).any()
    again.advance(0, 5)
    again.load(again.state())
    again.advance(5, 7)
    assert_trees_close(again.state(), engine.state())


def test_a_share_that_is_everyone_is_everyone():
    """round(0.95 * 5) = 5: not even a rule changes anything."""
    ends = []
    for participation in (EVERYONE, Participation(0.95), Participation(0.95, "power-of-choice")):
        engine = started(Simulator, BOWLS, "pavg", participation)
        engine.advance(0, 2)
        ends.append((engine.state(), engine.traffic))
    assert ends[0][1] == ends[1][1] == ends[2][1]
    assert_trees_close(ends[1][0], ends[0][0])
    assert_trees_close(ends[2][0], ends[0][0])


def test_refused_messages_are_counted_for_the_one_who_sent_them():
    def agents_of(key):
        made = BOWLS.agents_of(key)
        return made._replace(centre=made.centre.at[3].set(jnp.nan))

    engine = started(Simulator, BOWLS._replace(agents_of=agents_of), "scaffold", Participation(0.6))
    engine.advance(0, 12)
    state = engine.state()
    assert state.failed.tolist() == [-1]
    assert state.refused[0, 3] > 0
    assert (np.delete(state.refused[0], 3) == 0).all()


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
def test_floats_by_hand(name, participation, up, down):
    """25 params, a table of 25. Candidates get the params and send a report; who takes part gets the rest of `shared`."""
    engine = Simulator(MDPS.problem, make(name, MDPS.problem), MDPS.agents_of, participation=participation)
    assert (engine.traffic.round_up, engine.traffic.round_down) == (up, down)


def test_gathering_and_spreading():
    who = Who(jnp.array([1, 3]), 4)
    assert who.gather(jnp.arange(4) * 10).tolist() == [10, 30]
    assert who.spread(jnp.array([5.0, 6.0])).tolist() == [0.0, 5.0, 0.0, 6.0]
    assert who.spread(jnp.array([5, 6]), jnp.arange(4)).tolist() == [0, 5, 2, 6]


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
@pytest.mark.parametrize("kind", [Simulator, Debug])
def test_what_an_algorithm_or_a_problem_cannot_do_is_refused(kind, name, participation, said):
    with pytest.raises(UserError, match=said):
        kind(BOWLS.problem, make(name, BOWLS.problem, agents=AGENTS), BOWLS.agents_of, participation=participation)
