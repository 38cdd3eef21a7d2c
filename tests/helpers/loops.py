"""Rivals written out by hand, in plain NumPy, for quadratics without noise: what the algorithms are tested against."""

from __future__ import annotations

import numpy as np

BETA, ETA, STEPS, RATE, ROUNDS = 0.3, 0.1, 3, 0.5, 4
"""Of all the loops below: beta, eta, K, lambda and R."""


class Bowls:
    """Exact gradients and curvatures of N agents."""

    def __init__(self, bowls):
        self.curvature, self.centre, self.all = np.asarray(bowls.curvature), np.asarray(bowls.centre), range(len(bowls.centre))

    def g(self, i, theta):
        return -self.curvature[i] @ (theta - self.centre[i])

    def mean(self, theta):
        return np.mean([self.g(i, theta) for i in self.all], axis=0)

    def optimum(self):
        """Where the mean gradient is zero."""
        return np.linalg.solve(self.curvature.sum(0), np.einsum("nij,nj->i", self.curvature, self.centre))


def walk(theta, direction, steps=STEPS, eta=ETA):
    """K local steps along direction(local params, k): where they end, and the directions."""
    local, taken = theta, []
    for k in range(steps):
        taken.append(direction(local, k))
        local = local + eta * taken[-1]
    return local, taken


def served(theta, ends):
    """theta + lambda / (eta K) mean Delta."""
    return theta + RATE * np.mean([end - theta for end in ends], axis=0) / (ETA * STEPS)


def fedprox(b, theta, mu):
    for _ in range(ROUNDS):
        start = theta
        theta = served(theta, [walk(theta, lambda th, k, i=i, start=start: b.g(i, th) - mu * (th - start))[0] for i in b.all])
    return theta


def scaffold(b, theta, variate):
    own, common = dict.fromkeys(b.all, 0 * theta), 0 * theta
    for _ in range(ROUNDS):
        ends = {}
        for i in b.all:
            correction = common - own[i]
            ends[i], _ = walk(theta, lambda th, k, i=i, c=correction: b.g(i, th) + c)
        own = {i: own[i] - common + (ends[i] - theta) / (ETA * STEPS) if variate == "path" else b.g(i, theta) for i in b.all}
        theta, common = served(theta, ends.values()), np.mean(list(own.values()), axis=0)
    return theta


def fast_fedpg(b, theta):
    for _ in range(ROUNDS):
        start, common = theta, b.mean(theta)
        theta = served(theta, [walk(theta, lambda th, k, i=i, s=start, c=common: b.g(i, th) + c - b.g(i, s))[0] for i in b.all])
    return theta


def mfpo(b, theta, nu_of, shrink_of):
    """nu_of(t) before step t = 0, 1, ... and shrink_of(t) = eta_t / eta, the same for all agents."""
    previous, common = dict.fromkeys(b.all, theta), 0 * theta
    for r in range(ROUNDS):
        ends, last = [], []
        for i in b.all:
            local, at, u = theta, previous[i], common
            for k in range(STEPS):
                t = r * STEPS + k
                u = b.g(i, local) + (1 - nu_of(t)) * (u - b.g(i, at))
                local, at = local + ETA * shrink_of(t) * u, local
            previous[i] = at
            ends.append(local)
            last.append(u)
        theta, common = served(theta, ends), np.mean(last, axis=0)
    return theta


def fedavg_m(b, theta):
    u = None
    for _ in range(ROUNDS):
        own = 1.0 if u is None else BETA
        common = 0 * theta if u is None else u
        ends = [walk(theta, lambda th, k, i=i, own=own, c=common: own * b.g(i, th) + (1 - own) * c)[0] for i in b.all]
        u = np.mean([end - theta for end in ends], axis=0) / (ETA * STEPS)
        theta = theta + RATE * u
    return theta


def nharpg(b, theta, step, decaying):
    previous, common = theta, b.mean(theta)
    for r in range(ROUNDS):
        pace, own = (2 / (r + 2), 2 / (r + 2)) if decaying else (1.0, BETA)
        found = []
        for i in b.all:
            local = theta
            for _ in range(STEPS):
                d = own * b.g(i, local) + (1 - own) * (common + b.g(i, local) - b.g(i, previous))
                found.append(d)
                local = local + ETA * pace * (d / np.linalg.norm(d) if step == "normalised" else d)
        common = np.mean(found, axis=0)
        previous, theta = theta, theta + RATE * pace * (common / np.linalg.norm(common) if step == "normalised" else common)
    return theta
