"""Algorithms: one file each, agent half and server half together."""

import functools
from collections.abc import Callable
from typing import Any

from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.calm import calm
from fedpg.algorithms.calm_vr import calm_vr
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
from fedpg.errors import choose, require
from fedpg.own import call, load
from fedpg.problem import Problem

Factory = Callable[..., Algorithm]
"""(problem, **settings) -> algorithm."""

FACTORIES: tuple[Factory, ...] = (
    calm, calm_vr, fedsvrpg_m, fedhapg_m, pavg, pavg_softmax, pavg_npg, pavg_projected, heavy_ball, scaffold, fedprox, fast_fedpg,
    mfpo, fedavg_m, nharpg, fedpg_br, fedkl, fednpg, fapi, local_only, pooled,
)  # fmt: skip
ALGORITHMS = {function.__name__.replace("_", "-"): function for function in FACTORIES}
"""Every algorithm by the name that `--algorithm` takes."""


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
