"""Which attack and aggregator a row has, and how the table judges."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import aggregation
from fedpg.algorithms.base import Algorithm, ServerState
from fedpg.gradients.dishonest import Suspect
from fedpg.paper import attacks
from fedpg.paper.attacks import ATTACKS, Found, Scale
from fedpg.paper.sweep import Sweep

ROWS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_number_is_its_attack(name):
    """A toy algorithm that sends its agent's constants, and 100 times the number of its own attack on trajectories."""

    def local_update(key, shared, state, agent):
        return agent.constants + 100.0 * agent.attack, state, ()

    toy = Algorithm("toy", None, local_update, lambda state, messages, weights: (messages, ()))
    algorithm = attacks.besieged(toy, jnp.asarray(float(ATTACKS.index(name))))
    agents = Suspect(jnp.asarray(ROWS), jnp.asarray([1.0] * 3 + [0.0] * 7))
    messages = jax.vmap(algorithm.local_update, (0, None, None, 0))(jax.random.split(jax.random.key(0), 10), (), (), agents)[0]
    found = np.asarray(algorithm.aggregate(ServerState(()), messages, jnp.ones(10))[0])
    np.testing.assert_allclose(found[3:], ROWS[3:], rtol=1e-6)
    sure = {"none": 0.0, "reward-flip": 100.0, "random-action": 200.0, "shuffled-reward": 300.0}
    if name in sure:
        np.testing.assert_allclose(found[:3], ROWS[:3] + sure[name], rtol=1e-5)
    elif name in ("zero", "sign-flip"):
        np.testing.assert_allclose(found[:3], {"zero": 0.0, "sign-flip": -2.5}[name] * ROWS[:3], rtol=1e-6)
    else:
        assert (np.abs(found[:3] - ROWS[:3]) > 1e-3).all()
        assert (found[0] == found[1]).all() == (name == "fedpg-attack")


def test_every_number_is_its_aggregator():
    names = ("krum", "mean", "median")
    for number, name in enumerate(names):
        found = attacks.numbered(jnp.asarray(float(number)), names)(jnp.asarray(ROWS), jnp.ones(10))
        np.testing.assert_allclose(found, aggregation.make(name)(jnp.asarray(ROWS), jnp.ones(10)), rtol=1e-5, atol=1e-6)


def returns(*last):
    """Two evaluations, two seeds, one attack for each of the given last returns."""
    return np.array([[[20.0, value - 1.0], [20.0, value + 1.0]] for value in last])


def test_the_table_judges_by_the_worst_attack():
    names, rounds = ("none", "sign-flip", "noise"), np.array([0, 4])
    found = {
        "pavg, mean": Found(rounds, returns(100.0, 20.0, 99.0), 100.0),
        "pavg, median": Found(rounds, returns(99.0, 91.0, 95.0), 100.0),
        "pavg, krum": Found(rounds, returns(99.0, 97.0, 89.0), 100.0),
        "fedpg-br": Found(rounds, returns(80.0, 79.0, 73.0), 80.0),
    }
    rows = {row.what: row for row in attacks.table(found, names, "h = 0")}
    assert rows["h = 0, pavg, median: sign-flip"].ours == 91.0
    assert rows["h = 0, pavg, median: sign-flip"].verdict == "91% of the clean return"
    assert rows["h = 0, pavg, krum: share left under its worst attack, noise"].verdict.startswith("does not hold")
    worst = rows["h = 0, fedpg-br: share left under its worst attack, noise"]
    assert worst.ours == pytest.approx(73 / 80)
    assert worst.verdict.startswith("holds")
    kept = rows["h = 0: methods that keep 90 % under every attack"]
    assert (kept.ours, kept.n) == (2, 4)
    assert kept.verdict.startswith("does not hold"), "the median is only one robust aggregator"
    assert rows["h = 0: plain mean under sign-flip"].verdict == "fails, as it should"
    found["pavg, krum"] = found["pavg, median"]
    found["pavg, mean"] = Found(rounds, returns(100.0, 60.0, 99.0), 100.0)
    kept, plain = attacks.table(found, names, "h = 1")[-2:]
    assert kept.verdict.startswith("holds")
    assert plain.verdict == "does not fail"
    assert len(attacks.table(found, names, "h = 1")) == 4 * 3 + 4 + 2


def test_a_run_asks_for_every_method_and_names_every_result(monkeypatch):
    """The measuring itself is made up here; that a round of every setting can be traced is not."""
    asked = []

    def traced(problem, algorithm_of, agents_of, grid, *, seeds, rounds, root):
        def one_round(key, setting):
            algorithm = algorithm_of(setting)
            server, state = algorithm.init(problem.init_params(key))
            update = jax.vmap(algorithm.local_update, (0, None, 0, 0))
            messages, _, _ = update(jax.random.split(key, 10), server.shared, trees.broadcast(state, 10), agents_of(key))
            server, _ = algorithm.aggregate(server, messages, jnp.ones(10))
            return server if algorithm.server_update is None else algorithm.server_update(key, server, agents_of(key))[0]

        jax.eval_shape(one_round, jax.random.key(0), {name: jnp.asarray(float(values[0])) for name, values in grid.items()})
        asked.append({name: list(values) for name, values in grid.items()})
        shape = (len(grid["attack"]), seeds, len(rounds))
        made_up = np.broadcast_to(100.0 - np.arange(shape[0])[:, None, None], shape).copy()
        made_up[1, 0] = np.nan  # a seed that failed
        return Sweep(np.array(rounds), made_up, made_up, None, made_up)

    monkeypatch.setattr(attacks, "sweep", traced)
    monkeypatch.setitem(attacks.SCALES, "smoke", Scale(2, 8, (0.0, 1.0), ("none", "sign-flip", "reward-flip"), ("mean", "krum")))
    found = attacks.run("smoke", lambda what, share: None)
    assert asked[0] == {"aggregation": [0, 0, 0, 1, 1, 1], "attack": [0, 3, 4] * 2}
    assert asked[1] == {"aggregation": [0, 0, 0], "attack": [0, 3, 4]}
    told = {row.what: row.ours for row in found.rows}
    assert told["h = 0, pavg, krum: reward-flip"] == 95.0
    assert told["h = 0, pavg, mean: sign-flip"] == 49.5, "a seed that failed counts 0"
    assert told["h = 1, fedpg-br: share left under its worst attack, sign-flip"] == pytest.approx(0.495)
    assert [panel.title for panel in found.panels] == [
        f"{name}, heterogeneity {h}" for h in (0, 1) for name in ("sign-flip", "reward-flip")
    ]
    assert list(found.panels[0].lines[0].x) == [0, 2, 4, 6, 8]
