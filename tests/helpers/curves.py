"""Made-up learning curves with known answers."""

from __future__ import annotations

import numpy as np

from fedpg.paper.runs import Run


def made_up(end: float, seeds: int = 4, start: float = 10.0, scatter: float = 0.1, rounds: int = 10, failed: int = 0) -> Run:
    """A straight line from `start` to `end` on every seed, seed s lower or higher by up to `scatter` all along."""
    x = np.arange(0, rounds + 1, 2)
    shift = scatter * np.linspace(-1, 1, seeds)[:, None] if seeds > 1 else np.zeros((1, 1))
    y = start + (end - start) * x / rounds + shift
    cost = np.tile(x.astype(float), (seeds, 1))
    return Run(x, 100 * cost, 10 * cost, y, np.full(y.shape, 0.3), np.arange(seeds) < failed)
