"""What the theorems of "Momentum for the Win" (Wang et al., ICML 2024) assume, and the smoothness constants that follow.

Names are the paper's. The paper's appendix writes the discount as lambda; here lambda is only the global step-size.
"""

import math
from dataclasses import dataclass, replace

from fedpg.errors import require

# Between these ends no product or quotient below leaves the range of a float.
SMALLEST, LARGEST = 1e-12, 1e12


@dataclass(frozen=True)
class Constants:
    """The assumptions' constants and the size of the federation. `complete` checks them and fills in what is None.

    The defaults of G and M are those of a tabular softmax policy; the sizes are those of the paper's random MDPs.
    """

    G: float = math.sqrt(2.0)
    """Bound on the norm of grad log pi; sqrt(2) for a tabular softmax."""
    M: float = 0.5
    """Bound on the norm of the Hessian of log pi; 1/2 for a tabular softmax."""
    W: float = 1.0
    """Bound on the variance of the importance weight."""
    sigma: float | None = None
    """Bound on the standard deviation of g and of w g; None: sqrt(W+1) C_g, which always holds."""
    horizon: int = 50
    """H: steps of a trajectory."""
    discount: float = 0.9
    """gamma, in [0, 1)."""
    r_max: float = 1.0
    """Rewards lie in [0, r_max]."""
    agents: int = 20
    """N."""
    local_steps: int = 32
    """K: local steps a round."""
    rounds: int = 1000
    """R."""
    delta: float | None = None
    """J* - J(theta_0); None: the largest J there is, r_max (1 - gamma^H) / (1 - gamma)."""
    g0: float | None = None
    """Mean over agents of |grad J_i(theta_0)|^2; None: C_g^2, which always holds."""


def complete(c: Constants) -> Constants:
    """Returns `c` with every None replaced by the bound its field names; raises `UserError` on impossible values.

    >>> complete(Constants(horizon=2, discount=0.5, G=1.0)).delta
    1.5
    """
    for name in ("horizon", "agents", "local_steps", "rounds"):
        value = getattr(c, name)
        require(type(value) is int and 1 <= value <= LARGEST, f"{name} must be a whole number from 1 to {LARGEST:.0e}, not {value!r}")
    for name in ("G", "M", "r_max", "sigma", "delta", "g0"):
        value = getattr(c, name)
        within = value is None or SMALLEST <= value <= LARGEST
        require(within, f"{name} must be a number from {SMALLEST:.0e} to {LARGEST:.0e}, not {value!r}")
    require(0.0 <= c.W <= LARGEST, f"W must be a number from 0 to {LARGEST:.0e}, not {c.W!r}")
    require(0.0 <= c.discount < 1.0, f"discount must be in [0, 1), not {c.discount!r}")
    return replace(
        c,
        sigma=math.sqrt(c.W + 1.0) * C_g(c) if c.sigma is None else c.sigma,
        delta=c.r_max * (1.0 - c.discount**c.horizon) / (1.0 - c.discount) if c.delta is None else c.delta,
        g0=C_g(c) ** 2 if c.g0 is None else c.g0,
    )


def L(c: Constants) -> float:
    """Smoothness of J: H R_max (M + H G^2) / (1 - gamma)."""
    return c.horizon * c.r_max * (c.M + c.horizon * c.G**2) / (1.0 - c.discount)


def L_g(c: Constants) -> float:
    """Lipschitz constant of g: H M R_max / (1 - gamma)."""
    return c.horizon * c.M * c.r_max / (1.0 - c.discount)


def C_g(c: Constants) -> float:
    """Bound on |g|: H G R_max / (1 - gamma)."""
    return c.horizon * c.G * c.r_max / (1.0 - c.discount)


def C_w(c: Constants) -> float:
    """Var w(tau|theta_1, theta_2) over squared distance: H (2 H G^2 + M) (W + 1)."""
    return c.horizon * (2.0 * c.horizon * c.G**2 + c.M) * (c.W + 1.0)


def L1(c: Constants) -> float:
    """Growth of the error of u with the drift: sqrt(L^2 + 24 C_w C_g^2 + 6 L_g^2)."""
    return math.sqrt(L(c) ** 2 + 24.0 * C_w(c) * C_g(c) ** 2 + 6.0 * L_g(c) ** 2)


def L2(c: Constants) -> float:
    """Growth of the error of u with the server step: sqrt(L_g^2 + 2 C_w C_g^2)."""
    return math.sqrt(L_g(c) ** 2 + 2.0 * C_w(c) * C_g(c) ** 2)


def L3(c: Constants) -> float:
    """Lipschitz constant of w g, in mean square: sqrt(2 C_w C_g^2 + 2 L_g^2)."""
    return math.sqrt(2.0 * C_w(c) * C_g(c) ** 2 + 2.0 * L_g(c) ** 2)


def Lbar(c: Constants) -> float:
    """The constant of FedSVRPG-M: max(L, L1, L2, L3)."""
    return max(L(c), L1(c), L2(c), L3(c))


def L4(c: Constants) -> float:
    """Bound on the Hessian estimate, as printed: R_max sqrt(H^2 G^4 + M^2) / (1 - gamma)^2.

    A bound on the sum of two matrices would have H G^2 + M for the root, at most sqrt(2) larger (erratum `L4-sum`).
    """
    return c.r_max * math.hypot(c.horizon * c.G**2, c.M) / (1.0 - c.discount) ** 2


def Lhat(c: Constants) -> float:
    """The constant of FedHAPG-M: sqrt(2 L^2 + 4 L4^2)."""
    return math.sqrt(2.0 * L(c) ** 2 + 4.0 * L4(c) ** 2)
