"""An environment for `--env helpers.failing_env:make`: it works until its file of orders says otherwise."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from fedpg.envs import Box

SLOW = 0.1
"""Seconds of a step that is slow."""


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
        mishap = self._told()
        if mishap == "raise":
            raise RuntimeError("boom")
        if mishap == "shape":
            observation = np.zeros(3)
        if mishap == "nan":
            reward = float("nan")
        if mishap == "slow":
            time.sleep(SLOW)
        if mishap == "hang":
            hanging(self.orders, self.name).touch()
            while self._told() == "hang":
                time.sleep(0.05)
        return observation, reward, False, False, {}

    def _told(self) -> str | None:
        told = dict(line.split(":") for line in self.orders.read_text().split()) if self.orders.exists() else {}
        return told.get(self.name)


def hanging(orders: Path, name: str) -> Path:
    """The file that is there when the environment of that name has hung."""
    return orders.with_name(f"{name}.hung")


def make(name: str, orders: str) -> Walk:
    return Walk(name, orders)
