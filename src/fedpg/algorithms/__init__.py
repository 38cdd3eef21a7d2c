"""Algorithms: one file each, agent half and server half together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fedpg.algorithms.authors import authors_hapg, authors_svrpg
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.fapi import fapi
from fedpg.algorithms.fast_fedpg import fast_fedpg
from fedpg.algorithms.fedavg_m import fedavg_m
from fedpg.algorithms.fedhapg_m import fedhapg_m
from fedpg.algorithms.fedkl import fedkl
from fedpg.algorithms.fednpg import fednpg
from fedpg.algorithms.fedpg_br import fedpg_br
from fedpg.algorithms.fedprox import fedprox
from fedpg.algorithms.fedsvrpg_m import fedsvrpg_m
from fedpg.algorithms.heavy_ball import heavy_ball
from fedpg.algorithms.local_only import local_only
from fedpg.algorithms.mfpo import mfpo
from fedpg.algorithms.nharpg import nharpg
from fedpg.algorithms.pavg import pavg
from fedpg.algorithms.pavg_exact import pavg_npg, pavg_projected, pavg_softmax
from fedpg.algorithms.pooled import pooled
from fedpg.algorithms.scaffold import scaffold
from fedpg.algorithms.stabilised import fedhapg_s, fedsvrpg_s
from fedpg.errors import choose, require
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
__all__ += [function.__name__ for function in ALGORITHMS.values()]


def factory(name: str) -> Factory:
    """The function (problem, **settings) -> algorithm called `name`: one of `ALGORITHMS`, or a user's, as `file.py:function`."""
    if ":" not in name:
        return ALGORITHMS[choose("algorithm", name, ALGORITHMS)]
    function = load(name, "algorithm")

    @functools.wraps(function)
    def own(problem: Problem, **settings: Any) -> Algorithm:
        algorithm = call(name, function, problem, **settings)
        require(isinstance(algorithm, Algorithm), f"{name} must return a fedpg.Algorithm, not {type(algorithm).__name__}")
        return algorithm._replace(name=name)

    return own


def make(name: str, problem: Problem, **settings: Any) -> Algorithm:
    """The algorithm called `name`, see `factory`, with its settings."""
    return factory(name)(problem, **settings)
