"""Environments with Gymnasium's interface that follow a script: they end, fail in every possible way, and record everything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedpg.envs.python_host import PythonHost
from fedpg.envs.spaces import stack, view

FAILURES: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "nan reward": (lambda o: (o, float("nan"), False, False, {}), "reward is nan"),
    "infinite reward": (lambda o: (o, -np.inf, False, False, {}), "reward is -inf"),
    "huge reward": (lambda o: (o, 1e300, False, False, {}), "reward is inf"),
    "no reward": (lambda o: (o, "much", False, False, {}), "reward is a str, not a number"),
    "three rewards": (lambda o: (o, np.zeros(3), False, False, {}), "reward is a ndarray, not a number"),
    "nan observation": (lambda o: (o * np.nan, 1.0, False, False, {}), "observation holds nan"),
    "huge observation": (lambda o: (o + 1e300, 1.0, False, False, {}), "observation holds 1e+300"),
    "wrong shape": (lambda o: (np.zeros(3), 1.0, False, False, {}), "observation has shape (3,), not (2,)"),
    "no numbers": (lambda o: ({"x": o}, 1.0, False, False, {}), "observation is a dict, not an array of numbers"),
    "old interface": (
        lambda o: (o, 1.0, False, {}),
        "step returned 4 values, not (observation, reward, terminated, truncated, info)",
    ),
    "nothing": (lambda o: None, "step returned a NoneType, not (observation, reward, terminated, truncated, info)"),
}
"""What a step returns that it should not, given the right observation, and what is said about it."""


class Scripted:
    """Observes (seed, steps taken), pays 10 per action plus the steps taken, and ends after `end` steps.

    Args:
        end: when it ends, and `truncates` says how.
        fail: a key of `FAILURES`, "raise", "interrupt", "raise in reset" or "shape in reset".
        at: the step (1, 2, ...) at which it fails.
        when: of a seed, whether it fails at all in that episode.
    """

    observation_space = SimpleNamespace(shape=(2,), low=-np.inf, high=np.inf)
    action_space = SimpleNamespace(n=3)

    def __init__(
        self, end: int = 5, truncates: bool = False, fail: str = "", at: int = 2, when: Callable[[int], bool] = lambda seed: True
    ) -> None:
        self.end, self.truncates, self.fail, self.at, self.when = end, truncates, fail, at, when
        self.seeds: list[int] = []
        self.actions: list[Any] = []
        self.closed = False
        self.now = 0

    def observe(self) -> np.ndarray:
        return np.array([self.seeds[-1], self.now], float)

    def reset(self, *, seed: int) -> tuple:
        self.seeds.append(seed)
        self.now = 0
        if self.when(seed) and self.fail == "raise in reset":
            raise OSError("no such\ndevice")
        return (np.zeros(3), {}) if self.when(seed) and self.fail == "shape in reset" else (self.observe(), {})

    def step(self, action: Any) -> Any:
        self.now += 1
        self.actions.append(action)
        assert self.now <= self.end, "stepped after its end"
        if self.fail and self.now == self.at and self.when(self.seeds[-1]):
            if self.fail == "interrupt":
                raise KeyboardInterrupt
            if self.fail == "raise":
                raise ValueError("boom")
            if self.fail in FAILURES:
                return FAILURES[self.fail][0](self.observe())
        over = self.now == self.end
        return self.observe(), 10.0 * action + self.now, over and not self.truncates, over and self.truncates, {}

    def close(self) -> None:
        self.closed = True
        raise RuntimeError("cannot even be closed")


class Recorder:
    """A host of `Scripted` environments, one dictionary of arguments per agent, that remembers every one it makes."""

    def __init__(self, *agents: dict[str, Any], environment: type = Scripted) -> None:
        self.made: list[list[Any]] = [[] for _ in agents]

        def make(agent: int, kwargs: dict[str, Any]) -> Any:
            self.made[agent].append(environment(**kwargs))
            return self.made[agent][-1]

        makers = [functools.partial(make, i, kwargs) for i, kwargs in enumerate(agents)]
        first = [maker() for maker in makers]
        views = [stack([view(getattr(e, f"{kind}_space"), kind, "scripted") for e in first]) for kind in ("observation", "action")]
        self.host = PythonHost(makers, *views, made=first)

    def seeds(self, agent: int) -> list[int]:
        """Every seed that this agent's environments were reset with, in order."""
        return sorted(seed for environment in self.made[agent] for seed in environment.seeds)


def lanes(*index: int, seeds: list[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What `Host.reset` takes; the seeds are 100, 101, ... unless given."""
    bits = seeds if seeds is not None else range(100, 100 + len(index))
    return np.array(index, np.int32), np.array(bits, np.uint32)[:, None]
