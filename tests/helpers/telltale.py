"""For `--env helpers.telltale:make`: an environment that remembers every number it has shown or been shown, to look for them elsewhere."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from fedpg.envs import Box
from fedpg.flower.protocol import Answer, Refused, Task, unpack

SECRETS: list[float] = []
"""Every observation, action and reward since `forget`."""
MISHAP: list[str] = []
"""What the next steps do: raise, huge (a reward that is no float32) or nothing."""


def forget() -> None:
    SECRETS.clear()
    MISHAP.clear()


class Telltale:
    """Two coordinates between 2 and 4, drawn anew each step; pays between 5 and 9, more if the action is near the first of them.

    None of its numbers is one that a message could hold by chance: all have random digits.
    """

    observation_space = Box((2,))
    action_space = Box((1,))

    def reset(self, *, seed: int) -> tuple:
        self.rng = np.random.default_rng(seed)
        return self._look(), {}

    def _look(self) -> np.ndarray:
        self.place = self.rng.uniform(2.0, 4.0, 2)
        SECRETS.extend(self.place.tolist())
        return self.place

    def step(self, action: np.ndarray) -> tuple:
        reward = self.rng.uniform(5.0, 8.0) + float(np.exp(-((action[0] - self.place[0]) ** 2)))
        SECRETS.extend([float(action[0]), reward])
        if "raise" in MISHAP:
            raise ValueError(f"{self.place} {action} {reward}")
        observation = self._look()
        if "strange" in MISHAP:
            raise RuntimeError({"place": self.place.tolist()})
        return observation, reward * (1e300 if "huge" in MISHAP else 1.0), False, False, {}


def make() -> Telltale:
    return Telltale()


def leaks(data: bytes | str) -> list[str]:
    """Which of the secrets are in a payload: their bytes, anywhere; their values, in its arrays; their digits, in its header."""
    if isinstance(data, str):
        return [f"{secret} as text" for secret in SECRETS if _digits(secret, data)]
    try:
        header, arrays = unpack(data, Answer)
    except Refused:
        header, arrays = unpack(data, Task)
    found = [f"{secret} as {code}" for secret in SECRETS for code in ("<f", ">f", "<d", ">d") if struct.pack(code, secret) in data]
    text = repr(header)
    found += [f"{secret} in the header" for secret in SECRETS if _digits(secret, text)]
    rounded = np.array(SECRETS).astype(np.float16).astype(float)
    rounded = rounded[(rounded > 1.5) & (rounded % 1 != 0)]  # smaller ones, and counts, may be anywhere
    known = np.concatenate([rounded, np.array(SECRETS).astype(np.float32), SECRETS])
    for name, array in arrays.items():
        there = np.isin(array.astype(float), known).reshape(-1)
        found += [f"{value} in {name}" for value in array.reshape(-1)[there]]
    return found


def _digits(secret: Any, text: str) -> bool:
    return any(form in text for form in (f"{secret:.4f}", f"{secret:.6f}"[:-2], f"{np.float32(secret)}"))
