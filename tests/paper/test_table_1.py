"""Table 1: verdicts and fits on made-up numbers, a federation of N heard among more, and one small real run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate as simulator
from fedpg import trees
from fedpg.algorithms import ALGORITHMS, fedsvrpg_m, pavg
from fedpg.paper import table_1, table_1_floors, table_1_speedup
from fedpg.paper.fits import Fit
from fedpg.paper.outcome import load, save
from fedpg.paper.table_1_floors import Floor, doors_and_twins, key_of
from fedpg.paper.table_1_rows import Counted, Found, agreement, convergence, faster, rows_of, share
from fedpg.paper.table_1_speedup import Wandering, exponents, heard
from fedpg.paper.table_1_systems import BY_LABEL, OURS, SYSTEMS, Claim
from fedpg.quadratic import bowls, quadratic
from fedpg.simulate import Simulator

SEEDS = 4


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    """These programs run once."""
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


def made_up(level: float, gain: float = 1.0, drift: float = 1.0, settled: float = 1.0) -> Floor:
    one = np.ones(SEEDS)
    return Floor(level * one, settled * level * one, one, gain * one, 0.0 * one, drift * one, 1e-6 * one)


def test_convergence_says_exact_only_below_rounding():
    assert convergence(made_up(1e-20), OURS) == "agrees: exact (paper: finite and exact)"
    assert convergence(made_up(1e-5), OURS) == "differs: inexact (paper: finite and exact)"
    asymptotic = Claim("asymptotic", 0.0, False, True)
    assert convergence(made_up(1e-5), asymptotic) == "inexact (paper: asymptotic)"
    assert convergence(made_up(1e-5, settled=1.5), None) == "inexact, not settled yet"
    rounding = made_up(1e-5, settled=1.0)
    rounding.at[0], rounding.before[0] = 1e-20, 1e-19
    assert convergence(rounding, None) == "inexact"


def test_what_the_paper_says_is_read_from_its_words():
    said = {system.label: system.claim for system in SYSTEMS if system.claim}
    exact = {label: claim.exact for label, claim in said.items()}
    assert exact == {"PAvg": False, "FedKL": None, "FedPG-BR": True, "FAPI": False, "FedSVRPG-M": True, "FedHAPG-M": True}
    assert [label for label, claim in said.items() if not claim.local_updates] == ["FedKL", "FedPG-BR", "FAPI"]
    assert [label for label, claim in said.items() if not claim.heterogeneity] == ["FedPG-BR"]


def test_identical_agents_that_arrive_exactly_do_not_make_the_ratio_infinite():
    exact = made_up(1e-5)._replace(twins=np.zeros(SEEDS))
    rows = {row.what: row for row in rows_of("X", Found({8: exact}, None, Counted(1.0, 1.0, 1), None), exact, np.ones(SEEDS), 8)}
    assert rows["X: |grad J|^2, different / identical agents"].ours == pytest.approx(1e27)


def test_share_is_of_the_best_gain_and_leaves_out_failures():
    floor = made_up(1.0, gain=3.0)._replace(objective=np.array([3.0, 3.0, 1.0, np.nan]))
    found = share(floor, np.array([3.0, 6.0, 2.0, 5.0]))
    assert (float(found.mean), found.seeds) == (pytest.approx((1.0 + 0.5 + 0.5) / 3), 3)


def test_exponents_of_a_made_up_law():
    agents = np.array([3, 6, 12, 24])
    noise = np.random.default_rng(0).lognormal(0.0, 0.05, (32, 4, 2))
    law = np.stack([agents**-1.0, agents ** (-2.0 / 3.0)], axis=1)
    short, long = exponents(Wandering(agents, noise * law, np.ones((32, 4, 2)), 8.0, 0))
    assert short.low < 1.0 < short.high
    assert float(long.value) == pytest.approx(2 / 3, abs=0.03)
    assert faster(short, OURS, False) == "agrees"
    assert faster(Fit(0.5, 0.4, 0.6, 8), OURS, True) == "differs by 0.50; J falls below its start for some N"


def test_rows_compare_with_pavg_and_with_the_claims():
    plain, still = made_up(1e-4), made_up(1e-20, gain=-1.0, drift=0.0)
    claim = Claim("finite and exact", 2.0 / 3.0, False, False)
    rows = {row.what: row for row in rows_of("X", Found({8: still}, None, Counted(2.0, 3.0, 2), claim), plain, np.ones(SEEDS), 8)}
    assert rows["X: floor at K=8 / PAvg's"].ours == pytest.approx(1e-16)
    assert rows["X: |grad J|^2, different / identical agents"].ours == pytest.approx(1e-14)
    assert rows["X: floor at K=8 / PAvg's"].verdict == "agrees: agents take no local steps"
    assert rows["X: share of the best gain in J, different agents"].verdict == "agrees: does not get there"
    assert (rows["X: floats up, in d per agent and round"].ours, rows["X: floats up, in d per agent and round"].verdict) == (
        2.0,
        "2 exchanges",
    )
    assert agreement(False, True, ("does", "does not")) == "differs: does"


def test_counted_by_the_engine():
    found = {label: table_1.counted(label) for label in ("SCAFFOLD", "Fast-FedPG", "PAvg, projected")}
    assert {label: (each.up, each.down, each.exchanges) for label, each in found.items()} == {
        "SCAFFOLD": (2, 2, 1), "Fast-FedPG": (2, 3, 2), "PAvg, projected": (1, 1, 1),
    }  # fmt: skip


def test_every_system_is_an_algorithm_and_the_full_scale_has_them_all():
    assert {system.algorithm for system in SYSTEMS} <= set(ALGORITHMS)
    assert set(table_1.SCALES["full"].systems) == {system.label for system in SYSTEMS}


def test_two_agents_heard_among_four_are_a_federation_of_two():
    """Down to the warm-up, with its keys: the first two agents are the same in both."""
    problem = quadratic(4, noise=0.3)

    def thetas(most: int, counts: list[int]) -> np.ndarray:
        def agents_of(key: jax.Array):
            return trees.take(bowls(key, 4, 0.5), jnp.arange(most))

        def algorithm_of(count: jax.Array):
            return heard(fedsvrpg_m(problem, local_lr=0.05, local_steps=3), count)

        engine = Simulator(problem, algorithm_of, agents_of, settings=jnp.array(counts))
        engine.start()
        engine.advance(0, 3)
        return engine.state().server.shared.params

    two, four = thetas(4, [2, 4])
    np.testing.assert_allclose(two, thetas(2, [2])[0], rtol=1e-5)
    assert np.abs(four - two).max() > 1e-3


def test_twins_have_the_first_agent_three_times():
    agents_of = jax.jit(doors_and_twins(3, 2))
    different, twin = (agents_of(key_of(3, seed)) for seed in (1, 3))
    assert np.abs(different.transition[0] - different.transition[1]).max() > 0
    for number in range(3):
        np.testing.assert_array_equal(twin.transition[number], different.transition[0])


def test_a_small_run_finds_who_is_exact(monkeypatch, tmp_path):
    """PAvg settles above 0, Fast-FedPG nowhere else than at a stationary point; the picture's and the table's numbers survive a file."""
    size = table_1.Scale(("PAvg", "Fast-FedPG"), (8,), 150, 2, ("PAvg",), (3, 6, 12), 24, 2, 1, 1)
    monkeypatch.setitem(table_1.SCALES, "smoke", size)
    found = table_1.run("smoke", lambda what, share: None)
    rows = {row.what: row for row in found.rows}
    assert rows["PAvg: floor of |grad J|^2, K=8, share of the start's"].verdict.startswith("agrees: inexact")
    assert rows["Fast-FedPG: floor of |grad J|^2, K=8, share of the start's"].verdict == "exact"
    assert rows["PAvg: trajectories per agent and round"].ours == table_1_speedup.LOCAL_STEPS
    assert rows["Fast-FedPG: share of the best gain in J, different agents"].ours == pytest.approx(1.0)
    assert len(load(save(found, tmp_path)).rows) == len(found.rows)


def test_the_server_of_fedpg_br_is_charged_and_a_probability_table_has_logits():
    problem = quadratic(4, noise=0.3)
    algorithm = ALGORITHMS["fedpg-br"](problem, local_lr=0.1, local_steps=8)
    assert table_1_speedup.server_cost(algorithm, jnp.zeros(4), bowls(jax.random.key(0), 3, 0.5)) == 7
    assert table_1_speedup.server_cost(pavg(problem, local_lr=0.1), jnp.zeros(4), None) == 0
    table = np.array([[[0.25, 0.75]]])
    np.testing.assert_allclose(np.exp(table_1_floors.logits_of({"probabilities": table})), table)
    assert set(BY_LABEL) == set(table_1.SCALES["full"].noisy)
