"""Algorithms: one file each, agent half and server half together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedpg.algorithms.authors import authors_hapg, authors_svrpg
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.fapi import fapi
from fedpg.algorithms.fast_fedpg import fast_fedpg
from fedpg.algorithms.fedavg_m import fedavg_m
from fedpg.algorithms.fedhapg_m import fedhapg_m
from fedpg.algorithms.fedhapg_s import fedhapg_s
from fedpg.algorithms.fedkl import fedkl
from fedpg.algorithms.fednpg import fednpg
from fedpg.algorithms.fedpg_br import fedpg_br
from fedpg.algorithms.fedprox import fedprox
from fedpg.algorithms.fedsvrpg_m import fedsvrpg_m
from fedpg.algorithms.fedsvrpg_s import fedsvrpg_s
from fedpg.algorithms.heavy_ball import heavy_ball
from fedpg.algorithms.local_only import local_only
from fedpg.algorithms.mfpo import mfpo
from fedpg.algorithms.nharpg import nharpg
from fedpg.algorithms.pavg import pavg
from fedpg.algorithms.pavg_exact import pavg_npg, pavg_projected, pavg_softmax
from fedpg.algorithms.pooled import pooled
from fedpg.algorithms.scaffold import scaffold
from fedpg.errors import UserError, choose
from fedpg.own import call, load
from fedpg.problem import Problem

Factory = Callable[..., Algorithm]
"""(problem, **settings) -> algorithm."""

ALGORITHMS: dict[str, Factory] = {
    "fedsvrpg-m": fedsvrpg_m,
    "fedhapg-m": fedhapg_m,
    "fedsvrpg-s": fedsvrpg_s,
    "fedhapg-s": fedhapg_s,
    "pavg": pavg,
    "pavg-softmax": pavg_softmax,
    "pavg-npg": pavg_npg,
    "pavg-projected": pavg_projected,
    "heavy-ball": heavy_ball,
    "scaffold": scaffold,
    "fedprox": fedprox,
    "fast-fedpg": fast_fedpg,
    "mfpo": mfpo,
    "fedavg-m": fedavg_m,
    "nharpg": nharpg,
    "fedpg-br": fedpg_br,
    "fedkl": fedkl,
    "fednpg": fednpg,
    "fapi": fapi,
    "authors-svrpg": authors_svrpg,
    "authors-hapg": authors_hapg,
    "local-only": local_only,
    "pooled": pooled,
}

__all__ = ["ALGORITHMS", "Algorithm", "Factory", "LocalInfo", "RoundInfo", "ServerState", "factory", "make"]
__all__ += [function.__name__ for function in ALGORITHMS.values()]  # noqa: PLE0604
