"""An environment for `--env helpers.failing_env:make`: it works until its file of orders says otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpg.envs import Box


class Walk:
    """One coordinate pushed about; `orders` is a file: while it holds the agent's name and a mishap, that happens."""

    observation_space = Box((1,))
    action_space = Box((1,), -1.0, 1.0)

    def __init__(self, name: str, orders: str) -> None:
        self.name, self.orders = name, Path(orders)

    def reset(self, *, seed: int) -> tuple:
        self.place = np.random.default_rng(seed).uniform(-1.0, 1.0, 1)
        return self.place, {}

    def step(self, action: np.ndarray) -> tuple:
        self.place = 0.9 * self.place + 0.2 * action
        observation, reward = self.place, -float(self.place[0] ** 2)
        told = dict(line.split(":") for line in self.orders.read_text().split()) if self.orders.exists() else {}
        mishap = told.get(self.name)
        if mishap == "raise":
            raise RuntimeError("boom")
        if mishap == "shape":
            observation = np.zeros(3)
        if mishap == "nan":
            reward = float("nan")
        return observation, reward, False, False, {}


def make(name: str, orders: str) -> Walk:
    return Walk(name, orders)
