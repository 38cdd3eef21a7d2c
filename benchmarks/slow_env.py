"""An environment that takes its time, for `slow_agents.py`: five signs, and one right answer to each."""

from __future__ import annotations

import time

import numpy as np

from fedpg.envs import Discrete

SIGNS, ANSWERS = 5, 3


class Signs:
    """The reward is 1 for the right answer to a random sign; `seconds` is what a step takes."""

    observation_space, action_space = Discrete(SIGNS), Discrete(ANSWERS)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def reset(self, *, seed: int) -> tuple:
        self._rng = np.random.default_rng(seed)
        self._sign = int(self._rng.integers(SIGNS))
        return self._sign, {}

    def step(self, action: int) -> tuple:
        time.sleep(self._seconds)
        reward = float(action == self._sign % ANSWERS)
        self._sign = int(self._rng.integers(SIGNS))
        return self._sign, reward, False, False, {}


def make(seconds: float) -> Signs:
    return Signs(seconds)
