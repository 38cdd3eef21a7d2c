"""Methods: algorithms with their settings, as experiments compare them."""

import dataclasses
import inspect
from typing import Any

from fedpg import algorithms
from fedpg.algorithms import Algorithm
from fedpg.problem import Problem

BETA = 0.2
"""beta of every momentum method, unless an experiment varies it."""


@dataclasses.dataclass(frozen=True)
class Method:
    """An algorithm and everything that is set besides the step-sizes."""

    name: str
    """Identifies it in results."""
    algorithm: str
    """As `--algorithm` calls it."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the algorithm."""
    importance: str | None = None
    """Kind of importance weight; None for the task's."""
    baseline: str | None = None
    """Baseline; None for the task's."""
    policy: str = "auto"
    """Policy on finite MDPs."""
    factor: float = 1.0
    """Multiplies step-sizes, for methods whose step is not a multiple of a gradient."""
    temperature: bool = False
    """Whether 1/eta is given as the temperature, for a method without a step-size."""
    exact: bool = False
    """Whether it computes with whole environments and draws no trajectories."""

    def make(self, problem: Problem, **settings: Any) -> Algorithm:
        """The algorithm, given those of the settings that it has; settings may be traced and replace options."""
        given = self.options | settings
        for name in ("local_lr", "global_lr"):
            if given.get(name) is not None:
                given[name] = self.factor * given[name]
        if self.temperature:
            given["temperature"] = 1.0 / given["local_lr"]
        known = inspect.signature(algorithms.factory(self.algorithm)).parameters
        return algorithms.make(self.algorithm, problem, **{name: value for name, value in given.items() if name in known})

    def but(self, name: str, options: dict[str, Any] | None = None, **changes: Any) -> "Method":
        """A variant: a new name, further options, other fields."""
        return dataclasses.replace(self, name=name, options=self.options | (options or {}), **changes)


MOMENTUM = {"beta": BETA}
PAVG = Method("PAvg", "pavg")
FEDSVRPG_M = Method("FedSVRPG-M", "fedsvrpg-m", MOMENTUM)
FEDHAPG_M = Method("FedHAPG-M", "fedhapg-m", MOMENTUM)
CALM = Method("CALM", "calm")
CALM_VR = Method("CALM-VR", "calm-vr")
HEAVY_BALL = Method("heavy ball", "heavy-ball", MOMENTUM)
FEDPG_BR = Method("FedPG-BR", "fedpg-br")
N_HARPG = Method("N-HARPG", "nharpg", MOMENTUM)
METHODS = {
    method.name: method
    for method in (
        PAVG,
        Method("FedKL", "fedkl", {"epochs": 10}, factor=0.1),  # ten epochs on every batch
        FEDPG_BR,
        Method("FAPI", "fapi", exact=True, temperature=True),
        FEDSVRPG_M,
        FEDHAPG_M,
        CALM,
        CALM_VR,
        # Its filter takes honest agents that differ for attackers.
        FEDPG_BR.but("FedPG-BR, no filter", {"filtered": False}),
        Method("SCAFFOLD", "scaffold"),
        Method("FedProx", "fedprox", {"mu": 1.0}),
        Method("Fast-FedPG", "fast-fedpg"),
        Method("MFPO", "mfpo", MOMENTUM),
        Method("FedAvg-M", "fedavg-m", MOMENTUM),
        HEAVY_BALL,
        N_HARPG,
        # Steps of constant length settle nowhere.
        N_HARPG.but("HARPG", {"step": "plain"}),
        Method("local only", "local-only"),
        Method("pooled", "pooled"),
        Method("PAvg, exact", "pavg-softmax", exact=True),
        Method("PAvg, natural", "pavg-npg", factor=0.1, exact=True),
        Method("PAvg, projected", "pavg-projected", policy="direct", factor=0.1, exact=True),
        Method("FedNPG", "fednpg", factor=0.1, exact=True),
    )
}
"""Every algorithm of the library, by the name of its method."""
