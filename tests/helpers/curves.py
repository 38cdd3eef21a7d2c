"""Made-up learning curves with known answers."""

import numpy as np

from fedpg.runs.sweep import Curves


def made_up(end, seeds=4, start=10.0, scatter=0.1, rounds=10, failed=0):
    """A straight line from `start` to `end` on every seed, seed s lower or higher by up to `scatter` all along."""
    x = np.arange(0, rounds + 1, 2)
    shift = scatter * np.linspace(-1, 1, seeds)[:, None] if seeds > 1 else np.zeros((1, 1))
    returns, cost = start + (end - start) * x / rounds + shift, np.tile(x.astype(float), (seeds, 1))
    return Curves(x, returns, None, None, 100 * cost, 10 * cost, np.full(returns.shape, 0.3), np.where(np.arange(seeds) < failed, 3, -1))
