"""What `table-1` measures: every system, its settings, and what the paper's Table 1 says about it."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from fedpg.algorithms import ALGORITHMS, Algorithm
from fedpg.problem import Problem

BETA = 0.2
PATH = 0.4
"""eta K of a local path where floors are measured, in gradients: the same for every K."""
SERVER = 5.0
"""lambda there. Where a system settles does not depend on it; how soon, does."""


class Claim(NamedTuple):
    """A row of the paper's Table 1, with its words.

    Attributes:
        convergence: its column CONVERGENCE.
        exponent: p of "N^p times faster"; 0 for "No speedup".
        local_updates: its column LU.
        heterogeneity: its column HETER.
    """

    convergence: str
    exponent: float
    local_updates: bool
    heterogeneity: bool

    @property
    def exact(self) -> bool | None:
        """Whether it says that |grad J|^2 comes down to 0; None where it does not say."""
        return None if self.convergence == "asymptotic" else "inexact" not in self.convergence


SOURCE = "Wang et al., Momentum for the Win, ICML 2024, Table 1"
OURS = Claim("finite and exact", 1.0, True, True)


class System(NamedTuple):
    """One line of the table.

    Attributes:
        label: for people.
        algorithm: as `--algorithm` calls it.
        options: what its factory is given besides the step-sizes.
        steps: step-sizes for the floor, by K; those of a plain gradient unless it says otherwise.
        factor: what the step-sizes of the speed-up are multiplied with, where they do not multiply a plain gradient.
        exact: draws nothing, so that there is no noise for many agents to average.
        policy: the table that it learns.
        claim: what the paper says; None where it says nothing.
    """

    label: str
    algorithm: str
    options: dict[str, Any] = {}  # noqa: RUF012
    steps: dict[str, float] = {}  # noqa: RUF012
    factor: float = 1.0
    exact: bool = False
    policy: str = "softmax"
    claim: Claim | None = None


MOMENTUM = {"beta": BETA}
EPOCHS = 10
SYSTEMS = (
    System("PAvg", "pavg", claim=Claim("finite but inexact", 0.0, True, True)),
    # eta is that of an epoch: of ten on every batch
    System("FedKL", "fedkl", {"epochs": EPOCHS}, {"path": PATH / EPOCHS, "server": SERVER / EPOCHS}, 1.0 / EPOCHS,
           claim=Claim("asymptotic", 0.0, False, True)),
    # its eta is the server's, which makes K steps
    System("FedPG-BR", "fedpg-br", {}, {"path": SERVER}, claim=Claim("finite and exact", 2.0 / 3.0, False, False)),
    System("FAPI", "fapi", {"temperature": 20.0}, exact=True, claim=Claim("asymptotic and inexact", 0.0, False, True)),
    System("FedSVRPG-M", "fedsvrpg-m", MOMENTUM, claim=OURS),
    System("FedHAPG-M", "fedhapg-m", MOMENTUM, claim=OURS),
    System("FedSVRPG-S", "fedsvrpg-s", MOMENTUM),
    System("FedHAPG-S", "fedhapg-s", MOMENTUM),
    System("FedPG-BR, no filter", "fedpg-br", {"filtered": False}, {"path": SERVER}),
    System("SCAFFOLD", "scaffold"),
    System("FedProx", "fedprox", {"mu": 1.0}),
    System("Fast-FedPG", "fast-fedpg"),
    System("MFPO", "mfpo", MOMENTUM),
    System("FedAvg-M", "fedavg-m", MOMENTUM),
    System("HARPG", "nharpg", MOMENTUM | {"step": "plain"}),
    System("PAvg, natural", "pavg-npg", {}, {"path": PATH / 10.0, "server": SERVER / 10.0}, exact=True),
    System("PAvg, projected", "pavg-projected", {}, {"path": PATH / 10.0, "server": PATH}, exact=True, policy="direct"),
    System("FedNPG", "fednpg", {}, {"path": 0.1}, exact=True),
)  # fmt: skip
"""PAvg with exact gradients on logits (pavg-softmax) is PAvg itself wherever gradients are exact, and has no line of its own."""
BY_LABEL = {system.label: system for system in SYSTEMS if system.algorithm in ALGORITHMS}


def make(system: System, problem: Problem, **settings: Any) -> Algorithm:
    """The system's algorithm with those of the settings that it knows."""
    factory = ALGORITHMS[system.algorithm]
    known = inspect.signature(factory).parameters
    return factory(problem, **{name: value for name, value in (settings | system.options).items() if name in known})


def floor_steps(system: System, local_steps: int) -> dict[str, float]:
    """Its step-sizes where floors are measured. FedNPG has no local steps: its `path` is a step."""
    steps = {"path": PATH, "server": SERVER} | system.steps
    parts = local_steps if "local_steps" in inspect.signature(ALGORITHMS[system.algorithm]).parameters else 1
    return {"local_lr": steps["path"] / parts, "global_lr": steps["server"]}
