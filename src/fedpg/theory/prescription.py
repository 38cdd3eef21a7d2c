"""The beta, step-sizes and B of the complete theorems, with every condition on eta that the proofs use."""

import math
from dataclasses import dataclass

from fedpg.errors import choose
from fedpg.theory import constants as k
from fedpg.theory.constants import Constants, complete

COMMON_ERRATA = ("discount-name", "first-steps-condition", "drift-conditions", "off-policy-variance")
ERRATA = {"fedsvrpg-m": COMMON_ERRATA, "fedhapg-m": (*COMMON_ERRATA, "L4-reward")}
"""The errors of the paper whose correction changes the numbers of an algorithm; docs/explanation/theory.md describes all."""


@dataclass(frozen=True)
class Prescription:
    """What a theorem prescribes and promises."""

    algorithm: str
    """fedsvrpg-m or fedhapg-m."""
    constants: Constants
    """The constants it was computed from, complete."""
    smoothness: float
    """S: Lbar for FedSVRPG-M, Lhat for FedHAPG-M."""
    beta: float
    """min(1, (N K S^2 delta^2 / (sigma^4 R^2))^(1/3))."""
    global_lr: float
    """lambda = min(1/24, sqrt(beta N K / a)) / S, with a = 162 (FedSVRPG-M) or 72 (FedHAPG-M)."""
    B: int
    """Trajectories per agent behind u_0: ceil(K / (R beta^2))."""
    conditions: dict[str, float]
    """Every upper limit on eta, by a short and stable name."""
    bound_noise: float
    """(S delta sigma / (N K R))^(2/3), the leading term of the bound: what noise costs."""
    bound_start: float
    """S delta / R, the other term: what the distance to the optimum costs."""

    @property
    def binding(self) -> str:
        """The condition that decides eta."""
        return min(self.conditions, key=self.conditions.__getitem__)

    @property
    def local_lr(self) -> float:
        """eta: the largest step-size that satisfies every condition."""
        return self.conditions[self.binding]

    @property
    def bound(self) -> float:
        """On the mean over rounds of E |grad J(theta_r)|^2, up to the theorem's numeric constant."""
        return self.bound_noise + self.bound_start


def initial_batches(local_steps: int, rounds: int, beta: float) -> int:
    """B = ceil(K / (R beta^2)): trajectories per agent behind u_0.

    >>> initial_batches(32, 6, 0.1)
    534
    """
    return math.ceil(local_steps / (rounds * beta * beta))


def prescribe(constants: Constants, algorithm: str = "fedsvrpg-m") -> Prescription:
    """The prescription of the theorem about `algorithm`; the numeric constant hidden in its "<~" is taken as 1.

    >>> prescribe(Constants(rounds=1), "fedsvrpg-m").beta
    1.0
    """
    choose("algorithm", algorithm, ERRATA)
    c = complete(constants)
    first_order = algorithm == "fedsvrpg-m"
    smoothness = k.Lbar(c) if first_order else k.Lhat(c)
    samples = c.agents * c.local_steps
    # Divided in this order, and multiplied instead of raised, so that no float overflows.
    signal = smoothness * c.delta / c.rounds / c.sigma / c.sigma
    beta = min(1.0, (samples * signal * signal) ** (1.0 / 3.0))
    global_lr = min(1.0 / 24.0, math.sqrt(beta * samples / (162.0 if first_order else 72.0))) / smoothness
    return Prescription(
        algorithm=algorithm,
        constants=c,
        smoothness=smoothness,
        beta=beta,
        global_lr=global_lr,
        B=initial_batches(c.local_steps, c.rounds, beta),
        conditions=_conditions(c, first_order, smoothness, beta, global_lr),
        bound_noise=(smoothness * c.delta * c.sigma / (samples * c.rounds)) ** (2.0 / 3.0),
        bound_start=smoothness * c.delta / c.rounds,
    )


def _conditions(c: Constants, first_order: bool, smoothness: float, beta: float, global_lr: float) -> dict[str, float]:
    """The theorem's three conditions, then those of the lemmas its proof calls, which its statement leaves out."""
    ks = c.local_steps * smoothness
    # Bounds the sum of the agents' expected first steps, M_r. Its growth constant is L1, or Lhat for FedHAPG-M.
    growth = k.L1(c) if first_order else smoothness
    bracket = 289.0 / 72.0 * (1.0 - beta) ** 2 + 8.0 * math.e * (global_lr * beta * k.L(c) * c.rounds) ** 2
    # Bounds the drift from theta_r. FedHAPG-M's lemma has L4 where FedSVRPG-M's has L3.
    spread = k.L3(c) if first_order else k.L4(c)
    return {
        "theorem-start": math.sqrt(c.delta / (c.g0 * global_lr * c.rounds)) / ks,
        "theorem-agents": math.sqrt(beta / c.agents) / ks,
        "theorem-samples": (beta / (c.agents * c.local_steps)) ** 0.25 / ks,
        "lemma-first-steps": beta / (c.local_steps * growth * math.sqrt(288.0 * math.e * bracket)),
        "lemma-drift-noise": k.L(c) / (32.0 * math.e**2 * spread**2 * c.local_steps),
        "lemma-drift-smoothness": 1.0 / (c.local_steps * k.L(c)),
    }
