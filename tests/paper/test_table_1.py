"""Table 1: verdicts and fits on made-up numbers, what is counted, and two methods that settle where they must."""

import numpy as np
import pytest

from fedpg.paper import table_1
from fedpg.paper.method import METHODS
from fedpg.paper.results import select
from fedpg.paper.table_1 import ETAS, Rest
from fedpg.runs.sweep import Curves

SEEDS = 4


def curves(gradients, objectives, trajectories=None):
    """P = 1 unless the arrays have their own axis of settings; (S, T) each."""
    gradients, objectives = (np.asarray(x, float) for x in (gradients, objectives))
    gradients, objectives = (x[None] if x.ndim == 2 else x for x in (gradients, objectives))
    used = np.zeros_like(gradients) if trajectories is None else np.broadcast_to(trajectories, gradients.shape)
    return Curves(np.arange(gradients.shape[-1]), objectives, objectives, gradients, used, used, used, np.full(gradients.shape[:2], -1))


def rest(level, gain=1.0, drift=1.0, settled=1.0, identical=1e-6):
    one = np.ones(SEEDS)
    different = curves(np.stack([one, settled * level * one, level * one], 1), np.stack([0 * one, gain * one, gain * one], 1))
    return Rest(different, curves(np.full((SEEDS, 3), identical), np.zeros((SEEDS, 3))), drift)


def rows_of(name, found, pavg=1e-4):
    return table_1.rest_rows(name, {8: found}, np.full(SEEDS, pavg), np.ones(SEEDS))


def verdict(rows, quantity):
    (row,) = select(rows, quantity=quantity, against="")
    return row.verdict.outcome, row.verdict.paper, row.flags


def test_exact_means_below_rounding_and_is_held_against_the_claim():
    assert verdict(rows_of("FedSVRPG-M", rest(1e-20)), "floor") == ("holds", True, ())
    assert verdict(rows_of("FedSVRPG-M", rest(1e-5)), "floor") == ("fails", True, ())
    assert verdict(rows_of("FedKL", rest(1e-5)), "floor") == ("fails", None, ())
    assert verdict(rows_of("SCAFFOLD", rest(1e-5, settled=1.5)), "floor") == ("fails", None, ("not settled",))
    mixed = rest(1e-5)
    mixed.different.grad_norm_sq[0, 0] = [1.0, 1e-19, 1e-20]  # rounding moves, and does not count
    assert verdict(rows_of("SCAFFOLD", mixed), "floor") == ("fails", None, ())


def test_local_updates_gain_and_ratios():
    rows = rows_of("FedPG-BR", rest(1e-20, gain=-1.0, drift=0.0))
    assert verdict(rows, "local updates") == ("fails", False, ())
    assert verdict(rows, "share of gain") == ("fails", False, ())
    (ratio,) = select(rows, quantity="floor", against="PAvg")
    (cost,) = select(rows, quantity="heterogeneity cost")
    assert (ratio.mean, cost.mean) == (pytest.approx(1e-16), pytest.approx(1e-14))
    (cost,) = select(rows_of("X", rest(1e-5, identical=0.0)), quantity="heterogeneity cost")
    assert cost.mean == pytest.approx(1e27)  # identical agents that arrive exactly do not make the ratio infinite
    assert not select(rows_of("PAvg", rest(1e-4)), against="PAvg")


def test_the_share_is_of_the_best_gain_and_leaves_out_failures():
    found = rest(1.0)
    found.different.objective[0, :, -1] = [3.0, 3.0, 1.0, np.nan]
    rows = table_1.rest_rows("X", {8: found}, np.ones(SEEDS), np.array([3.0, 6.0, 2.0, 5.0]))
    (gain,) = select(rows, quantity="share of gain")
    assert (gain.mean, gain.n) == (pytest.approx((1.0 + 0.5 + 0.5) / 3, rel=1e-5), 3)


def wandering(counts, powers, server=0, gain=1.0, seeds=32):
    """Noise that falls as N^-p at every step-size; agents draw 8 trajectories in each of 10 rounds."""
    random, found = np.random.default_rng(0), []
    for count in counts:
        levels = count ** -np.array(powers)[:, None] * random.lognormal(0.0, 0.05, (len(powers), seeds))
        gradients = np.stack([np.ones_like(levels), levels, levels], axis=-1)
        objectives = np.stack([np.zeros_like(levels), np.full_like(levels, gain), np.full_like(levels, gain)], axis=-1)
        found.append(curves(gradients, objectives, trajectories=[0.0, 5.0 * (8 * count + server), 10.0 * (8 * count + server)]))
    return found


def test_planted_exponents_and_costs_are_found():
    counts = (3, 6, 12, 24)
    rows, points = table_1.noise_rows("FedHAPG-M", wandering(counts, (1.0, 2.0 / 3.0), server=7), counts, 10)
    short, long = select(rows, quantity="exponent in N")
    assert (short.eta, short.mean, short.published, short.verdict.outcome) == (ETAS[0], pytest.approx(1.0, abs=0.03), 1.0, "holds")
    assert (long.mean, long.published, long.verdict) == (pytest.approx(2 / 3, abs=0.03), None, None)
    assert select(rows, quantity="trajectories")[0].mean == 8.0
    assert select(rows, quantity="server trajectories")[0].mean == 7
    assert [point.N for point in points] == list(counts)
    rows, points = table_1.noise_rows("SCAFFOLD", wandering(counts, (0.5, 0.5), gain=-1.0), counts, 10)
    assert (rows[0].flags, points, select(rows, quantity="server trajectories")) == (("J falls below its start for some N",), [], [])
    rows, _ = table_1.noise_rows("FedSVRPG-M", wandering(counts, (0.5, 0.5)), counts, 10)
    assert rows[0].verdict.outcome == "fails"


def test_a_failed_run_counts_as_lost():
    found = wandering((3, 6), (1.0, 1.0))
    found[1].grad_norm_sq[0, :, -1] = np.nan
    rows, _ = table_1.noise_rows("PAvg", found, (3, 6), 10)
    assert rows[0].mean < -5.0


def test_messages_are_counted_in_multiples_of_the_params():
    found = {name: table_1.sent(METHODS[name]) for name in ("SCAFFOLD", "Fast-FedPG", "FedNPG")}
    assert {name: tuple(each.values()) for name, each in found.items()} == {
        "SCAFFOLD": (2, 2, 1),
        "Fast-FedPG": (2, 3, 2),
        "FedNPG": (1, 1, 1),
    }


def test_the_claims_are_those_of_the_paper():
    assert {name: claim.exact for name, claim in table_1.CLAIMS.items()} == {
        "PAvg": False, "FedKL": None, "FedPG-BR": True, "FAPI": False, "FedSVRPG-M": True, "FedHAPG-M": True,
    }  # fmt: skip
    assert [name for name, claim in table_1.CLAIMS.items() if not claim.local_updates] == ["FedKL", "FedPG-BR", "FAPI"]
    assert [name for name, claim in table_1.CLAIMS.items() if not claim.heterogeneity] == ["FedPG-BR"]


@pytest.mark.slow
def test_pavg_settles_above_zero_and_fast_fedpg_does_not():
    sizes = table_1.SCALES["smoke"] | {"methods": ("PAvg", "Fast-FedPG"), "rest": (150, 2), "noisy": ()}
    rows = table_1.run(lambda what, share: None, **sizes).rows
    assert {row.method: row.verdict.outcome for row in select(rows, quantity="floor", against="")} == {
        "PAvg": "fails",
        "Fast-FedPG": "holds",
    }
    assert {row.verdict.outcome for row in select(rows, quantity="local updates")} == {"holds"}
    assert select(rows, quantity="share of gain", method="Fast-FedPG")[0].mean == pytest.approx(1.0)
