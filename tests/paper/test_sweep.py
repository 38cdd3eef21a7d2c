"""A sweep is as many runs as it has settings, on the same seeds."""

from __future__ import annotations

import numpy as np

from fedpg.algorithms import pavg
from fedpg.paper.sweep import cross, federation, sweep


def small(settings, rounds=(0, 2), seeds=2):
    problem, agents_of = federation("random-mdp", 3, 1.0, {"states": 3}, horizon=5, discount=0.9)
    return sweep(
        problem, lambda s: pavg(problem, local_lr=s["local_lr"], local_steps=2), agents_of, settings, seeds=seeds, rounds=list(rounds)
    )


def test_every_setting_starts_at_the_same_place_on_the_same_seeds_and_goes_its_own_way():
    found = small({"local_lr": [0.1, 1.0]})
    assert found.objective.shape == found.grad_norm_sq.shape == (2, 2, 2)
    np.testing.assert_array_equal(found.objective[0, :, 0], found.objective[1, :, 0])
    assert found.objective[0, 0, 0] != found.objective[0, 1, 0]
    assert (found.objective[0, :, 1] != found.objective[1, :, 1]).all()
    np.testing.assert_array_equal(found.trajectories[:, :, 1], 3 * 2 * 2)


def test_a_seed_that_fails_is_not_a_number_from_then_on():
    found = small({"local_lr": [0.1, np.inf]}, rounds=(1, 3))
    assert np.isfinite(found.objective[0]).all()
    assert np.isnan(found.objective[1, :, 1]).all()


def test_all_combinations():
    grid = cross(local_lr=[1.0, 2.0, 3.0], beta=[0.1, 0.2])
    assert len(grid["beta"]) == 6
    assert (grid["local_lr"][1], grid["beta"][1]) == (1.0, 0.2)
