"""An environment for `--env helpers.wide_env:make` whose observation is as wide as one likes."""

from __future__ import annotations

import numpy as np

from fedpg.envs import Box


class Wide:
    """Random observations; the reward is for small actions."""

    action_space = Box((1,), -1.0, 1.0)

    def __init__(self, width: int) -> None:
        self.observation_space = Box((width,))

    def reset(self, *, seed: int) -> tuple:
        self.rng = np.random.default_rng(seed)
        return self.rng.normal(size=self.observation_space.shape), {}

    def step(self, action: np.ndarray) -> tuple:
        return self.rng.normal(size=self.observation_space.shape), -float(action[0] ** 2), False, False, {}


def make(width: int) -> Wide:
    return Wide(width)
