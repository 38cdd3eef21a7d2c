"""Which attack and mean a row has, and how the table judges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms.base import Algorithm, ServerState
from fedpg.algorithms.wrappers import attack, chain
from fedpg.algorithms.wrappers.robust import mean_of
from fedpg.gradients.dishonest import ATTACKS as ON_TRAJECTORIES
from fedpg.gradients.dishonest import MarkedAgent
from fedpg.paper import attacks
from fedpg.paper.attacks import ATTACKS
from fedpg.paper.results import select

ROWS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def test_every_number_is_its_attack():
    """A toy algorithm that sends its agent's constants, and 100 times the number of its own attack on trajectories."""

    def local_update(key, shared, state, agent):
        return agent.constants + 100.0 * agent.attack, state, ()

    def received(number):
        toy = Algorithm("toy", None, local_update, lambda state, messages, present: (messages, ()), predicted=lambda shared: jnp.zeros(4))
        algorithm = chain(toy, attack(number, 3))
        agents = MarkedAgent(jnp.asarray(ROWS), jnp.asarray([1.0] * 3 + [0.0] * 7))
        messages = jax.vmap(algorithm.local_update, (0, None, None, 0))(jax.random.split(jax.random.key(0), 10), (), (), agents)[0]
        return algorithm.aggregate(ServerState(()), messages, jnp.ones(10))[0]

    found = dict(zip(ATTACKS, np.asarray(jax.jit(jax.vmap(received))(jnp.arange(len(ATTACKS)))), strict=True))
    sure = {"none": ROWS[:3], "zero": 0.0 * ROWS[:3], "sign-flip": -2.5 * ROWS[:3]}
    sure |= {name: ROWS[:3] + 100.0 * (1 + ON_TRAJECTORIES.index(name)) for name in ON_TRAJECTORIES}
    for name, messages in found.items():
        np.testing.assert_allclose(messages[3:], ROWS[3:], rtol=1e-6, err_msg=name)
        if name in sure:
            np.testing.assert_allclose(messages[:3], sure[name], rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            assert (np.abs(messages[:3] - ROWS[:3]) > 1e-3).all(), name
            assert (messages[0] == messages[1]).all() == (name == "fedpg-attack"), name


def test_every_number_is_its_mean():
    names = ("krum", "mean", "median")
    for number, name in enumerate(names):
        found = attacks.numbered(jnp.asarray(float(number)), names)(jnp.asarray(ROWS), jnp.ones(10))
        np.testing.assert_allclose(found, mean_of(name, attacks.SHARE)(jnp.asarray(ROWS), jnp.ones(10)), rtol=1e-5, atol=1e-6)


def returns(*last):
    """Two evaluations, two seeds, one attack for each of the given last returns."""
    return np.array([[[20.0, value - 1.0], [20.0, value + 1.0]] for value in last])


def test_a_method_is_judged_by_its_worst_attack():
    names = ("none", "sign-flip", "noise")
    found = {
        "PAvg, mean": returns(100.0, 20.0, 99.0),
        "PAvg, median": returns(99.0, 91.0, 95.0),
        "PAvg, krum": returns(99.0, 97.0, 89.0),
        "FedPG-BR": returns(80.0, 79.0, 73.0),
    }
    rows = attacks.judge(found, names, heterogeneity=0.0)
    (cell,) = select(rows, quantity="return", method="PAvg, median", attack="sign-flip")
    assert (cell.mean, cell.verdict.bound, cell.verdict.outcome) == (91.0, 90.0, "holds")
    worst = {row.method: row for row in select(rows, quantity="share left")[:4]}
    assert {name: (row.attack, row.verdict.outcome) for name, row in worst.items()} == {
        "PAvg, mean": ("sign-flip", "fails"),
        "PAvg, median": ("sign-flip", "holds"),
        "PAvg, krum": ("noise", "fails"),
        "FedPG-BR": ("noise", "holds"),
    }
    assert worst["FedPG-BR"].mean == pytest.approx(73 / 80)  # of its own clean return
    (kept,) = select(rows, quantity="robust methods")
    assert (kept.mean, kept.n, kept.verdict.outcome) == (2, 4, "fails"), "the median is only one robust mean"
    assert rows[-1].verdict.outcome == "holds", "the plain mean falls below half under sign-flip"
    found |= {"PAvg, krum": found["PAvg, median"], "PAvg, mean": returns(100.0, 90.0, 99.0)}
    kept, plain = attacks.judge(found, names)[-2:]
    assert (kept.verdict.outcome, plain.verdict.outcome) == ("holds", "fails")


def test_a_run_asks_for_every_method_and_failed_seeds_count_zero(monkeypatch):
    """The measuring is made up here; that an algorithm can be made for every setting is not."""
    asked = []

    def fake(problem, algorithm_of, agents, *, seeds, settings):
        for p in range(len(settings["attack"])):
            jax.eval_shape(lambda s: algorithm_of(s).init(problem.init_params(jax.random.key(0))), {k: v[p] for k, v in settings.items()})
        asked.append({name: values.tolist() for name, values in settings.items()})
        return settings, seeds

    def made_up(sim, key, rounds):
        settings, seeds = sim
        values = 100.0 - jnp.arange(len(settings["attack"]))[:, None, None, None] + np.zeros((1, seeds, len(rounds), 10))
        values = np.array(values)
        values[1, 0] = np.nan
        return type("C", (), {"returns": values})

    monkeypatch.setattr(attacks, "simulator", fake)
    monkeypatch.setattr(attacks, "curves", made_up)
    sizes = {
        "seeds": 2,
        "rounds": 8,
        "heterogeneities": (0.0, 1.0),
        "attacks": ("none", "sign-flip", "reward-flip"),
        "means": ("mean", "krum"),
    }
    result = attacks.run(lambda what, share: None, **sizes)
    numbers = [ATTACKS.index(name) for name in sizes["attacks"]]
    assert asked[0] == asked[1] == {"mean": [0, 0, 0, 1, 1, 1], "attack": numbers * 2}
    assert asked[2] == {"mean": [0, 0, 0], "attack": numbers}
    assert {row.method for row in result.rows} >= {"PAvg, krum", "CALM, krum", "FedPG-BR"}
    (krum,) = select(result.rows, quantity="return", heterogeneity=0.0, method="PAvg, krum", attack="reward-flip")
    (flipped,) = select(result.rows, quantity="return", heterogeneity=1.0, method="PAvg, mean", attack="sign-flip")
    assert (krum.mean, flipped.mean) == (95.0, 49.5)
    assert {point.round for point in result.points} == {0, 2, 4, 6, 8}
