"""Errors in the paper's theory, and which of them change a number that `prescribe` returns."""

from typing import NamedTuple

BOTH = ("fedsvrpg-m", "fedhapg-m")


class Erratum(NamedTuple):
    """One error of the paper.

    Attributes:
        name: short and stable.
        where: place in the paper.
        printed: what it says.
        corrected: what it should say.
        effect: "applied" if `prescribe` differs from the printed theory because of it, else "none".
        algorithms: those whose numbers it changes.
    """

    name: str
    where: str
    printed: str
    corrected: str
    effect: str = "none"
    algorithms: tuple[str, ...] = ()


def applied(algorithm: str) -> tuple[str, ...]:
    """Names of the errata that change the numbers of `algorithm`."""
    return tuple(erratum.name for erratum in ERRATA if algorithm in erratum.algorithms)


# One entry per two or three lines reads better than one argument per line.
# fmt: off
ERRATA: tuple[Erratum, ...] = (
    Erratum("discount-name", "Props. 1 and 2",
            "1 - lambda", "1 - gamma: the discount, not the global step-size", "applied", BOTH),
    Erratum("first-steps-condition", "both theorems; lemma on M_r",
            "three conditions on eta", "a fourth, eta K L1 <~ beta / ((1-beta) + lambda beta L R), which the three do not imply",
            "applied", BOTH),
    Erratum("drift-conditions", "both theorems; drift lemma (found here)",
            "three conditions on eta", "also eta K <= min(L / (32 e^2 L3^2), 1/L), with L4 for FedHAPG-M; L/L3 is not a numeric constant",
            "applied", BOTH),
    Erratum("off-policy-variance", "T_2, middle term; H_3, first term",
            "Var(w g) <= sigma^2", "Assumption 2 covers only g on-policy; O((W+1) C_g^2) holds, so sigma must cover w g (the default does)",
            "applied", BOTH),
    Erratum("L4-reward", "Prop. 2",
            "M^2 R^2", "M^2 R_max^2: R is the number of rounds", "applied", ("fedhapg-m",)),
    Erratum("L4-sum", "Prop. 2 (found here)",
            "H^2 G^4 + M^2", "(H G^2 + M)^2: the norm of a sum; L4, printed here as in the paper, is low by at most sqrt(2)"),
    Erratum("step-b", "both theorems' proofs, step (b)",
            "L Delta / sqrt(beta N K)", "L Delta / (R sqrt(beta N K)); the final rate is right"),
    Erratum("bias-lambda", "gradient-bias lemma, FedSVRPG-M",
            "18 lambda^2 L2^2 / (N K) <= 8 beta/9, so lambda <= sqrt(16 beta N K) / L2",
            "<= beta/9, so lambda <= sqrt(beta N K / 162) / L2; the theorem has it right"),
    Erratum("bias-contraction", "gradient-bias lemma, FedHAPG-M",
            "1 - 8 beta/beta", "1 - 8 beta/9; at r = 0, (1 - beta) Sigma_{-1}"),
    Erratum("T22-centring", "T_22",
            "factor 1/(N K)^2 for terms with a mean", "centre each summand first, then E|X - EX|^2 <= E|X|^2"),
    Erratum("requirement-beta", "both proofs, list of requirements",
            "8 L1^2 (eta K)^2 (...) <= beta^2 / (N K)", "<= beta / (N K); the theorem has it right"),
    Erratum("start-error", "both proofs, after the decay lemma",
            "-(1/(35 beta)) Sigma_{-1}", "-(39/(56 beta)) Sigma_{-1}"),
    Erratum("sum-constant", "both proofs, sum over rounds",
            "2 L^2 sum |theta_r - theta_{r-1}|^2", "2 L3^2 (FedHAPG-M: 2 L4^2); Lbar and Lhat cover it"),
    Erratum("G0-unused", "both theorems",
            "G_0 defined, absent from the bound", "(eta K S)^2 G_0 belongs there; the first condition on eta absorbs it"),
    Erratum("c-sign", "drift lemmas, c_{r,k}", "-eta (...)", "+eta (...): this is ascent"),
    Erratum("mean-direction", "E[u_{r+1}], FedSVRPG-M", "grad J_i(theta_r)", "grad J_i(theta_{r-1})"),
    Erratum("server-step", "function-decay lemma, proof", "theta_{r+1} = theta_r + eta u_{r+1}", "theta_r + lambda u_{r+1}"),
    Erratum("drift-square", "notation, D_r", "E[|theta_rk - theta_r|]^2", "E |theta_rk - theta_r|^2"),
    Erratum("T3-argument", "T_3, first term", "w and g at theta_r", "at theta_{r-1}"),
    Erratum("missing-lemma", "drift lemmas", "by Lemma A.3", "no such lemma: mean plus martingale, E|x+y|^2 <= 2E|x|^2 + 2E|y|^2"),
    Erratum("phi-index", "Phi_i, FedHAPG-M", "sum over i, clashing with the agent; lambda^i; log pi(a_h, s_h)",
            "another index h'; gamma^h'; log pi(a_h|s_h)"),
    Erratum("H-gradients", "H_1, H_3", "grad J(theta_rk), grad J(theta_{r-1})", "grad J_i: each agent its own"),
    Erratum("cartpole-text", "experiments", "CartPole is a MuJoCo task", "it is Gym classic control"),
    Erratum("table-1-marks", "Table 1", "FedKL and FAPI have no local updates", "their published code has them"),
    Erratum("reward-range", "experiments", "rewards in [0, R_max]", "HalfCheetah has negative rewards"),
)
# fmt: on
