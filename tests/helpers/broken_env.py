"""Environments for `--env broken_env.py:NAME` that fail in one way each."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from fedpg.envs import Box


class Line:
    """A coordinate that works."""

    observation_space = Box((1,))
    action_space = Box((1,), -1.0, 1.0)

    def reset(self, *, seed: int) -> tuple:
        return np.zeros(1), {}

    def step(self, action: np.ndarray) -> tuple:
        return np.zeros(1), 0.0, False, False, {}


class WrongShapes(Line):
    def step(self, action: np.ndarray) -> tuple:
        return np.zeros(3), 0.0, False, False, {}


class NaNRewards(Line):
    def step(self, action: np.ndarray) -> tuple:
        return np.zeros(1), float("nan"), False, False, {}


class RaisesInReset(Line):
    def reset(self, *, seed: int) -> tuple:
        raise RuntimeError("no power")


class RaisesInStep(Line):
    def step(self, action: np.ndarray) -> tuple:
        raise RuntimeError("no grip")


class NeverEnds(Line):
    def step(self, action: np.ndarray) -> tuple:
        time.sleep(3600)
        return super().step(action)


class PrintsMuch(Line):
    def step(self, action: np.ndarray) -> tuple:
        for stream in (sys.stdout, sys.stderr):
            print("noise " * 10_000, file=stream)
        return super().step(action)


class Forks(Line):
    def reset(self, *, seed: int) -> tuple:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return super().reset(seed=seed)


def a_text() -> str:
    return "no environment"
