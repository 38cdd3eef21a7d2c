"""Training with kernels and without them has the same results in distribution, in cells of Table 2."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedpg import native
from fedpg.paper import table_2
from fedpg.paper.task import measure

SEEDS = 100


@pytest.mark.slow
@pytest.mark.parametrize("method", table_2.METHODS, ids=lambda method: method.name)
def test_every_cell(method, monkeypatch):
    """J of every beta at the smallest and the largest kappa: the mean difference is within four of its standard errors."""
    settings = {"beta": table_2.BETAS, "local_lr": [table_2.LOCAL_LR] * len(table_2.BETAS)}
    found = {}
    for choice in ("auto", "off"):
        monkeypatch.setenv(native.VARIABLE, choice)
        like = []
        for kappa in (0.0, 1.0):
            task = dataclasses.replace(table_2.TASK, heterogeneity=kappa)
            found[choice, kappa] = measure(task, method, settings, seeds=SEEDS, like=like).objective[..., -1]
    for kappa in (0.0, 1.0):
        apart = found["auto", kappa] - found["off", kappa]  # (P, S)
        error = apart.std(1, ddof=1) / np.sqrt(SEEDS)
        assert (np.abs(apart.mean(1)) <= 4 * error + 1e-4).all()
        assert (found["auto", kappa].std(1) > 0.01).all()
    assert not np.array_equal(found["auto", 0.0], found["auto", 1.0])
