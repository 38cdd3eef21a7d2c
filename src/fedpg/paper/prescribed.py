"""Step-sizes by theory: what the theorem on FedSVRPG-M prescribes for R rounds, with a problem's own constants, and PAvg's own best."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedpg.paper.grounds import Known

BOLD = 12.0
"""Of the bold steps: the proof's 1/24 and 1/sqrt(162) become 1/2 and 0.94. Where the error of u would be least if its recursion
were exact, and, by a search with N K = 2 and 32 on a quadratic (not one used here), where the fewest samples are needed."""


class Steps(NamedTuple):
    """P settings, each meant for its own number of rounds; every array is (P,).

    Attributes:
        rounds: R.
        beta, global_lr, local_lr: beta, lambda, eta.
        batches: B, behind u_0; 0 without.
        capped: whether the smoothness of J and not the noise decides lambda: outside the regime of the linear speed-up.
    """

    rounds: np.ndarray
    beta: np.ndarray
    global_lr: np.ndarray
    local_lr: np.ndarray
    batches: np.ndarray
    capped: np.ndarray


def joined(*parts: Steps) -> Steps:
    """All their settings, one after the other."""
    return Steps(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def eta(
    known: Known, agents: int, local_steps: int, rounds: np.ndarray, beta: np.ndarray, global_lr: np.ndarray, stated: bool = False
) -> np.ndarray:
    """The largest eta, numeric constants taken as 1, that obeys the theorem's three conditions and, unless `stated`, a fourth.

    The fourth, eta K S <= beta / (1 - beta + lambda beta L R), is used by the proof but left out of the statement (erratum
    `first-steps-condition`). It binds whenever beta is small.
    """
    limits = [
        np.sqrt(known.gap / (known.start * global_lr * rounds)),
        np.sqrt(beta / agents),
        (beta / (agents * local_steps)) ** 0.25,
    ]
    if not stated:
        limits.append(beta / (1.0 - beta + global_lr * beta * known.smoothness * rounds))
    return np.min(limits, axis=0) / (local_steps * known.spread)


def theorem(known: Known, agents: int, local_steps: int, rounds: np.ndarray, boldness: float = 1.0, stated: bool = False) -> Steps:
    """The theorem's beta, lambda, eta and B for R = `rounds`, with known constants instead of worst-case ones.

    lambda is `boldness` times min(1/(24 L), sqrt(beta N K / 162)/S). The theorem writes Lbar for L too; its proof needs no more.
    """
    samples = agents * local_steps
    beta = np.minimum(1.0, (samples * (known.spread * known.gap / rounds) ** 2 / known.sigma**4) ** (1 / 3))
    noisy, cap = boldness * np.sqrt(beta * samples / 162.0) / known.spread, boldness / (24.0 * known.smoothness)
    global_lr = np.minimum(cap, noisy)
    local_lr = eta(known, agents, local_steps, rounds, beta, global_lr, stated)
    return Steps(rounds, beta, global_lr, local_lr, np.ceil(local_steps / (rounds * beta**2)), noisy > cap)


def plain(known: Known, agents: int, local_steps: int, rounds: np.ndarray) -> Steps:
    """PAvg (beta = 1): the lambda that minimises Delta/(lambda R) + L lambda sigma^2/(2 N K), at most 1/(2 L); eta as for momentum."""
    balanced = np.sqrt(2.0 * known.gap * agents * local_steps / (known.smoothness * rounds)) / known.sigma
    cap, one = 0.5 / known.smoothness, np.ones(len(rounds))
    local_lr = theorem(known, agents, local_steps, rounds).local_lr
    return Steps(rounds, one, np.minimum(balanced, cap), local_lr, 0.0 * one, balanced > cap)


def around(known: Known, agents: int, local_steps: int, rounds: int) -> Steps:
    """Step-sizes all around the bold ones, for a search that knows nothing of the theorem's powers.

    beta 1/4 to 64 times and lambda 1/2 to 16 times what they are for `rounds` rounds, in factors of 2. B is what the theorem
    takes beside such a beta.
    """
    last = theorem(known, agents, local_steps, np.array([rounds]), BOLD)
    beta, global_lr = (x.ravel() for x in np.meshgrid(last.beta * 2.0 ** np.arange(-2, 7), last.global_lr * 2.0 ** np.arange(-1, 5)))
    beta, every = np.minimum(beta, 1.0), np.full(len(beta), rounds)
    batches = np.ceil(local_steps * known.sigma**2 / (known.spread * known.gap * np.sqrt(agents * local_steps * beta)))
    return Steps(every, beta, global_lr, eta(known, agents, local_steps, every, beta, global_lr), batches, every < 0)


def around_plain(known: Known, agents: int, local_steps: int, rounds: int) -> Steps:
    """PAvg with lambda 1/4 to 32 times what it is for `rounds` rounds, in factors of 2."""
    last = plain(known, agents, local_steps, np.full(8, rounds))
    return last._replace(global_lr=last.global_lr * 2.0 ** np.arange(-2, 6))


VARIANTS: dict[str, Callable[[Known, int, int, np.ndarray], Steps]] = {
    "FedSVRPG-M": theorem,
    "FedSVRPG-M, bold": functools.partial(theorem, boldness=BOLD),
    "FedSVRPG-M, eta as stated": functools.partial(theorem, stated=True),
    "PAvg": plain,
}
"""What is compared, all in one program: PAvg is FedSVRPG-M with beta = 1."""
